"""Judges a run of a bench graph from what its tasks wrote, not from what the daemon says of itself.

The record
----------
Lines of `WORD NAME ATTEMPT PID TIME`, each appended by one write, so their order is the order of what happened:

    start NAME ATTEMPT PID TIME    an attempt began (step.sh)
    end   NAME ATTEMPT PID TIME    it is about to exit with 0 (step.sh)
    kill  daemon N PID TIME        the daemon is dead, for the Nth time (real.py)

TIME is UTC seconds. Beside the record there are the attempt rows, read from the database when the daemon is down.

What is judged
--------------
finished   every task has an end of an attempt that its row calls succeeded
edges      every start of a task lies after such an end of each of its dependencies
rows       every start has its row; a row without a start is `crashed`; one that `succeeded` has start and end;
           a `crashed` one was running at a kill; nothing is left without an outcome
overlap    no attempt of a task starts before the one before it has ended or was cut by a kill, nothing of an
           attempt is written after the next one started, and nothing starts after a success
workers    no more attempts at once than there are workers

A kill of the daemon does not kill its tasks: the next daemon does that before it starts anything of its own. So an
attempt that a kill cut may still write lines after the kill: its end, or, when its process had only just been made,
even its start. That is as it should be, as long as they come before the next attempt of the task.

Tests: tests/unit/test_bench_judge.py shows each of these found.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

FIELDS = 5
SETTLED = frozenset({"succeeded", "crashed"})
"""What an attempt's outcome may be in such a run: nothing fails, nothing is cancelled, every stop is a kill."""


class Line(NamedTuple):
    """One line of the record."""

    word: str
    name: str
    number: int
    pid: int
    at: float


class Row(NamedTuple):
    """One attempt row: `number` is the attempt's, `outcome` None if it has none, `started_at` UTC seconds."""

    name: str
    number: int
    outcome: str | None
    started_at: float


@dataclass(slots=True)
class Attempt:
    """One attempt, put together: positions are indices of lines in the record."""

    name: str
    number: int
    row: Row | None = None
    start: int | None = None
    end: int | None = None
    cut: int | None = None

    @property
    def label(self) -> str:
        """What to call it in a message."""
        return f"{self.name} attempt {self.number}"

    @property
    def over(self) -> int | None:
        """The position after which it no longer counts as running, None if there is no such position."""
        positions = [position for position in (self.end, self.cut) if position is not None]
        return min(positions) if positions else None


@dataclass(frozen=True, slots=True)
class Verdict:
    """What the judge found: no violations means that every promise was kept."""

    tasks: int
    kills: int
    attempts: int
    crashed: int
    makespan_s: float
    violations: list[str]


def read(text: str) -> tuple[list[Line], list[str]]:
    """The lines of a record, and a violation for each that is not one."""
    lines: list[Line] = []
    violations: list[str] = []
    for position, raw in enumerate(text.splitlines(), 1):
        parts = raw.split(" ")
        try:
            word, name, number, pid, at = parts if len(parts) == FIELDS else ("", "", "", "", "")
            line = Line(word, name, int(number), int(pid), float(at))
        except ValueError:
            violations.append(f"line {position} of the record cannot be read: {raw[:200]!r}")
            continue
        if word not in ("start", "end", "kill"):
            violations.append(f"line {position} of the record begins with an unknown word: {raw[:200]!r}")
            continue
        lines.append(line)
    return lines, violations


def judge(text: str, deps: Mapping[str, Iterable[str]], rows: Sequence[Row], workers: int) -> Verdict:
    """The verdict on a record. `deps` names every task of the graph and what each depends on."""
    lines, violations = read(text)
    kills = [position for position, line in enumerate(lines) if line.word == "kill"]
    attempts = _assemble(lines, rows, violations)
    for attempt in attempts.values():
        _cut(attempt, lines, kills)
    by_task: dict[str, list[Attempt]] = defaultdict(list)
    for key in sorted(attempts):
        by_task[key[0]].append(attempts[key])

    violations += _unknown(by_task, deps)
    violations += _unfinished(by_task, deps)
    violations += _edges(by_task, deps)
    for of_task in by_task.values():
        for attempt in of_task:
            violations += _row(attempt)
        violations += _overlap(of_task)
    violations += _workers(attempts.values(), workers)
    times = [line.at for line in lines if line.word != "kill"]
    return Verdict(
        tasks=len(deps),
        kills=len(kills),
        attempts=len(attempts),
        crashed=sum(attempt.row is not None and attempt.row.outcome == "crashed" for attempt in attempts.values()),
        makespan_s=max(times) - min(times) if times else 0.0,
        violations=violations,
    )


def _assemble(lines: Sequence[Line], rows: Sequence[Row], violations: list[str]) -> dict[tuple[str, int], Attempt]:
    attempts: dict[tuple[str, int], Attempt] = {}
    for row in rows:
        attempts[row.name, row.number] = Attempt(row.name, row.number, row=row)
    for position, line in enumerate(lines):
        if line.word == "kill":
            continue
        attempt = attempts.setdefault((line.name, line.number), Attempt(line.name, line.number))
        if getattr(attempt, line.word) is not None:
            violations.append(f"{attempt.label}: a second {line.word}")
        elif line.word == "end" and attempt.start is None:
            violations.append(f"{attempt.label}: an end without a start")
        setattr(attempt, line.word, position)
    return attempts


def _cut(attempt: Attempt, lines: Sequence[Line], kills: Sequence[int]) -> None:
    """Find the kill that ended a crashed attempt: the first one after it was claimed (its row's `started_at`).

    Where its process wrote its start only after that kill, it is over with that line.
    """
    if attempt.row is None or attempt.row.outcome != "crashed":
        return
    for position in kills:
        if lines[position].at >= attempt.row.started_at:
            attempt.cut = max(position, attempt.start if attempt.start is not None else position)
            return


def _unknown(by_task: Mapping[str, list[Attempt]], deps: Mapping[str, Iterable[str]]) -> list[str]:
    return [f"{name}: not a task of the graph" for name in by_task if name not in deps]


def _succeeded_at(of_task: Sequence[Attempt]) -> int | None:
    """The position of the end of the attempt that succeeded."""
    for attempt in of_task:
        if attempt.end is not None and attempt.row is not None and attempt.row.outcome == "succeeded":
            return attempt.end
    return None


def _unfinished(by_task: Mapping[str, list[Attempt]], deps: Mapping[str, Iterable[str]]) -> list[str]:
    found = []
    for name in deps:
        of_task = by_task.get(name, [])
        if _succeeded_at(of_task) is None:
            tried = f"{len(of_task)} attempts" if of_task else "never started"
            found.append(f"{name}: did not finish ({tried})")
    return found


def _edges(by_task: Mapping[str, list[Attempt]], deps: Mapping[str, Iterable[str]]) -> list[str]:
    found = []
    done_at = {name: _succeeded_at(of_task) for name, of_task in by_task.items()}
    for name, of_task in by_task.items():
        for attempt in of_task:
            if attempt.start is None:
                continue
            for dep in deps.get(name, ()):
                done = done_at.get(dep)
                if done is None or done > attempt.start:
                    found.append(f"{attempt.label}: started before {dep} had ended")
    return found


def _row(attempt: Attempt) -> list[str]:
    """Whether what the daemon wrote of an attempt agrees with what the attempt wrote of itself."""
    if attempt.row is None:
        return [f"{attempt.label}: ran without an attempt row"]
    outcome = attempt.row.outcome
    if outcome not in SETTLED:
        return [f"{attempt.label}: its row says {outcome or 'that it still runs'}"]
    if outcome == "succeeded" and (attempt.start is None or attempt.end is None):
        missing = "start" if attempt.start is None else "end"
        return [f"{attempt.label}: its row says succeeded, but the record has no {missing}"]
    if outcome == "crashed" and attempt.cut is None:
        return [f"{attempt.label}: its row says crashed, but there was no kill after it began"]
    return []


def _overlap(of_task: Sequence[Attempt]) -> list[str]:
    """Whether the attempts of one task, in the order of their numbers, followed one another."""
    found = []
    begun = [(attempt.start, attempt) for attempt in of_task if attempt.start is not None]
    for (earlier_start, earlier), (later_start, later) in pairwise(begun):
        if earlier.row is not None and earlier.row.outcome == "succeeded":
            found.append(f"{later.label}: ran although attempt {earlier.number} had succeeded")
        elif later_start < earlier_start:
            found.append(f"{later.label}: started before attempt {earlier.number}")
        elif earlier.over is None or earlier.over > later_start:
            found.append(f"{later.label}: started while attempt {earlier.number} ran")
        elif earlier.end is not None and earlier.end > later_start:
            found.append(f"{earlier.label}: still wrote after attempt {later.number} had started")
    return found


def _workers(attempts: Iterable[Attempt], workers: int) -> list[str]:
    """Whether more attempts ran at once than there are workers. What a kill cut is over with the kill."""
    steps: list[tuple[int, int, str]] = []
    for attempt in attempts:
        if attempt.start is None or attempt.over is None:
            continue
        steps.append((attempt.start, 1, attempt.label))
        steps.append((attempt.over, -1, attempt.label))
    running = 0
    # At one position ends come first, but an attempt that is over where it starts must start first.
    for _, change, label in sorted(steps, key=lambda step: (step[0], -step[1])):
        running += change
        if running > workers:
            return [f"{label}: {running} attempts ran at once, on {workers} workers"]
    return []
