"""Copies of a database that are whole, taken while others read and write it.

Only SQLite opens the file: opening and closing it by hand in the daemon's own process would drop SQLite's locks.
Tests: tests/unit/store/test_backup.py.
"""

import errno
import os
import sqlite3
import tempfile
from contextlib import closing
from pathlib import Path

from schedd.store.atrest import read_without_trace
from schedd.store.base import StoreBroken
from schedd.store.faults import translated

PARTIAL = ".partial"
_NO_LINKS = (errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK)


class BackupRefused(Exception):
    """The backup was not made."""


def copy_database(source: Path, target: Path) -> None:
    """A consistent, checked and fsynced copy of `source` at `target`, which must not exist.

    It is written under a name of its own first, so what stands at `target` is always whole; only its owner may read
    it. Other connections may read and write meanwhile. Raises BackupRefused, StoreUnavailable or StoreBroken.
    """
    if os.path.lexists(target):
        raise _exists(target)
    if not source.exists():
        raise BackupRefused(f"there is no database at {source}")
    partial = None
    try:
        # environments of tasks are in it: mkstemp makes a file for its owner only
        descriptor, name = tempfile.mkstemp(prefix=f"{target.name}.", suffix=PARTIAL, dir=target.parent)
        os.close(descriptor)
        partial = Path(name)
        _write_copy(source, partial, target)
        _sync(partial)
        _give_name(partial, target)
        _sync(target.parent)
    except OSError as error:
        raise BackupRefused(f"cannot write {target}: {error.strerror}") from error
    finally:
        if partial is not None:
            for suffix in ("", "-journal", "-wal", "-shm"):
                Path(f"{partial}{suffix}").unlink(missing_ok=True)


def _exists(target: Path) -> BackupRefused:
    return BackupRefused(f"{target} exists already; name another file")


def _write_copy(source: Path, partial: Path, target: Path) -> None:
    with translated(source), closing(sqlite3.connect(partial, isolation_level=None)) as writing:
        try:
            # all at once: in steps it would begin again after each commit of the daemon
            read_without_trace(source, lambda reading: reading.backup(writing))
            writing.execute("PRAGMA journal_mode = DELETE")  # one file, without a -wal beside it
            found = writing.execute("PRAGMA quick_check(1)").fetchone()[0]
        except sqlite3.Error as error:
            code = getattr(error, "sqlite_errorcode", None)
            if code is not None and code & 0xFF == sqlite3.SQLITE_FULL:  # we only read the source
                raise BackupRefused(f"cannot write {target}: the disk is full") from error
            raise
    if found != "ok":
        raise StoreBroken(
            f"the database {source} is damaged, and so would be its copy, which was not kept: {found}. "
            "`schedctl check` says more; docs/operations.md says what can be done"
        )


def _give_name(partial: Path, target: Path) -> None:
    """Let the file be found as `target`, unless something got there meanwhile. (A rename would overwrite it.)"""
    try:
        os.link(partial, target)
    except FileExistsError:
        raise _exists(target) from None
    except OSError as error:
        if error.errno not in _NO_LINKS:
            raise
        if os.path.lexists(target):
            raise _exists(target) from None
        os.rename(partial, target)


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
