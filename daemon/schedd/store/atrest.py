"""Reading a database without leaving a trace beside it.

A read-only connection to a database in WAL mode makes `-wal` and `-shm` where there are none, and without the right
to do so it cannot open a sound one. A database that nobody has open has neither: that one is read as `immutable`, and
read again in the usual way if it turns out that somebody opened it meanwhile.
Tests: tests/unit/store/test_check.py.
"""

import os
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import TypeVar
from urllib.parse import quote

from schedd.store.connect import connect_to_read

_Result = TypeVar("_Result")


def read_without_trace(path: Path, question: Callable[[sqlite3.Connection], _Result]) -> _Result:
    """`question(connection)`, asked a second time if the database changed under the first. Raises sqlite3.Error."""
    before = _at_rest(path)
    if before is not None:
        try:
            with closing(_connect_immutable(path)) as connection:
                answer = question(connection)
        except sqlite3.Error:
            if _at_rest(path) == before:
                raise
        else:
            if _at_rest(path) == before:
                return answer
    with closing(connect_to_read(path)) as connection:
        return question(connection)


def _at_rest(path: Path) -> tuple[int, int, int] | None:
    """What tells a database that nobody has open from the same one after a change; None if somebody may have it."""
    if any(os.path.lexists(f"{path}{suffix}") for suffix in ("-wal", "-journal")):
        return None
    try:
        status = os.stat(path)
    except OSError:
        return None
    return status.st_ino, status.st_size, status.st_mtime_ns


def _connect_immutable(path: Path) -> sqlite3.Connection:
    uri = f"file:{quote(str(path))}?mode=ro&immutable=1"
    connection = sqlite3.connect(uri, uri=True, isolation_level=None)
    connection.text_factory = lambda raw: raw.decode(errors="replace")
    return connection
