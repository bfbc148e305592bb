"""The judge of `make real` finds every kind of broken promise, and nothing in a run that kept them all."""

from collections.abc import Iterable
from typing import Any

import pytest

from support import benches

judge: Any = benches.load("judge")

DEPS: dict[str, tuple[str, ...]] = {"a": (), "b": ("a",)}
PID = 100


def record(*lines: str) -> str:
    """A record of `word name number` lines, each a second after the one before, beginning at second 1."""
    return "".join(f"{line} {PID} {position}.0\n" for position, line in enumerate(lines, 1))


def rows(*texts: str) -> list[Any]:
    """Rows from `name number outcome started_at` texts; `-` is no outcome."""
    parts = (text.split() for text in texts)
    return [judge.Row(name, int(number), None if out == "-" else out, float(at)) for name, number, out, at in parts]


def found(text: str, rows: Iterable[Any], deps: dict[str, tuple[str, ...]] = DEPS, workers: int = 4) -> list[str]:
    """The violations."""
    violations: list[str] = judge.judge(text, deps, list(rows), workers).violations
    return violations


GOOD = record("start a 1", "end a 1", "start b 1", "end b 1")
GOOD_ROWS = rows("a 1 succeeded 0.9", "b 1 succeeded 2.9")

# b's first attempt is cut by a kill and repeated.
CUT = record("start a 1", "end a 1", "start b 1", "kill daemon 1", "start b 2", "end b 2")
CUT_ROWS = rows("a 1 succeeded 0.9", "b 1 crashed 2.9", "b 2 succeeded 4.9")


def test_a_run_that_kept_every_promise_has_no_violations() -> None:
    """Two tasks in order: nothing to complain of, and the numbers of the report are right."""
    verdict = judge.judge(GOOD, DEPS, GOOD_ROWS, 4)
    assert verdict == judge.Verdict(tasks=2, kills=0, attempts=2, crashed=0, makespan_s=3.0, violations=[])


def test_an_attempt_cut_by_a_kill_counts_as_ended_by_it() -> None:
    """A start without an end is in order if a kill follows and the row says crashed."""
    verdict = judge.judge(CUT, DEPS, CUT_ROWS, 4)
    assert verdict == judge.Verdict(tasks=2, kills=1, attempts=3, crashed=1, makespan_s=5.0, violations=[])


@pytest.mark.parametrize(
    ("text", "of_rows"),
    [
        pytest.param(
            record("start a 1", "end a 1", "start b 1", "kill daemon 1", "end b 1", "start b 2", "end b 2"),
            rows("a 1 succeeded 0.9", "b 1 crashed 2.9", "b 2 succeeded 5.9"),
            id="orphan_ends_before_the_next_attempt",
        ),
        pytest.param(
            record("start a 1", "end a 1", "kill daemon 1", "start b 1", "start b 2", "end b 2"),
            rows("a 1 succeeded 0.9", "b 1 crashed 2.9", "b 2 succeeded 4.9"),
            id="orphan_starts_after_the_kill",
        ),
        pytest.param(
            record("start a 1", "end a 1", "kill daemon 1", "start b 2", "end b 2"),
            rows("a 1 succeeded 0.9", "b 1 crashed 2.9", "b 2 succeeded 3.9"),
            id="row_without_a_start_is_crashed",
        ),
        pytest.param(
            record("start a 1", "end a 1", "start b 1", "end b 1", "kill daemon 1", "start b 2", "end b 2"),
            rows("a 1 succeeded 0.9", "b 1 crashed 2.9", "b 2 succeeded 5.9"),
            id="ended_but_not_settled_when_the_kill_came",
        ),
    ],
)
def test_what_a_kill_may_leave_behind_is_no_violation(text: str, of_rows: list[Any]) -> None:
    """A crash may cut an attempt anywhere between its claim and the commit of its end."""
    assert found(text, of_rows) == []


def test_a_task_that_never_started_is_found() -> None:
    """Every task of the graph has to end."""
    assert found(record("start a 1", "end a 1"), GOOD_ROWS[:1]) == ["b: did not finish (never started)"]


def test_a_task_that_never_ended_is_found() -> None:
    """A start, even with a row that says succeeded, is no end."""
    violations = found(record("start a 1", "end a 1", "start b 1"), GOOD_ROWS)
    assert "b: did not finish (1 attempts)" in violations
    assert "b attempt 1: its row says succeeded, but the record has no end" in violations


def test_a_task_of_another_graph_is_found() -> None:
    """A name that the graph does not have is a violation."""
    text = GOOD + record("start x 1", "end x 1")
    assert found(text, [*GOOD_ROWS, *rows("x 1 succeeded 1")]) == ["x: not a task of the graph"]


def test_a_start_before_the_end_of_a_dependency_is_found() -> None:
    """An edge is respected only if the end lies before the start."""
    text = record("start a 1", "start b 1", "end a 1", "end b 1")
    assert found(text, GOOD_ROWS) == ["b attempt 1: started before a had ended"]


def test_every_attempt_must_respect_the_edges() -> None:
    """An attempt that a kill cut was started too early all the same."""
    text = record("start a 1", "start b 1", "kill daemon 1", "start a 2", "end a 2", "start b 2", "end b 2")
    of_rows = rows("a 1 crashed 0.9", "b 1 crashed 1.9", "a 2 succeeded 3.9", "b 2 succeeded 5.9")
    assert found(text, of_rows) == ["b attempt 1: started before a had ended"]


def test_the_end_of_an_attempt_that_crashed_releases_nobody() -> None:
    """Only the attempt that succeeded counts: what a crash cut is repeated before dependents start."""
    text = record("start a 1", "kill daemon 1", "end a 1", "start b 1", "end b 1", "start a 2", "end a 2")
    of_rows = rows("a 1 crashed 0.9", "b 1 succeeded 3.9", "a 2 succeeded 5.9")
    assert found(text, of_rows) == ["b attempt 1: started before a had ended"]


def test_a_start_without_a_row_is_found() -> None:
    """Work that the daemon does not know of was not durable before it began."""
    violations = found(GOOD, GOOD_ROWS[:1])
    assert "b attempt 1: ran without an attempt row" in violations


def test_a_row_without_a_start_must_be_crashed() -> None:
    """A success that nobody saw start is a violation."""
    of_rows = [*GOOD_ROWS, *rows("b 2 succeeded 5")]
    assert found(GOOD, of_rows) == ["b attempt 2: its row says succeeded, but the record has no start"]


@pytest.mark.parametrize(
    ("outcome", "said"), [("-", "that it still runs"), ("failed", "failed"), ("interrupted", "interrupted")]
)
def test_an_outcome_that_such_a_run_cannot_have_is_found(outcome: str, said: str) -> None:
    """Nothing fails in these graphs and every stop is a kill, so there is only success and crash."""
    violations = found(GOOD, [*GOOD_ROWS, *rows(f"b 2 {outcome} 5")])
    assert violations == [f"b attempt 2: its row says {said}"]


def test_a_crash_without_a_kill_is_found() -> None:
    """An attempt cannot have crashed if the daemon was not killed after it began."""
    text = record("kill daemon 1", "start a 1", "start a 2", "end a 2", "start b 1", "end b 1")
    of_rows = rows("a 1 crashed 1.5", "a 2 succeeded 2.9", "b 1 succeeded 4.9")
    violations = found(text, of_rows)
    assert "a attempt 1: its row says crashed, but there was no kill after it began" in violations
    assert "a attempt 2: started while attempt 1 ran" in violations


def test_two_attempts_at_once_are_found() -> None:
    """The next attempt must not start before the kill that cut the one before it."""
    text = record("start a 1", "end a 1", "start b 1", "start b 2", "kill daemon 1", "end b 2")
    assert found(text, CUT_ROWS) == ["b attempt 2: started while attempt 1 ran"]


def test_an_orphan_that_writes_after_the_next_start_is_found() -> None:
    """What the dead daemon started must be dead before the next attempt begins."""
    text = record("start a 1", "end a 1", "start b 1", "kill daemon 1", "start b 2", "end b 1", "end b 2")
    assert found(text, CUT_ROWS) == ["b attempt 1: still wrote after attempt 2 had started"]


def test_attempts_out_of_order_are_found() -> None:
    """A late start of an old attempt, after the new one started, is a violation."""
    text = record("start a 1", "end a 1", "kill daemon 1", "start b 2", "start b 1", "end b 2")
    of_rows = rows("a 1 succeeded 0.9", "b 1 crashed 2.9", "b 2 succeeded 3.9")
    assert found(text, of_rows) == ["b attempt 2: started before attempt 1"]


def test_an_attempt_after_a_success_is_found() -> None:
    """A success that was written is not repeated."""
    text = GOOD + "start b 2 1 9.0\nend b 2 1 10.0\n"
    of_rows = [*GOOD_ROWS, *rows("b 2 succeeded 8.9")]
    assert found(text, of_rows) == ["b attempt 2: ran although attempt 1 had succeeded"]


@pytest.mark.parametrize("word", ["start", "end"])
def test_a_line_that_comes_twice_is_found(word: str) -> None:
    """One attempt starts once and ends once."""
    text = record("start a 1", "end a 1", "start b 1", "end b 1", f"{word} b 1")
    assert f"b attempt 1: a second {word}" in found(text, GOOD_ROWS)


def test_an_end_without_a_start_is_found() -> None:
    """Nothing can end that has not begun."""
    violations = found(record("start a 1", "end a 1", "end b 1"), GOOD_ROWS)
    assert "b attempt 1: an end without a start" in violations


def test_more_attempts_at_once_than_workers_are_found() -> None:
    """Two tasks side by side need two workers."""
    text = record("start a 1", "start c 1", "end a 1", "end c 1")
    of_rows = rows("a 1 succeeded 0.9", "c 1 succeeded 0.9")
    deps: dict[str, tuple[str, ...]] = {"a": (), "c": ()}
    assert found(text, of_rows, deps, workers=2) == []
    assert found(text, of_rows, deps, workers=1) == ["c attempt 1: 2 attempts ran at once, on 1 workers"]


def test_what_a_kill_cut_no_longer_takes_a_worker() -> None:
    """After a kill all workers are free again, even if their last attempts never wrote an end."""
    assert found(CUT, CUT_ROWS, workers=1) == []


@pytest.mark.parametrize("line", ["", "start a 1", "start a one 100 1.0", "pause a 1 100 1.0", "start a 1 100 1.0 x"])
def test_a_line_that_cannot_be_read_is_found(line: str) -> None:
    """A torn or foreign line is a violation with its number, and the rest is judged all the same."""
    violations = found(GOOD + line + "\n", GOOD_ROWS)
    assert len(violations) == 1
    assert violations[0].startswith("line 5 of the record")
