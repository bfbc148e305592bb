"""Finds and kills what is left of attempts whose daemon died: by a marker in their environment, and by pid.

Theory of operation
-------------------
Every process of an attempt inherits `SCHEDD_MARKER=<identity>:<start>:<seq>:<number>` (`identity.Marker`). The fork
server has one too, and what it forks shows its environment until it execs. A process that has shed its environment is
found by the pid the engine wrote down, if the process with that pid began at the same tick of the same boot, as a
descendant of one that was found, or as a member of its session.

What is found is stopped first, so that it cannot start anything new, then looked for again until nothing new turns
up, and only then killed; and all of that again until nothing is found. Signals go through a pidfd whose process was
checked after it was opened, so a pid that was reused meanwhile is never hit. This process and its ancestors are spared.

Needs Linux 5.3 (pidfd). Tests: tests/unit/workers/test_processes.py.
"""

import os
import select
import signal
import time
from collections.abc import Callable, Collection, Iterable
from typing import NamedTuple

from schedd.workers import procfs
from schedd.workers.identity import MARKER_VARIABLE, Marker, is_same_boot, load_identity, remember_boot
from schedd.workers.procfs import Process, start_ticks


class Hint(NamedTuple):
    """A process that was written down: `pid_started` in clock ticks since boot."""

    pid: int
    pid_started: int


class Leftovers(NamedTuple):
    """How many processes were killed, and the pids of those that could not be."""

    killed: int
    survivors: tuple[int, ...]


def kill_leftovers(identity: str, hints: Iterable[tuple[int, int]], deadline_s: float) -> Leftovers:
    """Kill every process of an attempt of this identity. Takes `deadline_s` seconds at most.

    `hints` are (pid, pid_started) of this boot. Processes whose environment may not be read are left alone unless
    they belong to one that was found. A hint at a process with the marker of another identity is none: it came with a
    database that was restored here while the tasks of the original run on.
    """
    own = [(pid, started) for pid, started in hints if not _is_anothers(pid, identity)]
    return hunt([f"{identity}:"], own, deadline_s)


def hunt(markers: Iterable[str], hints: Iterable[tuple[int, int]], deadline_s: float) -> Leftovers:
    """Kill every process that has one of these markers, those that hints name, and what belongs to them.

    A marker that ends in `:` stands for all that begin so.
    """
    deadline = time.monotonic() + deadline_s
    sought = [_as_environ(marker) for marker in markers]
    family = {Hint(*hint) for hint in hints}  # grows: what was found once is known when its parent is gone
    killed: set[Hint] = set()
    unkillable: set[Hint] = set()
    while True:
        prey = _stop_all(lambda: _find(sought, family), family, unkillable, deadline)
        if not prey:
            break
        for seen in prey:
            (killed if _send(seen, signal.SIGKILL) else unkillable).add(Hint(seen.pid, seen.started))
        remaining_s = deadline - time.monotonic()
        if remaining_s <= 0 or not _await_ends(prey, remaining_s):
            break
    left = {Hint(seen.pid, seen.started) for seen in _find(sought, family)}
    return Leftovers(len(killed - left), tuple(sorted(hint.pid for hint in left)))


def task_of(identity: str, pid: int) -> int | None:
    """The seq of the task whose attempt a process belongs to; None if that cannot be told."""
    prefix = f"{MARKER_VARIABLE}={identity}:".encode()
    for variable in _environ(pid).split(b"\0"):
        if variable.startswith(prefix):
            fields = variable[len(prefix) :].split(b":")  # the start, the seq, the attempt
            if len(fields) == 3 and fields[1].isdigit():
                return int(fields[1]) or None  # 0 is the fork server and what it forked, whosever that is
    return None


def _stop_all(
    find: Callable[[], list[Process]], family: set[Hint], unkillable: set[Hint], deadline: float
) -> list[Process]:
    """Stop what is found, until looking again finds nothing new; all that was found and can be signalled."""
    prey: dict[Hint, Process] = {}
    while True:
        fresh = [seen for seen in find() if Hint(seen.pid, seen.started) not in prey.keys() | unkillable]
        if not fresh:
            return list(prey.values())
        for seen in fresh:
            hint = Hint(seen.pid, seen.started)
            family.add(hint)
            if _send(seen, signal.SIGSTOP):
                prey[hint] = seen
            else:
                unkillable.add(hint)
        if time.monotonic() >= deadline:
            return list(prey.values())


def _find(sought: Collection[bytes], family: set[Hint]) -> list[Process]:
    """The live processes that are to be killed."""
    table = procfs.table()
    spared = _self_and_ancestors(table)
    spared_sessions = {table[pid].session for pid in spared if pid in table}
    ours = {pid for pid, seen in table.items() if Hint(pid, seen.started) in family or _has_marker(pid, sought)}
    ours -= spared
    children: dict[int, list[int]] = {}
    members: dict[int, list[int]] = {}
    for seen in table.values():
        children.setdefault(seen.parent, []).append(seen.pid)
        members.setdefault(seen.session, []).append(seen.pid)
    queue = list(ours)
    while queue:
        seen = table[queue.pop()]
        relatives = list(children.get(seen.pid, ()))
        if seen.session not in spared_sessions:
            relatives += members[seen.session]
        for pid in relatives:
            if pid not in ours and pid not in spared:
                ours.add(pid)
                queue.append(pid)
    return [table[pid] for pid in ours]


def _as_environ(marker: str) -> bytes:
    """The marker as it stands in an environment, which is a row of texts that each end in NUL."""
    return f"\0{MARKER_VARIABLE}={marker}".encode() + (b"" if marker.endswith(":") else b"\0")


def _has_marker(pid: int, sought: Collection[bytes]) -> bool:
    if not sought:
        return False
    environ = b"\0" + _environ(pid)
    return any(marker in environ for marker in sought)


def _is_anothers(pid: int, identity: str) -> bool:
    """Whether a process says that it belongs to another state directory."""
    environ = b"\0" + _environ(pid)
    return f"\0{MARKER_VARIABLE}=".encode() in environ and not _has_marker(pid, [_as_environ(f"{identity}:")])


def _environ(pid: int) -> bytes:
    try:
        with open(f"/proc/{pid}/environ", "rb") as file:
            return file.read()
    except OSError:  # it has ended, or it is another user's
        return b""


def _self_and_ancestors(table: dict[int, Process]) -> set[int]:
    spared: set[int] = {1}
    pid = os.getpid()
    while pid not in spared and pid in table:
        spared.add(pid)
        pid = table[pid].parent
    return spared


def _send(seen: Process, number: signal.Signals) -> bool:
    """Signal exactly this process; False if that is not allowed or not possible. One that has ended counts as done."""
    try:
        pidfd = os.pidfd_open(seen.pid)
    except ProcessLookupError:
        return True
    except OSError:
        return False
    try:
        if start_ticks(seen.pid) == seen.started:  # read after the pidfd was opened: it is this process that it holds
            signal.pidfd_send_signal(pidfd, number)
    except ProcessLookupError:
        pass
    except OSError:
        return False
    finally:
        os.close(pidfd)
    return True


def _await_ends(prey: list[Process], timeout_s: float) -> bool:
    """Wait until all have ended; False if that takes longer. A pidfd becomes readable when its process ends."""
    deadline = time.monotonic() + timeout_s
    for seen in prey:
        try:
            pidfd = os.pidfd_open(seen.pid)
        except OSError:
            continue
        try:
            if start_ticks(seen.pid) == seen.started:
                poll = select.poll()
                poll.register(pidfd, select.POLLIN)
                if not poll.poll(max(deadline - time.monotonic(), 0) * 1_000):
                    return False
        finally:
            os.close(pidfd)
    return True


__all__ = [
    "Hint",
    "Leftovers",
    "Marker",
    "hunt",
    "is_same_boot",
    "kill_leftovers",
    "load_identity",
    "remember_boot",
    "task_of",
]
