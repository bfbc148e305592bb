"""A copy of the database: whole, while others write, and never in place of something else."""

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from schedd.core.events import Logged, Output
from schedd.store.backup import BackupRefused, copy_database
from schedd.store.base import StoreBroken
from schedd.store.sqlite import SqliteStore


def log_lines(store: SqliteStore, *kinds: str) -> None:
    out = Output()
    out.events = [Logged(1.0, None, None, kind, None) for kind in kinds]
    store.write(out)


def kinds_in(path: Path) -> list[str]:
    with closing(sqlite3.connect(path)) as connection:
        return [row[0] for row in connection.execute("SELECT kind FROM event ORDER BY id")]


def test_the_copy_holds_what_is_committed(sqlite_store: SqliteStore, tmp_path: Path):
    """What lies in the write-ahead log is in it, what an open transaction has written is not."""
    sqlite_store.begin()
    log_lines(sqlite_store, "a", "b")
    sqlite_store.commit()
    sqlite_store.begin()
    log_lines(sqlite_store, "c")
    copy_database(sqlite_store.path, tmp_path / "copy.db")
    sqlite_store.commit()
    assert kinds_in(tmp_path / "copy.db") == ["a", "b"]
    assert kinds_in(sqlite_store.path) == ["a", "b", "c"]


def test_the_copy_is_one_file_for_its_owner(sqlite_store: SqliteStore, tmp_path: Path):
    """Nothing beside it has to be carried along, and tasks' environments are nobody else's business."""
    folder = tmp_path / "backups"
    folder.mkdir()
    copy_database(sqlite_store.path, folder / "copy.db")
    assert [path.name for path in folder.iterdir()] == ["copy.db"]
    assert (folder / "copy.db").stat().st_mode & 0o777 == 0o600
    with closing(sqlite3.connect(folder / "copy.db")) as connection:
        assert connection.execute("PRAGMA journal_mode").fetchone() == ("delete",)
        assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)


def test_what_is_there_is_not_overwritten(sqlite_store: SqliteStore, tmp_path: Path):
    """An older backup may be the only good one."""
    target = tmp_path / "copy.db"
    target.write_text("precious")
    with pytest.raises(BackupRefused, match=r"copy\.db exists already"):
        copy_database(sqlite_store.path, target)
    assert target.read_text() == "precious"


def test_without_a_source_there_is_no_copy(tmp_path: Path):
    """Nor is one made."""
    with pytest.raises(BackupRefused, match="no database"):
        copy_database(tmp_path / "nothing.db", tmp_path / "copy.db")
    assert not list(tmp_path.iterdir())


def test_a_target_that_cannot_be_written_is_refused_with_the_reason(sqlite_store: SqliteStore, tmp_path: Path):
    """Here the directory is missing."""
    with pytest.raises(BackupRefused, match="No such file or directory"):
        copy_database(sqlite_store.path, tmp_path / "missing" / "copy.db")


def test_a_failed_copy_leaves_nothing(tmp_path: Path):
    """A half of a database must not be taken for a backup."""
    source = tmp_path / "source.db"
    source.write_bytes(b"this is a letter, not a database. " * 200)
    with pytest.raises(StoreBroken):
        copy_database(source, tmp_path / "copy.db")
    assert list(tmp_path.iterdir()) == [source]
