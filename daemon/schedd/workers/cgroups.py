"""A cgroup for each running attempt, where the service manager has handed schedd a part of the tree (`Delegate=yes`).

Theory of operation
-------------------
An attempt enters a cgroup below the daemon's own before its program runs, so whatever it starts is in there too, with
or without environment, session or parent. When it has ended the cgroup is killed whole, and is used again once the
kernel says that nothing is left in it; one that does not get empty is left alone. There are as many as attempts have
run at once. What a dead daemon left in them is killed at the next start.

No controllers are enabled, so the daemon may stay where it is. Entering is best effort: without it the marker in the
environment does the work, as it does where nothing is delegated. Only a cgroup that the service manager has marked as
delegated is used: root could write to any.

Needs cgroup v2 and Linux 5.14 (cgroup.kill). Tests: tests/crash/test_cgroups.py.
"""

import contextlib
import logging
import os
import select
import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

PATIENCE_S = 2.0
_SET_BY_SHELLS = ("PWD", "OLDPWD", "SHLVL")
_DELEGATED = ("user.delegate", "trusted.delegate")  # what systemd writes on the cgroup of a unit with Delegate=yes


def delegated() -> Path | None:
    """The directory of this process's own cgroup, if it may be divided."""
    try:
        own = _own(Path("/proc/self/cgroup").read_text(), Path("/proc/self/mountinfo").read_text())
    except OSError:
        return None
    if own is None or not _is_marked(own) or not (own / "cgroup.kill").exists():
        return None
    return own if os.access(own, os.W_OK) and os.access(own / "cgroup.procs", os.W_OK) else None


def _own(cgroups: str, mounts: str) -> Path | None:
    """Where the cgroup that `cgroups` names lies in the file system, by a text as in /proc/self/mountinfo."""
    name = next((line[3:] for line in cgroups.splitlines() if line.startswith("0::")), "/")
    for line in mounts.splitlines():
        fields = line.split(" ")
        if fields[fields.index("-") + 1] == "cgroup2":
            root = fields[3].rstrip("/")
            if name != "/" and name.startswith(f"{root}/"):
                return Path(fields[4] + name[len(root) :])
    return None


def _is_marked(directory: Path) -> bool:
    for attribute in _DELEGATED:
        with contextlib.suppress(OSError):
            if os.getxattr(directory, attribute) == b"1":
                return True
    return False


class Cgroups:
    """The cgroups of one state directory below `own`. `take` and `give_back` may be called from any thread."""

    def __init__(self, own: Path, identity: str) -> None:
        self._own = own
        self._prefix = f"schedd-{identity}-"
        self._lock = threading.Lock()  # guards all below
        self._free: list[Path] = []
        self._made = 0

    def take(self) -> Path | None:
        """An empty cgroup; None if there can be none at the moment."""
        with self._lock:
            if self._free:
                return self._free.pop()
            self._made += 1
            path = self._own / f"{self._prefix}{self._made}"
        try:
            path.mkdir(exist_ok=True)
        except OSError:
            return None
        return path

    def give_back(self, cgroup: Path) -> None:
        """Kill what is in it, and keep it for the next attempt when that is gone."""
        if _kill([cgroup], PATIENCE_S):
            logging.getLogger(__name__).warning("killed processes of the cgroup %s do not end", cgroup)
            return
        with self._lock:
            self._free.append(cgroup)

    def clear(self, timeout_s: float) -> list[int]:
        """Kill what is in any of them, and remove them: before the first `take`, or after the last. The pids of those
        that do not end within `timeout_s` seconds.
        """
        with self._lock:
            self._free.clear()
        try:
            found = [path for path in self._own.iterdir() if path.name.startswith(self._prefix)]
        except OSError:
            return []
        left = _kill(found, timeout_s)
        for path in found:
            with contextlib.suppress(OSError):  # something is in it, or the attempt has divided it in turn
                path.rmdir()
        return [pid for path in left for pid in _pids(path)]


def wrapped(argv: Sequence[str], cgroup: Path, environment: Mapping[str, str]) -> list[str]:
    """A command that enters the cgroup and becomes `argv`, with the environment that it was given."""
    extra = " ".join(name for name in _SET_BY_SHELLS if name not in environment)
    enter = '{ echo 0 >"$1"; } 2>/dev/null; shift; ' + (f"unset {extra}; " if extra else "") + 'exec "$@"'
    return ["/bin/sh", "-c", enter, "schedd", str(cgroup / "cgroup.procs"), *argv]


def keeps_all(environment: Mapping[str, str]) -> bool:
    """Whether a shell would hand all of it on: some drop variables whose names are not names to them."""
    return all(name.isascii() and name.isidentifier() for name in environment)


def enter(cgroup: str) -> None:
    """Move this process there, if that can be."""
    with contextlib.suppress(OSError), open(f"{cgroup}/cgroup.procs", "wb", buffering=0) as file:
        file.write(b"0")


def _kill(cgroups: Iterable[Path], timeout_s: float) -> list[Path]:
    """Kill what is in them; those that are not empty in time."""
    deadline = time.monotonic() + timeout_s
    full = [path for path in cgroups if _is_populated(path)]
    for path in full:
        with contextlib.suppress(OSError):
            (path / "cgroup.kill").write_text("1")
    return [path for path in full if not _await_empty(path, deadline)]


def _await_empty(cgroup: Path, deadline: float) -> bool:
    """Whether nothing is left in it at the deadline. The kernel tells of each change of cgroup.events."""
    try:
        with open(cgroup / "cgroup.events", "rb", buffering=0) as file:
            poll = select.poll()
            poll.register(file, select.POLLPRI)
            while b"populated 1" in file.read():
                remaining_s = deadline - time.monotonic()
                if remaining_s <= 0:
                    return False
                poll.poll(remaining_s * 1_000)
                file.seek(0)
    except FileNotFoundError:
        pass
    return True


def _is_populated(cgroup: Path) -> bool:
    try:
        return b"populated 1" in (cgroup / "cgroup.events").read_bytes()
    except OSError:
        return False


def _pids(cgroup: Path) -> list[int]:
    try:
        return [int(line) for line in (cgroup / "cgroup.procs").read_text().split()]
    except OSError:
        return []
