"""What an error of the database means for schedd: it can pass, it cannot, or one statement is to blame.

Tests: tests/unit/store/test_sqlite_faults.py.
"""

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager

from sqlalchemy.exc import DBAPIError, SQLAlchemyError

from schedd.store.base import StatementFailed, StoreBroken, StoreUnavailable

_CAN_PASS = {
    sqlite3.SQLITE_BUSY: "the database is locked by another process",
    sqlite3.SQLITE_LOCKED: "the database is locked",
    sqlite3.SQLITE_FULL: "the disk is full (or the database has reached its largest size)",
    sqlite3.SQLITE_IOERR: "the disk under the database gave an input/output error",
    sqlite3.SQLITE_READONLY: "the database cannot be written: it, its -wal or -shm, or their directory is read-only",
    sqlite3.SQLITE_CANTOPEN: "the database cannot be opened: look at its permissions and at the free disk space",
    sqlite3.SQLITE_PERM: "the database may not be accessed: look at its permissions",
    sqlite3.SQLITE_NOMEM: "there is not enough memory for the database",
    sqlite3.SQLITE_PROTOCOL: "the database is locked by too many processes at once",
    sqlite3.SQLITE_INTERRUPT: "a database operation was interrupted",
}
_CANNOT_PASS = {
    sqlite3.SQLITE_CORRUPT: "the database is damaged",
    sqlite3.SQLITE_NOTADB: "the file is not an SQLite database",
}
_SCHEMA_GONE = ("no such table", "no such column", "has no column named")

WHAT_TO_DO = "restore a backup, or move the file away to begin with an empty one; schedd does not touch it"


def translate(error: Exception, path: object) -> Exception:
    """The store's exception for one of SQLAlchemy's or sqlite3's; other exceptions come back as they are."""
    original: BaseException = error
    if isinstance(error, DBAPIError) and error.orig is not None:
        original = error.orig
    if isinstance(original, sqlite3.Error):
        code = getattr(original, "sqlite_errorcode", None)
        primary = None if code is None else code & 0xFF
        if primary in _CAN_PASS:
            return StoreUnavailable(f"{_CAN_PASS[primary]} ({path}: {original})")
        if primary in _CANNOT_PASS:
            return StoreBroken(f"{_CANNOT_PASS[primary]} ({path}: {original}); {WHAT_TO_DO}")
        if any(words in str(original) for words in _SCHEMA_GONE):
            return StoreBroken(f"the tables of the database are not those of schedd ({path}: {original}); {WHAT_TO_DO}")
        return StatementFailed(f"the database refused a statement: {original}")
    if isinstance(original, MemoryError):  # how sqlite3 tells SQLITE_NOMEM
        return StoreUnavailable(f"{_CAN_PASS[sqlite3.SQLITE_NOMEM]} ({path})")
    if isinstance(error, (SQLAlchemyError, OverflowError, UnicodeEncodeError)):
        return StatementFailed(f"the database refused a value: {original}")
    return error


@contextmanager
def translated(path: object) -> Iterator[None]:
    """Whatever the database raises within leaves as StoreUnavailable, StoreBroken or StatementFailed."""
    try:
        yield
    except (SQLAlchemyError, sqlite3.Error, OverflowError, UnicodeEncodeError, MemoryError) as error:
        raise translate(error, path) from error
