"""The statements of the writing store, compiled once from the tables.

Parameters are positional, in the order in which the columns are named here. Tests: tests/unit/store.
"""

from sqlalchemy import ClauseElement, Table, bindparam, select, update
from sqlalchemy.dialects import sqlite

from schedd.store import tables

STATE_COLUMNS = (
    "status",
    "attempts",
    "number",
    "base_number",
    "retries",
    "runs",
    "run_at",
    "planned_at",
    "start_before",
    "deadline",
    "wall",
    "held",
    "cancel_requested",
    "error",
    "settled_at",
)
_FIXED_COLUMNS = (
    "seq",
    "id",
    "batch_seq",
    "payload",
    "priority",
    "max_attempts",
    "base_delay",
    "max_delay",
    "jitter",
    "retry_rules",
    "delay",
    "every",
    "times",
    "catch_up",
    "resources",
    "group",
    "allow_failure",
    "expected",
    "created_at",
)


def _sql(statement: ClauseElement) -> str:
    return str(statement.compile(dialect=sqlite.dialect(paramstyle="qmark")))


def _insert(table: Table, *columns: str) -> str:
    """An INSERT whose parameters come in the order of `columns` (SQLAlchemy would order them as the table does)."""
    for column in columns:
        assert column in table.c, f"{table.name} has no column {column}"
    names = ", ".join(f'"{column}"' for column in columns)
    marks = ", ".join("?" * len(columns))
    return f"INSERT INTO {table.name} ({names}) VALUES ({marks})"  # noqa: S608 - names of our own tables


def _update(table: Table, columns: tuple[str, ...], key: tuple[str, ...]) -> str:
    statement = update(table).values({column: bindparam(f"new_{column}") for column in columns})
    for column in key:
        statement = statement.where(table.c[column] == bindparam(f"key_{column}"))
    text = _sql(statement)
    in_order = [text.index(f"{column}=?") for column in columns]
    assert in_order == sorted(in_order), f"the columns of {table.name} must be named in the order of the table"
    return text


task, attempt = tables.task, tables.attempt

INSERT_TASK = _insert(task, *STATE_COLUMNS, *_FIXED_COLUMNS)
UPDATE_TASK = _update(task, STATE_COLUMNS, ("seq",))
INSERT_DEPENDENCY = _insert(tables.dependency, "task_seq", "on_seq", "when")
REMOVE_DEPENDENCY = "DELETE FROM dependency WHERE task_seq = ? AND on_seq = ?"
INSERT_ATTEMPT = _insert(attempt, "task_seq", "number", "run", "started_at", "units")
SPAWN_ATTEMPT = _update(attempt, ("pid", "pid_started"), ("task_seq", "number"))
END_ATTEMPT = _update(
    attempt,
    ("outcome", "ended_at", "exit_code", "signal", "error", "result", "max_rss", "cpu_time"),
    ("task_seq", "number"),
)
INSERT_EVENT = _insert(tables.event, "at", "task_seq", "kind", "detail")
INSERT_BATCH = _insert(tables.batch, "name", "created_at", "base_name", "schedule_seq", "slot")
INSERT_REQUEST = _insert(tables.request, "key", "digest", "answer", "at")
SET_SETTING = _insert(tables.setting, "name", "value") + " ON CONFLICT (name) DO UPDATE SET value = excluded.value"
SET_RESOURCE = (
    _insert(tables.resource, "name", "capacity", "units")
    + " ON CONFLICT (name) DO UPDATE SET capacity = excluded.capacity, units = excluded.units"
)
REMOVE_RESOURCE = "DELETE FROM resource WHERE name = ?"
NEXT_NUMBER = (
    "INSERT INTO batch_counter (base_name, last) VALUES (?, 1)"
    " ON CONFLICT (base_name) DO UPDATE SET last = last + 1 RETURNING last"
)
LAST_SEQ = "SELECT seq FROM sqlite_sequence WHERE name = 'task'"

_request = tables.request
SELECT_REQUEST = _sql(select(_request.c.digest, _request.c.answer).where(_request.c.key == bindparam("key")))
SELECT_BATCH = _sql(select(tables.batch.c.seq).where(tables.batch.c.name == bindparam("name")))
OF_BATCH = _sql(
    select(task.c.seq, task.c.id, task.c.status).where(task.c.batch_seq == bindparam("batch")).order_by(task.c.seq)
)
_edge = tables.dependency
SELECT_EDGE = _sql(
    select(_edge.c.when).where(_edge.c.task_seq == bindparam("after"), _edge.c.on_seq == bindparam("before"))
)
SELECT_PAYLOAD = _sql(select(task.c.payload).where(task.c.seq == bindparam("seq")))
SELECT_PAYLOADS = "SELECT seq, payload FROM task WHERE seq IN (SELECT value FROM json_each(?))"
FIND_TASKS = "SELECT seq, id, status FROM task WHERE id IN (SELECT value FROM json_each(?))"
_KIN = """
SELECT d.task_seq, d.on_seq, d."when", c.status, p.status, p.id, c.number
FROM json_each(?) AS wanted CROSS JOIN dependency AS d ON d.{0} = wanted.value
CROSS JOIN task AS c ON c.seq = d.task_seq CROSS JOIN task AS p ON p.seq = d.on_seq
"""
PARENTS, CHILDREN = _KIN.format("task_seq"), _KIN.format("on_seq")
RUNNING_PIDS = _sql(
    select(attempt.c.pid, attempt.c.pid_started)
    .join(task, task.c.seq == attempt.c.task_seq)
    .where(task.c.status == "running", attempt.c.number == task.c.number, attempt.c.pid.is_not(None))
).replace("= ?", "= 'running'")
