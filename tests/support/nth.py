"""Faults between a store and SQLite, one statement at a time: the n-th fails, once or from there on."""

import sqlite3
from typing import Any

FULL, IOERR, BUSY = sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_BUSY


class Crash(BaseException):
    """The power is gone."""


class Place:
    """Where to fail: the `at`-th point of time at which the store and SQLite meet, for once or from there on."""

    def __init__(self, at: int, kind: int | None, stays: bool = False) -> None:
        self.at = at
        self.kind = kind  # an error code of SQLite, or None: a crash
        self.stays = stays
        self.count = 0
        self.counting = True
        self.hits = 0
        self.met: list[str] = []

    def pass_by(self, connection: sqlite3.Connection, when: str, sql: str) -> None:
        """Raise, if this is the place."""
        if not self.counting:
            return
        self.count += 1
        if self.count == self.at or (self.stays and self.count > self.at):
            self.hits += 1
            self.met.append(f"{when} {sql.split(maxsplit=1)[0]}")
            if self.kind is None:
                raise Crash
            if self.kind != BUSY:  # what SQLite does after most of such errors
                sqlite3.Connection.rollback(connection)
            error = sqlite3.OperationalError("simulated")
            error.sqlite_errorcode = self.kind
            raise error

    def lift(self) -> None:
        """The fault is over."""
        self.counting = False


class FailingConnection:
    """A connection that passes by a place before and after each statement."""

    def __init__(self, inner: sqlite3.Connection, place: Place) -> None:
        self._inner = inner
        self.place = place

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def execute(self, sql: str, *parameters: Any) -> Any:
        return self._around(self._inner.execute, sql, *parameters)

    def executemany(self, sql: str, *parameters: Any) -> Any:
        return self._around(self._inner.executemany, sql, *parameters)

    def _around(self, method: Any, sql: str, *parameters: Any) -> Any:
        self.place.pass_by(self._inner, "before", sql)
        result = method(sql, *parameters)
        try:
            self.place.pass_by(self._inner, "after", sql)
        except BaseException:
            result.close()  # or the traceback would keep the statement in progress, which no real fault does
            raise
        return result
