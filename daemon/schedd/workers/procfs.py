"""Processes as /proc tells of them. Standard library only, and little of it: the fork server imports this.

Tests: tests/unit/workers/test_processes.py.
"""

import os
from typing import NamedTuple


class Process(NamedTuple):
    """A live process as /proc tells it; `pid` and `started` (clock ticks since boot) are its identity."""

    pid: int
    parent: int
    session: int
    started: int
    group: int


def table() -> dict[int, Process]:
    """Every live process, by pid."""
    found: dict[int, Process] = {}
    for name in os.listdir("/proc"):
        if name.isdecimal() and (seen := look(int(name))) is not None:
            found[seen.pid] = seen
    return found


def look(pid: int) -> Process | None:
    """The process as it is now; None if there is none or only its zombie."""
    fields = _stat(pid)
    if fields is None or fields[0] in (b"Z", b"X"):
        return None
    return Process(pid, int(fields[1]), int(fields[3]), int(fields[19]), int(fields[2]))


def start_ticks(pid: int) -> int | None:
    """When a process (or zombie) began, in clock ticks since boot; None if there is none."""
    fields = _stat(pid)
    return None if fields is None else int(fields[19])


def _stat(pid: int) -> list[bytes] | None:
    """The fields of /proc/PID/stat from the third (the state) on; the second may hold anything, parentheses too."""
    try:
        with open(f"/proc/{pid}/stat", "rb", buffering=0) as file:
            return file.read().rpartition(b")")[2].split()
    except OSError:
        return None
