"""The schema: made, upgraded with a backup, refused when newer, whole after a failure half-way."""

import shutil
import sqlite3
from pathlib import Path

import pytest

from schedd.store import migrate, tables
from schedd.store.base import StoreBroken


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


def test_the_scripts_and_the_tables_agree(tmp_path: Path):
    """What `alembic check` says, without a shell."""
    from alembic.autogenerate import compare_metadata
    from alembic.runtime.migration import MigrationContext

    from schedd.store.connect import writing_engine

    path = tmp_path / "schedd.db"
    migrate.upgrade(path)
    engine = writing_engine(path)
    with engine.connect() as connection:
        context = MigrationContext.configure(connection, opts={"compare_type": True})
        differences = [item for item in compare_metadata(context, tables.metadata) if "ix_task_open" not in repr(item)]
    engine.dispose()
    assert differences == []


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
    with pytest.raises(StoreBroken, match="invoices"):
        migrate.upgrade(path)


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
    add_step(next_release, 'op.execute("ALTER TABLE setting ADD COLUMN note TEXT")\nop.execute("SELECT * FROM nothing")')
    with pytest.raises(Exception, match="nothing"):
        migrate.upgrade(path)
    connection = sqlite3.connect(path)
    assert connection.execute("SELECT version_num FROM alembic_version").fetchone() == (tables.HEAD,)
    assert connection.execute("SELECT * FROM setting").fetchall() == [("paused", "1")]
    connection.close()


def test_a_step_that_leaves_dangling_rows_is_undone(tmp_path: Path, next_release: Path):
    """Foreign keys are off during a migration, so they are checked before the commit."""
    path = filled(tmp_path)
    add_step(next_release, "op.execute(\"INSERT INTO dependency VALUES (7, 8, 'failed')\")")
    with pytest.raises(migrate.MigrationFailed, match="dangling"):
        migrate.upgrade(path)
    connection = sqlite3.connect(path)
    assert connection.execute("SELECT count(*) FROM dependency").fetchone() == (0,)
    connection.close()
