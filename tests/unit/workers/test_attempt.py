"""The meeting of a worker and whoever wants an attempt to end."""

import pytest

from schedd.core.events import StartAttempt
from schedd.core.model import Outcome
from schedd.workers.attempt import Attempt


class Recorder:
    """A target that notes what it is told."""

    def __init__(self, hears: bool = True) -> None:
        self.told: list[str] = []
        self._hears = hears

    def terminate(self) -> bool:
        self.told.append("terminate")
        return self._hears

    def kill(self) -> None:
        self.told.append("kill")


def attempt() -> Attempt:
    return Attempt(StartAttempt(1, "a", 1, 1), None)


REASONS = [Outcome.CANCELLED, Outcome.INTERRUPTED, Outcome.TIMED_OUT]


@pytest.mark.parametrize("reason", REASONS)
def test_asked_while_it_runs(reason: Outcome) -> None:
    """An attempt that was asked to end, once, ended because of that."""
    one, target = attempt(), Recorder()
    one.attach(target)
    assert one.ask_to_end(reason)
    assert not one.ask_to_end(reason)
    one.detach()
    assert (target.told, one.stopped_by) == (["terminate"], reason)


def test_asked_before_there_is_a_target() -> None:
    """What was asked before is passed on when there is somebody to hear it, and so is the end of the grace."""
    one, target = attempt(), Recorder()
    one.ask_to_end(Outcome.INTERRUPTED)
    one.make_end()
    one.attach(target)
    one.detach()
    assert (target.told, one.stopped_by) == (["terminate", "kill"], Outcome.INTERRUPTED)


def test_asked_after_the_end() -> None:
    """Nobody signals what has ended, and it did not end because of that."""
    one, target = attempt(), Recorder()
    one.attach(target)
    one.detach()
    one.ask_to_end(Outcome.CANCELLED)
    one.make_end()
    assert (target.told, one.stopped_by) == ([], None)


@pytest.mark.parametrize("first", REASONS)
@pytest.mark.parametrize("second", REASONS)
def test_first_reason_wins_but_for_cancel(first: Outcome, second: Outcome) -> None:
    """The first reason stands, unless the second is a cancel."""
    one = attempt()
    one.attach(Recorder())
    one.ask_to_end(first)
    one.ask_to_end(second)
    one.detach()
    assert one.stopped_by is (second if second is Outcome.CANCELLED else first)


@pytest.mark.parametrize("reason", REASONS)
def test_a_target_that_cannot_hear(reason: Outcome) -> None:
    """An interrupt that cannot be heard ends nothing; a cancel and a timeout hold all the same."""
    one = attempt()
    one.attach(Recorder(hears=False))
    one.ask_to_end(reason)
    one.detach()
    assert one.stopped_by is (None if reason is Outcome.INTERRUPTED else reason)
