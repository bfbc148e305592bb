"""The store on SQLite: one connection, one writer, one transaction a round.

SQLAlchemy makes the connection and knows the tables; the statements of the hot path are compiled from those tables
once and run on the driver's own connection (a statement then costs about 3 us instead of 30, seven times a round).
Tests: tests/unit/store.
"""

import json
import os
import sqlite3
from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

from schedd.core.events import Logged, Output, StartedAttempt
from schedd.core.model import Capacity, KnownTask, OpenTask, Status, Stored, StoredTask, When
from schedd.core.revival import Kin
from schedd.store import loading, pruning, statements
from schedd.store.base import NewBatchRow, Pruned, StoreBroken, StoredAnswer, StoreUnavailable
from schedd.store.connect import JOURNAL_LIMIT_BYTES, writing_engine
from schedd.store.faults import translated
from schedd.store.policies import retry_rules

_Result = TypeVar("_Result")
_PUT_BACK = "put it back or restore a backup, and start schedd again: without a file it begins with an empty database"
_NO_CKPT_ON_CLOSE = 1006  # sqlite3.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE
_ABANDONED: list["SqliteStore"] = []
_PENDING = Status.PENDING.value
_encode = json.JSONEncoder(separators=(",", ":")).encode


def open_store(path: Path) -> "SqliteStore":
    """The store on a migrated database. Raises StoreUnavailable or StoreBroken."""
    return SqliteStore(path)


class SqliteStore:
    """See `store.base.Store`. Used by one thread at a time."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._journal = path.with_name(f"{path.name}-wal")
        self._index = path.with_name(f"{path.name}-shm")
        self._engine = writing_engine(path)
        with translated(path):
            self._pooled = self._engine.raw_connection()
            connection = self._pooled.driver_connection
            assert isinstance(connection, sqlite3.Connection)
            self._connection = connection
            self._make_sure_it_can_write()
            self._identity = _identify(path)
            self._beside: dict[Path, tuple[int, int]] = {}

    # --- transactions -------------------------------------------------------------------------------------------

    def begin(self) -> None:
        with translated(self.path):
            self._check_files()
            self._connection.execute("BEGIN IMMEDIATE")

    def commit(self) -> None:
        with translated(self.path):
            self._connection.execute("COMMIT")
            self._check_files()

    def rollback(self) -> None:
        with suppress(sqlite3.Error):  # there was none, or the fault that ended it has rolled it back
            self._connection.rollback()

    def tend(self) -> str | None:
        try:
            size = os.stat(self._journal).st_size
            if size <= JOURNAL_LIMIT_BYTES:
                return None
            _, pages, written_back = self._connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
        except (OSError, sqlite3.Error) as error:
            return f"the write-ahead log {self._journal} cannot be written back into the database: {error}"
        if written_back >= pages:
            return None
        return (
            f"the write-ahead log {self._journal} has grown to {size / 1e6:.0f} MB and cannot be emptied, because "
            "another program keeps an old state of the database open to read it: end that program or its transaction"
        )

    def abandon(self) -> None:
        """Leave a damaged database as it is: closed, it would have its log written back into it, and the log removed.
        The connection is kept until the process ends.
        """
        if hasattr(self._connection, "setconfig"):  # Python 3.12
            self._connection.setconfig(_NO_CKPT_ON_CLOSE, True)
        _ABANDONED.append(self)

    def close(self) -> None:
        self.rollback()
        with suppress(sqlite3.Error):  # nothing is promised that a close could break
            self._pooled.close()
            self._engine.dispose()

    # --- writes -------------------------------------------------------------------------------------------------

    def write(self, out: Output) -> None:
        with translated(self.path):
            many = self._connection.executemany
            if out.added:
                many(statements.INSERT_TASK, [_new_row(added) for added in out.added])
            if out.changed:
                fresh = {added.task.seq for added in out.added}
                changed = [_changed_row(task) for seq, task in out.changed.items() if seq not in fresh]
                many(statements.UPDATE_TASK, changed)
            if out.edges:
                many(
                    statements.INSERT_DEPENDENCY, [(edge.task_seq, edge.on_seq, edge.when.value) for edge in out.edges]
                )
            if out.removed_edges:
                many(statements.REMOVE_DEPENDENCY, out.removed_edges)
            if out.started:
                many(statements.INSERT_ATTEMPT, [_started_row(started) for started in out.started])
            if out.spawned:
                many(statements.SPAWN_ATTEMPT, [(s.pid, s.pid_started, s.seq, s.number) for s in out.spawned])
            if out.ended:
                many(statements.END_ATTEMPT, [_ended_row(ended) for ended in out.ended])
            if out.events:
                many(statements.INSERT_EVENT, [_event_row(event) for event in out.events])
            if out.paused is not None:
                self._connection.execute(statements.SET_SETTING, ("paused", "1" if out.paused else "0"))
            for name, capacity in out.capacities.items():
                self._set_capacity(name, capacity)

    def _set_capacity(self, name: str, capacity: Capacity | None) -> None:
        if capacity is None:
            self._connection.execute(statements.REMOVE_RESOURCE, (name,))
        else:
            units = None if capacity.units is None else _encode(capacity.units)
            self._connection.execute(statements.SET_RESOURCE, (name, capacity.total, units))

    def add_batch(
        self, base_name: str | None, created_at: float, schedule_seq: int | None = None, slot: float | None = None
    ) -> NewBatchRow:
        with translated(self.path):
            name = None
            if base_name is not None:
                number = self._connection.execute(statements.NEXT_NUMBER, (base_name,)).fetchone()[0]
                name = f"{base_name}-{number}"
            row = (name, created_at, base_name, schedule_seq, slot)
            seq = self._connection.execute(statements.INSERT_BATCH, row).lastrowid
            assert seq is not None
            return NewBatchRow(seq, name)

    def remember(self, key: str, digest: str, answer: str, at: float) -> None:
        with translated(self.path):
            self._connection.execute(statements.INSERT_REQUEST, (key, digest, answer, at))

    def prune_tasks(self, seqs: Sequence[int], before: float) -> Pruned:
        with translated(self.path):
            return pruning.prune_tasks(self._connection, seqs, before)

    def prune_history(self, before: float) -> Pruned:
        with translated(self.path):
            return pruning.prune_history(self._connection, before)

    # --- reads --------------------------------------------------------------------------------------------------

    def answer_of(self, key: str) -> StoredAnswer | None:
        row = self._one(statements.SELECT_REQUEST, key)
        return None if row is None else StoredAnswer(row[0], row[1])

    def next_seq(self) -> int:
        row = self._one(statements.LAST_SEQ)
        return 1 if row is None else int(row[0]) + 1

    def find(self, ids: Collection[str]) -> dict[str, KnownTask]:
        if not ids:
            return {}
        rows = self._all(statements.FIND_TASKS, json.dumps(list(ids)))
        return {row[1]: KnownTask(row[0], row[1], Status(row[2])) for row in rows}

    def tasks_of_batch(self, name: str) -> list[KnownTask] | None:
        row = self._one(statements.SELECT_BATCH, name)
        if row is None:
            return None
        return [
            KnownTask(seq, task_id, Status(status)) for seq, task_id, status in self._all(statements.OF_BATCH, row[0])
        ]

    def family(self, seqs: Collection[int]) -> list[Kin]:
        wanted = json.dumps(list(seqs))
        rows = [*self._all(statements.PARENTS, wanted), *self._all(statements.CHILDREN, wanted)]
        return [
            Kin(task_seq, on_seq, When(when), Status(status), Status(on_status), on_id, number > 0)
            for task_seq, on_seq, when, status, on_status, on_id, number in rows
        ]

    def ended_tasks(self, seqs: Collection[int]) -> list[StoredTask]:
        with translated(self.path):
            return loading.load_ended(self._connection, seqs)

    def edge(self, before_seq: int, after_seq: int) -> When | None:
        row = self._one(statements.SELECT_EDGE, after_seq, before_seq)
        return None if row is None else When(row[0])

    def payloads(self, seqs: Sequence[int]) -> dict[int, Any]:
        if len(seqs) == 1:  # the usual round: one worker is free
            row = self._one(statements.SELECT_PAYLOAD, seqs[0])
            return {} if row is None else {seqs[0]: row[0]}
        return dict(self._all(statements.SELECT_PAYLOADS, json.dumps(list(seqs))))

    def load(self) -> Stored:
        with translated(self.path):
            return self._in_one_snapshot(lambda: loading.load(self._connection))

    def running_pids(self) -> list[tuple[int, int]]:
        """The (pid, start in clock ticks since boot) that the last daemon wrote down for its running attempts."""
        return [(pid, started) for pid, started in self._all(statements.RUNNING_PIDS)]

    def set_synchronous_off(self) -> None:
        """Trade durability for speed. For simulations, where a crash is only played."""
        self._connection.execute("PRAGMA synchronous = OFF")

    # --- inside -------------------------------------------------------------------------------------------------

    def _one(self, sql: str, *parameters: object) -> Any:
        with translated(self.path):
            return self._connection.execute(sql, parameters).fetchone()

    def _all(self, sql: str, *parameters: object) -> Iterable[Any]:
        with translated(self.path):
            return self._connection.execute(sql, parameters).fetchall()

    def _in_one_snapshot(self, read: Callable[[], _Result]) -> _Result:
        if self._connection.in_transaction:
            return read()
        self._connection.execute("BEGIN")
        try:
            return read()
        finally:
            self._connection.rollback()

    def _make_sure_it_can_write(self) -> None:
        """SQLite opens a file that may not be written for reading alone, and would not look again. Raises what it
        raises when it cannot write now, which the next to open may find changed.
        """
        try:
            self._connection.execute("BEGIN IMMEDIATE")
            self._connection.execute("ROLLBACK")
        except BaseException:
            self.close()
            raise

    def _check_files(self) -> None:
        """Files that were deleted or replaced keep taking commits that nobody will ever find again."""
        try:
            if _identify(self.path) != self._identity:
                self._put_aside()
                raise StoreBroken(f"the database {self.path} was deleted or replaced while schedd used it; {_PUT_BACK}")
            for path in (self._journal, self._index):
                identity, known = _identify(path), self._beside.get(path)
                if known is None:
                    if identity is not None:
                        self._beside[path] = identity
                elif identity != known:
                    raise StoreBroken(f"{path} was deleted or replaced while schedd used it; start schedd again")
        except OSError as error:
            raise StoreUnavailable(f"the database {self.path} cannot be looked at: {error.strerror}") from error

    def _put_aside(self) -> None:
        """Take what is left of the lost database out of the way of the one that takes its place: SQLite would take the
        old log for that of the new database, and damage it.
        """
        for path, known in self._beside.items():
            with suppress(OSError):
                if _identify(path) == known:
                    os.rename(path, f"{path}.replaced")


def _identify(path: Path) -> tuple[int, int] | None:
    """Which file is there; None if there is none. Raises OSError."""
    try:
        status = os.stat(path)
    except (FileNotFoundError, NotADirectoryError):
        return None
    return status.st_dev, status.st_ino


def _state(task: OpenTask) -> tuple[Any, ...]:
    """The columns that change in a task's life, in the order of `statements.STATE_COLUMNS`."""
    status = task.status
    return (
        _PENDING if status is Status.READY else status.value,
        task.attempts,
        task.number,
        task.base_number,
        task.retries,
        task.runs,
        task.run_at,
        task.planned_at,
        task.start_before,
        task.deadline,
        task.wall,
        task.held,
        task.cancel_requested,
        task.error,
        task.settled_at,
    )


def _changed_row(task: OpenTask) -> tuple[Any, ...]:
    return (*_state(task), task.seq)


def _new_row(added: Any) -> tuple[Any, ...]:
    new, task = added.new, added.task
    recurrence = new.recurrence
    every, times, catch_up = (
        (recurrence.every, recurrence.times, recurrence.catch_up.value) if recurrence else (None, None, None)
    )
    retry = new.retry
    return (
        *_state(task),
        task.seq,
        task.id,
        added.batch_seq,
        new.payload,
        new.priority,
        retry.max_attempts,
        retry.base_delay,
        retry.max_delay,
        retry.jitter.value,
        retry_rules(retry),
        new.delay,
        every,
        times,
        catch_up,
        _encode(dict(new.resources)) if new.resources else None,
        new.group,
        new.allow_failure,
        new.expected,
        added.created_at,
    )


def _started_row(started: StartedAttempt) -> tuple[Any, ...]:
    return (*started[:4], None if started.units is None else _encode(started.units))


def _ended_row(ended: Any) -> tuple[Any, ...]:
    return (
        ended.outcome.value,
        ended.ended_at,
        ended.exit_code,
        ended.signal,
        ended.error,
        ended.result,
        ended.max_rss,
        ended.cpu_time,
        ended.seq,
        ended.number,
    )


def _event_row(event: Logged) -> tuple[Any, ...]:
    detail = None if event.detail is None else _encode(event.detail)
    return (event.at, event.task_seq, event.kind, detail)
