"""What is left of a dead daemon's attempts is found and killed, and nothing else is."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from workers_bench import is_alive, until

from schedd.workers import processes, procfs
from schedd.workers.identity import MARKER_VARIABLE, Marker
from schedd.workers.processes import Hint, hunt, kill_leftovers

IDENTITY = os.urandom(8).hex()  # of this test process alone: others may run beside it
DEADLINE_S = 10.0


@pytest.fixture
def family(tmp_path: Path) -> Iterator["Family"]:
    made = Family(tmp_path)
    yield made
    made.kill()


class Family:
    """Processes that a test starts, each of which writes its pid down."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._children: list[subprocess.Popen[bytes]] = []
        self._pids: list[int] = []

    def start(self, script: str, marker: str | None, pids: int = 1) -> list[int]:
        """Run a shell script in a session of its own, until it has written `pids` lines to $OUT."""
        out = self._directory / f"out-{len(self._children)}"
        environment = {"PATH": os.environ["PATH"], "OUT": str(out)}
        if marker is not None:
            environment[MARKER_VARIABLE] = marker
        child = subprocess.Popen(["/bin/sh", "-c", script], env=environment, start_new_session=True)
        self._children.append(child)
        until(lambda: out.exists() and out.read_text().count("\n") >= pids, "the processes")
        found = [int(line) for line in out.read_text().split()]
        self._pids += found
        return found

    def kill(self) -> None:
        for pid in self._pids:
            if is_alive(pid):
                os.kill(pid, signal.SIGKILL)
        for child in self._children:
            child.kill()
            child.wait()


def marker(seq: int = 1, identity: str = IDENTITY) -> str:
    return Marker(identity, "start").value(seq, 1)


def hint(pid: int) -> Hint:
    started = procfs.start_ticks(pid)
    assert started is not None
    return Hint(pid, started)


def test_marked_processes_are_killed(family: Family) -> None:
    """Whoever carries the marker is killed, stopped or deaf to TERM as it may be."""
    pids = family.start("trap '' TERM; sleep 60 & echo $! >>$OUT; echo $$ >>$OUT; kill -STOP $$; wait", marker(), 2)
    leftovers = kill_leftovers(IDENTITY, [], DEADLINE_S)
    assert leftovers == (2, ())
    assert not any(map(is_alive, pids))


def test_daemonized_descendants_are_killed(family: Family) -> None:
    """Neither setsid nor a parent that has ended hides a process that carries the marker."""
    script = "setsid sh -c 'sleep 60 & echo $! >>$OUT; exec sleep 60' & (setsid sleep 60 & echo $! >>$OUT) & exit 0"
    pids = family.start(script, marker(), 2)
    assert kill_leftovers(IDENTITY, [], DEADLINE_S).killed >= 3
    assert not any(map(is_alive, pids))


def test_hint_finds_what_has_shed_its_environment(family: Family) -> None:
    """A process without the marker is found by pid and start, with its session and its descendants in others."""
    script = (
        "exec env -i OUT=$OUT sh -c 'sleep 60 & echo $! >>$OUT; setsid sleep 60 & echo $! >>$OUT; echo $$ >>$OUT; wait'"
    )
    pids = family.start(script, marker(), 3)
    assert kill_leftovers(IDENTITY, [], DEADLINE_S) == (0, ()), "nothing to see without the hint"
    assert kill_leftovers(IDENTITY, [hint(pids[-1])], DEADLINE_S) == (3, ())
    assert not any(map(is_alive, pids))


def test_unmarked_members_of_a_marked_session_are_killed(family: Family) -> None:
    """What a marked process started with an empty environment goes with it."""
    pids = family.start("env -i sleep 60 & echo $! >>$OUT; echo $$ >>$OUT; wait", marker(), 2)
    assert kill_leftovers(IDENTITY, [], DEADLINE_S) == (2, ())
    assert not any(map(is_alive, pids))


def test_others_are_left_alone(family: Family) -> None:
    """Another state directory's processes, unmarked ones and one that merely has a hinted pid are not touched."""
    (other,) = family.start("echo $$ >>$OUT; exec sleep 60", marker(identity="0" * 16))
    (longer,) = family.start("echo $$ >>$OUT; exec sleep 60", marker(identity=IDENTITY + "0"))
    (plain,) = family.start("echo $$ >>$OUT; exec sleep 60", None)
    reused = Hint(plain, hint(plain).pid_started - 1)
    gone = Hint(2**22 - 1, 5)
    assert kill_leftovers(IDENTITY, [reused, gone], DEADLINE_S) == (0, ())
    assert all(map(is_alive, (other, longer, plain)))


def test_a_hint_at_a_process_of_another_identity_is_none(family: Family) -> None:
    """It is in a database that was restored here, while the tasks of the original run on."""
    [original] = family.start("echo $$ >>$OUT; exec sleep 60", marker(identity="0" * 16))
    assert kill_leftovers(IDENTITY, [hint(original)], DEADLINE_S) == (0, ())
    assert is_alive(original)


def test_pid_reused_between_look_and_signal(family: Family) -> None:
    """A signal is only sent when the process behind the pidfd is the one that was seen."""
    (plain,) = family.start("echo $$ >>$OUT; exec sleep 60", None)
    seen = procfs.look(plain)
    assert seen is not None
    assert processes._send(seen._replace(started=seen.started - 1), signal.SIGKILL)
    assert is_alive(plain)
    assert processes._send(seen, signal.SIGKILL)
    until(lambda: not is_alive(plain), "the process to end")


def test_one_start_only(family: Family) -> None:
    """A whole marker names one attempt, not those whose marker begins like it."""
    (first,) = family.start("echo $$ >>$OUT; exec sleep 60", f"{IDENTITY}:s:0:1")
    (tenth,) = family.start("echo $$ >>$OUT; exec sleep 60", f"{IDENTITY}:s:0:10")
    assert hunt([f"{IDENTITY}:s:0:1"], [], DEADLINE_S) == (1, ())
    assert not is_alive(first)
    assert is_alive(tenth)


def test_itself_and_its_ancestors_are_spared() -> None:
    """A daemon that was started within a marked session kills neither itself nor those it descends from."""
    script = (
        "import subprocess, sys; from schedd.workers.processes import kill_leftovers;"
        f"print(kill_leftovers('{IDENTITY}', [], 10.0))"
    )
    shell = f"sleep 60 & '{sys.executable}' -c \"{script}\"; kill $!; echo shell lives"
    environment = {**os.environ, MARKER_VARIABLE: marker()}
    done = subprocess.run(
        ["sh", "-c", shell], env=environment, capture_output=True, text=True, start_new_session=True, check=True
    )
    assert done.stdout == "Leftovers(killed=1, survivors=())\nshell lives\n"


def test_what_cannot_be_killed_is_reported(family: Family, monkeypatch: pytest.MonkeyPatch) -> None:
    """Processes that may not be signalled are named as survivors, and nothing waits for them."""
    (pid,) = family.start("echo $$ >>$OUT; exec sleep 60", marker())

    def refuse(pidfd: int, number: int) -> None:
        raise PermissionError

    with monkeypatch.context() as patch:
        patch.setattr(signal, "pidfd_send_signal", refuse)
        assert kill_leftovers(IDENTITY, [], DEADLINE_S) == (0, (pid,))
    assert is_alive(pid)


def test_deadline(family: Family, monkeypatch: pytest.MonkeyPatch) -> None:
    """What does not end by the deadline is a survivor."""
    (pid,) = family.start("echo $$ >>$OUT; exec sleep 60", marker())
    monkeypatch.setattr(signal, "pidfd_send_signal", lambda pidfd, number: None)  # as in uninterruptible sleep
    assert kill_leftovers(IDENTITY, [], 0.05) == (0, (pid,))


def test_names_with_parentheses(family: Family, tmp_path: Path) -> None:
    """A program whose name looks like fields of /proc/PID/stat is read right."""
    program = tmp_path / "x) Z 1 1 (y"
    program.symlink_to("/bin/sleep")
    (pid,) = family.start(f"echo $$ >>$OUT; exec '{program}' 60", None)
    until(lambda: ") Z 1" in Path(f"/proc/{pid}/comm").read_text(), "the exec")
    seen = procfs.look(pid)
    assert seen is not None
    assert (seen.parent, seen.session) == (os.getpid(), pid)
