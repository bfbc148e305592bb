"""Whether log files and attempts belong together: the part of `schedctl check` that looks at the log directory.

Files and rows are never seen at one moment, so each is asked for after its proof: a file is there only after its
attempt was committed, so a row is looked up after the file was seen; and an attempt that has ended as below had its
file before, so a file is looked up after the row was read. What is found is a note: a restored backup, a power cut or
an admin can be behind it. Tests: tests/unit/workers/test_logcheck.py.
"""

import os
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from schedd.store.atrest import read_without_trace
from schedd.store.faults import translated
from schedd.store.findings import Report
from schedd.workers.logfiles import HAVE_LOGS, log_path

PAGE: Final = 1_000
_HAS_ATTEMPT = "SELECT 1 FROM attempt WHERE task_seq = ? AND number = ?"
_WITH_LOG = f"""
SELECT task_seq, number FROM attempt
WHERE (task_seq, number) > (?, ?) AND outcome IN {HAVE_LOGS}
ORDER BY task_seq, number LIMIT ?
"""  # noqa: S608 - a constant of ours
_OF_TASK = "SELECT id, json_valid(payload) AND json_extract(payload, '$.isolation') = 'thread' FROM task WHERE seq = ?"


def check_logs(database: Path, log_dir: Path, report: Report) -> None:
    """Add to the report what does not belong together. Raises StoreUnavailable or StoreBroken."""

    def judge(connection: sqlite3.Connection) -> Report:
        found = Report(database)
        for path in _files(log_dir, found):
            _judge_file(connection, log_dir, path, found)
        _judge_attempts(connection, log_dir, found)
        return found

    with translated(database):
        report.kinds.update(read_without_trace(database, judge).kinds)


def _files(log_dir: Path, found: Report) -> Iterator[Path]:
    """Every file below the log directory, one directory at a time."""
    waiting = [log_dir]
    while waiting:
        directory = waiting.pop()
        try:
            with os.scandir(directory) as entries:
                for entry in entries:
                    if entry.is_dir(follow_symlinks=False):
                        waiting.append(directory / entry.name)
                    else:
                        yield directory / entry.name
        except FileNotFoundError:
            continue
        except OSError as error:
            found.add("log_unreadable", None, f"{directory}: {error.strerror}")


def _judge_file(connection: sqlite3.Connection, log_dir: Path, path: Path, found: Report) -> None:
    attempt = attempt_of(log_dir, path)
    if attempt is None:
        found.add("foreign_file", None, f"{path} is no log file of schedd")
    elif connection.execute(_HAS_ATTEMPT, attempt).fetchone() is None:
        seq, number = attempt
        found.add("log_without_attempt", None, f"{path} is of the attempt {number} of a task with seq {seq}: none such")


def attempt_of(log_dir: Path, path: Path) -> tuple[int, int] | None:
    """The seq and number of the attempt whose log file this is; the reverse of `log_path`."""
    parts = path.relative_to(log_dir).parts
    numbers = [*parts[:-1], *parts[-1].removesuffix(".log").split(".")]
    if not all(part.isascii() and part.isdecimal() and len(part) < 20 for part in numbers):
        return None
    if len(numbers) == 4 and len(parts) == 3:
        seq, number = int(numbers[2]), int(numbers[3])
    elif len(numbers) == 5 and len(parts) == 5:
        seq, number = int(numbers[2]), int(numbers[4])
    else:
        return None
    return (seq, number) if log_path(log_dir, seq, number) == path else None


def _judge_attempts(connection: sqlite3.Connection, log_dir: Path, found: Report) -> None:
    """In pages, so that no long read keeps the daemon's write-ahead log from being reset."""
    last = (0, 0)
    while True:
        page = connection.execute(_WITH_LOG, (*last, PAGE)).fetchall()
        for seq, number in page:
            path = log_path(log_dir, seq, number)
            try:
                os.lstat(path)
            except FileNotFoundError:
                _note_missing(connection, seq, number, path, found)
            except OSError as error:
                found.add("log_unreadable", None, f"{path}: {error.strerror}")
        if len(page) < PAGE:
            return
        last = page[-1]


def _note_missing(connection: sqlite3.Connection, seq: int, number: int, path: Path, found: Report) -> None:
    row = connection.execute(_OF_TASK, (seq,)).fetchone()
    if row is None or row[1]:  # a function in a thread of the daemon makes no log unless it has something to say
        return
    found.add("attempt_without_log", str(row[0]), f"attempt {number} of {row[0]} has ended, and {path} is not there")
