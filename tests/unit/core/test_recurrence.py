"""When the next run is planned: strictly later, from the last planned start, without drift."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as some

from schedd.core import limits
from schedd.core.model import CatchUp, Recurrence
from schedd.core.recurrence import next_planned

EVERY = some.one_of(
    some.sampled_from([limits.MIN_EVERY_S, 0.05, 0.1, 0.3, 1 / 3, 7.7, 60.0, 3600.1, 86_400.0]),
    some.floats(limits.MIN_EVERY_S, 1e6),
)
PLANNED = some.floats(1.6e9, 2.4e9)
LATE = some.one_of(
    some.integers(0, 10**6).map(float),
    some.floats(0, 1e5),
)
"""How many periods after its planned start a run ended."""


class TestCatchUp:
    """What each mode does with starts that were missed."""

    @pytest.mark.parametrize("mode", CatchUp)
    def test_a_run_that_ended_in_time_leaves_nothing_out(self, mode: CatchUp):
        """While the next start is still to come, all modes plan it."""
        assert next_planned(Recurrence(10, 3, mode), 100.0, 109.9) == (110.0, 0)

    @pytest.mark.parametrize(
        ("mode", "planned", "missed"),
        [(CatchUp.ALL, 110.0, 0), (CatchUp.LATEST, 130.0, 2), (CatchUp.NONE, 140.0, 3)],
    )
    def test_each_mode_after_three_starts_went_by(self, mode: CatchUp, planned: float, missed: int):
        """At 135, of the starts 110, 120 and 130: all makes up for each, latest for the last, none for none."""
        assert next_planned(Recurrence(10, 3, mode), 100.0, 135.0) == (planned, missed)

    @pytest.mark.parametrize(
        ("mode", "planned", "missed"),
        [(CatchUp.ALL, 110.0, 0), (CatchUp.LATEST, 130.0, 2), (CatchUp.NONE, 140.0, 3)],
    )
    def test_a_start_that_is_due_this_very_moment_is_due(self, mode: CatchUp, planned: float, missed: int):
        """At exactly 130 the start at 130 has come: latest takes it, none the one after it."""
        assert next_planned(Recurrence(10, 3, mode), 100.0, 130.0) == (planned, missed)


class TestForAllTimes:
    """Properties that hold for any period, start and delay."""

    @settings(max_examples=200, deadline=None, derandomize=True)
    @given(EVERY, PLANNED, LATE, some.sampled_from(CatchUp))
    def test_the_next_start_is_strictly_later_and_on_the_beat(
        self, every: float, planned_at: float, late: float, mode: CatchUp
    ):
        """The next start is the last planned one plus a whole number of periods, at least one."""
        planned, missed = next_planned(Recurrence(every, 2, mode), planned_at, planned_at + every * late)
        assert planned > planned_at
        assert missed >= 0
        assert planned == pytest.approx(planned_at + (missed + 1) * every, abs=1e-6, rel=1e-15)

    @settings(max_examples=200, deadline=None, derandomize=True)
    @given(EVERY, PLANNED, LATE)
    def test_latest_takes_the_last_start_that_is_due(self, every: float, planned_at: float, late: float):
        """What latest plans is due, and the start after it is not: no missed start is run besides it."""
        now = planned_at + every * late
        planned, _ = next_planned(Recurrence(every, 2, CatchUp.LATEST), planned_at, now)
        if planned_at + every <= now:
            assert planned <= now
            following, missed = next_planned(Recurrence(every, 2, CatchUp.LATEST), planned, now)
            assert following > now
            assert missed == 0

    @settings(max_examples=200, deadline=None, derandomize=True)
    @given(EVERY, PLANNED, LATE)
    def test_none_takes_the_first_start_still_to_come(self, every: float, planned_at: float, late: float):
        """What none plans is not due, and the start before it is: no missed start is run at all."""
        now = planned_at + every * late
        planned, missed = next_planned(Recurrence(every, 2, CatchUp.NONE), planned_at, now)
        assert planned > now
        if missed:
            assert planned - every <= now + 1e-6 + now * 1e-15

    @pytest.mark.parametrize("mode", CatchUp)
    def test_a_late_run_does_not_move_those_after_it(self, mode: CatchUp):
        """Ten thousand runs, each ending a little after its start: the last is where it was planned to be."""
        recurrence = Recurrence(0.25, 10_000, mode)
        planned = 1_000.0
        for _ in range(10_000):
            planned, missed = next_planned(recurrence, planned, planned + 0.2)
            assert missed == 0
        assert planned == 1_000.0 + 10_000 * 0.25
