"""The round's output: what counts as rows, and what is left when the rows are in the transaction."""

from collections.abc import Callable

import pytest

from schedd.core.events import (
    AddedEdge,
    AddedTask,
    AttemptEnded,
    AttemptSpawned,
    Cancel,
    Logged,
    Output,
    StartAttempt,
    StartedAttempt,
    StopAttempt,
)
from schedd.core.model import Capacity, NewTask, OpenTask, Outcome, RetryPolicy, Status, StopReason, When
from support.core_driver import Driver, new

TASK = OpenTask(1, "a", 0, RetryPolicy(), None, 0.0)

FILLS: dict[str, Callable[[Output], object]] = {
    "added": lambda out: out.added.append(AddedTask(NewTask(None), TASK, 1, 0.0)),
    "changed": lambda out: out.changed.update({1: TASK}),
    "edges": lambda out: out.edges.append(AddedEdge(2, 1, When.SUCCEEDED)),
    "started": lambda out: out.started.append(StartedAttempt(1, 1, 1, 0.0)),
    "spawned": lambda out: out.spawned.append(AttemptSpawned(1, 1, 42, 7)),
    "ended": lambda out: out.ended.append(AttemptEnded(1, 1, Outcome.SUCCEEDED, 0.0)),
    "events": lambda out: out.events.append(Logged(0.0, 1, "a", "started", None)),
    "paused": lambda out: setattr(out, "paused", False),
    "removed_edges": lambda out: out.removed_edges.append((2, 1)),
    "capacities": lambda out: out.capacities.update({"gpu": Capacity(2)}),
}


class TestOutput:
    """Rows and effects."""

    def test_every_kind_of_row_is_tried(self):
        """The table above misses none, so a new kind of row cannot be forgotten here or in `clear_rows`."""
        assert {*FILLS, "effects"} == set(Output.__slots__)

    @pytest.mark.parametrize("kind", FILLS)
    def test_each_kind_of_row_counts_and_is_cleared(self, kind: str):
        """One row of any kind is something to write; cleared, there is nothing."""
        out = Output()
        assert not out.has_rows()
        FILLS[kind](out)
        assert out.has_rows()
        out.clear_rows()
        assert not out.has_rows()

    def test_effects_are_no_rows_and_outlive_them(self):
        """They are let go after the commit, so clearing the rows leaves them."""
        out = Output()
        effects = [StartAttempt(1, "a", 1, 1), StopAttempt(1, 1, StopReason.CANCELLED)]
        out.effects += effects
        assert not out.has_rows()
        out.clear_rows()
        assert out.effects == effects

    def test_a_task_changed_twice_in_a_round_is_one_row(self, driver: Driver):
        """It is written as it stands at the flush."""
        driver.submit(new("a"), new("b"))
        out = driver.step(driver.ended("a"), Cancel(driver.known("b")))
        assert {seq: task.status for seq, task in out.changed.items()} == {1: Status.SUCCEEDED, 2: Status.CANCELLED}
