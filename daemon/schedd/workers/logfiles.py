"""Where the output of an attempt is kept: one file for each, found from integers alone.

    <log_dir>/<seq // 1,000,000>/<seq // 1,000 % 1,000>/<seq>.1.log                       the first attempt
    <log_dir>/<...>/<...>/<seq>/<number // 1,000>/<number>.log                            every later one

No directory holds more than about 2,000 entries, for a task of a million attempts or a billion tasks of one.
Tests: tests/unit/workers/test_logfiles.py.
"""

import os
import shutil
from contextlib import suppress
from pathlib import Path
from typing import Final

HAVE_LOGS: Final = ("succeeded", "failed", "timed_out")
"""Outcomes of attempts that had a process, whose log was opened before it; the others may have ended before that. (A
function in a thread of the daemon has a log only if it had something to say.)
"""

_ADD = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW


def log_path(log_dir: Path, seq: int, number: int) -> Path:
    """The log file of attempt `number` (from 1) of the task `seq`. It need not exist: an attempt may write nothing."""
    shelf = log_dir / str(seq // 1_000_000) / f"{seq // 1_000 % 1_000:03d}"
    if number == 1:
        return shelf / f"{seq}.1.log"
    return shelf / str(seq) / str(number // 1_000) / f"{number}.log"


def open_log(path: Path, *, anew: bool = False) -> int:
    """A descriptor that appends to the file, which is made with its directories if need be. Raises OSError.

    `anew` is for the start of an attempt: what the file holds is then of another attempt, which had the same numbers
    before a backup was restored.
    """
    flags = _ADD | os.O_TRUNC if anew else _ADD
    try:
        return os.open(path, flags, 0o640)
    except FileNotFoundError:
        path.parent.mkdir(mode=0o750, parents=True, exist_ok=True)
        return os.open(path, flags, 0o640)


def remove_logs(log_dir: Path, seq: int, number: int) -> None:
    """Remove the log files of a task that has had `number` attempts. What cannot be removed is left: without its task a
    log is worth nothing, and does no harm.
    """
    first = log_path(log_dir, seq, 1)
    with suppress(OSError):
        first.unlink(missing_ok=True)
    if number > 1:
        shutil.rmtree(first.parent / str(seq), ignore_errors=True)
