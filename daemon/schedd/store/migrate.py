"""Bringing a database to the schema that this program knows: made if absent, upgraded if older, refused if newer.

An upgrade is one transaction and is preceded by a copy of the file, so a failure or a kill half-way leaves the old
database whole. Alembic is imported only when there is something to do. `python -m schedd.store.migrate PATH` does the
same by hand. Tests: tests/migration.
"""

import os
import sys
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from sqlalchemy.exc import DBAPIError

from schedd.store.backup import BackupRefused, copy_database
from schedd.store.base import StoreBroken, StoreUnavailable
from schedd.store.connect import connect_to_read, writing_engine
from schedd.store.faults import WHAT_TO_DO, translate, translated
from schedd.store.tables import HEAD


class StoreTooNew(Exception):
    """The database was written by a newer schedd; install that version, or restore the backup it took."""


class MigrationFailed(StoreBroken):
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

    Raises StoreTooNew, MigrationFailed, StoreBroken (not a database, damaged, somebody else's) or StoreUnavailable;
    a file that is refused has only been read.
    """
    revision = _revision(path)
    if revision == HEAD:
        return Upgrade(HEAD, HEAD, None)
    if revision is not None and revision not in _known_revisions():
        raise StoreTooNew(
            f"the database {path} has revision {revision}, which this schedd (revision {HEAD}) does not know: it "
            "was written by a newer one. Install that version, or restore the backup that it took when it upgraded"
        )
    if revision is None:
        _make(path)
    backup = None if revision is None else _back_up(path, revision)
    try:
        _run_scripts(path)
    except BaseException:
        if backup is not None and _is_still(path, revision):
            backup.unlink(missing_ok=True)  # nothing was changed; a next try takes its own
        raise
    return Upgrade(revision, HEAD, backup)


def _revision(path: Path) -> str | None:
    """The revision of a database; None for one that is absent or empty. Raises StoreBroken for one that is not ours."""
    if path.is_dir():
        raise StoreBroken(f"{path} is a directory where the database should be; move it away")
    if not path.exists():
        return None
    if not os.access(path, os.R_OK | os.W_OK):  # SQLite would go on, and leave a `-shm` as read-only as the database
        raise StoreUnavailable(f"the database {path} is read-only for this user: set its permissions right")
    with translated(path), closing(connect_to_read(path)) as connection:
        query = "SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite_%' ORDER BY name"
        names = [row[0] for row in connection.execute(query)]
        if not names:
            return None
        if "alembic_version" not in names or "task" not in names:
            raise StoreBroken(
                f"{path} is an SQLite database, but not one of schedd: it has the tables {', '.join(names[:5])}; "
                "move it away, or name another state directory"
            )
        row = connection.execute("SELECT version_num FROM alembic_version").fetchone()
    if row is None:
        raise StoreBroken(f"{path} does not say which schema it has; {WHAT_TO_DO}")
    return str(row[0])


def _is_still(path: Path, revision: str | None) -> bool:
    """Whether the database has that revision, for sure: an upgrade that raised may have been committed all the same."""
    try:
        return _revision(path) == revision
    except (StoreBroken, StoreUnavailable):
        return False


def _make(path: Path) -> None:
    """An empty file, for SQLite to fill: it would make one that all may read, and `-wal` and `-shm` take after it.

    Nobody has it open yet, so closing it costs no lock.
    """
    try:
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o640))
    except FileExistsError:
        pass
    except OSError as error:
        raise StoreUnavailable(f"the database {path} cannot be made: {error.strerror}") from error


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
    try:
        copy_database(path, target)
    except BackupRefused as refusal:
        raise MigrationFailed(f"no backup, no upgrade: {refusal}; nothing was changed") from refusal
    return target


def _run_scripts(path: Path) -> None:
    """All that is missing, in one transaction. Raises MigrationFailed, or StoreUnavailable for what can pass."""
    from alembic import command
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", str(script_location()).replace("%", "%%"))
    engine = writing_engine(path, migrating=True)
    try:
        with engine.begin() as connection:
            config.attributes["connection"] = connection
            command.upgrade(config, "head")
            dangling = len(connection.exec_driver_sql("PRAGMA foreign_key_check").fetchall())
            if dangling:
                raise ValueError(f"it would leave {dangling} dangling references")
    except Exception as error:  # a script may raise anything
        fault = translate(error, path)
        if isinstance(fault, StoreUnavailable):
            raise fault from error
        reason = error.orig if isinstance(error, DBAPIError) else error
        raise MigrationFailed(f"the upgrade of {path} failed and nothing was changed: {reason}") from error
    finally:
        engine.dispose()


def main() -> None:
    """`python -m schedd.store.migrate PATH`."""
    if len(sys.argv) != 2:
        sys.exit("usage: python -m schedd.store.migrate PATH")
    path = Path(sys.argv[1])
    try:
        done = upgrade(path)
    except (StoreTooNew, StoreBroken, StoreUnavailable) as error:
        sys.exit(str(error))
    print(f"{path}: {done.from_revision or 'new'} -> {done.to_revision}", file=sys.stderr)


if __name__ == "__main__":
    main()
