"""What each kind of fault of the database is told as: it can pass, it cannot, or one statement is to blame."""

import os
import sqlite3
from pathlib import Path

import pytest

from schedd.core.events import Logged, Output
from schedd.store.base import StatementFailed, StoreBroken, StoreUnavailable
from schedd.store.faults import translated
from schedd.store.migrate import upgrade
from schedd.store.sqlite import SqliteStore, open_store


def an_event(detail: dict[str, object] | None = None, at: float = 1.0) -> Output:
    out = Output()
    out.events.append(Logged(at, None, None, "test", detail))
    return out


def write(store: SqliteStore, out: Output) -> None:
    store.begin()
    store.write(out)
    store.commit()


def test_a_locked_database_can_pass(sqlite_store: SqliteStore):
    """The message says who is to blame, and after the other one is gone it works."""
    with sqlite3.connect(sqlite_store.path, isolation_level=None) as other:
        other.execute("BEGIN IMMEDIATE")
        sqlite_store._connection.execute("PRAGMA busy_timeout = 1")
        with pytest.raises(StoreUnavailable, match="locked by another process"):
            sqlite_store.begin()
        sqlite_store.rollback()
        other.execute("ROLLBACK")
    other.close()
    write(sqlite_store, an_event())


def test_a_full_database_can_pass(sqlite_store: SqliteStore):
    """Nothing of the failed transaction stays, and with room again it works."""
    pages = sqlite_store._connection.execute("PRAGMA page_count").fetchone()[0]
    sqlite_store._connection.execute(f"PRAGMA max_page_count = {pages}")
    with pytest.raises(StoreUnavailable, match="full"):
        write(sqlite_store, an_event({"text": "x" * 100_000}))
    sqlite_store.rollback()
    sqlite_store._connection.execute("PRAGMA max_page_count = 1000000")
    write(sqlite_store, an_event())
    assert sqlite_store._connection.execute("SELECT count(*) FROM event").fetchone() == (1,)


def test_a_deleted_database_is_broken(sqlite_store: SqliteStore):
    """Commits into a file that nobody can find again would be worth nothing."""
    sqlite_store.path.unlink()
    with pytest.raises(StoreBroken, match="deleted or replaced"):
        sqlite_store.begin()


def test_a_replaced_database_is_broken(sqlite_store: SqliteStore, migrated: bytes):
    """Also when there is a file under the name again."""
    new = sqlite_store.path.with_name("new")
    new.write_bytes(migrated)
    os.replace(new, sqlite_store.path)
    with pytest.raises(StoreBroken, match="deleted or replaced"):
        sqlite_store.begin()


def test_a_database_deleted_before_the_commit_is_broken(sqlite_store: SqliteStore):
    """What was committed into it is not answered."""
    sqlite_store.begin()
    sqlite_store.write(an_event())
    sqlite_store.path.unlink()
    with pytest.raises(StoreBroken, match="deleted or replaced"):
        sqlite_store.commit()


def test_a_write_that_is_forbidden_can_pass(sqlite_store: SqliteStore):
    """Permissions can be set right."""
    sqlite_store._connection.execute("PRAGMA query_only = ON")
    with pytest.raises(StoreUnavailable, match="read-only"):
        write(sqlite_store, an_event())
    sqlite_store.rollback()
    sqlite_store._connection.execute("PRAGMA query_only = OFF")
    write(sqlite_store, an_event())


def test_a_lack_of_memory_can_pass():
    """Python's sqlite3 tells it as a MemoryError."""
    with pytest.raises(StoreUnavailable, match="not enough memory"), translated("schedd.db"):
        raise MemoryError


def test_a_bug_of_ours_is_not_taken_for_a_fault():
    """It passes as it is."""
    with pytest.raises(ZeroDivisionError), translated("schedd.db"):
        _ = 1 / 0


def test_a_text_too_large_is_one_statements_fault(sqlite_store: SqliteStore):
    """Whatever limit SQLite was built with."""
    sqlite_store._connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, 10_000)
    sqlite_store.begin()
    with pytest.raises(StatementFailed, match="too big"):
        sqlite_store.remember("key", "d", "x" * 20_000, 1.0)
    sqlite_store.rollback()


@pytest.mark.parametrize("value", [2**63, 2**70])
def test_an_integer_too_large_is_one_statements_fault(sqlite_store: SqliteStore, value: int):
    """It refuses the request; the store lives on."""
    out = an_event()
    out.events[0] = out.events[0]._replace(task_seq=value)
    sqlite_store.begin()
    with pytest.raises(StatementFailed):
        sqlite_store.write(out)
    sqlite_store.rollback()
    write(sqlite_store, an_event())


def test_a_lone_surrogate_is_one_statements_fault(sqlite_store: SqliteStore):
    """SQLite cannot hold it."""
    sqlite_store.begin()
    with pytest.raises(StatementFailed):
        sqlite_store.remember("\ud800", "d", "a", 1.0)
    sqlite_store.rollback()


def test_a_missing_table_is_broken(sqlite_store: SqliteStore):
    """It is not our database any more."""
    sqlite_store._connection.execute("DROP TABLE event")
    sqlite_store.begin()
    with pytest.raises(StoreBroken, match="tables"):
        sqlite_store.write(an_event())
    sqlite_store.rollback()


@pytest.mark.parametrize("opening", [open_store, upgrade])
@pytest.mark.parametrize(
    "content", [b"this is a letter, not a database. " * 200, b"SQLite format 3\0" + b"\xff" * 8000]
)
def test_a_file_that_is_no_database_is_refused_and_left_alone(tmp_path: Path, opening, content: bytes):
    """The message says what to do; the file is as it was."""
    path = tmp_path / "schedd.db"
    path.write_bytes(content)
    with pytest.raises(StoreBroken, match="restore a backup"):
        opening(path)
    assert path.read_bytes() == content


def test_damaged_pages_are_broken(sqlite_store: SqliteStore):
    """Corruption in the middle is met when it is read, and not written over."""
    out = Output()
    out.events = [Logged(1.0, None, None, "test", {"n": number, "text": "x" * 200}) for number in range(500)]
    write(sqlite_store, out)
    path = sqlite_store.path
    sqlite_store._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    sqlite_store.close()
    with path.open("r+b") as file:
        for page in range(2, path.stat().st_size // 4096):
            file.seek(page * 4096)
            file.write(b"\xff" * 4096)
    with pytest.raises(StoreBroken, match="damaged"):
        open_store(path).load()


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_read_only_database_can_pass(sqlite_store: SqliteStore):
    """An admin may set its permissions right."""
    sqlite_store.close()
    sqlite_store.path.chmod(0o440)
    store = open_store(sqlite_store.path)
    with pytest.raises(StoreUnavailable, match="read-only"):
        write(store, an_event())
    store.close()
