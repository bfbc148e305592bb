"""The whole check of a state directory, rows and log files, for `schedctl check` and for the API.

It reads and never writes, whether a daemon runs on the directory or not. Tests: tests/acceptance/test_admin_tools.py.
"""

import os
from pathlib import Path

from schedd.answers import CheckAnswer
from schedd.runtime import DATABASE, LOG_DIR
from schedd.store.check import check_database
from schedd.store.findings import ERROR, NOTE, Report
from schedd.workers.logcheck import check_logs


class NotAStateDir(Exception):
    """There is no such directory, or no database in it."""


def database_of(state_dir: Path) -> Path:
    """The database of a state directory. Raises NotAStateDir, or PermissionError if this user may not read it."""
    path = state_dir / DATABASE
    for place, what in ((state_dir, "there is no directory"), (path, "there is no database")):
        try:
            os.stat(place)
        except (FileNotFoundError, NotADirectoryError):
            raise NotAStateDir(f"{what} {place}; name the state directory of schedd with --state-dir") from None
    if not os.access(path, os.R_OK):
        raise PermissionError(13, "Permission denied", str(path))
    return path


def check_state_dir(state_dir: Path) -> CheckAnswer:
    """What is found. Raises NotAStateDir, PermissionError, or StoreUnavailable or StoreBroken if it cannot be read."""
    database = database_of(state_dir)
    report = check_database(database)
    if report.unjudged is None and not report.kinds.keys() & {"damaged", "empty"}:
        check_logs(database, state_dir / LOG_DIR, report)
    return _answer(state_dir, report)


def _answer(state_dir: Path, report: Report) -> CheckAnswer:
    errors = report.count(ERROR)
    return {
        "state_dir": str(state_dir),
        "database": str(report.database),
        "revision": report.revision,
        "tasks": report.tasks,
        "attempts": report.attempts,
        "sound": not errors and report.unjudged is None,
        "errors": errors,
        "notes": report.count(NOTE),
        "unjudged": report.unjudged,
        "findings": [
            {
                "kind": found.kind,
                "severity": found.severity,
                "advice": found.advice,
                "count": found.count,
                "shown": [{"task": task, "message": message} for task, message in found.shown],
            }
            for found in report.told()
        ],
    }
