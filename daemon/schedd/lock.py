"""One scheduler per state directory: an exclusive lock on a file in it, held for as long as the process lives.

The lock belongs to the file's inode, so it holds whatever path leads there. Tests: tests/unit/test_lock.py.
"""

import fcntl
import os
from contextlib import suppress
from pathlib import Path


class AlreadyLocked(Exception):
    """Another scheduler uses this state directory."""


class StateDirLock:
    """Holds the lock from creation until `release` or the end of the process. Raises AlreadyLocked or OSError."""

    def __init__(self, path: Path) -> None:
        self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o640)
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.pread(self._fd, 32, 0).decode("ascii", "replace").strip()
            os.close(self._fd)
            who = f"the process with pid {holder}" if holder else "another process"
            raise AlreadyLocked(f"{path.parent} is in use by {who}; one schedd serves one state directory") from None
        except BaseException:
            os.close(self._fd)
            raise
        with suppress(OSError):  # the pid is there to be told; on a full disk the lock holds without it
            os.ftruncate(self._fd, 0)
            os.pwrite(self._fd, f"{os.getpid()}\n".encode(), 0)

    def release(self) -> None:
        """Let the next one in."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1
