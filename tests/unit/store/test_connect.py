"""How the database is opened: which file, with which promises, and what text comes back."""

import sqlite3
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from schedd.store import migrate
from schedd.store.base import StatementFailed, StoreUnavailable
from schedd.store.connect import BUSY_TIMEOUT_MS, connect_to_read
from schedd.store.sqlite import SqliteStore, open_store


@pytest.mark.parametrize("name", ["with space", "what?mode=memory", "100%25", "a#b", "ünï"])
def test_any_name_of_a_directory_leads_to_the_file_in_it(tmp_path: Path, name: str):
    """What has a meaning in a URI has none in a path."""
    path = tmp_path / name / "schedd.db"
    path.parent.mkdir()
    migrate.upgrade(path)
    open_store(path).close()
    with closing(connect_to_read(path)) as connection:
        assert connection.execute("SELECT count(*) FROM task").fetchone() == (0,)
    assert path.is_file()
    assert list(tmp_path.iterdir()) == [path.parent]


@pytest.mark.parametrize(
    ("pragma", "value"),
    [
        ("journal_mode", "wal"),
        ("synchronous", 2),  # FULL
        ("foreign_keys", 1),
        ("busy_timeout", BUSY_TIMEOUT_MS),
        ("auto_vacuum", 2),  # INCREMENTAL
    ],
)
def test_the_store_keeps_its_promises(sqlite_store: SqliteStore, pragma: str, value: object):
    """Durable to the disk, referentially whole, and never long in a wait."""
    assert sqlite_store._connection.execute(f"PRAGMA {pragma}").fetchone() == (value,)


def test_a_transaction_locks_at_its_begin(sqlite_store: SqliteStore):
    """Another writer is refused before the first write, not at the commit."""
    sqlite_store.begin()
    with closing(sqlite3.connect(sqlite_store.path, isolation_level=None, timeout=0)) as other:
        with pytest.raises(sqlite3.OperationalError, match="locked"):
            other.execute("BEGIN IMMEDIATE")
        sqlite_store.rollback()
        other.execute("BEGIN IMMEDIATE")


def test_another_thread_may_use_what_one_has_opened(sqlite_store: SqliteStore):
    """The daemon opens the store before its engine's thread exists."""
    seqs: list[int] = []
    thread = threading.Thread(target=lambda: seqs.append(sqlite_store.next_seq()))
    thread.start()
    thread.join()
    assert seqs == [1]


def test_a_missing_database_is_not_made_by_opening(tmp_path: Path):
    """An empty one in place of a lost one would look like a fresh start."""
    with pytest.raises(StoreUnavailable, match="cannot be opened"):
        open_store(tmp_path / "schedd.db")
    assert not list(tmp_path.iterdir())


def test_a_dangling_edge_is_refused(sqlite_store: SqliteStore):
    """Foreign keys hold."""
    sqlite_store.begin()
    with pytest.raises(StatementFailed, match="FOREIGN KEY"):
        sqlite_store._all("INSERT INTO dependency VALUES (7, 8, 'failed')")
    sqlite_store.rollback()


@pytest.fixture
def reader(database: Path) -> Iterator[sqlite3.Connection]:
    """A reading connection to a database in which one text is not UTF-8."""
    with closing(sqlite3.connect(database)) as writer:
        writer.execute("INSERT INTO setting VALUES ('note', CAST(x'61ff62' AS TEXT))")
        writer.commit()
    with closing(connect_to_read(database)) as connection:
        yield connection


def test_a_reader_cannot_write(reader: sqlite3.Connection):
    """Not even by mistake."""
    with pytest.raises(sqlite3.OperationalError, match="readonly"):
        reader.execute("DELETE FROM setting")


def test_damaged_text_is_shown_to_readers_and_told_to_the_store(reader: sqlite3.Connection, database: Path):
    """People see a replacement character; the store gets bytes where it wants text."""
    query = "SELECT value FROM setting WHERE name = 'note'"
    assert reader.execute(query).fetchone() == ("a\ufffdb",)
    store = open_store(database)
    assert store._one(query) == (b"a\xffb",)
    store.close()
