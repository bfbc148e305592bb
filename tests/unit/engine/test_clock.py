"""Clocks: bounded waits, and steps of the wall clock that are noticed once."""

import pytest

from schedd.engine.clock import LONGEST_WAIT_S, ManualClock, SystemClock


def test_a_wait_for_a_far_time_is_bounded():
    """The wall clock may be set meanwhile."""
    clock = SystemClock()
    assert clock.wait_for(clock.now() + 1e9) == LONGEST_WAIT_S
    assert clock.wait_for(clock.now() - 5) == 0.0


@pytest.mark.parametrize("jump", [-3600.0, 3600.0])
def test_a_step_is_told_once(monkeypatch: pytest.MonkeyPatch, jump: float):
    """Setting the wall clock shows as one step of that size."""
    clock = SystemClock()
    real = SystemClock._measure_offset
    monkeypatch.setattr(SystemClock, "_measure_offset", staticmethod(lambda: real() + jump))
    assert clock.take_step() == pytest.approx(jump, abs=0.5)
    assert clock.take_step() == 0.0


def test_drift_is_no_step(monkeypatch: pytest.MonkeyPatch):
    """A slewed clock is left alone."""
    clock = SystemClock()
    real = SystemClock._measure_offset
    monkeypatch.setattr(SystemClock, "_measure_offset", staticmethod(lambda: real() + 0.3))
    assert clock.take_step() == 0.0


def test_a_manual_clock_wakes_its_subscribers():
    """Moving it is a reason to look again."""
    clock = ManualClock(100.0)
    woken = []
    clock.subscribe(lambda: woken.append(clock.now()))
    clock.advance(5.0)
    assert woken == [105.0]
