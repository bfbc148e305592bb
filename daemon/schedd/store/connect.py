"""The one way to open the database for writing: an SQLAlchemy engine with schedd's pragmas and transactions.

Python's sqlite3 begins transactions by itself in its default mode and so leaves a failed migration half-applied;
here it never does (`isolation_level=None`), and every transaction of the engine is a BEGIN IMMEDIATE by a listener.
The daemon and the migrations use the same engine. Tests: tests/unit/store/test_sqlite.py.
"""

import sqlite3
from pathlib import Path
from typing import Any

from sqlalchemy import Engine, create_engine, event
from sqlalchemy.pool import StaticPool

BUSY_TIMEOUT_MS = 1_000
"""SQLite's own wait for another writer: short, since the engine loop retries and must not look hung meanwhile."""

JOURNAL_LIMIT_BYTES = 64 * 1024 * 1024

_PRAGMAS = (
    f"PRAGMA busy_timeout = {BUSY_TIMEOUT_MS}",
    "PRAGMA auto_vacuum = INCREMENTAL",  # only takes effect on a new file, before WAL
    "PRAGMA journal_mode = WAL",
    "PRAGMA synchronous = FULL",
    "PRAGMA temp_store = MEMORY",
    "PRAGMA cache_size = -65536",
    f"PRAGMA journal_size_limit = {JOURNAL_LIMIT_BYTES}",
)


def writing_engine(path: Path, foreign_keys: bool = True) -> Engine:
    """An engine with one connection that may be handed from thread to thread (never used by two at once).

    `foreign_keys` is off for migrations alone: inside a transaction the pragma does nothing, and with it on, the
    rebuilding of a table would cascade.
    """
    engine = create_engine(
        f"sqlite:///{path}",
        poolclass=StaticPool,
        connect_args={"check_same_thread": False, "isolation_level": None, "timeout": BUSY_TIMEOUT_MS / 1000},
    )

    def on_connect(connection: sqlite3.Connection, record: object) -> None:
        for pragma in _PRAGMAS:
            connection.execute(pragma)
        connection.execute(f"PRAGMA foreign_keys = {'ON' if foreign_keys else 'OFF'}")

    def on_begin(connection: Any) -> None:
        connection.exec_driver_sql("BEGIN IMMEDIATE")

    event.listen(engine, "connect", on_connect)
    event.listen(engine, "begin", on_begin)
    return engine
