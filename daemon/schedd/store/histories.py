"""Whether the counts of a task fit the attempts that it has had: a part of `schedctl check`.

Tests: tests/unit/store/test_check.py.
"""

import sqlite3
from collections.abc import Iterator
from typing import Any, NamedTuple

from schedd.store.findings import Report, short
from schedd.store.rules import NAME, NOT_ASIDE


class History(NamedTuple):
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
    uses_all: int
    """Whether it fails only when it has no attempts left."""

    @property
    def run(self) -> Any:
        """The run that it is in, or that it ended in."""
        return self.runs + (self.status != "succeeded")


# Only what breaks a rule leaves SQLite; which rule, `_faults_of` says.
# Whether a start that failed counts is not in the row: it does, unless schedd was at fault. Hence two sums.
_IN_THIS_RUN = "a.number > t.base_number AND a.run = t.runs + (t.status <> 'succeeded')"
_HISTORIES = f"""
SELECT {NAME}, t.status, t.number, t.attempts, t.max_attempts, t.runs, coalesce(t.times, 1) AS times,
       count(a.number) AS n, min(a.number) AS first, max(a.number) AS last,
       coalesce(max(a.run) FILTER (WHERE a.number > t.base_number), 0) AS last_run,
       coalesce(sum(a.outcome NOT IN ('interrupted', 'start_failed')) FILTER (WHERE {_IN_THIS_RUN}), 0) AS low,
       coalesce(sum(a.outcome <> 'interrupted') FILTER (WHERE {_IN_THIS_RUN}), 0) AS high,
       t.deadline IS NULL AND t.retry_rules IS NULL AS uses_all
FROM task AS t LEFT JOIN attempt AS a ON a.task_seq = t.seq
WHERE {NOT_ASIDE}
GROUP BY t.seq
HAVING coalesce(last, 0) <> t.number OR n > 0 AND (first <> 1 OR last - first + 1 <> n)
    OR t.attempts NOT BETWEEN low AND high OR t.attempts > t.max_attempts
    OR t.status = 'failed' AND uses_all AND t.attempts <> t.max_attempts OR t.status = 'skipped' AND t.attempts <> 0
    OR last_run > t.runs + (t.status <> 'succeeded')
    OR t.runs <> coalesce(t.times, 1) AND t.status = 'succeeded'
    OR t.runs >= coalesce(t.times, 1) AND t.status <> 'succeeded'
"""


def judge(connection: sqlite3.Connection, report: Report) -> None:
    """Attempts are numbered without a gap up to the task's `number`, and those that count are counted."""
    for row in connection.execute(_HISTORIES):
        task = History(short(row[0]), *row[1:])
        for kind, story in _faults_of(task):
            report.add(kind, task.name, f"{task.name} {story}")


def _faults_of(task: History) -> Iterator[tuple[str, str]]:
    counts = (task.number, task.attempts, task.max_attempts, task.runs, task.times)
    if not all(isinstance(count, int) for count in counts):
        yield "attempts_miscounted", f"has counts that are not numbers: {short(counts)}"
        return
    if (task.last or 0) != task.number or (task.rows and task.last - task.first + 1 != task.rows):
        there = f"{task.rows} from {task.first} to {task.last}" if task.rows else "none"
        yield "attempt_numbers", f"has had {task.number} attempts, of which there are {there}"
    elif task.rows and task.first > 1:
        yield "earlier_attempts_gone", f"has no attempts from before its attempt {task.first} any more"
        return  # so what they would add up to is not known
    elif not task.low <= task.attempts <= task.high:
        expected = str(task.low) if task.low == task.high else f"{task.low} to {task.high}"
        story = f"counts {task.attempts} attempts in its run {task.run}, and its rows come to {expected}"
        yield "attempts_miscounted", story
    if task.attempts > task.max_attempts:
        yield "attempts_miscounted", f"was tried {task.attempts} times and may be tried {task.max_attempts} times"
    elif task.status == "failed" and task.uses_all and task.attempts < task.max_attempts:
        yield "attempts_miscounted", f"failed after {task.attempts} attempts of the {task.max_attempts} that it has"
    elif task.status == "skipped" and task.attempts:
        yield "attempts_miscounted", f"was skipped and yet counts {task.attempts} attempts"
    if task.status == "succeeded" and task.runs != task.times:
        yield "runs_miscounted", f"succeeded after {task.runs} runs of the {task.times} that it has"
    elif task.status != "succeeded" and task.runs >= task.times:
        yield "runs_miscounted", f"is {task.status} and has all of its {task.times} runs behind it"
    if task.last_run > task.run:
        yield "runs_miscounted", f"has an attempt in the run {task.last_run} and is in its run {task.run}"
