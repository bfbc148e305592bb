"""One scheduler per state directory: an exclusive lock on the directory itself, held for as long as the process lives.

The lock belongs to the directory's inode, so it holds whatever path leads there, and no file in it can be removed to
get past it. The file `lock` in it says who holds it; it is locked too, for an older schedd knows no other lock.

A library's SQLite file shares its directory with other files: it locks a file beside it, and the directory only in
shared mode, so that a daemon does not run on the same database. Who removes that file while it is held has no lock.

A file system that cannot lock directories (some of the network) leaves the file alone to hold the lock.
Tests: tests/unit/test_lock.py, tests/crash/test_locking.py.
"""

import errno
import fcntl
import os
from contextlib import suppress
from pathlib import Path

_CANNOT_LOCK_DIRECTORIES = frozenset({errno.EBADF, errno.EINVAL, errno.ENOLCK, errno.ENOTSUP})


class AlreadyLocked(Exception):
    """Another scheduler uses this state directory."""


class StateDirLock:
    """Holds the lock from creation until `release` or the end of the process. Raises AlreadyLocked or OSError."""

    def __init__(self, state_dir: Path, file_name: str = "lock", *, shared: bool = False) -> None:
        self._dir = state_dir
        self._path = state_dir / file_name
        self._fds: list[int] = []
        try:
            self._lock_directory(fcntl.LOCK_SH if shared else fcntl.LOCK_EX)
            self._lock_file()
        except BaseException:
            self.release()
            raise

    @classmethod
    def of_file(cls, database: Path) -> "StateDirLock":
        """The lock of a single SQLite file."""
        return cls(database.parent, f"{database.name}.lock", shared=True)

    def release(self) -> None:
        """Let the next one in."""
        while self._fds:
            os.close(self._fds.pop())

    def _lock_directory(self, mode: int) -> None:
        descriptor = os.open(self._dir, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        self._fds.append(descriptor)
        try:
            fcntl.flock(descriptor, mode | fcntl.LOCK_NB)
        except BlockingIOError:
            raise self._refusal(descriptor) from None
        except OSError as error:
            if error.errno not in _CANNOT_LOCK_DIRECTORIES:
                raise

    def _lock_file(self) -> None:
        descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o640)
        self._fds.append(descriptor)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise self._refusal(descriptor) from None
        with suppress(OSError):  # the pid is there to be told; on a full disk the lock holds without it
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)

    def _refusal(self, locked: int) -> AlreadyLocked:
        holder = _holder(locked) or self._written_holder()
        who = f"the process with pid {holder}" if holder else "another process"
        return AlreadyLocked(f"{self._dir} is in use by {who}; one schedd serves one state directory")

    def _written_holder(self) -> int | None:
        """Who says in the file that it holds the lock."""
        try:
            return int(self._path.read_text("ascii")[:32])
        except (OSError, ValueError):
            return None


def _holder(descriptor: int) -> int | None:
    """Who holds the lock, as the kernel has it. It tells nothing of those outside of this container."""
    status = os.fstat(descriptor)
    sought = f"{os.major(status.st_dev):02x}:{os.minor(status.st_dev):02x}:{status.st_ino}"
    try:
        lines = Path("/proc/locks").read_text().splitlines()
    except OSError:
        return None
    for line in lines:  # "1: FLOCK  ADVISORY  WRITE 1234 08:01:567 0 EOF"; one that waits has "->" after the number
        fields = line.split()
        if len(fields) >= 6 and fields[1] == "FLOCK" and fields[5] == sought and fields[4].isdecimal():
            return int(fields[4]) or None
    return None
