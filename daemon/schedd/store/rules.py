"""What must be true of tasks, dependencies, batches and the rest, each rule as a query for the rows that break it.

The counts of attempts and runs are in `histories`. A new state, table or way between states needs a look here: the
simulation checks its databases by these rules. Tests: tests/unit/store/test_check.py.
"""

import sqlite3
from typing import Any, NamedTuple

from schedd.core import graph, limits
from schedd.core.errors import InvalidRequest
from schedd.core.model import Outcome, Stored, When, check_id
from schedd.store import loading
from schedd.store.findings import Report, short

_MAX_PATH_TASKS = 10

NAME = "coalesce(CAST(t.id AS TEXT), 'seq ' || t.seq)"
ENDED = "('succeeded', 'failed', 'cancelled', 'skipped')"
NOT_ASIDE = "NOT (t.status = 'failed' AND t.error IS NOT NULL AND t.error LIKE 'set aside: %')"
_MET = f'(d."when" = \'finished\' AND p.status IN {ENDED} OR p.status = d."when")'
_OUTCOMES = "(" + ", ".join(f"'{outcome}'" for outcome in Outcome) + ")"
_WHENS = "(" + ", ".join(f"'{when}'" for when in When) + ")"
_ATTEMPTS = "attempt AS a JOIN task AS t ON t.seq = a.task_seq"
_EDGES = f"""
SELECT {NAME}, coalesce(CAST(p.id AS TEXT), 'seq ' || p.seq), d."when", p.status, t.status
FROM dependency AS d JOIN task AS t ON t.seq = d.task_seq JOIN task AS p ON p.seq = d.on_seq WHERE
"""


class Rule(NamedTuple):
    """A finding for each row of a query, whose first column is the id of the task that it is about, or NULL."""

    kind: str
    query: str
    sentence: str
    """With the columns in it as {0}, {1}, ..."""


RULES = (
    Rule(
        "bad_status",
        f"SELECT {NAME}, t.status FROM task AS t WHERE t.status NOT IN ('pending', 'running') "
        f"AND t.status NOT IN {ENDED} OR t.status IS NULL",
        "{0} has the unknown status {1}",
    ),
    Rule(
        "bad_settled_at",
        f"SELECT {NAME}, t.status, CASE WHEN t.settled_at IS NULL THEN 'no time' ELSE 'a time' END FROM task AS t "
        f"WHERE (t.status IN {ENDED}) <> (t.settled_at IS NOT NULL)",
        "{0} is {1} and has {2} at which it ended",
    ),
    Rule(
        "running_without_attempt",
        f"SELECT {NAME}, t.number FROM task AS t WHERE t.status = 'running' AND NOT EXISTS "
        "(SELECT 1 FROM attempt AS a WHERE a.task_seq = t.seq AND a.number = t.number AND a.outcome IS NULL)",
        "{0} is running, and its attempt {1} is not there or has ended",
    ),
    Rule(
        "stray_open_attempt",
        f"SELECT {NAME}, a.number, t.status, t.number FROM {_ATTEMPTS} "
        "WHERE a.outcome IS NULL AND (t.status IS NOT 'running' OR t.number IS NOT a.number)",
        "attempt {1} of {0} has not ended, and the task is {2} with {3} as its last attempt",
    ),
    Rule(
        "bad_attempt",
        f"SELECT {NAME}, a.number, a.outcome, a.ended_at FROM {_ATTEMPTS} "
        f"WHERE a.outcome NOT IN {_OUTCOMES} OR (a.outcome IS NULL) <> (a.ended_at IS NULL)",
        "attempt {1} of {0} has the outcome {2} and ended at {3}: they do not fit",
    ),
    Rule(
        "bad_dependency",
        f'{_EDGES} d."when" NOT IN {_WHENS} OR d.task_seq = d.on_seq',
        "{0} depends on {1} with `when: {2}`, which makes no sense",
    ),
    Rule(
        "waits_in_vain",
        f"{_EDGES} t.status = 'pending' AND t.number = t.base_number AND p.status IN {ENDED} AND NOT {_MET}",
        "{0} waits for {1} to be {2}, which is {3} and stays so",
    ),
    Rule(  # an edge cannot be added to what has started, and what has ended does not change, but by a retry
        "started_too_early",
        f"{_EDGES} t.number > t.base_number AND t.status <> 'skipped' AND t.seq <> p.seq AND NOT {_MET} "
        "AND p.retries = 0",
        "{0} is {4} and has started, although {1} is {3} and not {2}",
    ),
    Rule(  # ci-12: the digits at the end are its number, what is before the hyphen is its base
        "bad_counter",
        "SELECT NULL, b.name, coalesce(c.last, 0) FROM batch AS b LEFT JOIN batch_counter AS c "
        "ON c.base_name = substr(b.name, 1, length(rtrim(b.name, '0123456789')) - 1) "
        "WHERE b.name IS NOT NULL AND (c.last IS NULL OR typeof(c.last) <> 'integer' "
        "OR c.last < CAST(substr(b.name, length(rtrim(b.name, '0123456789')) + 1) AS INTEGER))",
        "there is a batch {1}, and the counter of its name stands at {2}",
    ),
    *(
        Rule(
            "bad_counter",
            f"SELECT NULL, s.last, r.highest FROM (SELECT max(seq) AS highest FROM {table}) AS r, "
            f"(SELECT max(seq) AS last FROM sqlite_sequence WHERE name = '{table}') AS s "
            "WHERE r.highest IS NOT NULL AND (typeof(s.last) <> 'integer' OR s.last < r.highest)",
            f"the counter of the table {table} stands at {{1}}, and there is a row {{2}}",
        )
        for table in ("task", "batch")
    ),
    Rule(  # the payloads of open tasks are judged with their rows
        "bad_json",
        "SELECT NULL, key FROM request WHERE NOT json_valid(answer)",
        "the answer kept for the request with the key {1} is not JSON",
    ),
    Rule(
        "bad_json",
        f"SELECT {NAME}, a.number FROM {_ATTEMPTS} WHERE a.result IS NOT NULL AND NOT json_valid(a.result)",
        "the result of attempt {1} of {0} is not JSON",
    ),
    Rule(
        "bad_json",
        "SELECT NULL, id FROM event WHERE detail IS NOT NULL AND NOT json_valid(detail)",
        "the detail of event {1} is not JSON",
    ),
    Rule(
        "bad_json", "SELECT NULL, name FROM schedule WHERE NOT json_valid(spec)", "the spec of schedule {1} is not JSON"
    ),
    Rule(
        "bad_setting",
        "SELECT NULL, value FROM setting WHERE name = 'paused' AND value NOT IN ('0', '1')",
        "the setting `paused` is neither 0 nor 1 but {1}",
    ),
    Rule("set_aside", f"SELECT {NAME}, t.error FROM task AS t WHERE NOT {NOT_ASIDE}", "{0} was {1}"),
    Rule(
        "skipped_without_reason",
        f"SELECT {NAME} FROM task AS t WHERE t.status = 'skipped' AND t.start_before IS NULL "
        "AND NOT EXISTS (SELECT 1 FROM dependency AS d "
        f"JOIN task AS p ON p.seq = d.on_seq WHERE d.task_seq = t.seq AND p.status IN {ENDED} AND NOT {_MET})",
        "{0} was skipped, and nothing that it depends on says why",
    ),
    Rule(
        "empty_batch",
        "SELECT NULL, coalesce(b.name, 'seq ' || b.seq) FROM batch AS b "
        "WHERE NOT EXISTS (SELECT 1 FROM task AS t WHERE t.batch_seq = b.seq)",
        "the batch {1} has no tasks",
    ),
)


def judge(connection: sqlite3.Connection, report: Report) -> None:
    """Every rule of this module."""
    foreign_keys(connection, report)
    for rule in RULES:
        for row in connection.execute(rule.query):
            values = [short(value) for value in row]
            report.add(rule.kind, None if row[0] is None else values[0], rule.sentence.format(*values))
    _ids(connection, report)
    _open_tasks(connection, report)


def foreign_keys(connection: sqlite3.Connection, report: Report) -> None:
    """References to what is not there."""
    for table, _, parent, _ in connection.execute("PRAGMA foreign_key_check"):
        report.add("dangling", None, f"a row of the table {table} belongs to a {parent} that is gone")


def _ids(connection: sqlite3.Connection, report: Report) -> None:
    """Ids are what a user may give or what schedd makes; unique they are by their index, which SQLite has checked."""
    query = (
        "SELECT t.id, t.seq, b.name FROM task AS t JOIN batch AS b ON b.seq = t.batch_seq "
        f"WHERE typeof(t.id) <> 'text' OR length(t.id) > {limits.MAX_FULL_ID_CHARS} "
        "OR NOT is_good_id(t.id, t.seq, b.name)"
    )
    connection.create_function("is_good_id", 3, _is_good_id, deterministic=True)
    for task_id, seq, batch in connection.execute(query):
        where = f"the batch {short(batch)}" if batch is not None else "no named batch"
        report.add("bad_id", short(task_id), f"the task with seq {seq}, in {where}, has the id {short(task_id)!r}")


def _is_good_id(task_id: Any, seq: Any, batch: Any) -> bool:
    prefix = f"{batch}/" if batch is not None else ""
    if not isinstance(task_id, str) or not task_id.startswith(prefix):
        return False
    name = task_id[len(prefix) :]
    if name == str(seq):
        return True
    try:
        check_id(name)
    except InvalidRequest:
        return False
    return True


def _open_tasks(connection: sqlite3.Connection, report: Report) -> None:
    """What recovery would set aside, and cycles."""
    stored = loading.load(connection)
    for bad in stored.damaged:
        report.add("damaged_task", short(bad.id), f"{short(bad.id)} is damaged: {bad.reason}")
    found = _cycle(stored)
    if found:
        path, stuck = found
        names = [short(stored.tasks[index].id) for index in path]
        if len(names) > _MAX_PATH_TASKS:
            names[_MAX_PATH_TASKS - 1 : -1] = [f"({len(names) - _MAX_PATH_TASKS} more)"]
        more = f", and {stuck} more tasks are stuck behind it" if stuck else ""
        report.add("cycle", names[0], f"tasks wait for each other: {' -> '.join(names)}{more}")


def _cycle(stored: Stored) -> tuple[list[int], int] | None:
    """One cycle among open tasks by their index, and how many are stuck behind it. What has started waits for nothing:
    a retry of what came before it may have led back to it, and stops nobody.
    """
    index_of = {task.seq: index for index, task in enumerate(stored.tasks)}
    parents: list[list[int]] = [[] for _ in stored.tasks]
    for edge in stored.edges:
        child, parent = index_of.get(edge.task_seq), index_of.get(edge.on_seq)
        if child is None or parent is None:
            continue
        task = stored.tasks[child]
        if task.number <= task.base_number:
            parents[child].append(parent)
    return graph.find_cycle(parents)
