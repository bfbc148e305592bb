"""Calls in processes of their own: the fork server, what it forks, and how both die."""

import json
import os
import signal
from pathlib import Path

import pytest
from workers_bench import Bench, is_alive, until

from schedd.core import limits
from schedd.core.model import Outcome, StopReason

MODULE = """
import os, signal, subprocess, sys, threading, time

def add(left, right=0): return left + right
def where(): return [os.getcwd(), sys.path[0], __file__]
def names(*names): return {name: os.environ.get(name) for name in names}
def environment(): return dict(os.environ)
def descriptors(): return sorted(int(name) for name in os.listdir("/proc/self/fd"))
def ids(): return [os.getpid() == os.getsid(0) == os.getpgid(0), sys.stdin.read(), threading.active_count()]
def signals():
    numbers = (signal.SIGTERM, signal.SIGINT, signal.SIGCHLD, signal.SIGPIPE)
    return [str(signal.getsignal(number)) for number in numbers]
def mask(): return len(signal.pthread_sigmask(signal.SIG_BLOCK, ()))
def fail(): print("out"); raise ValueError("no good \\udc00 \\0")
def interrupt(): raise KeyboardInterrupt
def leave(code): sys.exit(code)
def crash(): os.kill(os.getpid(), signal.SIGSEGV)
def vanish(code): os._exit(code)
def thing(): return object()
def long(): return "x" * 100_000
def text(): return "\\udc00 é"
def recurse(): return recurse()
def sleep(): print("up", flush=True); time.sleep(60)
def deaf():
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    print("up", flush=True)
    while True: time.sleep(1)
def heed(cancel):
    print("up", flush=True)
    print("asked", cancel.wait(60), flush=True)
    return "done"
def leave_children():
    child = subprocess.Popen(["sleep", "60"])
    print(child.pid, flush=True)
def late(): threading.Thread(target=lambda: (time.sleep(0.05), print("late"))).start()
def at_exit(): __import__("atexit").register(print, "at exit")
not_a_function = 3
class Nested:
    @staticmethod
    def method(): return "nested"
"""


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A directory with a module of the task's own."""
    directory = tmp_path / "home"
    directory.mkdir()
    (directory / "user_tasks.py").write_text(MODULE)
    return directory


def payload(home: Path, function: str, *args: object, **more: object) -> dict[str, object]:
    return {"call": f"user_tasks:{function}", "args": list(args), "cwd": str(home), **more}


def test_result(bench: Bench, home: Path) -> None:
    """A call gets its arguments and its result is kept as JSON text."""
    ended = bench.run(**payload(home, "add", 2, kwargs={"right": 3}))
    assert (ended.outcome, ended.exit_code, ended.result) == (Outcome.SUCCEEDED, 0, "5")
    assert ended.max_rss is not None
    assert ended.cpu_time is not None
    assert bench.run(**payload(home, "Nested.method")).result == '"nested"'


def test_at_home(bench: Bench, home: Path) -> None:
    """It runs in its directory, which comes first on its path, before the PYTHONPATH of its env."""
    ended = bench.run(**payload(home, "where"))
    assert json.loads(ended.result or "") == [str(home), str(home), str(home / "user_tasks.py")]
    elsewhere = home.parent / "elsewhere"
    elsewhere.mkdir()
    ended = bench.run(call="user_tasks:where", cwd=str(elsewhere), env={"PYTHONPATH": str(home)})
    assert json.loads(ended.result or "")[:2] == [str(elsewhere), str(elsewhere)]


def test_new_code_is_seen(bench: Bench, home: Path) -> None:
    """The next attempt imports the module as it is then."""
    assert bench.run(**payload(home, "add", 1)).result == "1"
    (home / "user_tasks.py").write_text("def add(left): return 'new'")
    assert bench.run(**payload(home, "add", 1)).result == '"new"'


def test_surroundings(bench: Bench, home: Path) -> None:
    """It leads a session, reads nothing, has one thread, no descriptors but 0-2 and the one it answers by, and signals
    as any new Python process.
    """
    assert json.loads(bench.run(**payload(home, "ids")).result or "") == [True, "", 1]
    descriptors = json.loads(bench.run(**payload(home, "descriptors")).result or "")
    assert descriptors[:3] == [0, 1, 2]
    assert len(descriptors) == 5, "the answer's and the directory that is being read"
    signals = json.loads(bench.run(**payload(home, "signals")).result or "")
    assert signals[0] == "0"
    assert "default_int_handler" in signals[1]
    assert signals[2:] == ["0", "1"]
    assert bench.run(**payload(home, "mask")).result == "0"


def test_environment(bench: Bench, home: Path) -> None:
    """It has the clean environment of a command."""
    seen = json.loads(bench.run(**payload(home, "environment", env={"MINE": "1"})).result or "")
    assert seen["MINE"] == "1"
    assert seen["SCHEDD_RUN_KEY"] == "0123456789abcdef-1-1"
    assert "PYTHONPATH" not in seen
    assert "PYTEST_CURRENT_TEST" not in seen


def test_exception(bench: Bench, home: Path) -> None:
    """An exception is the attempt's error, fit for a row; what was printed and the traceback are in the log."""
    ended = bench.run(**payload(home, "fail"))
    assert (ended.outcome, ended.exit_code, ended.error) == (
        Outcome.FAILED,
        1,
        "ValueError: no good ? \N{REPLACEMENT CHARACTER}",
    )
    log = bench.log(1)
    assert log.startswith(b"out\nTraceback")
    assert b"in fail" in log
    assert b"child.py" not in log


@pytest.mark.parametrize(
    ("call", "outcome", "exit_code", "number", "error"),
    [
        (("interrupt",), Outcome.FAILED, 1, None, "KeyboardInterrupt"),
        (("leave", 0), Outcome.SUCCEEDED, 0, None, None),
        (("leave", None), Outcome.SUCCEEDED, 0, None, None),
        (("leave", 7), Outcome.FAILED, 7, None, "exited with code 7"),
        (("leave", "why"), Outcome.FAILED, 1, None, "SystemExit: why"),
        (("vanish", 9), Outcome.FAILED, 9, None, "exited with code 9"),
        (("crash",), Outcome.FAILED, None, signal.SIGSEGV, "killed by SIGSEGV"),
    ],
)
def test_other_ends(
    bench: Bench,
    home: Path,
    call: tuple[str, object],
    outcome: Outcome,
    exit_code: int | None,
    number: int | None,
    error: str | None,
) -> None:
    """Whatever way a process ends, its exit code or signal is told, as Python itself would have it."""
    ended = bench.run(**payload(home, *call))
    assert (ended.outcome, ended.exit_code, ended.signal) == (outcome, exit_code, number)
    assert (ended.error or "").removesuffix(" (core dumped)") == (error or "")
    assert bench.run(**payload(home, "add", 1)).result == "1", "the server lives on"


def test_recursion(bench: Bench, home: Path) -> None:
    """A function without a bottom fails by itself."""
    assert (bench.run(**payload(home, "recurse")).error or "").startswith("RecursionError")


def test_results_that_cannot_be_kept(bench: Bench, home: Path) -> None:
    """A result that is no JSON or too long is left out, and is no failure; a lone surrogate in one is replaced."""
    assert limits.MAX_RESULT_CHARS < 100_000
    for function in ("thing", "long"):
        ended = bench.run(**payload(home, function))
        assert (ended.outcome, ended.result) == (Outcome.SUCCEEDED, None)
    assert bench.run(**payload(home, "text")).result == '"? é"'


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"call": "no_such_module:f"}, "cannot import no_such_module: ModuleNotFoundError"),
        ({"call": "user_tasks:nothing"}, "user_tasks has no 'nothing'"),
        ({"call": "user_tasks:not_a_function"}, "user_tasks:not_a_function is not a function but int"),
        ({"call": "user_tasks"}, "package.module:function"),
        ({"call": "broken:f"}, "cannot import broken: SyntaxError"),
        ({"call": "leaves:f"}, "it called sys.exit(3)"),
        ({"cwd": "/no/such/dir"}, "cannot enter the directory '/no/such/dir': No such file or directory"),
        ({"cwd": "/a\0b"}, "null byte"),
        ({"env": {"A": "b\0c"}}, "cannot set its environment: embedded null byte"),
    ],
)
def test_cannot_start(bench: Bench, home: Path, changes: dict[str, object], words: str) -> None:
    """A function that cannot be found is a start that failed, with the reason, and counts."""
    (home / "broken.py").write_text("def f(:")
    (home / "leaves.py").write_text("import sys; sys.exit(3)")
    ended = bench.run(**{**payload(home, "add", 1), **changes})
    assert (ended.outcome, ended.counts) == (Outcome.START_FAILED, True)
    assert words in (ended.error or "")


def test_wrong_arguments_fail(bench: Bench, home: Path) -> None:
    """Arguments that a function does not take are its failure."""
    assert (bench.run(**payload(home, "add")).error or "").startswith("TypeError: add() missing")


def test_end_of_a_process(bench: Bench, home: Path) -> None:
    """As an interpreter does, it waits for threads and runs what was registered for the exit."""
    assert bench.run(**payload(home, "late")).outcome is Outcome.SUCCEEDED
    assert bench.log(1) == b"late\n"
    assert bench.run(**payload(home, "at_exit")).outcome is Outcome.SUCCEEDED
    assert bench.log(2) == b"at exit\n"


def test_cancel_is_heard(bench: Bench, home: Path) -> None:
    """A parameter named `cancel` is an event, set when the attempt is told to end."""
    seq = bench.start(**payload(home, "heed"))
    bench.until_log(seq, b"up")
    bench.stop(seq)
    ended = bench.end()
    assert (ended.outcome, ended.exit_code, ended.result) == (Outcome.CANCELLED, 0, None)
    assert b"asked True" in bench.log(seq)


def test_term_ends_a_call_without_the_parameter(bench: Bench, home: Path) -> None:
    """Without such a parameter TERM ends it."""
    seq = bench.start(**payload(home, "sleep"))
    bench.until_log(seq, b"up")
    bench.stop(seq, StopReason.INTERRUPTED)
    ended = bench.end()
    assert (ended.outcome, ended.signal) == (Outcome.INTERRUPTED, signal.SIGTERM)


def test_kill_after_the_grace(bench: Bench, home: Path) -> None:
    """One that never returns and ignores TERM is killed, by its timeout too."""
    ended = bench.run(**payload(home, "deaf", timeout=0.3, grace=0.1))
    assert (ended.outcome, ended.error) == (Outcome.TIMED_OUT, "timed out after 0.3 s")
    assert ended.signal in (signal.SIGKILL, signal.SIGTERM)  # TERM, where the import took longer than the timeout


def test_group_is_gone_before_the_end(bench: Bench, home: Path) -> None:
    """What a call leaves behind in its group is killed before its end is told."""
    assert bench.run(**payload(home, "leave_children")).outcome is Outcome.SUCCEEDED
    pid = int(bench.log(1))
    until(lambda: not is_alive(pid), "the child of the call to be gone")


def test_spawned_is_told(bench: Bench, home: Path) -> None:
    """The pid of a call is told, with the tick at which it began."""
    seq = bench.start(**payload(home, "sleep"))
    bench.until_log(seq, b"up")
    (spawned,) = until(bench.pool.take_spawned, "the process")
    assert spawned.pid == bench.pid(seq)
    assert int(Path(f"/proc/{spawned.pid}/stat").read_text().rpartition(")")[2].split()[19]) == spawned.pid_started
    bench.stop(seq)
    bench.end()


def server_pid(bench: Bench) -> int:
    link = bench.pool._server._link
    assert link is not None
    return link._process.pid


def test_server_killed(bench: Bench, home: Path) -> None:
    """When the fork server is killed, what it ran is killed before it is told as crashed, and a new one serves."""
    seq = bench.start(**payload(home, "deaf"))
    bench.until_log(seq, b"up")
    pid = bench.pid(seq)
    os.kill(server_pid(bench), signal.SIGKILL)
    ended = bench.end()
    assert ended.outcome is Outcome.CRASHED
    assert not is_alive(pid)
    assert bench.run(**payload(home, "add", 1)).result == "1"


def test_server_dies_before_it_forks(bench: Bench, home: Path) -> None:
    """A call that was only being started does not count."""
    bench.run(**payload(home, "add", 1))
    first = server_pid(bench)
    os.kill(first, signal.SIGSTOP)
    seq = bench.start(**payload(home, "add", 1))
    link = bench.pool._server._link
    assert link is not None
    until(lambda: link._calls, "the order to be on its way")
    os.kill(first, signal.SIGKILL)
    ended = bench.end()
    assert (ended.seq, ended.outcome, ended.counts) == (seq, Outcome.START_FAILED, False)
    assert bench.run(**payload(home, "add", 1)).result == "1"


def test_server_cannot_be_started(bench: Bench, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a fork server an attempt is postponed, not failed."""
    monkeypatch.setattr("sys.executable", "/no/such/python")
    ended = bench.run(**payload(home, "add", 1))
    assert (ended.outcome, ended.counts) == (Outcome.START_FAILED, False)


def test_server_ends_with_its_daemon(bench: Bench, home: Path) -> None:
    """When the daemon's end of the socket closes, the server kills what it started and ends."""
    seq = bench.start(**payload(home, "deaf"))
    bench.until_log(seq, b"up")
    pid = bench.pid(seq)
    link = bench.pool._server._link
    assert link is not None
    server = link._process.pid
    link.hang_up()
    assert bench.end().outcome is Outcome.CRASHED
    assert not is_alive(pid)
    until(lambda: not is_alive(server), "the server to end")


def test_many_calls(bench: Bench, home: Path) -> None:
    """Calls that run at once do not get each other's answers, and cost no descriptor."""
    bench.run(**payload(home, "add", 0))
    before = len(os.listdir("/proc/self/fd"))
    seqs = {bench.start(**payload(home, "add", number)): number for number in range(60)}
    for _ in range(60):
        ended = bench.end()
        assert ended.result == str(seqs[ended.seq])
    assert len(os.listdir("/proc/self/fd")) == before
