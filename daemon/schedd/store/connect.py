"""The ways to open the database: an SQLAlchemy engine that writes, and plain connections that can only read.

Python's sqlite3 begins transactions by itself in its default mode and so leaves a failed migration half-applied;
here it never does (`isolation_level=None`), and every transaction of the engine is a BEGIN IMMEDIATE by a listener.
The daemon and the migrations use the same engine. Tests: tests/unit/store/test_connect.py.
"""

import sqlite3
from pathlib import Path
from typing import Any, Literal
from urllib.parse import quote

from sqlalchemy import Engine, create_engine, event
from sqlalchemy.pool import StaticPool

from schedd.store.base import StoreUnavailable

BUSY_TIMEOUT_MS = 1_000
"""SQLite's own wait for another writer: short, since the engine loop retries and must not look hung meanwhile."""

READ_PATIENCE_S = 5.0
"""How long a reader waits for a lock; beside a write-ahead log it meets one only while that is recovered or reset."""

JOURNAL_LIMIT_BYTES = 64 * 1024 * 1024

_PRAGMAS = (
    f"PRAGMA busy_timeout = {BUSY_TIMEOUT_MS}",
    "PRAGMA journal_mode = WAL",
    "PRAGMA synchronous = FULL",
    "PRAGMA temp_store = MEMORY",
    "PRAGMA cache_size = -65536",
    f"PRAGMA journal_size_limit = {JOURNAL_LIMIT_BYTES}",
)


def writing_engine(path: Path, *, migrating: bool = False) -> Engine:
    """An engine with one connection that may be handed from thread to thread (never used by two at once).

    Migrations alone may create the file, and alone have foreign keys off: inside a transaction the pragma does
    nothing, and with it on, the rebuilding of a table would cascade.
    """

    def connect() -> sqlite3.Connection:
        connection = _connect(path, "rwc" if migrating else "rw", BUSY_TIMEOUT_MS / 1000)
        connection.text_factory = _text
        return connection

    def on_connect(connection: sqlite3.Connection, record: object) -> None:
        if migrating:  # takes effect on a new file, before WAL; on an old one it would only be written again
            connection.execute("PRAGMA auto_vacuum = INCREMENTAL")
        for pragma in _PRAGMAS:
            connection.execute(pragma)
        connection.execute(f"PRAGMA foreign_keys = {'OFF' if migrating else 'ON'}")

    def on_begin(connection: Any) -> None:
        connection.exec_driver_sql("BEGIN IMMEDIATE")

    def on_statement(connection: Any, cursor: sqlite3.Cursor, statement: str, *others: object) -> None:
        if not cursor.connection.in_transaction and not statement.startswith("BEGIN"):
            raise StoreUnavailable(f"SQLite has undone the upgrade of {path} because of an error that it met")

    engine = create_engine("sqlite://", creator=connect, poolclass=StaticPool)
    event.listen(engine, "connect", on_connect)
    event.listen(engine, "begin", on_begin)
    if migrating:
        # Some errors (a full disk) make SQLite roll back, and SQLAlchemy passes over errors when it looks at tables:
        # what follows would be written without a transaction, and the half of a migration would stay.
        event.listen(engine, "before_cursor_execute", on_statement)
    return engine


def connect_to_read(path: Path) -> sqlite3.Connection:
    """A connection that cannot write, not even the header, and that any one thread may use at a time.

    Text that is not UTF-8 comes back with replacement characters: it is there to be shown. Raises sqlite3.Error.
    """
    connection = _connect(path, "ro", READ_PATIENCE_S)
    connection.text_factory = lambda raw: raw.decode(errors="replace")
    return connection


def _connect(path: Path, mode: Literal["ro", "rw", "rwc"], timeout_s: float) -> sqlite3.Connection:
    uri = f"file:{quote(str(path))}?mode={mode}"  # quoted, or a `?` in the path would lead to another file
    return sqlite3.connect(uri, uri=True, check_same_thread=False, isolation_level=None, timeout=timeout_s)


def _text(raw: bytes) -> str | bytes:
    """Stored text; where it is not UTF-8 the bytes themselves, so that damage is met by who reads that value."""
    try:
        return raw.decode()
    except UnicodeDecodeError:
        return raw
