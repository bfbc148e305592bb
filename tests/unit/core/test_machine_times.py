"""Deadlines, latest starts and dates: what ends when, and what a set clock moves."""

from typing import Any

import pytest

from schedd.core.errors import AlreadyEnded, AlreadyStarted, InvalidRequest
from schedd.core.events import AttemptEnded, ClockStepped, RemoveDependency, StopAttempt, WorkersChanged
from schedd.core.model import Dependency, Jitter, Moment, Outcome, Recurrence, RetryPolicy, Status, StopReason, When
from schedd.core.retry import backoff, may_retry
from support.core_driver import START, Driver, new


class TestDeadline:
    """A task must have ended by then."""

    def test_what_waits_fails_and_its_dependents_follow(self, drive: Any):
        """Whatever it waits for: a worker, its time, a hold, another task."""
        driver = drive(0)
        due = Moment(60)
        driver.submit(
            new("ready", deadline=due),
            new("delayed", deadline=due, delay=3_600),
            new("held", deadline=due),
            new("waits", "ready", deadline=due),
            new("child", "ready"),
            new("handler", Dependency("ready", When.FAILED)),
        )
        driver.hold("held")
        driver.advance(59.9)
        assert set(driver.statuses().values()) == {"ready", "pending"}
        driver.advance(0.1)
        assert driver.statuses() == {
            "ready": "failed", "delayed": "failed", "held": "failed", "waits": "skipped", "child": "skipped",
            "handler": "ready",
        }  # fmt: skip
        assert driver.tasks["ready"].error == "its deadline has passed"

    def test_what_runs_is_told_to_stop_and_not_tried_again(self, driver: Driver):
        """However many attempts are left."""
        driver.submit(new("x", deadline=Moment(60), retry=RetryPolicy(max_attempts=5)))
        driver.advance(60)
        assert driver.stopped == [StopAttempt(1, 1, StopReason.DEADLINE)]
        assert driver.status("x") is Status.RUNNING
        driver.end("x", Outcome.TIMED_OUT, error="killed")
        assert (driver.status("x"), driver.tasks["x"].error) == (Status.FAILED, "its deadline has passed (killed)")

    def test_what_succeeds_after_all_has_succeeded(self, driver: Driver):
        """It ended by itself before it could be stopped."""
        driver.submit(new("x", deadline=Moment(60)))
        driver.advance(60)
        driver.end("x")
        assert driver.status("x") is Status.SUCCEEDED

    def test_a_retry_that_would_come_too_late_is_not_waited_for(self, driver: Driver):
        """The task fails at once, with the reason of its failure."""
        driver.submit(new("x", deadline=Moment(60), retry=RetryPolicy(max_attempts=5, base_delay=100)))
        driver.advance(5)
        driver.end("x", Outcome.FAILED, error="no")
        assert driver.status("x") is Status.FAILED
        assert driver.tasks["x"].error == "no; its deadline leaves no time to run again"
        assert "retry" not in driver.kinds("x")

    def test_a_recurring_task_must_have_all_its_runs_behind_it(self, driver: Driver):
        """A next run that is planned too late ends it."""
        driver.submit(new("x", deadline=Moment(60), recurrence=Recurrence(50, 3)))
        driver.end("x")
        driver.advance(50)
        driver.end("x")
        assert (driver.status("x"), driver.tasks["x"].runs) == (Status.FAILED, 2)

    def test_a_run_that_was_planned_in_time_is_too_late_all_the_same(self, driver: Driver):
        """The run before it has outlasted the deadline (found by simulation seed 1042)."""
        driver.submit(new("x", deadline=Moment(60), recurrence=Recurrence(1, 3)))
        driver.advance(60)
        driver.end("x")
        assert (driver.status("x"), driver.tasks["x"].runs) == (Status.FAILED, 1)

    def test_a_deadline_that_passed_in_the_daemons_absence_is_noticed(self, drive: Any):
        """At the next start; what ran when it died has no time left."""
        driver = drive(1)
        driver.submit(new("runs", deadline=Moment(60)), new("waits", deadline=Moment(60)))
        driver.now += 3_600
        driver.restart()
        out = driver.end("runs", Outcome.CRASHED)
        assert driver.statuses() == {"runs": "failed", "waits": "failed"}
        assert [row.status for row in out.changed.values()] == [Status.FAILED, Status.FAILED]

    def test_an_end_forgets_it(self, driver: Driver):
        """Nothing is left to watch."""
        driver.submit(new("x", deadline=Moment(60)), new("y", deadline=Moment(60)))
        driver.end("x")
        driver.cancel("y")
        driver.end("y", Outcome.CANCELLED)
        assert len(driver.machine.deadlines) == 0
        assert driver.machine.next_due() is None


class TestStartBefore:
    """A task is worth starting only until then."""

    def test_what_could_not_start_in_time_is_skipped(self, drive: Any):
        """With the reason; what depends on it follows."""
        driver = drive(0)
        driver.submit(new("x", start_before=Moment(60)), new("y", "x"), new("z", Dependency("x", When.FINISHED)))
        driver.advance(60)
        assert driver.statuses() == {"x": "skipped", "y": "skipped", "z": "ready"}
        assert driver.tasks["x"].error == "skipped because it could not start in time"

    def test_what_has_started_goes_on(self, driver: Driver):
        """Also its further attempts; a deadline beside it still holds."""
        driver.submit(
            new("x", start_before=Moment(60), deadline=Moment(600), retry=RetryPolicy(max_attempts=3, base_delay=100))
        )
        driver.end("x", Outcome.FAILED)
        driver.advance(60)
        driver.advance(40)
        assert driver.running() == {"x"}
        driver.advance(500)
        assert driver.stopped == [StopAttempt(1, 2, StopReason.DEADLINE)]

    def test_interrupted_it_starts_again(self, driver: Driver):
        """It had started in time."""
        driver.submit(new("x", start_before=Moment(60)))
        driver.step(WorkersChanged(0))
        driver.end("x", Outcome.INTERRUPTED)
        driver.advance(60)
        assert driver.status("x") is Status.READY


class TestDates:
    """Dates stay when the clock is set; waits move along with it."""

    def test_a_start_date_is_waited_for(self, driver: Driver):
        """And the machine says when it is due."""
        driver.submit(new("x", start_at=START + 100))
        assert driver.machine.next_due() == START + 100
        driver.advance(99)
        assert driver.running() == set()
        driver.advance(1)
        assert driver.running() == {"x"}

    @pytest.mark.parametrize("delta", [-3_600.0, 3_600.0])
    def test_a_set_clock_moves_waits_alone(self, drive: Any, delta: float):
        """An hour that is not an hour."""
        driver = drive(0)
        driver.submit(
            new("wait", delay=7_200, deadline=Moment(9_000), start_before=Moment(8_000)),
            new(
                "date",
                start_at=START + 7_200,
                deadline=Moment(START + 9_000, is_date=True),
                start_before=Moment(START + 8_000, is_date=True),
            ),
        )
        driver.now += delta
        driver.step(ClockStepped(delta, "k"))
        times = {
            name: (task.run_at - START, task.start_before - START, task.deadline - START)
            for name, task in driver.tasks.items()
        }
        assert times == {
            "wait": (7_200 + delta, 8_000 + delta, 9_000 + delta), "date": (7_200, 8_000, 9_000)
        }  # fmt: skip

    def test_what_has_started_waits_and_has_no_date_any_more(self, driver: Driver):
        """Its retry is a wait."""
        driver.submit(new("x", start_at=START + 10, retry=RetryPolicy(max_attempts=2, base_delay=100)))
        driver.advance(10)
        driver.end("x", Outcome.FAILED)
        due = driver.tasks["x"].run_at
        driver.now += 50
        driver.step(ClockStepped(50.0, "k"))
        assert driver.tasks["x"].run_at == due + 50

    def test_a_clock_set_back_makes_a_ready_task_wait_for_its_date(self, drive: Any):
        """It was ready and has not started."""
        driver = drive(0)
        driver.submit(new("x", start_at=START + 10))
        driver.advance(20)
        assert driver.ready() == ["x"]
        driver.now -= 60
        driver.step(ClockStepped(-60.0, "k"))
        assert (driver.ready(), driver.delayed()) == ([], ["x"])

    @pytest.mark.parametrize("outcome", [Outcome.FAILED, Outcome.INTERRUPTED])
    def test_a_deadline_that_is_ahead_again_is_watched_again(self, driver: Driver, outcome: Outcome):
        """It had passed and the attempt was told to stop; then the clock was set back, and the task runs again."""
        due = Moment(START + 60, is_date=True)
        driver.submit(new("x", deadline=due, retry=RetryPolicy(max_attempts=3, base_delay=0)))
        driver.advance(60)
        driver.now -= 3_600
        driver.step(ClockStepped(-3_600.0, "k"))
        driver.end("x", outcome)
        assert driver.running() == {"x"}
        driver.now = START + 60
        driver.step()
        assert driver.stopped[-1] == StopAttempt(1, 2, StopReason.DEADLINE)

    def test_delay_and_date_exclude_each_other(self):
        """Which one would it be?"""
        with pytest.raises(InvalidRequest, match="not both"):
            new("x", delay=1, start_at=START)


class TestRemovedDependencies:
    """An edge may go while its child has not started."""

    @pytest.mark.parametrize("when", list(When))
    def test_the_child_waits_no_longer(self, drive: Any, when: When):
        """Under each kind of edge; the row of the edge goes too."""
        driver = drive(1)
        driver.submit(new("a"), new("b"), new("c", Dependency("a", when), "b"))
        out = driver.step(RemoveDependency(driver.known("a"), driver.known("c"), when))
        assert out.removed_edges == [(3, 1)]
        assert driver.tasks["c"].unmet == 1
        driver.edges = [edge for edge in driver.edges if edge[:2] != (3, 1)]
        driver.end("a")
        driver.end("b")
        assert driver.running() == {"c"}

    def test_not_of_what_has_started_or_ended(self, driver: Driver):
        """Then it no longer matters."""
        driver.submit(new("a"), new("b", "a"))
        driver.end("a")
        event = RemoveDependency(driver.known("a"), driver.known("b"), When.SUCCEEDED)
        driver.refuse(AlreadyStarted, event)
        driver.end("b")
        driver.refuse(AlreadyEnded, RemoveDependency(driver.known("a"), driver.known("b"), When.SUCCEEDED))


def ended(outcome: Outcome, exit_code: int | None = None, exceptions: tuple[str, ...] = ()) -> AttemptEnded:
    return AttemptEnded(1, 1, outcome, START, exit_code=exit_code, exceptions=exceptions)


class TestRules:
    """Which failures are tried again."""

    @pytest.mark.parametrize(
        ("policy", "end", "again"),
        [
            ({}, ended(Outcome.FAILED, 1), True),
            ({}, ended(Outcome.TIMED_OUT), True),
            ({"on_timeout": False}, ended(Outcome.TIMED_OUT), False),
            ({"on_timeout": False}, ended(Outcome.FAILED, 1), True),
            ({"on_exit_codes": (75,)}, ended(Outcome.FAILED, 75), True),
            ({"on_exit_codes": (75,)}, ended(Outcome.FAILED, 1), False),
            ({"on_exit_codes": (75,)}, ended(Outcome.FAILED), False),  # killed by a signal
            ({"never_on_exit_codes": (2,)}, ended(Outcome.FAILED, 2), False),
            ({"never_on_exit_codes": (2,)}, ended(Outcome.FAILED, 3), True),
            ({"never_on_exit_codes": (2,)}, ended(Outcome.FAILED), True),
            ({"on_exceptions": ("OSError",)}, ended(Outcome.FAILED, 1, ("ConnectionError", "OSError")), True),
            ({"on_exceptions": ("OSError",)}, ended(Outcome.FAILED, 1, ("ValueError", "Exception")), False),
            ({"on_exit_codes": ()}, ended(Outcome.CRASHED), True),
            ({"on_exit_codes": ()}, ended(Outcome.START_FAILED), True),
        ],
    )
    def test_a_failure_is_tried_again_or_not(self, policy: dict[str, Any], end: AttemptEnded, again: bool):
        """By its kind."""
        assert may_retry(RetryPolicy(max_attempts=2, **policy), end) is again

    def test_the_machine_obeys(self, driver: Driver):
        """A failure that is none to try again ends the task with attempts left."""
        driver.submit(new("x", retry=RetryPolicy(max_attempts=9, base_delay=0, never_on_exit_codes=(2,))))
        driver.end("x", Outcome.FAILED, exit_code=1)
        driver.end("x", Outcome.FAILED, exit_code=2)
        assert (driver.status("x"), driver.tasks["x"].attempts) == (Status.FAILED, 2)

    def test_full_jitter_takes_a_part_of_the_wait(self, driver: Driver):
        """The part comes with the event: chance stays outside."""
        policy = RetryPolicy(max_attempts=9, base_delay=10, jitter=Jitter.FULL)
        assert [backoff(policy, 2, luck) for luck in (0.0, 0.25, 1.0)] == [0.0, 5.0, 20.0]
        assert backoff(RetryPolicy(base_delay=10), 2, 0.25) == 20.0
        driver.submit(new("x", retry=policy))
        driver.end("x", Outcome.FAILED, luck=0.5)
        assert driver.tasks["x"].run_at == START + 5

    @pytest.mark.parametrize("codes", [(0,), (256,), (-1,)])
    def test_codes_are_those_of_failures(self, codes: tuple[int, ...]):
        """Zero is no failure."""
        with pytest.raises(InvalidRequest, match="exit codes from 1 to 255"):
            RetryPolicy(on_exit_codes=codes)
