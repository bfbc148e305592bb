"""Read-only questions about rows, for many threads at once.

Each question is one short transaction on a read-only connection, so that it neither blocks the writer nor pins the
write-ahead log. What only memory knows (which pending task is ready) is not known here. Rows come back as plain dicts
whose keys are those of `answers.py`. Tests: tests/unit/store/test_reads.py.
"""

import json
import math
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from sqlalchemy import Connection, Select, and_, create_engine, event, func, select, text, union_all
from sqlalchemy.pool import QueuePool

from schedd.store import tables
from schedd.store.connect import connect_to_read
from schedd.store.faults import translated

MAX_UNSUCCESSFUL = 100
"""How many tasks that did not succeed `progress` names; it counts them all."""

SHOWN_PAYLOAD_CHARS = 65_536
"""How much of a payload a list holds: all of it for any work that people would read."""

_task, _attempt, _batch, _edge, _event = tables.task, tables.attempt, tables.batch, tables.dependency, tables.event
_LAST_FAILED = """
SELECT seq FROM task INDEXED BY ix_task_failed WHERE status = 'failed' ORDER BY settled_at DESC LIMIT :limit
"""
_PRUNABLE_BATCHES = f"""
SELECT b.seq FROM batch AS b
WHERE b.seq > :after AND b.created_at < :before
AND NOT EXISTS (
    SELECT 1 FROM task AS t WHERE t.batch_seq = b.seq AND (t.settled_at IS NULL OR t.settled_at >= :before))
AND NOT EXISTS (
    SELECT 1 FROM task AS t CROSS JOIN dependency AS d ON d.on_seq = t.seq CROSS JOIN task AS c ON c.seq = d.task_seq
    WHERE t.batch_seq = b.seq AND {tables.OPEN.replace("status", "c.status")})
AND (:keep_last = 0 OR b.base_name IS NULL OR EXISTS (
    SELECT 1 FROM batch AS n WHERE n.base_name = b.base_name AND n.seq > b.seq
    ORDER BY n.seq LIMIT 1 OFFSET :keep_last - 1))
ORDER BY b.seq LIMIT :limit
"""  # noqa: S608 - a constant of ours
_TERMINAL = ("succeeded", "failed", "cancelled", "skipped")


class Reads:
    """Questions about the rows of one database. Every method may raise StoreUnavailable or StoreBroken."""

    def __init__(self, path: Path, pool_size: int = 4) -> None:
        self.path = path
        self._engine = create_engine(
            "sqlite://",
            creator=lambda: connect_to_read(path),
            poolclass=QueuePool,
            pool_size=pool_size,
            max_overflow=0,
        )
        event.listen(self._engine, "begin", lambda connection: connection.exec_driver_sql("BEGIN"))

    def close(self) -> None:
        """Let go of the connections."""
        self._engine.dispose()

    # --- tasks --------------------------------------------------------------------------------------------------

    def task(self, task_id: str) -> dict[str, Any] | None:
        """The task with this full id, with its retry policy, or None."""
        rows = self._tasks(_select_tasks(whole_payload=True).where(_task.c.id == task_id))
        return rows[0] if rows else None

    def tasks(
        self,
        statuses: Collection[str] = (),
        batch: str | None = None,
        ids: Collection[str] = (),
        after: int = 0,
        limit: int = 100,
    ) -> list[dict[str, Any]]:
        """Tasks in the order of their submission, from behind the seq `after` on, at most `limit`."""
        page = select(_task.c.seq).where(_task.c.seq > after).order_by(_task.c.seq).limit(limit)
        if batch is not None:
            page = page.where(_task.c.batch_seq == select(_batch.c.seq).where(_batch.c.name == batch).scalar_subquery())
        if ids:
            page = page.where(_task.c.id.in_(_json_values(ids)))
        if not statuses:
            return self._tasks(_select_tasks().where(_task.c.seq.in_(page)).order_by(_task.c.seq))
        # A page of each status, each already in order in its index; of several at once all rows would be sorted.
        pages = [select(page.where(_task.c.status == status).subquery()) for status in sorted(statuses)]
        seqs = union_all(*pages)
        return self._tasks(_select_tasks().where(_task.c.seq.in_(seqs)).order_by(_task.c.seq).limit(limit))

    def tasks_by_seqs(self, seqs: Collection[int]) -> list[dict[str, Any]]:
        """The tasks with these seqs, in the order of their submission; unknown ones are absent."""
        return self._tasks(_select_tasks().where(_task.c.seq.in_(_json_values(seqs))).order_by(_task.c.seq))

    def running(self, limit: int = 1_000) -> list[dict[str, Any]]:
        """What runs now."""
        return self.tasks(statuses=["running"], limit=limit)

    def last_failed(self, limit: int) -> list[dict[str, Any]]:
        """The tasks that failed last, the newest first."""
        newest = text(_LAST_FAILED).bindparams(limit=limit).columns(_task.c.seq).scalar_subquery()
        return self._tasks(_select_tasks().where(_task.c.seq.in_(newest)).order_by(_task.c.settled_at.desc()))

    def outcome(self, seq: int, number: int) -> str | None:
        """How an attempt has ended; None if it has not, or if there is none such."""
        query = select(_attempt.c.outcome).where(_attempt.c.task_seq == seq, _attempt.c.number == number)
        with self._reading() as connection:
            outcome: str | None = connection.execute(query).scalar()
        return outcome

    def attempts(self, seq: int) -> list[dict[str, Any]]:
        """Every attempt of a task, oldest first."""
        query = select(_attempt).where(_attempt.c.task_seq == seq).order_by(_attempt.c.number)
        with self._reading() as connection:
            rows = _dicts(connection, query)
        for row in rows:
            del row["task_seq"], row["pid_started"]
            row["result"] = None if row["result"] is None else _loads(row["result"])
            row["units"] = None if row["units"] is None else _loads(row["units"])
        return rows

    def dependencies(self, seq: int, limit: int = 1_000) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
        """What a task depends on and what depends on it: `{"id", "when", "status"}` each, at most `limit`."""

        def side(mine: Any, other: Any) -> Select[Any]:
            return (
                select(_task.c.id, _edge.c.when, _task.c.status)
                .select_from(_edge.join(_task, _task.c.seq == other))
                .where(mine == seq)
                .order_by(other)
                .limit(limit)
            )

        with self._reading() as connection:
            up = _dicts(connection, side(_edge.c.task_seq, _edge.c.on_seq))
            down = _dicts(connection, side(_edge.c.on_seq, _edge.c.task_seq))
        return up, down

    def rows(self) -> list[Any]:
        """Every task, as records with attributes: the library's view of a file. O(all rows)."""
        query = select(_task).order_by(_task.c.seq)
        with self._reading() as connection:
            return [SimpleNamespace(**row) for row in _dicts(connection, query)]

    # --- counts and batches -------------------------------------------------------------------------------------

    def counts(self) -> dict[str, int]:
        """How many tasks there are in each stored status."""
        query = select(_task.c.status, func.count()).group_by(_task.c.status)
        with self._reading() as connection:
            return _pairs(connection, query)

    def batch(self, name: str) -> dict[str, Any] | None:
        """The batch with this full name: `{"name", "created_at", "counts"}`, or None."""
        with self._reading() as connection:
            row = connection.execute(select(_batch).where(_batch.c.name == name)).fetchone()
            if row is None:
                return None
            query = select(_task.c.status, func.count()).where(_task.c.batch_seq == row.seq).group_by(_task.c.status)
            counts = _pairs(connection, query)
        return {"name": row.name, "created_at": row.created_at, "counts": counts}

    def seqs_of(self, names: Sequence[str]) -> tuple[list[int], list[str]]:
        """The seqs of the tasks that these ids and batch names stand for, each once, and the names that are neither.

        A task wins over a batch of the same name.
        """
        with self._reading() as connection:
            query = select(_task.c.id, _task.c.seq).where(_task.c.id.in_(_json_values(names)))
            seq_of = _pairs(connection, query)
            found: dict[int, None] = {}
            unknown: list[str] = []
            for name in names:
                if name in seq_of:
                    found[seq_of[name]] = None
                    continue
                batch = connection.execute(select(_batch.c.seq).where(_batch.c.name == name)).scalar()
                if batch is None:
                    unknown.append(name)
                    continue
                of_batch = select(_task.c.seq).where(_task.c.batch_seq == batch).order_by(_task.c.seq)
                found.update(dict.fromkeys(connection.execute(of_batch).scalars()))
        return list(found), unknown

    def open_among(self, seqs: Collection[int]) -> list[int]:
        """Those of these tasks that have not ended."""
        query = select(_task.c.seq).where(_task.c.seq.in_(_json_values(seqs)), _task.c.status.not_in(_TERMINAL))
        with self._reading() as connection:
            return list(connection.execute(query).scalars())

    def progress(self, seqs: Collection[int]) -> tuple[dict[str, int], list[dict[str, Any]]]:
        """Of these tasks: how many are in each status, and the first that ended otherwise than succeeded
        (`{"id", "status", "error"}`).
        """
        mine = _task.c.seq.in_(_json_values(seqs))
        counting = select(_task.c.status, func.count()).where(mine).group_by(_task.c.status)
        ended_badly = and_(mine, _task.c.status.in_(_TERMINAL[1:]))
        naming = select(_task.c.id, _task.c.status, _task.c.error).where(ended_badly).order_by(_task.c.seq)
        with self._reading() as connection:
            counts = _pairs(connection, counting)
            unsuccessful = _dicts(connection, naming.limit(MAX_UNSUCCESSFUL))
        return counts, unsuccessful

    # --- what may be pruned -------------------------------------------------------------------------------------

    def prunable_batches(self, before: float, keep_last: int, after: int, limit: int) -> list[int]:
        """The seqs of batches above `after`, in order, whose tasks all ended before `before` (UTC seconds) and that
        nothing open depends on. Of each name the `keep_last` newest are not among them.
        """
        values = {"before": before, "keep_last": keep_last, "after": after, "limit": limit}
        with self._reading() as connection:
            return list(connection.execute(text(_PRUNABLE_BATCHES), values).scalars())

    def prunable_tasks(self, batch_seq: int, limit: int) -> list[tuple[int, int]]:
        """The (seq, number of attempts) of the newest tasks of a batch."""
        query = (
            select(_task.c.seq, _task.c.number)
            .where(_task.c.batch_seq == batch_seq)
            .order_by(_task.c.seq.desc())
            .limit(limit)
        )
        with self._reading() as connection:
            return [(row.seq, row.number) for row in connection.execute(query)]

    def batch_size(self, batch_seq: int) -> int:
        """How many tasks a batch has."""
        query = select(func.count()).select_from(_task).where(_task.c.batch_seq == batch_seq)
        with self._reading() as connection:
            return connection.execute(query).scalar() or 0

    def ended(self) -> int:
        """How many tasks have ended."""
        return sum(count for status, count in self.counts().items() if status in _TERMINAL)

    # --- events -------------------------------------------------------------------------------------------------

    def events(self, after: int = 0, limit: int = 1_000) -> list[dict[str, Any]]:
        """Lines of the event log with ids above `after`, in order: `{"id", "at", "task", "kind", "detail"}`."""
        query = (
            select(_event.c.id, _event.c.at, _task.c.id.label("task"), _event.c.kind, _event.c.detail)
            .select_from(_event.outerjoin(_task, _task.c.seq == _event.c.task_seq))
            .where(_event.c.id > after)
            .order_by(_event.c.id)
            .limit(limit)
        )
        with self._reading() as connection:
            rows = _dicts(connection, query)
        for row in rows:
            row["detail"] = None if row["detail"] is None else _loads(row["detail"])
        return rows

    def last_event_id(self) -> int:
        """The id of the newest line of the event log; 0 if there is none."""
        with self._reading() as connection:
            return connection.execute(select(func.max(_event.c.id))).scalar() or 0

    # --- inside -------------------------------------------------------------------------------------------------

    def _tasks(self, query: Select[Any]) -> list[dict[str, Any]]:
        with self._reading() as connection:
            rows = _dicts(connection, query)
        for row in rows:
            row["payload"] = row["payload"] or ""  # NULL only in a damaged row
            row["held"] = bool(row["held"])
            row["cancel_requested"] = bool(row["cancel_requested"])
        return rows

    @contextmanager
    def _reading(self) -> Iterator[Connection]:
        with translated(self.path), self._engine.begin() as connection:
            yield connection


def _select_tasks(*, whole_payload: bool = False) -> Select[Any]:
    """The columns of a TaskView (with `payload` instead of `what`) and of its retry policy.

    Payloads are cut at `SHOWN_PAYLOAD_CHARS` unless asked for whole: a page of the largest ones would take gigabytes.
    """
    started_at = (
        select(_attempt.c.started_at)
        .where(_attempt.c.task_seq == _task.c.seq, _attempt.c.number == _task.c.number)
        .scalar_subquery()
        .label("started_at")
    )
    left_out = ("batch_seq", "delay", "catch_up", "planned_at", "payload")
    columns: list[Any] = [column for column in _task.c if column.name not in left_out]
    payload = _task.c.payload if whole_payload else func.substr(_task.c.payload, 1, SHOWN_PAYLOAD_CHARS)
    return select(*columns, payload.label("payload"), _batch.c.name.label("batch"), started_at).select_from(
        _task.join(_batch, _batch.c.seq == _task.c.batch_seq)
    )


def _dicts(connection: Connection, query: Select[Any]) -> list[dict[str, Any]]:
    rows = connection.execute(query).mappings()
    return [{name: _shown(value) for name, value in row.items()} for row in rows]


def _shown(value: Any) -> Any:
    """A value that JSON can hold: those of damaged rows may be bytes, or no number."""
    if isinstance(value, bytes):
        return value.decode(errors="replace")
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


def _pairs(connection: Connection, query: Select[Any]) -> dict[Any, Any]:
    return {row[0]: row[1] for row in connection.execute(query)}


def _json_values(values: Collection[Any]) -> Any:
    """A subquery over any number of values in one parameter, clear of SQLite's limit on their number."""
    source = func.json_each(json.dumps(list(values))).table_valued("value")
    return select(source.c.value)


def _loads(stored: str) -> Any:
    """Stored JSON as a value; damaged text as it is, for it is shown and not acted on."""
    try:
        return json.loads(stored)
    except ValueError:
        return stored
