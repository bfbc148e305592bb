"""Copies of a database that are whole, taken while others read and write it.

Only SQLite opens the file: opening and closing it by hand in the daemon's own process would drop SQLite's locks.
Tests: tests/unit/store/test_backup.py.
"""

import os
import sqlite3
from contextlib import closing
from pathlib import Path

from schedd.store.faults import translated

PAGES_AT_ONCE = 1_000


class BackupRefused(Exception):
    """The backup was not made."""


def copy_database(source: Path, target: Path) -> None:
    """A consistent, fsynced copy of `source` at `target`, which must not exist.

    It is written under another name first, so what stands at `target` is always whole. Raises BackupRefused,
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
    with (
        translated(source),
        closing(sqlite3.connect(f"file:{_quoted(source)}?mode=ro", uri=True)) as reading,
        closing(sqlite3.connect(partial)) as writing,
    ):
        reading.execute("PRAGMA busy_timeout = 5000")
        reading.backup(writing, pages=PAGES_AT_ONCE)
        writing.execute("PRAGMA journal_mode = DELETE")  # one file, without a -wal beside it


def _quoted(path: Path) -> str:
    from urllib.parse import quote

    return quote(str(path))


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
