"""Whether the rows of a database agree with each other and with what schedd promises: `schedctl check`.

SQLite judges the file first, then every rule of `rules` and `histories` the rows, in one read transaction: a daemon
that works meanwhile changes nothing in the picture, and what it commits between two of its messages always agrees, so
nothing transient is taken for a fault. Each rule is one pass over a table or its index; only a cycle among open tasks
needs memory, as much as the daemon's own recovery. It never writes. Tests: tests/unit/store/test_check.py.
"""

import sqlite3
from pathlib import Path

from schedd.store import histories, rules
from schedd.store.atrest import read_without_trace
from schedd.store.base import StoreBroken
from schedd.store.faults import translated
from schedd.store.findings import SHOWN, Report
from schedd.store.tables import HEAD

_OF_A_ROW = "NULL value in "
"""How SQLite begins what it finds wrong with a row, and not with the file. (It does not look at CHECK constraints on a
connection that only reads; the rules know what ours is.)
"""


def check_database(path: Path) -> Report:
    """Judge the database at `path`, which must exist.

    Raises StoreUnavailable if it cannot be read at all, and StoreBroken if it is a database of something else.
    """

    def judge(connection: sqlite3.Connection) -> Report:
        report = Report(path)
        try:
            _judge(connection, report)
        except sqlite3.DatabaseError as error:
            code = getattr(error, "sqlite_errorcode", None)
            if code is None or code & 0xFF not in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB):
                raise
            report.add("damaged", None, f"the database cannot be read to its end: {error}")
        return report

    with translated(path):
        return read_without_trace(path, judge)


def _judge(connection: sqlite3.Connection, report: Report) -> None:
    connection.execute("PRAGMA temp_store = MEMORY")
    tables = {row[0] for row in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
    if not tables:
        report.add("empty", None, "the database holds nothing, not even tables")
        return
    if not {"alembic_version", "task"} <= tables:
        raise StoreBroken(f"{report.database} is not a database of schedd: it has the tables {sorted(tables)[:5]}")
    _judge_file(connection, report)  # not in the transaction: it may take long, and the daemon's log grows meanwhile
    connection.execute("BEGIN")
    try:
        row = connection.execute("SELECT version_num FROM alembic_version").fetchone()
        report.revision = None if row is None else str(row[0])
        if report.revision != HEAD:
            report.unjudged = (
                f"the tables have revision {report.revision} and this schedctl knows {HEAD}: the rows were not judged. "
                "Use the schedctl of the schedd that wrote them, or let schedd upgrade them first"
            )
            rules.foreign_keys(connection, report)
            return
        report.tasks = connection.execute("SELECT count(*) FROM task").fetchone()[0]
        report.attempts = connection.execute("SELECT count(*) FROM attempt").fetchone()[0]
        rules.judge(connection, report)
        histories.judge(connection, report)
    finally:
        connection.rollback()


def _judge_file(connection: sqlite3.Connection, report: Report) -> None:
    for (story,) in connection.execute(f"PRAGMA integrity_check({SHOWN})"):
        for line in str(story).splitlines():
            if line.startswith(_OF_A_ROW):
                report.add("missing_value", None, f"SQLite finds: {line}")
            elif line != "ok":
                report.add("damaged", None, f"SQLite finds: {line}")
