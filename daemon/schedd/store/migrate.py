"""Bringing a database to the schema that this program knows: made if absent, upgraded if older, refused if newer.

An upgrade is one transaction and is preceded by a copy of the file, so a failure or a kill half-way leaves the old
database whole. Alembic is imported only when there is something to do. `python -m schedd.store.migrate PATH` does the
same by hand. Tests: tests/migration.
"""

import os
import sqlite3
import sys
from dataclasses import dataclass
from pathlib import Path

from sqlalchemy import Connection, Engine, inspect
from sqlalchemy.exc import SQLAlchemyError

from schedd.store.backup import copy_database
from schedd.store.base import StoreBroken
from schedd.store.connect import writing_engine
from schedd.store.faults import WHAT_TO_DO, translated
from schedd.store.tables import HEAD


class StoreTooNew(Exception):
    """The database was written by a newer schedd; install that version, or restore the backup it took."""


class MigrationFailed(Exception):
    """An upgrade of the database failed; the database is as it was before."""


@dataclass(frozen=True, slots=True)
class Upgrade:
    """What was done: `from_revision` is None for a new database, `backup` the copy taken before an upgrade."""

    from_revision: str | None
    to_revision: str
    backup: Path | None


def script_location() -> Path:
    """The directory of the migration scripts: in the package (a wheel), else at the top of the checkout."""
    package = Path(__file__).resolve().parents[1]
    for place in (package / "migrations", package.parents[1] / "migrations"):
        if (place / "env.py").is_file():
            return place
    raise StoreBroken(f"the migration scripts of schedd are missing beside {package}; install it again")


def upgrade(path: Path) -> Upgrade:
    """Make or upgrade the database at `path`.

    Raises StoreTooNew, MigrationFailed, StoreBroken (not a database, damaged, somebody else's) or StoreUnavailable.
    """
    engine = writing_engine(path, foreign_keys=False)
    try:
        with translated(path), engine.connect() as connection:
            revision = _revision(connection, path)
        if revision == HEAD:
            return Upgrade(HEAD, HEAD, None)
        if revision is not None and revision not in _known_revisions():
            raise StoreTooNew(
                f"the database {path} has revision {revision}, which this schedd (revision {HEAD}) does not know: it "
                "was written by a newer one. Install that version, or restore the backup that it took when it upgraded"
            )
        backup = None if revision is None else _back_up(path, revision)
        _run_scripts(engine, path)
        return Upgrade(revision, HEAD, backup)
    finally:
        engine.dispose()


def _revision(connection: Connection, path: Path) -> str | None:
    """The revision of a database; None for one that is empty. Raises StoreBroken for one that is not ours."""
    names = set(inspect(connection).get_table_names())
    if not names:
        return None
    if "alembic_version" not in names:
        raise StoreBroken(f"{path} is an SQLite database, but not one of schedd ({', '.join(sorted(names)[:5])})")
    row = connection.exec_driver_sql("SELECT version_num FROM alembic_version").fetchone()
    if row is None and names - {"alembic_version"}:
        raise StoreBroken(f"{path} does not say which schema it has; {WHAT_TO_DO}")
    return None if row is None else str(row[0])


def _known_revisions() -> set[str]:
    from alembic.script import ScriptDirectory

    return {script.revision for script in ScriptDirectory(str(script_location())).walk_revisions()}


def _back_up(path: Path, revision: str) -> Path:
    """A copy beside the database; an older copy is never overwritten."""
    number = 1
    target = path.with_name(f"{path.name}.{revision}.bak")
    while target.exists():
        number += 1
        target = path.with_name(f"{path.name}.{revision}.{number}.bak")
    copy_database(path, target)
    return target


def _run_scripts(engine: Engine, path: Path) -> None:
    from alembic import command
    from alembic.config import Config
    from alembic.util import CommandError

    config = Config()
    config.set_main_option("script_location", str(script_location()).replace("%", "%%"))
    try:
        with translated(path), engine.begin() as connection:
            config.attributes["connection"] = connection
            command.upgrade(config, "head")
            broken = connection.exec_driver_sql("PRAGMA foreign_key_check").fetchall()
            if broken:
                raise MigrationFailed(
                    f"the upgrade of {path} would leave {len(broken)} dangling references; {_AS_IT_WAS}"
                )
    except (CommandError, SQLAlchemyError) as error:
        raise MigrationFailed(f"the upgrade of {path} failed: {error}; {_AS_IT_WAS}") from error


_AS_IT_WAS = "nothing was changed"


def main() -> None:
    """`python -m schedd.store.migrate PATH`."""
    if len(sys.argv) != 2:
        sys.exit("usage: python -m schedd.store.migrate PATH")
    path = Path(sys.argv[1])
    if not os.access(path.parent, os.W_OK):
        sys.exit(f"cannot write to {path.parent}")
    try:
        done = upgrade(path)
    except (StoreTooNew, MigrationFailed, StoreBroken, sqlite3.Error) as error:
        sys.exit(str(error))
    print(f"{path}: {done.from_revision or 'new'} -> {done.to_revision}", file=sys.stderr)


if __name__ == "__main__":
    main()
