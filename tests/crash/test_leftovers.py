"""What a killed daemon left running is gone before the next attempt starts, and nobody else is touched.

The proof is a lock: an attempt opens a file, takes `flock` on it and hands the descriptor down to all it starts, so the
lock is free exactly when the last of them has ended. Each attempt writes down whether it found the lock free.
"""

import signal
import sqlite3
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from schedd import runtime as runtime_module
from schedd.runtime import Runtime
from schedd.workers import procfs
from support.daemons import RealDaemon, daemon_of, end_all, fast_retries, is_alive, pids_in, until

pytestmark = [pytest.mark.real]

PROLOGUE = """
exec 9>>"$DIR/lock"
if flock -n 9; then echo free; else echo taken; fi >>"$DIR/seen"
[ "$SCHEDD_ATTEMPT" -eq 1 ] || exit 0
exec </dev/null >/dev/null 2>&1
"""
BODIES = {
    "deaf": ("trap '' TERM HUP INT; sleep 600 & echo $! >>$P; echo $$ >>$P; wait", 2),
    "family": (
        """sh -c 'sh -c "echo \\$\\$ >>$P; exec sleep 600" & echo $$ >>$P; wait' & echo $$ >>$P; wait""",
        3,
    ),
    "session": ("setsid sh -c 'echo $$ >>$P; exec sleep 600' & echo $$ >>$P; wait; sleep 600", 2),
    "double_fork": (
        "(setsid sh -c '(setsid sleep 600 & echo $! >>$P) & exit 0' &); echo $$ >>$P; exec sleep 600",
        2,
    ),
    "stopped": ("echo $$ >>$P; kill -STOP $$; exec sleep 600", 1),
    "bare": (
        "exec env -i P=$P sh -c 'sleep 600 & echo $! >>$P; setsid sleep 600 & echo $! >>$P; echo $$ >>$P; wait'",
        3,
    ),
}

FUNCTIONS = """
import fcntl, os, subprocess, time

def spawn(directory):
    lock = os.open(os.path.join(directory, "lock"), os.O_CREAT | os.O_RDWR)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        seen = "free"
    except BlockingIOError:
        seen = "taken"
    with open(os.path.join(directory, "seen"), "a") as file:
        print(seen, file=file)
    if os.environ["SCHEDD_ATTEMPT"] != "1":
        return
    pids = os.path.join(directory, "pids")
    subprocess.Popen(["sleep", "600"], pass_fds=[lock])
    script = "(setsid sleep 600 & echo $! >>%s) & echo $$ >>%s; exec sleep 600" % (pids, pids)
    subprocess.Popen(["sh", "-c", script], pass_fds=[lock], start_new_session=True)
    with open(pids, "a") as file:
        print(os.getpid(), file=file)
    time.sleep(600)
"""
EXPECTED = {name: pids for name, (_, pids) in BODIES.items()} | {"call": 3}


def shell(directory: Path, body: str) -> dict[str, Any]:
    """A task of a shell text that holds the lock and writes pids to $P."""
    env = {"DIR": str(directory), "P": str(directory / "pids")}
    return {"run": PROLOGUE + body, "env": env, "retry": fast_retries(5)}


def submit_all(daemon: RealDaemon) -> dict[str, str]:
    """One task of each kind; their ids."""
    (daemon.home / "poison.py").write_text(FUNCTIONS)
    ids = {}
    for name in EXPECTED:
        directory = daemon.home / name
        directory.mkdir()
        if name == "call":
            task: dict[str, Any] = {"call": "poison:spawn", "args": [str(directory)], "cwd": str(daemon.home)}
            ids[name] = daemon.submit(name=name, retry=fast_retries(5), **task)
        else:
            ids[name] = daemon.submit(name=name, **shell(directory, BODIES[name][0]))
    return ids


def wait_hints(daemon: RealDaemon, count: int) -> None:
    """Until the pids of `count` running attempts are written down, which takes about a second."""
    sql = "select count(*) from attempt where outcome is null and pid is not null"
    until(lambda: daemon.rows(sql)[0][0] == count, "the pids are written down")


def test_nothing_of_an_attempt_outlives_its_daemon_into_the_next_attempt():
    """Deaf to TERM, a family, setsid, a double fork, stopped, without environment, a function with children."""
    with daemon_of(workers=len(EXPECTED)) as daemon:
        pids: list[int] = []
        try:
            ids = submit_all(daemon)
            for name, count in EXPECTED.items():
                found = daemon.home / name / "pids"
                until(lambda found=found, count=count: len(pids_in(found)) >= count, f"the processes of {name}")
                pids += pids_in(found)
            wait_hints(daemon, len(EXPECTED))
            assert all(map(is_alive, pids)), "they live before the kill, or the test proves nothing"
            daemon.kill()
            commands = [pid for name in BODIES for pid in pids_in(daemon.home / name / "pids")]
            assert all(map(is_alive, commands)), "and outlive the daemon (functions end with the fork server)"
            daemon.start()
            states = daemon.settle(*ids.values())
            assert set(states.values()) == {"succeeded"}
            seen = {name: (daemon.home / name / "seen").read_text().split() for name in EXPECTED}
            assert seen == {name: ["free", "free"] for name in EXPECTED}
            assert {name: daemon.outcomes(ids[name]) for name in ids} == {
                name: ["crashed", "succeeded"] for name in ids
            }
            assert not [pid for pid in pids if is_alive(pid)]
        finally:
            end_all(pids)


def test_killed_at_once_and_again_during_recovery():
    """A daemon that dies before the pids are written, and its successors amid their start: the marker is enough."""
    with daemon_of(workers=2) as daemon:
        pids: list[int] = []
        try:
            directory = daemon.home / "a"
            directory.mkdir()
            task_id = daemon.submit(**shell(directory, BODIES["double_fork"][0]))
            until(lambda: len(pids_in(directory / "pids")) >= 2, "the processes")
            pids = pids_in(directory / "pids")
            daemon.kill()
            for delay_s in (0.05, 0.3, 0.6):
                daemon.spawn()
                time.sleep(delay_s)
                daemon.kill()
            daemon.start()
            assert set(daemon.settle(task_id).values()) == {"succeeded"}
            assert set((directory / "seen").read_text().split()) == {"free"}
            assert not any(map(is_alive, pids))
        finally:
            end_all(pids)


@pytest.fixture
def innocent() -> Iterator[int]:
    """A process that has nothing to do with any task."""
    process = subprocess.Popen(["sleep", "600"], start_new_session=True)
    yield process.pid
    process.kill()
    process.wait()


def hint_at(daemon: RealDaemon, pid: int, started: int) -> None:
    """While the daemon is down: let its rows say that the running attempts are this process."""
    connection = sqlite3.connect(daemon.database)
    with connection:
        changed = connection.execute(
            "update attempt set pid = ?, pid_started = ? where outcome is null", (pid, started)
        ).rowcount
    connection.close()
    assert changed == 1


@pytest.mark.parametrize(("wrong_start", "wrong_boot"), [(True, False), (False, True), (False, False)])
def test_a_process_that_reuses_a_pid_is_never_touched(innocent: int, wrong_start: bool, wrong_boot: bool):
    """Pid and start and boot must all be those that were written down; where they are, it is killed: the control."""
    with daemon_of() as daemon:
        task_id = daemon.submit(run='[ "$SCHEDD_ATTEMPT" -gt 1 ] || exec sleep 600', retry=fast_retries(5))
        wait_hints(daemon, 1)
        daemon.kill()
        started = procfs.start_ticks(innocent)
        assert started is not None
        hint_at(daemon, innocent, started - 1 if wrong_start else started)
        if wrong_boot:
            (daemon.state_dir / "boot").write_text("00000000-0000-0000-0000-000000000000\n")
        daemon.start()
        assert daemon.settle(task_id) == {task_id: "succeeded"}
        assert is_alive(innocent) == (wrong_start or wrong_boot)


def test_what_left_the_group_is_gone_after_a_stop():
    """A stop leaves nothing of its attempts: also not what hid from the group of its attempt."""
    with daemon_of(settings=["drain_timeout = 0.1"]) as daemon:
        found = daemon.home / "pids"
        script = f"(setsid sleep 600 & echo $! >>{found}); [ $SCHEDD_ATTEMPT -gt 1 ] || exec sleep 600"
        task_id = daemon.submit(run=script)
        until(lambda: pids_in(found), "the process")
        daemon.stop()
        assert not any(map(is_alive, pids_in(found)))
        assert daemon.outcomes(task_id) == ["interrupted"]


# --- what cannot be killed ----------------------------------------------------------------------------------------


def kill_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Signals without effect, as on processes in uninterruptible sleep, and little patience with that."""
    monkeypatch.setattr(signal, "pidfd_send_signal", lambda pidfd, number: None)
    monkeypatch.setattr(runtime_module, "LEFTOVER_PATIENCE_S", 0.1)
    monkeypatch.setattr(runtime_module, "CLOSE_PATIENCE_S", 0.1)


def open_and_close(state_dir: Path) -> Any:
    """What a scheduler finds on a state directory."""
    opened = Runtime.open(state_dir, 2)
    found = opened.opened
    opened.close()
    return found


def test_a_task_whose_leftovers_cannot_be_killed_is_held(monkeypatch: pytest.MonkeyPatch):
    """It says which pid is in the way and how to go on; the others run, and so does it after its release."""
    with daemon_of(workers=2) as daemon:
        found = daemon.home / "pids"
        stuck = f"echo $$ >>{found}; [ $SCHEDD_ATTEMPT -gt 1 ] || exec sleep 600"
        first = daemon.submit(name="stuck", run=stuck, retry=fast_retries(5))
        until(lambda: pids_in(found), "its process")
        other = daemon.submit(name="other", run="[ $SCHEDD_ATTEMPT -gt 1 ] || exec sleep 600", retry=fast_retries(5))
        until(lambda: daemon.task(other)["status"] == "running", "the other")
        (pid,) = pids_in(found)
        until(lambda: is_marked(pid), "its environment")
        daemon.kill()
        for seen in daemon.marked():
            if seen != pid:
                end_all([seen])
        with monkeypatch.context() as patch:
            kill_nothing(patch)
            opened = open_and_close(daemon.state_dir)
            assert opened.survivors == (pid,)
            assert opened.recovery.held == (first,)
            again = open_and_close(daemon.state_dir)
            assert (again.recovery.held, again.recovery.crashed) == ((first,), 0), "the same when it is repeated"
        daemon.start()
        assert daemon.settle(other) == {other: "succeeded"}
        told = daemon.task(first)
        assert (told["status"], told["held"]) == ("pending", True)
        assert str(pid) in told["error"]
        assert f"schedctl release {first}" in told["error"]
        daemon.client.release([first])
        assert daemon.settle(first) == {first: "succeeded"}
        assert daemon.outcomes(first) == ["crashed", "succeeded"]


def is_marked(pid: int) -> bool:
    """Whether the marker can be read by now."""
    return b"SCHEDD_MARKER=" in Path(f"/proc/{pid}/environ").read_bytes()


def test_leftovers_of_nobody_in_particular_hold_all_that_ran(monkeypatch: pytest.MonkeyPatch):
    """A survivor without a marker may be of any attempt that the daemon's death cut: none of them starts."""
    with daemon_of(workers=2) as daemon:
        run = "exec env -i sleep 600"
        ids = [daemon.submit(name=name, run=run, retry=fast_retries(5)) for name in ("a", "b")]
        done = daemon.submit(name="later", run="true")
        wait_hints(daemon, 2)
        pids = [pid for (pid,) in daemon.rows("select pid from attempt where outcome is null order by pid")]
        try:
            daemon.kill()
            with monkeypatch.context() as patch:
                kill_nothing(patch)
                opened = open_and_close(daemon.state_dir)
            assert list(opened.survivors) == pids
            assert set(opened.recovery.held) == set(ids)
            daemon.start()
            assert daemon.settle(done) == {done: "succeeded"}
            assert [daemon.task(task_id)["status"] for task_id in ids] == ["pending", "pending"]
        finally:
            end_all(pids)


# --- between two attempts of a living daemon ----------------------------------------------------------------------


def test_the_rest_of_a_group_is_gone_before_the_next_attempt():
    """A failed attempt's children are not only killed but gone when the next one starts, again and again."""
    with daemon_of() as daemon:
        lock, seen = daemon.home / "lock", daemon.home / "seen"
        script = f"""
        exec 9>>{lock}
        if flock -n 9; then echo free; else echo taken; fi >>{seen}
        for i in 1 2 3 4 5 6 7 8; do (while :; do :; done) & done
        exit 1"""
        retry = {"max_attempts": 25, "base_delay": 0, "max_delay": 0}
        task_id = daemon.submit(run=script, retry=retry)
        assert daemon.settle(task_id) == {task_id: "failed"}
        assert seen.read_text().split() == ["free"] * 25


def test_the_rest_of_a_calls_group_is_gone_before_the_next_attempt():
    """The same for functions."""
    module = """
import fcntl, os, subprocess
def leave(directory):
    lock = os.open(os.path.join(directory, "lock"), os.O_CREAT | os.O_RDWR)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        seen = "free"
    except BlockingIOError:
        seen = "taken"
    with open(os.path.join(directory, "seen"), "a") as file:
        print(seen, file=file)
    for _ in range(8):
        subprocess.Popen(["sh", "-c", "while :; do :; done"], pass_fds=[lock])
    raise RuntimeError("again")
"""
    with daemon_of() as daemon:
        (daemon.home / "poison.py").write_text(module)
        retry = {"max_attempts": 15, "base_delay": 0, "max_delay": 0}
        task_id = daemon.submit(call="poison:leave", args=[str(daemon.home)], cwd=str(daemon.home), retry=retry)
        assert daemon.settle(task_id) == {task_id: "failed"}
        assert (daemon.home / "seen").read_text().split() == ["free"] * 15
