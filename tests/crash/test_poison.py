"""Tasks that do their worst: each ends with the outcome it earned, and the daemon runs the next one."""

import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest

from support.daemons import RealDaemon, Supervisor, daemon_of, end_all, fast_retries, is_alive, pids_in, until

pytestmark = [pytest.mark.real]

FUNCTIONS = """
import ctypes, os, signal, sys, threading, time

class Own(BaseException):
    pass

def exit_zero(): raise SystemExit(0)
def exit_three(): raise SystemExit(3)
def exit_text(): raise SystemExit("no luck")
def interrupt(): raise KeyboardInterrupt
def own(): raise Own("mine")
def hard_exit(): os._exit(7)
def segfault(): ctypes.string_at(0)
def abort(): os.abort()
def kill_itself(): os.kill(os.getpid(), signal.SIGKILL)
def kill_group(): os.killpg(0, signal.SIGKILL)
def interrupt_itself(): os.kill(os.getpid(), signal.SIGINT); time.sleep(600)
def kill_server(): os.kill(os.getppid(), signal.SIGKILL); time.sleep(600)
def never(): time.sleep(600)
def deaf(): signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(600)
def spin():
    while True: pass
def stop(): os.kill(os.getpid(), signal.SIGSTOP); time.sleep(600)
def close_all():
    os.closerange(0, 64)
    return 7
def print_after_close():
    os.close(1)
    print("nobody reads this")
    return 7
def leave_thread():
    threading.Thread(target=time.sleep, args=(600,)).start()
def huge(): return "x" * 100_000_000
def deep(): deep()
def unpicklable(): return object()
def bad_error():
    class Bad(Exception):
        def __str__(self): raise KeyboardInterrupt
    raise Bad
def fork_twice():
    if os.fork() == 0:
        time.sleep(600)
    return "parent"
def fork_and_return():
    os.fork()
    return "both"
def fine(): return "fine"
"""

Row = tuple[str, str, int | None, int | None]  # state of the task; outcome, exit code and signal of its only attempt
CALLS: dict[str, Row] = {
    "exit_zero": ("succeeded", "succeeded", 0, None),
    "exit_three": ("failed", "failed", 3, None),
    "exit_text": ("failed", "failed", 1, None),
    "interrupt": ("failed", "failed", 1, None),
    "own": ("failed", "failed", 1, None),
    "hard_exit": ("failed", "failed", 7, None),
    "segfault": ("failed", "failed", None, signal.SIGSEGV),
    "abort": ("failed", "failed", None, signal.SIGABRT),
    "kill_itself": ("failed", "failed", None, signal.SIGKILL),
    "kill_group": ("failed", "failed", None, signal.SIGKILL),
    "interrupt_itself": ("failed", "failed", 1, None),
    "never": ("failed", "timed_out", None, signal.SIGTERM),
    "deaf": ("failed", "timed_out", None, signal.SIGKILL),
    "spin": ("failed", "timed_out", None, signal.SIGTERM),
    "stop": ("failed", "timed_out", None, signal.SIGTERM),
    "leave_thread": ("failed", "timed_out", None, signal.SIGTERM),
    "print_after_close": ("failed", "failed", 1, None),
    "huge": ("succeeded", "succeeded", 0, None),
    "deep": ("failed", "failed", 1, None),
    "unpicklable": ("succeeded", "succeeded", 0, None),
    "bad_error": ("failed", "failed", 1, None),
    "fork_twice": ("succeeded", "succeeded", 0, None),
    "fork_and_return": ("succeeded", "succeeded", 0, None),
    "fine": ("succeeded", "succeeded", 0, None),
}
ENDLESS = ("never", "deaf", "spin", "stop", "leave_thread")


def goes_on(daemon: RealDaemon) -> None:
    """A command and a function run, in the same daemon as before."""
    ids = [daemon.submit(run="true"), daemon.submit(call="platform:node")]
    assert set(daemon.settle(*ids).values()) == {"succeeded"}


def attempts_of(daemon: RealDaemon, task_id: str) -> list[Any]:
    """Outcome, exit code and signal of each attempt."""
    sql = (
        "select outcome, exit_code, signal from attempt join task on task.seq = task_seq where id = ?"
        " order by attempt.number"
    )
    return daemon.rows(sql, task_id)


def functions_in(daemon: RealDaemon) -> None:
    (daemon.home / "poison.py").write_text(FUNCTIONS)
    (daemon.home / "exits_at_import.py").write_text("import sys\nsys.exit(4)\n")
    (daemon.home / "interrupts_at_import.py").write_text("raise KeyboardInterrupt\n")
    (daemon.home / "segfaults_at_import.py").write_text("import ctypes\nctypes.string_at(0)\n")


def test_functions_that_end_badly_end_as_they_should():
    """SystemExit, KeyboardInterrupt, a BaseException, os._exit, signals, a segfault, no end at all, and the like."""
    with daemon_of(workers=4) as daemon:
        assert daemon.process is not None
        pid = daemon.process.pid
        functions_in(daemon)
        ids = {}
        for name in CALLS:
            limits = {"timeout": 1.0, "grace": 0.5} if name in ENDLESS else {"timeout": 60}
            ids[name] = daemon.submit(name=name, call=f"poison:{name}", cwd=str(daemon.home), **limits)
        states = daemon.settle(*ids.values(), patience_s=100)
        found = {name: [states[task_id], *attempts_of(daemon, task_id)] for name, task_id in ids.items()}
        assert found == {
            name: [state, (outcome, code, number)] for name, (state, outcome, code, number) in CALLS.items()
        }
        goes_on(daemon)
        assert daemon.process.pid == pid and daemon.process.poll() is None
        daemon.stop()
        assert daemon.marked() == []


def test_a_function_that_closes_every_descriptor_is_judged_by_its_exit_code():
    """It takes from itself the means to tell its result, and harms only itself."""
    with daemon_of() as daemon:
        functions_in(daemon)
        task_id = daemon.submit(call="poison:close_all", cwd=str(daemon.home), timeout=60)
        daemon.settle(task_id)
        ((outcome, code, number),) = attempts_of(daemon, task_id)
        assert (outcome, number) in {("succeeded", None), ("failed", None)} and code is not None
        goes_on(daemon)


@pytest.mark.parametrize(
    ("module", "outcome", "code", "number"),
    [
        ("exits_at_import", "start_failed", 1, None),
        ("interrupts_at_import", "failed", 1, None),
        ("segfaults_at_import", "failed", None, signal.SIGSEGV),
    ],
)
def test_modules_that_are_poison_when_they_are_imported(module: str, outcome: str, code: Any, number: Any):
    """They are imported by the attempt's own process, never by what starts it."""
    with daemon_of() as daemon:
        functions_in(daemon)
        task_id = daemon.submit(call=f"{module}:run", cwd=str(daemon.home))
        assert daemon.settle(task_id) == {task_id: "failed"}
        ((found, exit_code, signalled),) = attempts_of(daemon, task_id)
        assert (found, signalled) == (outcome, number)
        assert exit_code in (code, None)
        goes_on(daemon)


def test_killing_the_fork_server_costs_the_attempts_it_ran_and_no_more():
    """They are `crashed`, their processes are gone, it is replaced, and what has attempts left runs again."""
    with daemon_of(workers=3) as daemon:
        functions_in(daemon)
        home, found = str(daemon.home), daemon.home / "pids"
        (daemon.home / "victim.py").write_text(
            "import os, time\n"
            f"def run():\n open({str(found)!r}, 'a').write('%d\\n' % os.getpid())\n"
            " if os.environ['SCHEDD_ATTEMPT'] == '1': time.sleep(600)\n return 'back'\n"
        )
        victim = daemon.submit(name="victim", call="victim:run", cwd=home, retry=fast_retries(10))
        until(lambda: pids_in(found), "the victim runs")
        (first,) = pids_in(found)
        killer = daemon.submit(name="killer", call="poison:kill_server", cwd=home, retry=fast_retries(3))
        states = daemon.settle(victim, killer)
        assert states == {victim: "succeeded", killer: "failed"}
        assert daemon.outcomes(killer) == ["crashed"] * 3
        assert daemon.outcomes(victim)[0] == "crashed"
        assert daemon.outcomes(victim)[-1] == "succeeded"
        assert not is_alive(first)
        goes_on(daemon)


def test_a_task_that_kills_the_daemon_does_not_do_so_for_ever():
    """`kill -9 $PPID` with three attempts is three dead daemons, then `failed`; what came with it runs."""
    with daemon_of(workers=2) as daemon, Supervisor(daemon) as supervisor:
        spec = {
            "tasks": {
                "poison": {"run": "kill -9 $PPID; sleep 600", "retry": fast_retries(3)},
                "after": {"run": "true", "deps": [{"task": "poison", "when": "failed"}]},
                "beside": {"run": "sleep 0.2", "retry": fast_retries(9)},
            }
        }
        ids = daemon.client.submit(spec, key="poison")["ids"]
        states = daemon.settle(*ids, patience_s=100)
        assert states == {ids[0]: "failed", ids[1]: "succeeded", ids[2]: "succeeded"}
        assert daemon.outcomes(ids[0]) == ["crashed"] * 3
        assert supervisor.deaths == 3
        goes_on(daemon)


@pytest.mark.parametrize(
    ("script", "outcome", "number"),
    [
        ("exec >&- 2>&-; echo lost; true", "succeeded", None),
        ("exec 0<&- 1>&- 2>&-; exec sleep 0.01", "succeeded", None),
        ("kill -STOP $$; sleep 600", "timed_out", signal.SIGTERM),
        ("trap '' TERM; kill -STOP $$; while :; do sleep 1; done", "timed_out", signal.SIGKILL),
        ("kill -SEGV $$", "failed", signal.SIGSEGV),
        ("kill -9 0", "failed", signal.SIGKILL),
        ("printf 'a\\000b\\377\\n\\033[2J'; exit 0", "succeeded", None),
    ],
)
def test_commands_that_misbehave(script: str, outcome: str, number: int | None):
    """They close their output, stop themselves, kill their own group: each has its own end."""
    with daemon_of() as daemon:
        task_id = daemon.submit(run=script, timeout=1.0, grace=0.3)
        daemon.settle(task_id)
        ((found, _, signalled),) = attempts_of(daemon, task_id)
        assert (found, signalled) == (outcome, number)
        goes_on(daemon)


def test_children_that_outlive_their_task_are_gone_when_it_has_ended():
    """A hundred of them, deaf to TERM; the task has succeeded, and none of them is alive then."""
    with daemon_of() as daemon:
        found = daemon.home / "pids"
        script = f"trap '' TERM; i=0; while [ $i -lt 100 ]; do sleep 600 & echo $! >>{found}; i=$((i+1)); done; exit 0"
        task_id = daemon.submit(run=script)
        try:
            assert daemon.settle(task_id) == {task_id: "succeeded"}
            pids = pids_in(found)
            assert len(pids) == 100
            assert not any(map(is_alive, pids))
            goes_on(daemon)
        finally:
            end_all(pids_in(found))


def test_a_task_that_writes_without_end_is_ended_by_its_timeout():
    """Its log grows as long as it runs (nothing but the disk bounds it), and the daemon does not read it."""
    with daemon_of() as daemon:
        task_id = daemon.submit(run="head -c 50000000 /dev/zero; exec sleep 600", timeout=2.0, grace=0.5)
        daemon.settle(task_id)
        assert daemon.outcomes(task_id) == ["timed_out"]
        (log,) = (daemon.state_dir / "logs").rglob("*.log")
        assert log.stat().st_size == 50_000_000
        goes_on(daemon)


@pytest.fixture
def small_disk(tmp_path: Path) -> Any:
    """A file system of a megabyte, for as long as the test runs."""
    where = tmp_path / "disk"
    where.mkdir()
    done = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=1m", "schedd-test", str(where)], capture_output=True, check=False
    )
    if done.returncode != 0:
        pytest.skip("mounting a small file system needs root")
    yield where
    subprocess.run(["umount", "--lazy", str(where)], check=True)


def test_a_disk_that_logs_have_filled_does_not_stop_the_daemon(small_disk: Path):
    """The task that filled it fails by its own write; others go on, without a log if need be; space may come back."""
    with daemon_of(start=False) as daemon:
        daemon.state_dir.mkdir()
        (daemon.state_dir / "logs").symlink_to(small_disk)
        daemon.start()
        task_id = daemon.submit(run="exec yes")
        daemon.settle(task_id)
        assert attempts_of(daemon, task_id)[0][0] == "failed"
        goes_on(daemon)
        writer = daemon.submit(run="echo some text")
        assert daemon.settle(writer) == {writer: "failed"}, "echo says that it could not write"
        for log in small_disk.rglob("*.log"):
            log.unlink()
        again = daemon.submit(run="echo some text")
        assert daemon.settle(again) == {again: "succeeded"}
        daemon.stop()


def test_a_thread_task_cannot_take_the_daemon_with_it():
    """What a function in a thread raises is its own end, SystemExit and KeyboardInterrupt included."""
    with daemon_of() as daemon:
        for call, state in (("sys:exit", "succeeded"), ("_thread:exit", "succeeded"), ("os:abc", "failed")):
            task_id = daemon.submit(call=call, isolation="thread")
            assert daemon.settle(task_id) == {task_id: state}
        task_id = daemon.submit(call="sys:exit", args=["text"], isolation="thread")
        assert daemon.settle(task_id) == {task_id: "failed"}
        daemon.submit(call="_thread:interrupt_main", isolation="thread")  # a SIGINT to the daemon itself
        assert daemon.process is not None
        assert daemon.process.wait(60) == 0, "it stops as at any SIGINT"
        daemon.start()
        goes_on(daemon)
