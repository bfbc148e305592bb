"""Old databases, a release to come, and SQLite operations that fail or kill: for the tests of migrations.

Run as a program, it upgrades a database and kills itself at an operation of SQLite:

    python tests/support/migrating.py PATH SCRIPTS N
"""

import importlib
import os
import shutil
import signal
import sqlite3
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

from schedd.store import atrest, backup, connect, migrate, tables

OLD = Path(__file__).resolve().parents[1] / "fixtures" / "databases"
NEXT = "next"

REBUILD = '''
"""A step as steps are: a table that others refer to is built anew, with its rows, and gets a column that says more."""

import re

from alembic import op

revision = "next"
down_revision = "@"


def upgrade():
    execute = op.get_bind().exec_driver_sql
    [(table,)] = execute("SELECT sql FROM sqlite_master WHERE name = 'task'").fetchall()
    indices = execute("SELECT sql FROM sqlite_master WHERE tbl_name = 'task' AND type = 'index' AND sql > ''")
    indices = indices.fetchall()
    execute(re.sub(r'CREATE TABLE "?task"?', "CREATE TABLE task_new", table, count=1))
    execute("INSERT INTO task_new SELECT * FROM task")
    execute("DROP TABLE task")  # with foreign keys on, this would empty `attempt` and `dependency`
    execute("ALTER TABLE task_new RENAME TO task")
    for (index,) in indices:
        execute(index)
    execute("ALTER TABLE task ADD COLUMN note TEXT")
    execute("UPDATE task SET note = 'note of ' || id")
    execute("CREATE TABLE more (task_seq INTEGER REFERENCES task (seq) ON DELETE CASCADE)")
    execute("INSERT INTO more SELECT seq FROM task")
'''


def scripts_of_next_release(folder: Path, step: str = REBUILD) -> Path:
    """The migration scripts, and one more, in a directory of their own."""
    scripts = folder / "scripts"
    shutil.copytree(migrate.script_location(), scripts, ignore=shutil.ignore_patterns("__pycache__"))
    (scripts / "versions" / f"{NEXT}.py").write_text(step.replace("@", tables.HEAD).lstrip())
    return scripts


def rows_of(path: Path) -> dict[str, dict[str, list[Any]]]:
    """Every value of a database: table -> column -> values, in the order of the first columns."""
    found: dict[str, dict[str, list[Any]]] = {}
    with closing(sqlite3.connect(path)) as connection:
        names = [row[0] for row in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        for name in sorted({*names} - {"alembic_version"}):
            order = "1, 2" if len(connection.execute(f'PRAGMA table_info("{name}")').fetchall()) > 1 else "1"
            rows = connection.execute(f'SELECT * FROM "{name}" ORDER BY {order}')
            columns = [entry[0] for entry in rows.description]
            values = rows.fetchall()
            found[name] = {column: [row[index] for row in values] for index, column in enumerate(columns)}
    return found


def revision_of(path: Path) -> str | None:
    """The revision of a database; None for one that is absent or without tables."""
    if not path.exists():
        return None
    with closing(sqlite3.connect(path)) as connection:
        if not connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]:
            return None
        return str(connection.execute("SELECT version_num FROM alembic_version").fetchone()[0])


def lost_in(before: dict[str, dict[str, list[Any]]], after: dict[str, dict[str, list[Any]]]) -> list[str]:
    """The columns whose values are not what they were; those that are gone are no loss (a later release may do so)."""
    return [
        f"{table}.{column}"
        for table, columns in before.items()
        for column, values in columns.items()
        if table != "sqlite_sequence" and column in after.get(table, {}) and after[table][column] != values
    ]


def intercept(pass_by: Callable[[sqlite3.Connection, str, str], None]) -> Callable[[], None]:
    """Have `pass_by(connection, "before" or "after", sql)` called around each operation on SQLite; it may raise.

    Returns what ends it.
    """

    class Cursor(sqlite3.Cursor):
        def execute(self, sql: str, *parameters: Any) -> Any:
            pass_by(self.connection, "before", sql)
            result = super().execute(sql, *parameters)
            try:
                pass_by(self.connection, "after", sql)
            except BaseException:
                super().close()  # or the traceback would keep the statement in progress, which no real fault does
                raise
            return result

    class Connection(sqlite3.Connection):
        def cursor(self, factory: Any = Cursor) -> Any:
            return super().cursor(factory)

        def execute(self, sql: str, *parameters: Any) -> Any:
            return self.cursor().execute(sql, *parameters)

        def commit(self) -> None:
            pass_by(self, "before", "COMMIT")
            super().commit()
            pass_by(self, "after", "COMMIT")

        def backup(self, target: Any, **more: Any) -> None:
            pass_by(self, "before", "backup")
            super().backup(target, **more)
            pass_by(self, "after", "backup")

    class Module:
        def __getattr__(self, name: str) -> Any:
            return getattr(sqlite3, name)

        @staticmethod
        def connect(*arguments: Any, **more: Any) -> Any:
            return sqlite3.connect(*arguments, **more, factory=Connection)

    modules: list[Any] = [connect, atrest, backup]
    for module in modules:
        module.sqlite3 = Module()

    def restore() -> None:
        for module in modules:
            module.sqlite3 = sqlite3

    return restore


def main() -> None:
    """See above."""
    path, scripts, at = Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3])
    migrate.script_location = lambda: scripts
    migrate.HEAD = NEXT  # type: ignore[misc]
    for name in ("alembic.command", "alembic.config"):
        importlib.import_module(name)
    count = 0

    def pass_by(connection: sqlite3.Connection, when: str, sql: str) -> None:
        nonlocal count
        count += 1
        if count == at:
            os.kill(os.getpid(), signal.SIGKILL)

    intercept(pass_by)
    migrate.upgrade(path)


if __name__ == "__main__":
    main()
