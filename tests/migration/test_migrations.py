"""The schema: made, upgraded with a backup, refused when newer, whole after a failure half-way."""

import shutil
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Iterable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import create_engine
from sqlalchemy.pool import StaticPool

from schedd.store import connect, migrate, tables
from schedd.store.backup import BackupRefused
from schedd.store.base import StoreBroken, StoreUnavailable

ROOT = Path(__file__).resolve().parents[2]


def test_a_new_database_gets_the_newest_schema(tmp_path: Path):
    """No backup of nothing; a second time there is nothing to do."""
    path = tmp_path / "schedd.db"
    assert migrate.upgrade(path) == migrate.Upgrade(None, tables.HEAD, None)
    assert migrate.upgrade(path) == migrate.Upgrade(tables.HEAD, tables.HEAD, None)
    assert not list(tmp_path.glob("*.bak"))


def test_head_is_the_newest_script():
    """The constant that spares the daemon the import of Alembic."""
    from alembic.script import ScriptDirectory

    assert ScriptDirectory(str(migrate.script_location())).get_current_head() == tables.HEAD


SCHEMA = "SELECT name, sql FROM sqlite_master WHERE tbl_name NOT LIKE 'sqlite_%' AND tbl_name NOT LIKE 'alembic_%'"


def words_of(schema: Iterable[Any]) -> dict[str, list[str]]:
    """The statement behind each name, without its layout and the quotes that a rename leaves (indices that SQLite
    makes by itself have none).
    """
    return {name: (sql or "").replace(f'"{name}"', name).split() for name, sql in schema}


def test_the_scripts_and_the_tables_agree(tmp_path: Path):
    """To the letter: `alembic check` knows nothing of checks, conditions of indices and tables without rowid."""
    path = tmp_path / "schedd.db"
    migrate.upgrade(path)
    with closing(sqlite3.connect(path)) as connection:
        migrated = words_of(connection.execute(SCHEMA))
    engine = create_engine("sqlite://", poolclass=StaticPool)
    tables.metadata.create_all(engine)
    with engine.connect() as made:
        expected = words_of(made.exec_driver_sql(SCHEMA))
    engine.dispose()
    assert len(migrated) > 10
    assert migrated == expected


def test_alembic_finds_nothing_to_do(tmp_path: Path):
    """`alembic check`, as developers run it."""
    path = tmp_path / "schedd.db"
    migrate.upgrade(path)
    command = [sys.executable, "-m", "alembic", "-x", f"db={path}", "check"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    assert "No new upgrade operations detected" in done.stdout


def test_a_start_without_an_upgrade_does_not_import_alembic(tmp_path: Path):
    """Nor does it write a word."""
    path = tmp_path / "schedd.db"
    migrate.upgrade(path)
    code = "import sys; from pathlib import Path; from schedd.store import migrate"
    code += f"; migrate.upgrade(Path({str(path)!r}))"
    code += "; assert not any(name.startswith(('alembic', 'mako')) for name in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_a_newer_database_is_refused_by_name(tmp_path: Path):
    """Both revisions are named, and nothing is changed."""
    path = tmp_path / "schedd.db"
    migrate.upgrade(path)
    with sqlite3.connect(path) as connection:
        connection.execute("UPDATE alembic_version SET version_num = '9999'")
    connection.close()
    with pytest.raises(migrate.StoreTooNew, match=r"9999.*" + tables.HEAD):
        migrate.upgrade(path)


def test_somebody_elses_database_is_refused(tmp_path: Path):
    """It is not ours to migrate."""
    path = tmp_path / "schedd.db"
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE invoices (id INTEGER)")
    connection.close()
    before = path.read_bytes()
    with pytest.raises(StoreBroken, match="invoices"):
        migrate.upgrade(path)
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


def test_another_program_of_alembic_is_not_a_newer_schedd(tmp_path: Path):
    """A revision alone does not make a database ours."""
    path = tmp_path / "schedd.db"
    with closing(sqlite3.connect(path)) as connection:
        connection.executescript("CREATE TABLE alembic_version (version_num TEXT); CREATE TABLE invoices (id INTEGER);")
        connection.execute("INSERT INTO alembic_version VALUES ('abc')")
        connection.commit()
    with pytest.raises(StoreBroken, match="not one of schedd"):
        migrate.upgrade(path)


def test_a_directory_in_the_place_of_the_database_is_refused(tmp_path: Path):
    """It would not pass by waiting."""
    (tmp_path / "schedd.db").mkdir()
    with pytest.raises(StoreBroken, match="is a directory"):
        migrate.upgrade(tmp_path / "schedd.db")


def test_an_empty_file_becomes_a_database(tmp_path: Path):
    """As SQLite sees it, it is one."""
    path = tmp_path / "schedd.db"
    path.touch()
    assert migrate.upgrade(path).from_revision is None


@pytest.fixture
def next_release(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The scripts of a release to come, whose one new step the test writes."""
    scripts = tmp_path / "scripts"
    shutil.copytree(migrate.script_location(), scripts, ignore=shutil.ignore_patterns("__pycache__"))
    monkeypatch.setattr(migrate, "script_location", lambda: scripts)
    monkeypatch.setattr(migrate, "HEAD", "next")
    return scripts


def add_step(scripts: Path, body: str) -> None:
    text = f'revision = "next"\ndown_revision = "{tables.HEAD}"\nfrom alembic import op\n\ndef upgrade():\n'
    (scripts / "versions" / "next.py").write_text(text + "".join(f"    {line}\n" for line in body.splitlines()))


def filled(tmp_path: Path) -> Path:
    """A database with something in it."""
    path = tmp_path / "schedd.db"
    migrate.upgrade(path)
    with sqlite3.connect(path) as connection:
        connection.execute("INSERT INTO setting VALUES ('paused', '1')")
    connection.close()
    return path


def test_an_upgrade_takes_a_backup_first(tmp_path: Path, next_release: Path):
    """The copy is whole and has the old revision; an older copy is kept."""
    path = filled(tmp_path)
    (tmp_path / f"schedd.db.{tables.HEAD}.bak").write_text("an older copy")
    add_step(next_release, 'op.execute("ALTER TABLE setting ADD COLUMN note TEXT")')
    done = migrate.upgrade(path)
    assert (done.from_revision, done.to_revision) == (tables.HEAD, "next")
    assert done.backup == tmp_path / f"schedd.db.{tables.HEAD}.2.bak"
    copy = sqlite3.connect(done.backup)
    assert copy.execute("SELECT * FROM setting").fetchall() == [("paused", "1")]
    assert copy.execute("SELECT version_num FROM alembic_version").fetchone() == (tables.HEAD,)
    copy.close()


def test_a_failure_half_way_leaves_the_old_database_whole(tmp_path: Path, next_release: Path):
    """The first half of the step is undone with it."""
    path = filled(tmp_path)
    add_step(
        next_release, 'op.execute("ALTER TABLE setting ADD COLUMN note TEXT")\nop.execute("SELECT * FROM nowhere")'
    )
    with pytest.raises(migrate.MigrationFailed, match=r"no such table: nowhere$"):
        migrate.upgrade(path)
    connection = sqlite3.connect(path)
    assert connection.execute("SELECT version_num FROM alembic_version").fetchone() == (tables.HEAD,)
    assert connection.execute("SELECT * FROM setting").fetchall() == [("paused", "1")]
    connection.close()


def test_a_kill_half_way_leaves_the_old_database_whole(tmp_path: Path, next_release: Path):
    """The next start finds it as it was, and upgrades it."""
    path = filled(tmp_path)
    kill = "import os, signal\nos.kill(os.getpid(), signal.SIGKILL)"
    add_step(next_release, f'op.execute("ALTER TABLE setting ADD COLUMN note TEXT")\n{kill}')
    code = "from pathlib import Path; from schedd.store import migrate; migrate.HEAD = 'next'"
    code += f"; migrate.script_location = lambda: Path({str(next_release)!r}); migrate.upgrade(Path({str(path)!r}))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, timeout=60, check=False)
    assert done.returncode == -signal.SIGKILL, done.stderr
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("SELECT version_num FROM alembic_version").fetchone() == (tables.HEAD,)
        assert connection.execute("SELECT * FROM setting").fetchall() == [("paused", "1")]
    add_step(next_release, 'op.execute("ALTER TABLE setting ADD COLUMN note TEXT")')
    assert migrate.upgrade(path).to_revision == "next"


def test_a_locked_database_can_be_upgraded_later(tmp_path: Path, next_release: Path, monkeypatch: pytest.MonkeyPatch):
    """Another process has it: that can pass, and is no failure of the step."""
    path = filled(tmp_path)
    add_step(next_release, 'op.execute("ALTER TABLE setting ADD COLUMN note TEXT")')
    monkeypatch.setattr(connect, "BUSY_TIMEOUT_MS", 1)
    monkeypatch.setattr(connect, "_PRAGMAS", ())
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(StoreUnavailable, match="locked by another process"):
            migrate.upgrade(path)


def test_without_a_backup_there_is_no_upgrade(tmp_path: Path, next_release: Path, monkeypatch: pytest.MonkeyPatch):
    """The old revision stays."""
    path = filled(tmp_path)
    add_step(next_release, 'op.execute("ALTER TABLE setting ADD COLUMN note TEXT")')

    def refuse(source: Path, target: Path) -> None:
        raise BackupRefused(f"cannot write {target}: No space left on device")

    monkeypatch.setattr(migrate, "copy_database", refuse)
    with pytest.raises(migrate.MigrationFailed, match="No space left"):
        migrate.upgrade(path)
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("SELECT version_num FROM alembic_version").fetchone() == (tables.HEAD,)


def test_a_step_that_leaves_dangling_rows_is_undone(tmp_path: Path, next_release: Path):
    """Foreign keys are off during a migration, so they are checked before the commit."""
    path = filled(tmp_path)
    add_step(next_release, "op.execute(\"INSERT INTO dependency VALUES (7, 8, 'failed')\")")
    with pytest.raises(migrate.MigrationFailed, match="dangling"):
        migrate.upgrade(path)
    connection = sqlite3.connect(path)
    assert connection.execute("SELECT count(*) FROM dependency").fetchone() == (0,)
    connection.close()
