"""Reading every open task back into what the machine is rebuilt from, row by row and in distrust.

A row that cannot be read as a task is set aside with the reason; it never keeps the others from running. Payloads are
judged where they are (`json_valid` in SQLite) and stay there. Tests: tests/unit/store/test_loading.py.
"""

import json
import math
import sqlite3
from collections.abc import Collection, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any

from schedd.core import limits
from schedd.core.errors import InvalidRequest, Refused
from schedd.core.model import (
    Capacity,
    CatchUp,
    DamagedTask,
    Demand,
    Jitter,
    Recurrence,
    RetryPolicy,
    Status,
    Stored,
    StoredEdge,
    StoredTask,
    When,
)
from schedd.store.policies import read_demand, read_retry_rules, read_units
from schedd.store.tables import OPEN

_COLUMNS = """
SELECT seq, id, priority, max_attempts, base_delay, max_delay, jitter, retry_rules, every, times, catch_up, resources,
       "group", expected, status, attempts, number, base_number, retries, runs, run_at, planned_at, start_before,
       deadline, wall, held, cancel_requested, error, typeof(payload) = 'text' AND json_valid(payload)
"""
SELECT_TASKS = f"{_COLUMNS} FROM task INDEXED BY ix_task_open WHERE {OPEN} ORDER BY seq"
SELECT_SOME = f"{_COLUMNS} FROM task WHERE seq IN (SELECT value FROM json_each(?)) ORDER BY seq"  # noqa: S608 - a constant
# CROSS JOIN, because the planner would rather scan every dependency there ever was.
SELECT_EDGES = f"""
SELECT d.task_seq, d.on_seq, d."when", p.status
FROM task AS c INDEXED BY ix_task_open
CROSS JOIN dependency AS d ON d.task_seq = c.seq LEFT JOIN task AS p ON p.seq = d.on_seq
WHERE {OPEN.replace("status", "c.status")} ORDER BY d.task_seq, d.on_seq
"""  # noqa: S608 - a constant of ours
SELECT_OPEN_ATTEMPT = "SELECT max(number) FROM attempt WHERE task_seq = ? AND outcome IS NULL"
SELECT_UNITS = """
SELECT a.task_seq, a.units FROM task AS t INDEXED BY ix_task_status
CROSS JOIN attempt AS a ON a.task_seq = t.seq AND a.number = t.number
WHERE t.status = 'running' AND a.units IS NOT NULL
"""
SELECT_CAPACITIES = "SELECT name, capacity, units FROM resource"
SELECT_LAST_NUMBER = """
SELECT max(number) FROM (
    SELECT number FROM task WHERE seq = :seq UNION ALL SELECT number FROM attempt WHERE task_seq = :seq
) WHERE typeof(number) = 'integer'
"""
SELECT_PAUSED = "SELECT value FROM setting WHERE name = 'paused'"

_OPEN_STATUSES = {Status.PENDING.value: Status.PENDING, Status.RUNNING.value: Status.RUNNING}
_WHENS = {when.value: when for when in When}
_STATUSES = {status.value: status for status in Status}
_ENDED_STATUSES = {status.value: status for status in Status if status.is_terminal}


class _Damage(Exception):
    """What is wrong with a row."""


def load(connection: sqlite3.Connection) -> Stored:
    """Everything that is open. Raises what SQLite raises; never because of what a row says."""
    stored = Stored()
    reader = _RowReader(_OPEN_STATUSES)
    for row in connection.execute(SELECT_TASKS):
        try:
            stored.tasks.append(reader.read(row))
        except (_Damage, Refused) as damage:
            task_id = row[1] if isinstance(row[1], str) else str(row[0])
            stored.damaged.append(DamagedTask(row[0], task_id, str(damage)[: limits.MAX_ERROR_CHARS]))
    _read_units(connection, stored)
    bad_edges: dict[int, str] = {}
    for task_seq, on_seq, when, on_status in connection.execute(SELECT_EDGES):
        known = _WHENS.get(when)
        if known is None:
            bad_edges[task_seq] = f"its dependency on seq {on_seq} has the unknown `when` {when!r}"
        elif on_seq == task_seq:
            bad_edges[task_seq] = "it depends on itself"
        else:
            stored.edges.append(StoredEdge(task_seq, on_seq, known, _STATUSES.get(on_status)))
    if bad_edges:
        _set_aside(stored, bad_edges)
    paused = connection.execute(SELECT_PAUSED).fetchone()
    damaged = [_with_attempts(connection, row) for row in stored.damaged]
    is_paused = paused is not None and paused[0] == "1"
    return Stored(stored.tasks, stored.edges, damaged, is_paused, _capacities(connection))


def _read_units(connection: sqlite3.Connection, stored: Stored) -> None:
    """Give the running tasks the named units that they hold."""
    units = dict(connection.execute(SELECT_UNITS))
    if units:
        for index, task in enumerate(stored.tasks):
            if task.seq in units:
                with suppress(InvalidRequest):  # whoever cannot be told what it holds holds nothing that has a name
                    stored.tasks[index] = replace(task, units=read_units(units[task.seq]))


def _capacities(connection: sqlite3.Connection) -> dict[str, Capacity]:
    """How much there is of each resource. A damaged row is no resource: what needs it waits, and is told why."""
    capacities = {}
    for name, total, units in connection.execute(SELECT_CAPACITIES):
        names = None
        if units is not None:
            with suppress(InvalidRequest):
                names = tuple(read_units(f'{{"units":{units}}}')["units"])  # type: ignore[index]
        if isinstance(name, str) and type(total) is int and total >= 0 and (names is None or len(names) == total):
            capacities[name] = Capacity(total, names)
    return capacities


def load_ended(connection: sqlite3.Connection, seqs: Collection[int]) -> list[StoredTask]:
    """The rows of these ended tasks. Raises InvalidRequest for one that cannot be read."""
    reader = _RowReader(_ENDED_STATUSES)
    tasks = []
    for row in connection.execute(SELECT_SOME, (json.dumps(list(seqs)),)):
        try:
            tasks.append(reader.read(row))
        except (_Damage, Refused) as damage:
            raise InvalidRequest(f"{row[1]} cannot be run again: its row is damaged: {damage}") from None
    return tasks


def _with_attempts(connection: sqlite3.Connection, row: DamagedTask) -> DamagedTask:
    """Complete it with what its attempts say: its own count of them may be what is damaged."""
    (open_number,) = connection.execute(SELECT_OPEN_ATTEMPT, (row.seq,)).fetchone()
    (last,) = connection.execute(SELECT_LAST_NUMBER, {"seq": row.seq}).fetchone()
    return replace(row, attempt=open_number, number=max(last or 0, 0))


def _set_aside(stored: Stored, reasons: dict[int, str]) -> None:
    bad = [task for task in stored.tasks if task.seq in reasons]
    stored.tasks[:] = [task for task in stored.tasks if task.seq not in reasons]
    stored.damaged.extend(DamagedTask(task.seq, task.id, reasons[task.seq]) for task in bad)


def _is_time(value: Any) -> bool:
    return type(value) in (float, int) and math.isfinite(value)


def _judge_open(task: StoredTask) -> None:
    """What no open task can be. Raises _Damage."""
    attempts, runs, recurrence = task.attempts, task.runs, task.recurrence
    if attempts >= task.retry.max_attempts:
        raise _Damage(f"it has {attempts} attempts behind it and is still open, of {task.retry.max_attempts} allowed")
    if recurrence is not None and runs >= recurrence.times:
        raise _Damage(f"it has {runs} runs behind it and is still open, of {recurrence.times} asked for")
    if task.status is Status.PENDING and task.cancel_requested:
        raise _Damage("it is to be cancelled and does not run")
    if task.status is Status.RUNNING and not task.number:
        raise _Damage("it is running without an attempt")
    if task.status is Status.RUNNING and task.planned_at is None:
        raise _Damage("it is running without a planned start")


class _RowReader:
    """Reads rows; equal policies become one object, which is most of the memory of a large batch."""

    def __init__(self, statuses: Mapping[str, Status]) -> None:
        self._known = statuses
        self._retries: dict[tuple[Any, ...], RetryPolicy] = {}
        self._recurrences: dict[tuple[Any, ...], Recurrence | None] = {(None, None, None): None}
        self._demands: dict[tuple[Any, ...], Demand] = {(None, None): ()}

    def read(self, row: tuple[Any, ...]) -> StoredTask:
        """The row as a task. Raises _Damage or Refused with what is wrong."""
        (seq, task_id, priority, max_attempts, base_delay, max_delay, jitter, retry_rules, every, times, catch_up,
         resources, group, expected, status, attempts, number, base_number, retries, runs, run_at, planned_at,
         start_before, deadline, wall, held, cancel_requested, error, payload_is_json) = row  # fmt: skip
        if not payload_is_json:
            raise _Damage("its payload is not JSON text")
        known = self._known.get(status) if isinstance(status, str) else None
        if known is None:
            raise _Damage(f"its status {status!r} is unknown")
        if not isinstance(task_id, str):
            raise _Damage(f"its id is not text but {type(task_id).__name__}")
        for name, value in (
            ("priority", priority), ("attempts", attempts), ("number", number), ("base_number", base_number),
            ("retries", retries),
            ("runs", runs), ("wall", wall),
        ):  # fmt: skip
            if type(value) is not int or (value < 0 and name != "priority"):
                raise _Damage(f"its {name} is not a count: {value!r:.80}")
        if not _is_time(run_at):
            raise _Damage(f"its run_at is not a time: {run_at!r:.80}")
        for name, value in (("planned_at", planned_at), ("start_before", start_before), ("deadline", deadline),
                            ("expected", expected)):  # fmt: skip
            if value is not None and not _is_time(value):
                raise _Damage(f"its {name} is not a number: {value!r:.80}")
        if held not in (0, 1) or cancel_requested not in (0, 1):
            raise _Damage(f"its held or cancel_requested is neither 0 nor 1: {held!r:.80}, {cancel_requested!r:.80}")
        if error is not None and not isinstance(error, str):
            raise _Damage("its error is not text")
        retry = self._retry(max_attempts, base_delay, max_delay, jitter, retry_rules)
        recurrence = self._recurrence(every, times, catch_up)
        task = StoredTask(
            seq, task_id, priority, retry, recurrence, float(run_at), planned_at, known, attempts, number, runs,
            bool(held), bool(cancel_requested), error, base_number, self._demand(resources, group), start_before,
            deadline, wall, expected, retries=retries,
        )  # fmt: skip
        if not known.is_terminal:
            _judge_open(task)
        return task

    def _retry(self, *values: Any) -> RetryPolicy:
        retry = self._retries.get(values)
        if retry is None:
            *numbers, jitter, rules = values
            max_attempts, base_delay, max_delay = numbers
            if type(numbers[0]) is not int or any(type(value) not in (float, int) for value in numbers[1:]):
                raise _Damage(f"its retry policy is not made of numbers: {numbers!r:.120}")
            if jitter not in set(Jitter):
                raise _Damage(f"its jitter is unknown: {jitter!r:.80}")
            retry = RetryPolicy(max_attempts, base_delay, max_delay, Jitter(jitter), **read_retry_rules(rules))
            self._retries[values] = retry
        return retry

    def _demand(self, *values: Any) -> Demand:
        if values not in self._demands:
            self._demands[values] = read_demand(*values)
        return self._demands[values]

    def _recurrence(self, *values: Any) -> Recurrence | None:
        if values in self._recurrences:
            return self._recurrences[values]
        every, times, catch_up = values
        if type(every) not in (float, int) or type(times) is not int or catch_up not in set(CatchUp):
            raise _Damage(f"its recurrence is not whole: every, times and catch_up are {values!r:.120}")
        recurrence = self._recurrences[values] = Recurrence(every, times, CatchUp(catch_up))
        return recurrence
