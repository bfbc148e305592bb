"""The 1st, 2nd, 3rd ... statement of a migration fails, until it gets through: the database is the old one or the new
one, whole, and the next start makes it the new one.
"""

import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing, suppress
from pathlib import Path
from typing import Any, ClassVar

import pytest

from schedd.store import connect, migrate, tables
from schedd.store.base import StoreBroken, StoreUnavailable
from schedd.store.faults import translated
from support.nth import BUSY, FULL, IOERR, Crash, Place

STEP = f'''
revision = "next"
down_revision = "{tables.HEAD}"

import sqlalchemy as sa
from alembic import op


def upgrade():
    op.execute("CREATE TABLE extra (name TEXT NOT NULL)")
    op.execute("INSERT INTO extra SELECT id FROM task")
    with op.batch_alter_table("setting") as batch:
        batch.add_column(sa.Column("note", sa.Text()))
        batch.alter_column("value", type_=sa.Text(), nullable=True)
    op.execute("UPDATE setting SET note = 'kept'")
'''
KINDS = pytest.mark.parametrize("kind", [FULL, IOERR, BUSY, None], ids=["full", "ioerr", "busy", "crash"])
STAYS = pytest.mark.parametrize("stays", [False, True], ids=["once", "for-ever"])
Release = Callable[[], None]


class FailingCursor(sqlite3.Cursor):
    """Passes by the place of its connection around each statement."""

    def execute(self, sql: str, *parameters: Any) -> Any:
        place, connection = FailingDatabase.place, self.connection
        place.pass_by(connection, "before", sql)
        result = super().execute(sql, *parameters)
        try:
            place.pass_by(connection, "after", sql)
        except BaseException:
            self.close()  # or the traceback would keep the statement in progress, which no real fault does
            raise
        return result


class FailingDatabase(sqlite3.Connection):
    """A connection as SQLAlchemy uses it."""

    place = Place(0, None)
    opened: ClassVar[list[sqlite3.Connection]] = []

    def __init__(self, *args: Any, **more: Any) -> None:
        super().__init__(*args, **more)
        self.opened.append(self)

    def cursor(self, factory: Any = FailingCursor) -> Any:
        return super().cursor(factory)

    def commit(self) -> None:
        self.place.pass_by(self, "before", "COMMIT")
        super().commit()
        self.place.pass_by(self, "after", "COMMIT")


@pytest.fixture
def fails(monkeypatch: pytest.MonkeyPatch) -> None:
    """Connections of migrations fail at `FailingDatabase.place`."""

    def failing(path: Path, mode: str, timeout_s: float) -> sqlite3.Connection:
        factory = sqlite3.Connection if mode == "ro" else FailingDatabase
        return sqlite3.connect(
            f"file:{path}?mode={mode}", uri=True, check_same_thread=False, isolation_level=None, timeout=timeout_s,
            factory=factory,
        )  # fmt: skip

    monkeypatch.setattr(connect, "_connect", failing)
    monkeypatch.setattr(FailingDatabase, "place", Place(0, None))


@pytest.fixture
def release(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Release:
    """Call it to have the program of a release to come, with one more step."""
    scripts = tmp_path / "scripts"

    def make() -> None:
        shutil.copytree(migrate.script_location(), scripts, ignore=shutil.ignore_patterns("__pycache__"))
        (scripts / "versions" / "next.py").write_text(STEP)
        monkeypatch.setattr(migrate, "script_location", lambda: scripts)
        monkeypatch.setattr(migrate, "HEAD", "next")

    return make


def die() -> None:
    """What the end of the process does to its connections."""
    while FailingDatabase.opened:
        connection = FailingDatabase.opened.pop()
        with suppress(sqlite3.ProgrammingError):  # it was closed
            sqlite3.Connection.rollback(connection)
            connection.close()


def look(path: Path) -> str | None:
    """The revision of a database that is whole in it. Raises AssertionError if it is half of something."""
    with translated(path), closing(sqlite3.connect(path)) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        names = {row[0] for row in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
        if "alembic_version" not in names:
            assert not names, f"some tables of a database that has no revision: {names}"
            return None
        ((revision,),) = connection.execute("SELECT version_num FROM alembic_version").fetchall()
        settings = connection.execute("SELECT * FROM setting").fetchall()
        ids = connection.execute("SELECT id FROM task").fetchall()
        if revision == "next":
            assert settings in ([("paused", "1", "kept")], [])
            assert connection.execute("SELECT name FROM extra").fetchall() == ids
        else:
            assert "extra" not in names
            assert settings in ([("paused", "1")], [])
        assert not [name for name in names if name.startswith("_alembic_tmp")]
    return str(revision)


def fail_everywhere(tmp_path: Path, old: Path | None, kind: int | None, stays: bool) -> int:
    """Fail at each place; how many there are."""
    before = None if old is None else look(old)
    at = 0
    while True:
        at += 1
        path = tmp_path / f"{at}" / "schedd.db"
        path.parent.mkdir()
        if old is not None:
            shutil.copy(old, path)
        place = FailingDatabase.place = Place(at, kind, stays)
        try:
            migrate.upgrade(path)
        except (StoreUnavailable, Crash):
            if not place.hits:
                raise
        except migrate.MigrationFailed:
            assert kind is None, "a fault that can pass was told as one that cannot"
            # dead, it would say nothing; alive, SQLAlchemy stumbles over the connection that it gave up
        else:
            assert look(path) == migrate.HEAD, f"{place.met} was not noticed"
        FailingDatabase.place = Place(0, None)
        if kind is None:
            die()
        found = look(path) if path.exists() else None
        assert found in (before, migrate.HEAD), f"after {place.met}"
        if found == migrate.HEAD and old is not None:
            assert list(path.parent.glob("*.bak")), f"upgraded without a backup, after {place.met}"
        elif kind is not None:
            assert not list(path.parent.glob("*.bak")), f"a backup of what was not changed, after {place.met}"
        assert migrate.upgrade(path).to_revision == migrate.HEAD
        assert look(path) == migrate.HEAD
        if not place.hits:
            return at


@KINDS
@STAYS
@pytest.mark.usefixtures("fails")
def test_whichever_statement_of_the_first_migration_fails(tmp_path: Path, kind: int | None, stays: bool):
    """There is no database, an empty one, or a whole one."""
    assert fail_everywhere(tmp_path, None, kind, stays) > 20


@KINDS
@STAYS
@pytest.mark.usefixtures("fails")
def test_whichever_statement_of_an_upgrade_fails(tmp_path: Path, release: Release, kind: int | None, stays: bool):
    """The old database with its data or the new one with its data and a backup of the old one; never half of each."""
    old = tmp_path / "old.db"
    migrate.upgrade(old)
    with closing(sqlite3.connect(old)) as connection:
        connection.execute("INSERT INTO setting VALUES ('paused', '1')")
        connection.commit()
    assert look(old) == tables.HEAD
    release()
    assert fail_everywhere(tmp_path, old, kind, stays) > 20


@pytest.mark.usefixtures("fails")
def test_a_fault_that_cannot_pass_is_told_as_such(tmp_path: Path, release: Release):
    """Not every fault is one to wait for."""
    path = tmp_path / "schedd.db"
    migrate.upgrade(path)
    release()
    FailingDatabase.place = Place(20, sqlite3.SQLITE_CORRUPT)
    with pytest.raises(StoreBroken, match="nothing was changed"):
        migrate.upgrade(path)
    assert look(path) == tables.HEAD
