"""Copies of a database that are whole, taken while others read and write it.

Only SQLite opens the file: opening and closing it by hand in the daemon's own process would drop SQLite's locks.
Tests: tests/unit/store/test_backup.py.
"""

import os
import sqlite3
from contextlib import closing
from pathlib import Path

from schedd.store.connect import connect_to_read
from schedd.store.faults import translated


class BackupRefused(Exception):
    """The backup was not made."""


def copy_database(source: Path, target: Path) -> None:
    """A consistent, fsynced copy of `source` at `target`, which must not exist.

    It is written under another name first, so what stands at `target` is always whole; only its owner may read it.
    Other connections may read and write meanwhile. Raises BackupRefused,
    StoreUnavailable or StoreBroken.
    """
    if target.exists():
        raise BackupRefused(f"{target} exists already; name another file")
    if not source.exists():
        raise BackupRefused(f"there is no database at {source}")
    partial = target.with_name(target.name + ".partial")
    try:
        _write_copy(source, partial)
        _sync(partial)
        os.rename(partial, target)
        _sync(target.parent)
    except OSError as error:
        raise BackupRefused(f"cannot write {target}: {error.strerror}") from error
    finally:
        partial.unlink(missing_ok=True)


def _write_copy(source: Path, partial: Path) -> None:
    partial.unlink(missing_ok=True)
    os.close(os.open(partial, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))  # environments of tasks are in it
    with (
        translated(source),
        closing(connect_to_read(source)) as reading,
        closing(sqlite3.connect(partial)) as writing,
    ):
        reading.backup(writing)  # all at once: in steps it would begin again after each commit of the daemon
        writing.execute("PRAGMA journal_mode = DELETE")  # one file, without a -wal beside it


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
