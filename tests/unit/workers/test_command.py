"""Commands: real processes, their ends, their surroundings and what is left of them."""

import errno
import os
import resource
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from workers_bench import Bench, is_alive, until

from schedd.core.model import Outcome, StopReason
from schedd.workers import command, ending


def test_success(bench: Bench) -> None:
    """A command that exits with 0 has succeeded, and says what it took."""
    ended = bench.run(command=["true"])
    assert (ended.outcome, ended.exit_code, ended.signal, ended.error) == (Outcome.SUCCEEDED, 0, None, None)
    assert ended.cpu_time is not None and ended.cpu_time >= 0
    assert ended.task_id == "task-1"
    assert ended.duration is not None and ended.duration > 0


def test_exit_code(bench: Bench) -> None:
    """An exit code other than 0 is a failure, recorded as a code."""
    ended = bench.run(run="exit 137")
    assert (ended.outcome, ended.exit_code, ended.signal) == (Outcome.FAILED, 137, None)
    assert ended.error == "exited with code 137"


def test_signal_is_no_exit_code(bench: Bench) -> None:
    """A process that a signal ended has the signal and no exit code."""
    ended = bench.run(run="kill -KILL $$")
    assert (ended.outcome, ended.exit_code, ended.signal) == (Outcome.FAILED, None, signal.SIGKILL)
    assert ended.error == "killed by SIGKILL"


@pytest.mark.parametrize(
    ("payload", "words"),
    [
        ({"command": ["/no/such/program"]}, ["/no/such/program", "No such file"]),
        ({"command": ["no-such-program"]}, ["no-such-program", "No such file"]),
        ({"command": ["/etc/passwd"]}, ["/etc/passwd", "Permission denied"]),
        ({"command": ["true"], "cwd": "/no/such/dir"}, ["directory", "/no/such/dir", "No such file"]),
        ({"run": "true", "cwd": "/etc/passwd"}, ["/etc/passwd", "not a directory"]),
        ({"command": ["true", "x" * 3_000_000]}, ["true", "Argument list too long"]),
        ({"command": ["true", "a\0b"]}, ["true", "null byte"]),
        ({"command": ["true"], "env": {"A=B": "c"}}, ["true", "environment"]),
    ],
)
def test_cannot_start(bench: Bench, payload: dict[str, object], words: list[str]) -> None:
    """What cannot be started ends with the system's reason and the name of what is wrong, and counts."""
    ended = bench.run(**payload)
    assert (ended.outcome, ended.exit_code, ended.counts) == (Outcome.START_FAILED, None, True)
    assert ended.error is not None
    for word in words:
        assert word in ended.error
    assert bench.run(command=["true"]).outcome is Outcome.SUCCEEDED, "its worker is free again"


def test_missing_interpreter_is_told(bench: Bench, tmp_path: Path) -> None:
    """A script that is there, but whose interpreter is not, is not called missing without a word."""
    script = tmp_path / "script"
    script.write_text("#!/no/such/interpreter\n")
    script.chmod(0o755)
    ended = bench.run(command=[str(script)])
    assert ended.outcome is Outcome.START_FAILED
    assert "interpreter" in (ended.error or "")


def test_program_relative_to_cwd(bench: Bench, tmp_path: Path) -> None:
    """A relative program is looked for in the task's directory."""
    (tmp_path / "here").write_text("#!/bin/sh\npwd\n")
    (tmp_path / "here").chmod(0o755)
    ended = bench.run(command=["./here"], cwd=str(tmp_path))
    assert ended.outcome is Outcome.SUCCEEDED
    assert bench.log(1).decode().strip() == str(tmp_path.resolve())


@pytest.mark.parametrize("number", sorted(ending.SCHEDD_FAULTS))
def test_no_room_does_not_count(number: int) -> None:
    """A start that fails for want of processes, memory or descriptors is not held against the task."""
    ended = command._why_not(OSError(number, os.strerror(number)), ["true"], None)
    assert (ended.outcome, ended.counts) == (Outcome.START_FAILED, False)
    assert os.strerror(number) in (ended.error or "")


def test_real_want_of_descriptors_does_not_count(bench: Bench) -> None:
    """With no descriptor left the attempt is postponed, and the next one runs when there are some."""
    bench.run(command=["true"])
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (3, hard))
    try:
        ended = bench.run(command=["true"])
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert (ended.outcome, ended.counts) == (Outcome.START_FAILED, False)
    assert os.strerror(errno.EMFILE) in (ended.error or "")
    assert bench.run(command=["true"]).outcome is Outcome.SUCCEEDED


def test_no_log_file_does_not_count(bench: Bench) -> None:
    """A log that cannot be made is schedd's trouble."""
    bench.log_dir.parent.joinpath("logs").write_text("in the way")
    ended = bench.run(command=["true"])
    assert (ended.outcome, ended.counts) == (Outcome.START_FAILED, False)
    assert str(bench.log_dir) in (ended.error or "")


def test_log_is_binary_and_ordered(bench: Bench) -> None:
    """Both outputs go into one file as they are, whatever bytes they hold."""
    bench.run(run=r"printf '\000\377a'; printf 'b\n' >&2; printf 'c'")
    assert bench.log(1) == b"\x00\xffab\nc"
    mode = (bench.log_dir / "0" / "000" / "1.1.log").stat().st_mode
    assert mode & 0o777 == 0o640 & ~_umask()


def test_session_stdin_and_group(bench: Bench) -> None:
    """A command leads a session of its own and reads nothing."""
    script = "import os,sys; print(os.getpid() == os.getsid(0) == os.getpgid(0), sys.stdin.read() == '')"
    bench.run(command=[sys.executable, "-c", script])
    assert bench.log(1) == b"True True\n"


def test_no_descriptor_leaks(bench: Bench) -> None:
    """Only 0, 1 and 2 are inherited, even of descriptors that are marked inheritable."""
    opened = [os.open("/dev/null", os.O_RDONLY) for _ in range(50)]
    try:
        for descriptor in opened:
            os.set_inheritable(descriptor, True)
        bench.run(command=["ls", "/proc/self/fd"])
    finally:
        for descriptor in opened:
            os.close(descriptor)
    assert bench.log(1).split() == [b"0", b"1", b"2", b"3"]  # 3 is the directory that `ls` reads


def test_environment_is_clean(bench: Bench) -> None:
    """What a command sees is the base, the task's own and schedd's names: nothing else of the daemon."""
    bench.run(command=["env"], env={"MINE": "a b"})
    seen = dict(line.split("=", 1) for line in bench.log(1).decode().splitlines())
    assert seen["MINE"] == "a b"
    assert (seen["SCHEDD_TASK_ID"], seen["SCHEDD_ATTEMPT"], seen["SCHEDD_RUN"]) == ("task-1", "1", "1")
    assert seen["SCHEDD_RUN_KEY"] == "0123456789abcdef-1-1"
    assert seen["SCHEDD_MARKER"].startswith("0123456789abcdef:")
    assert "PYTEST_CURRENT_TEST" not in seen


def test_cancel_that_is_heard(bench: Bench) -> None:
    """TERM comes first, and a command that exits 0 on it is cancelled all the same."""
    seq = bench.start(run="trap 'echo bye; exit 0' TERM; echo up; while :; do sleep 0.01; done")
    bench.until_log(seq, b"up")
    bench.stop(seq)
    ended = bench.end()
    assert (ended.outcome, ended.exit_code, ended.signal, ended.error) == (Outcome.CANCELLED, 0, None, None)
    assert b"bye" in bench.log(seq)


def test_cancel_that_is_not_heard(bench: Bench) -> None:
    """After the grace comes KILL."""
    seq = bench.start(run="trap '' TERM; echo up; while :; do sleep 0.01; done", grace=0.1)
    bench.until_log(seq, b"up")
    bench.stop(seq)
    ended = bench.end()
    assert (ended.outcome, ended.signal) == (Outcome.CANCELLED, signal.SIGKILL)


def test_stopped_command_hears_term(bench: Bench) -> None:
    """A command that was suspended is continued, so that TERM reaches it well within its grace."""
    seq = bench.start(run="echo up; kill -STOP $$; sleep 60", grace=60)
    bench.until_log(seq, b"up")
    stat = Path(f"/proc/{bench.pid(seq)}/stat")
    until(lambda: stat.read_text().rpartition(")")[2].split()[0] == "T", "the command to stop itself")
    bench.stop(seq)
    assert (bench.end().outcome, bench.pool.running()) == (Outcome.CANCELLED, [])


def test_timeout(bench: Bench) -> None:
    """A command over its time has timed out, and says after how long."""
    ended = bench.run(command=["sleep", "60"], timeout=0.1)
    assert (ended.outcome, ended.signal) == (Outcome.TIMED_OUT, signal.SIGTERM)
    assert ended.error == "timed out after 0.1 s"


def test_interrupt(bench: Bench) -> None:
    """A stop of the daemon ends a command as interrupted."""
    seq = bench.start(command=["sleep", "60"])
    bench.stop(seq, StopReason.INTERRUPTED)
    assert bench.end().outcome is Outcome.INTERRUPTED


def test_cancel_beats_interrupt(bench: Bench) -> None:
    """Whoever is cancelled while it is being interrupted ends cancelled."""
    seq = bench.start(run="trap '' TERM; echo up; while :; do sleep 0.01; done", grace=0.2)
    bench.until_log(seq, b"up")
    bench.stop(seq, StopReason.INTERRUPTED)
    bench.stop(seq, StopReason.CANCELLED)
    assert bench.end().outcome is Outcome.CANCELLED


def test_descendants_are_gone_before_the_end(bench: Bench) -> None:
    """What remains of the group when its leader ends is killed before the end is told."""
    ended = bench.run(run="trap '' TERM; (sleep 60 & echo $!; wait) & sleep 60 & echo $!; exit 3")
    pids = [int(pid) for pid in bench.log(1).split()]
    assert pids
    assert ended.exit_code == 3
    until(lambda: not any(map(is_alive, pids)), "the group to be gone")


def test_spawned_is_told(bench: Bench) -> None:
    """The pid of a command and the tick at which it began are told once."""
    seq = bench.start(command=["sleep", "60"])
    (spawned,) = until(bench.pool.take_spawned, "the process")
    assert spawned.seq == seq
    assert spawned.pid == bench.pool.running()[0].pid
    assert int(Path(f"/proc/{spawned.pid}/stat").read_text().rpartition(")")[2].split()[19]) == spawned.pid_started
    bench.stop(seq)
    bench.end()
    assert bench.pool.take_spawned() == []


def test_max_rss_is_not_the_daemons(bench: Bench) -> None:
    """A peak that may be the daemon's own is not told; a larger one is, in bytes."""
    assert bench.run(command=["true"]).max_rss is None
    own = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    script = f"x = bytearray({own} + 50_000_000)"
    peak = bench.run(command=[sys.executable, "-c", script]).max_rss
    assert peak is not None
    assert own < peak < 3 * own + 500_000_000


def test_reaped_elsewhere(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where somebody else reaps our children the end is told as unknown, and the worker lives. Nothing is signalled:
    the pid may be that of another process by then.
    """
    real, signalled = os.waitid, []

    def robbed(kind: int, pid: int, options: int) -> object:
        real(kind, pid, options)
        os.waitpid(pid, 0)
        raise ChildProcessError

    with monkeypatch.context() as patch:
        patch.setattr(os, "waitid", robbed)
        patch.setattr(os, "killpg", lambda group, number: signalled.append(group))
        ended = bench.run(command=["true"])
    assert ended.outcome is Outcome.FAILED
    assert "not known" in (ended.error or "")
    assert signalled == []
    assert bench.run(command=["true"]).outcome is Outcome.SUCCEEDED


def _umask() -> int:
    line = subprocess.run(["grep", "Umask", "/proc/self/status"], capture_output=True, text=True, check=True).stdout
    return int(line.split()[1], 8)
