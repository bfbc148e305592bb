"""Whether the rows of a database agree with each other and with what schedd promises: `schedctl check`.

Everything is judged in one read transaction, so a daemon that works meanwhile changes nothing in the picture; what it
commits between two of its messages always agrees, so nothing transient is taken for a fault. Each rule is one pass
over a table or its index. Only a cycle among open tasks needs memory, as much as the daemon's own recovery.

A fault (`ERROR`) is what schedd never writes. A `NOTE` is worth knowing and can come about without a fault. It never
writes; of each kind it keeps `SHOWN` findings and the count. Tests: tests/unit/store/test_check.py.
"""

import sqlite3
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, NamedTuple

from schedd.core import graph, limits
from schedd.core.errors import InvalidRequest
from schedd.core.model import Outcome, Stored, When, check_id
from schedd.store import loading
from schedd.store.atrest import read_without_trace
from schedd.store.base import StoreBroken
from schedd.store.faults import translated
from schedd.store.tables import HEAD

SHOWN: Final = 20
ERROR: Final = "error"
NOTE: Final = "note"
_MAX_NAME_CHARS = 240
_MAX_PATH_TASKS = 10


@dataclass(slots=True)
class Findings:
    """All findings of one kind: the first of them as (id of the task or None, sentence), and how many there are."""

    kind: str
    severity: str
    advice: str
    count: int = 0
    shown: list[tuple[str | None, str]] = field(default_factory=list)

    def add(self, task: str | None, message: str) -> None:
        """One more."""
        self.count += 1
        if len(self.shown) < SHOWN:
            self.shown.append((task, message))


@dataclass(slots=True)
class Report:
    """What a check found. `unjudged` says why the rows could not be judged, if they could not."""

    database: Path
    revision: str | None = None
    tasks: int = 0
    attempts: int = 0
    unjudged: str | None = None
    kinds: dict[str, Findings] = field(default_factory=dict)

    @property
    def errors(self) -> int:
        """How many faults there are."""
        return sum(found.count for found in self.kinds.values() if found.severity == ERROR)

    def add(self, kind: str, task: str | None, message: str) -> None:
        """One more finding of a kind of `KINDS`."""
        if kind not in self.kinds:
            severity, advice = KINDS[kind]
            self.kinds[kind] = Findings(kind, severity, advice)
        self.kinds[kind].add(task, message)


_RESTORE = "stop schedd, keep a copy of the state directory, and restore a backup (docs/operations.md)"
_REPORT = "schedd does not write this: something else did, or it is a bug to report; docs/operations.md has what to do"
_ASIDE = "the next start of schedd sets it aside as failed and skips what depends on its success"

KINDS: Final[dict[str, tuple[str, str]]] = {  # kind -> severity, what to do
    "damaged": (ERROR, _RESTORE),
    "unreadable": (ERROR, _RESTORE),
    "empty": (ERROR, "a schedd that starts on it begins with nothing: restore a backup if there should be tasks"),
    "dangling": (ERROR, _REPORT),
    "damaged_task": (ERROR, _ASIDE),
    "bad_status": (ERROR, _REPORT),
    "bad_settled_at": (ERROR, _REPORT),
    "running_without_attempt": (ERROR, "the next start of schedd counts it as crashed"),
    "stray_open_attempt": (ERROR, _REPORT),
    "bad_attempt": (ERROR, _REPORT),
    "attempt_numbers": (ERROR, _REPORT),
    "attempts_miscounted": (ERROR, _REPORT),
    "runs_miscounted": (ERROR, _REPORT),
    "bad_dependency": (ERROR, _REPORT),
    "waits_in_vain": (ERROR, "the next start of schedd skips it; `schedctl cancel` ends it now"),
    "started_too_early": (ERROR, _REPORT),
    "cycle": (ERROR, "none of them can ever start: `schedctl cancel` them and submit them anew"),
    "bad_id": (ERROR, _REPORT),
    "bad_counter": (ERROR, "submitting may be refused with a duplicate id: restore a backup"),
    "bad_json": (ERROR, _REPORT),
    "bad_setting": (ERROR, "`schedctl pause` or `schedctl resume` writes it anew"),
    "set_aside": (NOTE, "its row was damaged when schedd started; submit it again if it is still wanted"),
    "skipped_without_reason": (NOTE, "what it waited for may have been removed since"),
    "empty_batch": (NOTE, "its tasks may have been removed since"),
    "earlier_attempts_gone": (NOTE, "they may have been removed since"),
    "log_without_attempt": (NOTE, "it is left from before a backup was restored, or a power cut: it may be removed"),
    "attempt_without_log": (NOTE, "the file was removed, or a power cut took it; only its output is lost"),
    "foreign_file": (NOTE, "schedd did not make it there and does not look at it"),
    "log_unreadable": (NOTE, "run the check as the user of schedd to have the log files looked at"),
}


def check_database(path: Path) -> Report:
    """Judge the database at `path`, which must exist.

    Raises StoreUnavailable if it cannot be read at all, and StoreBroken if it is a database of something else.
    """

    def judge(connection: sqlite3.Connection) -> Report:
        report = Report(path)
        try:
            _judge(connection, report)
        except sqlite3.DatabaseError as error:
            if not _is_damage(error):
                raise
            report.add("damaged", None, f"the database is damaged: {error}")
        return report

    with translated(path):
        return read_without_trace(path, judge)


def _is_damage(error: sqlite3.DatabaseError) -> bool:
    code = getattr(error, "sqlite_errorcode", None)
    return code is not None and code & 0xFF in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)


def _judge(connection: sqlite3.Connection, report: Report) -> None:
    connection.execute("PRAGMA temp_store = MEMORY")
    tables = {row[0] for row in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
    if not tables:
        report.add("empty", None, "the database holds nothing, not even tables")
        return
    if not {"alembic_version", "task"} <= tables:
        raise StoreBroken(f"{report.database} is not a database of schedd: it has the tables {sorted(tables)[:5]}")
    for (story,) in connection.execute(f"PRAGMA integrity_check({SHOWN})"):  # not in the transaction: it may take long
        if story != "ok":
            for line in str(story).splitlines():
                report.add("damaged", None, f"SQLite finds: {line}")
    connection.execute("BEGIN")
    try:
        row = connection.execute("SELECT version_num FROM alembic_version").fetchone()
        report.revision = None if row is None else str(row[0])
        if report.revision != HEAD:
            report.unjudged = (
                f"the tables have revision {report.revision} and this schedctl knows {HEAD}: the rows were not judged. "
                "Use the schedctl of the schedd that wrote them, or let schedd upgrade them first"
            )
            _foreign_keys(connection, report)
            return
        _judge_rows(connection, report)
    finally:
        connection.rollback()


def _judge_rows(connection: sqlite3.Connection, report: Report) -> None:
    """Every rule; one that meets unreadable pages does not keep the others from being judged."""
    for rule in (
        _count,
        _foreign_keys,
        _statuses,
        _open_attempts,
        _ended_attempts,
        _histories,
        _dependencies,
        _open_tasks,
        _ids,
        _counters,
        _texts,
        _notes,
    ):
        try:
            rule(connection, report)
        except sqlite3.DatabaseError as error:
            if not _is_damage(error):
                raise
            report.add("unreadable", None, f"rows cannot be read ({rule.__name__.strip('_')}): {error}")


def _count(connection: sqlite3.Connection, report: Report) -> None:
    report.tasks = connection.execute("SELECT count(*) FROM task").fetchone()[0]
    report.attempts = connection.execute("SELECT count(*) FROM attempt").fetchone()[0]


# --- names and words --------------------------------------------------------------------------------------------

_NAME = "coalesce(CAST(t.id AS TEXT), 'seq ' || t.seq)"
_NOT_ASIDE = "NOT (t.status = 'failed' AND t.error IS NOT NULL AND t.error LIKE 'set aside: %')"
_ENDED = "('succeeded', 'failed', 'cancelled', 'skipped')"
_MET = (
    "(d.\"when\" = 'finished' AND p.status IN ('succeeded', 'failed', 'cancelled', 'skipped') OR p.status = d.\"when\")"
)
_OUTCOMES = "(" + ", ".join(f"'{outcome}'" for outcome in Outcome) + ")"
_WHENS = "(" + ", ".join(f"'{when}'" for when in When) + ")"


def _short(value: object) -> str:
    """A value of a row in a sentence: whatever it is, and not longer than a line."""
    text = value if isinstance(value, str) else repr(value)
    return text if len(text) <= _MAX_NAME_CHARS else text[:_MAX_NAME_CHARS] + "..."


def _tell(
    connection: sqlite3.Connection,
    report: Report,
    kind: str,
    sql: str,
    sentence: Callable[..., str],
    *,
    named: bool = True,
) -> None:
    """A finding for each row of a query; its first column is the name of a task, unless `named` is false."""
    for row in connection.execute(sql):
        values = [_short(value) for value in row]
        report.add(kind, values[0] if named else None, sentence(*values))


# --- the rules --------------------------------------------------------------------------------------------------


def _foreign_keys(connection: sqlite3.Connection, report: Report) -> None:
    """References to what is not there, in words where the tables are known."""
    names = {"batch": "a batch", "task": "a task"}
    for table, _, parent, _ in connection.execute("PRAGMA foreign_key_check"):
        report.add("dangling", None, f"a row of the table {table} belongs to {names.get(parent, parent)} that is gone")


def _statuses(connection: sqlite3.Connection, report: Report) -> None:
    _tell(
        connection,
        report,
        "bad_status",
        f"SELECT {_NAME}, t.status FROM task AS t WHERE t.status NOT IN ('pending', 'running') "
        f"AND t.status NOT IN {_ENDED} OR t.status IS NULL",
        lambda name, status: f"{name} has the unknown status {status}",
    )
    _tell(
        connection,
        report,
        "bad_settled_at",
        f"SELECT {_NAME}, t.status, t.settled_at FROM task AS t "
        f"WHERE (t.status IN {_ENDED}) <> (t.settled_at IS NOT NULL)",
        lambda name, status, at: (
            f"{name} is {status} and has no time at which it ended"
            if at == "None"
            else f"{name} is {status} and yet has a time at which it ended ({at})"
        ),
    )
    _tell(
        connection,
        report,
        "bad_setting",
        "SELECT value FROM setting WHERE name = 'paused' AND value NOT IN ('0', '1')",
        lambda value: f"the setting `paused` is neither 0 nor 1 but {value}",
        named=False,
    )


def _open_attempts(connection: sqlite3.Connection, report: Report) -> None:
    """A running task has the one open attempt, its last; nobody else has any."""
    _tell(
        connection,
        report,
        "running_without_attempt",
        f"SELECT {_NAME}, t.number FROM task AS t WHERE t.status = 'running' AND NOT EXISTS "
        "(SELECT 1 FROM attempt AS a WHERE a.task_seq = t.seq AND a.number = t.number AND a.outcome IS NULL)",
        lambda name, number: f"{name} is running, and its attempt {number} is not there or has ended",
    )
    _tell(
        connection,
        report,
        "stray_open_attempt",
        f"SELECT {_NAME}, a.number, t.status, t.number FROM attempt AS a JOIN task AS t ON t.seq = a.task_seq "
        "WHERE a.outcome IS NULL AND (t.status IS NOT 'running' OR t.number IS NOT a.number)",
        lambda name, number, status, last: (
            f"attempt {number} of {name} has not ended, and the task is {status} with {last} as its last attempt"
        ),
    )


def _ended_attempts(connection: sqlite3.Connection, report: Report) -> None:
    _tell(
        connection,
        report,
        "bad_attempt",
        f"SELECT {_NAME}, a.number, a.outcome, a.ended_at FROM attempt AS a JOIN task AS t ON t.seq = a.task_seq "
        f"WHERE a.outcome NOT IN {_OUTCOMES} OR (a.outcome IS NULL) <> (a.ended_at IS NULL)",
        lambda name, number, outcome, at: (
            f"attempt {number} of {name} has the outcome {outcome} and ended at {at}: they do not fit"
        ),
    )


class _History(NamedTuple):
    """A task beside what its attempts add up to. `low` and `high` are the counts within which `attempts` must be."""

    name: str
    status: str
    number: Any
    attempts: Any
    max_attempts: Any
    runs: Any
    times: Any
    rows: int
    first: Any
    last: Any
    last_run: Any
    low: int
    high: int

    @property
    def run(self) -> Any:
        """The run that it is in, or that it ended in."""
        return self.runs + (self.status != "succeeded")


# Whether a start that failed counts is not in the row: it does, unless schedd was at fault. Hence two sums.
_HISTORIES = f"""
SELECT {_NAME}, t.status, t.number, t.attempts, t.max_attempts, t.runs, t.times,
       count(a.number) AS n, min(a.number) AS first, max(a.number) AS last, coalesce(max(a.run), 0) AS last_run,
       coalesce(sum(a.run = t.runs + (t.status <> 'succeeded')
                    AND a.outcome NOT IN ('interrupted', 'start_failed')), 0) AS low,
       coalesce(sum(a.run = t.runs + (t.status <> 'succeeded') AND a.outcome <> 'interrupted'), 0) AS high
FROM task AS t LEFT JOIN attempt AS a ON a.task_seq = t.seq
WHERE {_NOT_ASIDE}
GROUP BY t.seq
HAVING coalesce(last, 0) <> t.number OR n > 0 AND (first <> 1 OR last - first + 1 <> n)
    OR t.attempts NOT BETWEEN low AND high OR t.attempts > t.max_attempts
    OR t.status = 'failed' AND t.attempts <> t.max_attempts OR t.status = 'skipped' AND t.attempts <> 0
    OR last_run > t.runs + (t.status <> 'succeeded')
    OR t.runs <> coalesce(t.times, 1) AND t.status = 'succeeded'
    OR t.runs >= coalesce(t.times, 1) AND t.status <> 'succeeded'
"""


def _histories(connection: sqlite3.Connection, report: Report) -> None:
    """Attempts are numbered without a gap up to the task's `number`, and those that count are counted."""
    for row in connection.execute(_HISTORIES):
        task = _History(_short(row[0]), *row[1:])
        for kind, story in _faults_of(task):
            report.add(kind, task.name, f"{task.name} {story}")


def _faults_of(task: _History) -> Iterator[tuple[str, str]]:
    counts = (task.number, task.attempts, task.max_attempts, task.runs, 1 if task.times is None else task.times)
    if not all(isinstance(count, int) for count in counts):
        yield "attempts_miscounted", f"has counts that are not numbers: {_short(counts)}"
        return
    if (task.last or 0) != task.number or (task.rows and task.last - task.first + 1 != task.rows):
        there = f"{task.rows} from {task.first} to {task.last}" if task.rows else "none"
        yield "attempt_numbers", f"has had {_short(task.number)} attempts, of which there are {there}"
    elif task.rows and task.first > 1:
        yield "earlier_attempts_gone", f"has no attempts from before its attempt {task.first} any more"
        return
    elif not task.low <= task.attempts <= task.high:
        expected = str(task.low) if task.low == task.high else f"{task.low} to {task.high}"
        story = f"counts {_short(task.attempts)} attempts in its run {task.run}, and its rows come to {expected}"
        yield "attempts_miscounted", story
    if task.attempts > task.max_attempts:
        story = f"was tried {_short(task.attempts)} times and may be tried {_short(task.max_attempts)} times"
        yield "attempts_miscounted", story
    elif task.status == "failed" and task.attempts < task.max_attempts:
        yield "attempts_miscounted", f"failed after {task.attempts} attempts of the {task.max_attempts} that it has"
    elif task.status == "skipped" and task.attempts:
        yield "attempts_miscounted", f"was skipped and yet counts {task.attempts} attempts"
    times = 1 if task.times is None else task.times
    if task.status == "succeeded" and task.runs != times:
        yield "runs_miscounted", f"succeeded after {_short(task.runs)} runs of the {_short(times)} that it has"
    elif task.status != "succeeded" and task.runs >= times:
        yield "runs_miscounted", f"is {task.status} and has all of its {_short(times)} runs behind it"
    if task.last_run > task.run:
        yield "runs_miscounted", f"has an attempt in the run {task.last_run} and is in its run {task.run}"


def _dependencies(connection: sqlite3.Connection, report: Report) -> None:
    """Edges say something, what waits can still be released, and what ran had been released."""
    edges = (
        f"SELECT {_NAME}, coalesce(CAST(p.id AS TEXT), 'seq ' || p.seq), d.\"when\", p.status, t.status "
        "FROM dependency AS d JOIN task AS t ON t.seq = d.task_seq JOIN task AS p ON p.seq = d.on_seq WHERE "
    )
    _tell(
        connection,
        report,
        "bad_dependency",
        f'{edges} d."when" NOT IN {_WHENS} OR d.task_seq = d.on_seq',
        lambda name, on, when, *_: f"{name} depends on {on} with `when: {when}`, which makes no sense",
    )
    _tell(
        connection,
        report,
        "waits_in_vain",
        f"{edges} t.status = 'pending' AND p.status IN {_ENDED} AND NOT {_MET}",
        lambda name, on, when, was, _: f"{name} waits for {on} to be {when}, which is {was} and stays so",
    )
    _tell(
        connection,
        report,
        "started_too_early",
        f"{edges} t.number > 0 AND t.status <> 'skipped' AND t.seq <> p.seq AND NOT {_MET}",
        lambda name, on, when, was, status: (
            f"{name} is {status} and has started, although {on} is {was} and not {when}"
        ),
    )


def _open_tasks(connection: sqlite3.Connection, report: Report) -> None:
    """What recovery would set aside, and cycles."""
    stored = loading.load(connection)
    for bad in stored.damaged:
        report.add("damaged_task", _short(bad.id), f"{_short(bad.id)} is damaged: {bad.reason}")
    cycle = _cycle(stored)
    if cycle:
        names, stuck = cycle
        more = f", and {stuck} more tasks are stuck behind it" if stuck else ""
        report.add("cycle", names[0], f"tasks wait for each other: {_path(names)}{more}")


def _cycle(stored: Stored) -> tuple[list[str], int] | None:
    index_of = {task.seq: index for index, task in enumerate(stored.tasks)}
    parents: list[list[int]] = [[] for _ in stored.tasks]
    for edge in stored.edges:
        child, parent = index_of.get(edge.task_seq), index_of.get(edge.on_seq)
        if child is not None and parent is not None and child != parent:  # that one is told as a bad dependency
            parents[child].append(parent)
    found = graph.find_cycle(parents)
    return None if found is None else ([_short(stored.tasks[index].id) for index in found[0]], found[1])


def _path(names: list[str]) -> str:
    if len(names) <= _MAX_PATH_TASKS:
        return " -> ".join(names)
    return " -> ".join([*names[: _MAX_PATH_TASKS - 1], f"({len(names) - _MAX_PATH_TASKS} more)", names[-1]])


def _ids(connection: sqlite3.Connection, report: Report) -> None:
    """Ids are what a user may give or what schedd makes; unique they are by their index, which SQLite has checked."""
    sql = (
        "SELECT t.id, t.seq, b.name, b.seq FROM task AS t LEFT JOIN batch AS b ON b.seq = t.batch_seq "
        f"WHERE typeof(t.id) <> 'text' OR length(t.id) > {limits.MAX_FULL_ID_CHARS} "
        "OR NOT is_good_id(t.id, t.seq, b.name)"
    )
    connection.create_function("is_good_id", 3, _is_good_id, deterministic=True)
    for task_id, seq, batch_name, batch_seq in connection.execute(sql):
        where = f"the batch {_short(batch_name)}" if batch_name is not None else "no named batch"
        if batch_seq is None:
            continue  # told as dangling
        report.add("bad_id", _short(task_id), f"the task with seq {seq}, in {where}, has the id {_short(task_id)!r}")


def _is_good_id(task_id: Any, seq: Any, batch_name: Any) -> bool:
    if not isinstance(task_id, str):
        return False
    name = task_id
    if batch_name is not None:
        if not task_id.startswith(f"{batch_name}/"):
            return False
        name = task_id[len(batch_name) + 1 :]
    if name == str(seq):
        return True
    try:
        check_id(name)
    except InvalidRequest:
        return False
    return True


def _counters(connection: sqlite3.Connection, report: Report) -> None:
    """No number that was given can be given again."""
    _tell(
        connection,
        report,
        "bad_counter",
        # ci-12: the digits at the end are its number, what is before the hyphen is its base
        "SELECT b.name, coalesce(c.last, 0) FROM batch AS b LEFT JOIN batch_counter AS c "
        "ON c.base_name = substr(b.name, 1, length(rtrim(b.name, '0123456789')) - 1) "
        "WHERE b.name IS NOT NULL AND (c.last IS NULL OR typeof(c.last) <> 'integer' "
        "OR c.last < CAST(substr(b.name, length(rtrim(b.name, '0123456789')) + 1) AS INTEGER))",
        lambda name, last: f"there is a batch {name}, and the counter of its name stands at {last}",
        named=False,
    )
    for table in ("task", "batch"):
        last = connection.execute("SELECT max(seq) FROM sqlite_sequence WHERE name = ?", (table,)).fetchone()[0]
        highest = connection.execute(f"SELECT max(seq) FROM {table}").fetchone()[0]
        if highest is not None and (not isinstance(last, int) or last < highest):
            story = f"the counter of the table {table} stands at {_short(last)}, and there is a row {highest}"
            report.add("bad_counter", None, story)


def _texts(connection: sqlite3.Connection, report: Report) -> None:
    """What is kept as JSON is JSON. (The payloads of open tasks are judged with their rows.)"""
    _tell(
        connection,
        report,
        "bad_json",
        "SELECT key FROM request WHERE NOT json_valid(answer)",
        lambda key: f"the answer kept for the request with the key {key} is not JSON",
        named=False,
    )
    _tell(
        connection,
        report,
        "bad_json",
        f"SELECT {_NAME}, a.number FROM attempt AS a JOIN task AS t ON t.seq = a.task_seq "
        "WHERE a.result IS NOT NULL AND NOT json_valid(a.result)",
        lambda name, number: f"the result of attempt {number} of {name} is not JSON",
    )
    _tell(
        connection,
        report,
        "bad_json",
        "SELECT id FROM event WHERE detail IS NOT NULL AND NOT json_valid(detail)",
        lambda event: f"the detail of event {event} is not JSON",
        named=False,
    )


def _notes(connection: sqlite3.Connection, report: Report) -> None:
    """What is worth knowing and no fault."""
    _tell(
        connection,
        report,
        "set_aside",
        f"SELECT {_NAME}, t.error FROM task AS t WHERE NOT {_NOT_ASIDE}",
        lambda name, error: f"{name} was {error}",
    )
    _tell(
        connection,
        report,
        "skipped_without_reason",
        f"SELECT {_NAME} FROM task AS t WHERE t.status = 'skipped' AND NOT EXISTS (SELECT 1 FROM dependency AS d "
        f"JOIN task AS p ON p.seq = d.on_seq WHERE d.task_seq = t.seq AND p.status IN {_ENDED} AND NOT {_MET})",
        lambda name: f"{name} was skipped, and nothing that it depends on says why",
    )
    _tell(
        connection,
        report,
        "empty_batch",
        "SELECT coalesce(b.name, 'seq ' || b.seq) FROM batch AS b "
        "WHERE NOT EXISTS (SELECT 1 FROM task AS t WHERE t.batch_seq = b.seq)",
        lambda name: f"the batch {name} has no tasks",
        named=False,
    )


def told(kinds: Iterable[Findings]) -> list[Findings]:
    """Faults first, in the order in which they were found."""
    return sorted(kinds, key=lambda found: found.severity != ERROR)
