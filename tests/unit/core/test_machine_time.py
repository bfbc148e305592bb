"""The machine as a whole: pause, drain, the number of workers, and clocks that are set."""

import pytest

from schedd.core.events import ClockStepped, DrainBegan, DrainExpired, SetPaused, StopAttempt, WorkersChanged
from schedd.core.model import Outcome, Recurrence, RetryPolicy, Status, StopReason
from support.core_driver import START, Driver, new


def step_clock(driver: Driver, delta: float) -> None:
    """The wall clock is set, and the round that hears of it has the new time."""
    driver.now += delta
    driver.step(ClockStepped(delta))


class TestPause:
    """Nothing starts; what runs goes on."""

    def test_a_paused_machine_starts_nothing(self, driver: Driver):
        """Ends are taken, tasks become ready, none starts until it is resumed."""
        driver.submit(new("a"), new("b", "a"), new("c", delay=1))
        out = driver.pause()
        assert (out.paused, out.has_rows()) == (True, True)
        driver.end("a")
        driver.advance(1)
        assert driver.statuses() == {"a": "succeeded", "b": "ready", "c": "ready"}
        assert driver.machine.next_due() is None
        out = driver.pause(False)
        assert out.paused is False
        assert driver.running() == {"b"}
        assert [kind for task_id, kind in driver.log if task_id is None] == ["submitted", "paused", "resumed"]

    @pytest.mark.parametrize("paused", [True, False])
    def test_pausing_twice_is_no_change(self, driver: Driver, paused: bool):
        """Nor is resuming what is not paused."""
        driver.pause(paused)
        assert not driver.step(SetPaused(paused)).has_rows()


class TestDrain:
    """A stop on purpose."""

    def test_a_draining_machine_starts_nothing(self, driver: Driver):
        """What runs may finish; what that releases waits for the next start of the daemon."""
        driver.submit(new("a"), new("b", "a"), new("c"))
        driver.step(DrainBegan())
        driver.end("a")
        assert driver.statuses() == {"a": "succeeded", "b": "ready", "c": "ready"}
        driver.submit(new("d"))
        driver.pause(False)
        driver.step(WorkersChanged(5))
        assert driver.starts() == ["a"]

    def test_after_the_drain_all_that_runs_is_interrupted(self, drive):
        """Each running attempt is told once, and once more if asked again; none loses an attempt by it."""
        driver = drive(2)
        driver.submit(new("a"), new("b"), new("c"))
        driver.step(DrainBegan())
        assert driver.stopped == []
        out = driver.step(DrainExpired())
        assert out.effects == [
            StopAttempt(1, 1, StopReason.INTERRUPTED),
            StopAttempt(2, 1, StopReason.INTERRUPTED),
        ]
        assert not out.has_rows()
        driver.end("a", Outcome.INTERRUPTED)
        driver.end("b", Outcome.INTERRUPTED)
        assert driver.statuses() == {"a": "ready", "b": "ready", "c": "ready"}
        assert [task.attempts for task in driver.tasks.values()] == [0, 0, 0]
        assert driver.starts() == ["a", "b"]

    def test_an_expired_drain_with_nothing_running_stops_nothing(self, driver: Driver):
        """There is no order without an attempt."""
        driver.submit(new("a", delay=9))
        driver.step(DrainBegan())
        assert driver.step(DrainExpired()).effects == []


class TestWorkers:
    """Their number may change."""

    def test_more_workers_start_more_at_once(self, driver: Driver):
        """In the round that hears of them."""
        driver.submit(*(new(None) for _ in range(4)))
        driver.step(WorkersChanged(3))
        assert driver.running() == {"1", "2", "3"}

    def test_fewer_workers_stop_nothing(self, drive):
        """What runs goes on, and nothing starts until fewer run than there are workers."""
        driver = drive(3)
        driver.submit(*(new(None) for _ in range(5)))
        assert driver.step(WorkersChanged(1)).effects == []
        driver.end("1")
        driver.end("2")
        assert driver.running() == {"3"}
        driver.end("3")
        assert driver.running() == {"4"}


@pytest.mark.parametrize("delta", [3_600.0, -3_600.0, 0.5, -0.5])
class TestClockStepped:
    """A wall clock that is set moves due times along, both ways."""

    def test_a_delay_is_as_long_as_it_was(self, driver: Driver, delta: float):
        """What was to wait a minute still waits a minute: not a moment less, not a moment more."""
        driver.submit(new("a", delay=60))
        driver.advance(20)
        step_clock(driver, delta)
        assert driver.machine.next_due() == driver.now + 40
        assert driver.out.changed == {1: driver.tasks["a"]}
        driver.advance(39.5)
        assert driver.status("a") is Status.PENDING
        driver.advance(0.5)
        assert driver.status("a") is Status.RUNNING

    def test_a_backoff_is_as_long_as_it_was(self, driver: Driver, delta: float):
        """Retries wait by the clock that runs, not by the one that is set."""
        driver.submit(new("a", retry=RetryPolicy(2, 30)))
        driver.end("a", Outcome.FAILED)
        step_clock(driver, delta)
        driver.advance(29.5)
        assert driver.status("a") is Status.PENDING
        driver.advance(0.5)
        assert driver.status("a") is Status.RUNNING

    def test_a_recurrence_keeps_its_beat(self, driver: Driver, delta: float):
        """Set while a run goes on: the next starts a period after the last, neither at once nor in an hour."""
        driver.submit(new("a", recurrence=Recurrence(10, 3)))
        driver.advance(4)
        step_clock(driver, delta)
        driver.end("a")
        driver.advance(5.5)
        assert driver.status("a") is Status.PENDING
        driver.advance(0.5)
        assert driver.status("a") is Status.RUNNING
        assert driver.tasks["a"].planned_at == driver.now

    def test_waiting_tasks_that_are_not_delayed_move_along(self, driver: Driver, delta: float):
        """Held, unmet: their time is shifted too, so that it is right when they are released."""
        driver.submit(new("a"), new("held", delay=60), new("unmet", "a", delay=60))
        driver.hold("held")
        step_clock(driver, delta)
        driver.release("held")
        driver.end("a")
        assert driver.delayed() == ["held", "unmet"]
        assert driver.machine.next_due() == START + delta + 60
        driver.advance(59.5)
        assert driver.starts() == ["a"]

    def test_ready_tasks_stay_ready_in_their_order(self, drive, delta: float):
        """What may start may start, whatever the clock says."""
        driver = drive(0)
        driver.submit(new("a", priority=2), new("b", priority=1), new("c", delay=1))
        driver.advance(1)
        step_clock(driver, delta)
        assert driver.ready() == ["c", "b", "a"]
        driver.hold("b")
        driver.release("b")
        assert driver.ready() == ["c", "b", "a"]

    def test_a_step_heard_of_only_after_a_rebuild_makes_nothing_early(self, drive, delta: float):
        """Rows from before it, placed by the time after it, are put right: an hour ahead, nothing was due yet."""
        driver = drive(0)
        driver.submit(new("a", delay=60), new("b"))
        driver.advance(20)
        driver.now += delta
        driver.restart()
        driver.step(ClockStepped(delta), WorkersChanged(2))
        assert driver.starts() == ["b"]
        assert driver.machine.next_due() == driver.now + 40

    def test_the_step_is_logged(self, driver: Driver, delta: float):
        """The log says by how much, in no task's name."""
        step_clock(driver, delta)
        assert [(line.kind, line.task_id, line.detail) for line in driver.out.events] == [
            ("clock_stepped", None, {"delta": delta})
        ]
