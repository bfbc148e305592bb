"""How attempts end: retries, runs, cancels, interruptions, and news of attempts that are over."""

from dataclasses import replace

import pytest

from schedd.core.events import AttemptSpawned, Output, StopAttempt
from schedd.core.limits import SCHEDD_FAULT_DELAY_S
from schedd.core.model import CatchUp, Outcome, Recurrence, RetryPolicy, Status, StopReason
from support.core_driver import START, Driver, new, snapshot

RETRY = RetryPolicy(max_attempts=4, base_delay=10.0, max_delay=25.0)
FAILURES = [Outcome.FAILED, Outcome.TIMED_OUT, Outcome.CRASHED, Outcome.START_FAILED]


class TestRetries:
    """Failed attempts and the time between them."""

    @pytest.mark.parametrize("outcome", FAILURES)
    def test_every_failure_is_retried_at_its_exact_time(self, driver: Driver, outcome: Outcome):
        """10, 20, then at most 25 seconds after each failure; the fourth one is the last."""
        driver.submit(new("a", retry=RETRY))
        task = driver.tasks["a"]
        for attempt, delay in enumerate([10.0, 20.0, 25.0], 1):
            driver.now += 3  # the attempt takes a while, and the wait is counted from its end
            out = driver.end("a", outcome, error=f"failure {attempt}")
            assert (task.status, task.run_at, task.attempts) == (Status.PENDING, driver.now + delay, attempt)
            assert task.error == f"failure {attempt}"
            assert out.changed == {1: task}
            assert out.events[-1].detail == {
                "attempt": attempt,
                "outcome": outcome.value,
                "error": f"failure {attempt}",
                "delay": delay,
            }
            driver.advance(delay - 0.5)
            assert task.status is Status.PENDING
            driver.advance(0.5)
            assert (task.status, task.number) == (Status.RUNNING, attempt + 1)
        driver.end("a", outcome, error="the last one")
        assert (task.status, task.error, task.attempts) == (Status.FAILED, "the last one", 4)
        assert driver.kinds("a") == ["started", "retry"] * 3 + ["started", "failed"]

    def test_without_a_policy_the_first_failure_is_the_last(self, driver: Driver):
        """One attempt is the default."""
        driver.submit(new("a"))
        out = driver.end("a", Outcome.FAILED, error="no")
        assert driver.statuses() == {"a": "failed"}
        assert (driver.tasks["a"].error, driver.tasks["a"].settled_at) == ("no", START)
        assert out.events[-1].detail == {"error": "no"}

    def test_a_success_after_failures_clears_the_error(self, driver: Driver):
        """What ended well has no error on it."""
        driver.submit(new("a", retry=RETRY))
        driver.end("a", Outcome.FAILED, error="not yet")
        driver.advance(10)
        driver.end("a")
        assert (driver.status("a"), driver.tasks["a"].error) == (Status.SUCCEEDED, None)

    def test_a_retry_without_delay_is_ready_at_once(self, driver: Driver):
        """It starts again in the round in which it failed."""
        driver.submit(new("a", retry=RetryPolicy(max_attempts=2, base_delay=0)))
        driver.end("a", Outcome.FAILED)
        assert driver.starts() == ["a", "a"]

    def test_a_waiting_retry_frees_its_worker(self, driver: Driver):
        """Others run during the backoff, and children wait for the end, not for an attempt."""
        driver.submit(new("a", retry=RETRY), new("child", "a"), new("b"))
        driver.end("a", Outcome.FAILED)
        assert driver.statuses() == {"a": "pending", "child": "pending", "b": "running"}

    def test_the_end_of_an_attempt_is_a_row(self, driver: Driver):
        """Whatever it was, it is told on to the store as it came."""
        driver.submit(new("a", retry=RETRY))
        event = driver.ended("a", Outcome.FAILED, exit_code=3, error="exit code 3", max_rss=1_000, cpu_time=0.5)
        assert driver.step(event).ended == [event]


class TestUncounted:
    """Ends of attempts that are not the task's fault."""

    def test_an_interrupted_attempt_does_not_count(self, driver: Driver):
        """The task waits for nothing and has lost nothing; only the number goes on."""
        driver.submit(new("a"))
        driver.end("a", Outcome.INTERRUPTED)
        task = driver.tasks["a"]
        assert (task.status, task.attempts, task.number, task.run_at) == (Status.RUNNING, 0, 2, START)
        assert driver.kinds("a") == ["started", "interrupted", "started"]
        driver.end("a", Outcome.FAILED)
        assert driver.status("a") is Status.FAILED

    def test_any_number_of_interruptions_do_not_count(self, driver: Driver):
        """A daemon restarted every minute never uses up a task's attempts."""
        driver.submit(new("a", retry=RetryPolicy(max_attempts=2, base_delay=0)))
        for _ in range(5):
            driver.end("a", Outcome.INTERRUPTED)
        driver.end("a", Outcome.FAILED)
        assert (driver.tasks["a"].attempts, driver.tasks["a"].number) == (1, 7)

    def test_a_start_that_failed_through_schedd_does_not_count_and_waits(self, driver: Driver):
        """It is tried again a little later, with its reason on it."""
        driver.submit(new("a"))
        out = driver.end("a", Outcome.START_FAILED, counts=False, error="too many open files")
        task = driver.tasks["a"]
        assert (task.status, task.attempts, task.error) == (Status.PENDING, 0, "too many open files")
        assert task.run_at == START + SCHEDD_FAULT_DELAY_S
        assert out.events[-1].kind == "start_postponed"
        driver.advance(SCHEDD_FAULT_DELAY_S)
        assert (task.status, task.number) == (Status.RUNNING, 2)
        driver.end("a", Outcome.START_FAILED, error="no such file")
        assert driver.status("a") is Status.FAILED


class TestCancelled:
    """A cancel beats every outcome."""

    @pytest.mark.parametrize("outcome", Outcome)
    @pytest.mark.parametrize("counts", [True, False])
    def test_a_cancel_beats_every_outcome(self, driver: Driver, outcome: Outcome, counts: bool):
        """With attempts and runs left, and whatever the attempt says, the task ends cancelled."""
        driver.submit(new("a", retry=RETRY, recurrence=Recurrence(1, 9)))
        out = driver.cancel("a")
        assert out.effects == [StopAttempt(1, 1, StopReason.CANCELLED)]
        assert (driver.status("a"), driver.tasks["a"].cancel_requested) == (Status.RUNNING, True)
        assert out.changed == {1: driver.tasks["a"]}
        event = driver.ended("a", outcome, counts=counts, exit_code=0, result="1")
        out = driver.step(event)
        assert out.ended == [replace(event, outcome=Outcome.CANCELLED)]
        assert driver.statuses() == {"a": "cancelled"}
        assert driver.kinds("a") == ["started", "cancel_requested", "cancelled"]

    def test_an_attempt_may_end_cancelled_without_a_request(self, driver: Driver):
        """A function that raised its own cancellation is not tried again."""
        driver.submit(new("a", retry=RETRY))
        driver.end("a", Outcome.CANCELLED)
        assert driver.status("a") is Status.CANCELLED

    def test_a_cancel_that_comes_after_the_end_in_one_round_is_too_late(self, driver: Driver):
        """The order in the inbox decides."""
        driver.submit(new("a", retry=RETRY))
        driver.step(driver.ended("a"))
        assert driver.status("a") is Status.SUCCEEDED


class TestStaleNews:
    """Facts about attempts that are over change nothing."""

    @pytest.mark.parametrize("outcome", Outcome)
    def test_the_end_of_an_earlier_attempt_is_ignored(self, driver: Driver, outcome: Outcome):
        """Repeating a fact is harmless: the second attempt runs on."""
        driver.submit(new("a", retry=RetryPolicy(max_attempts=3, base_delay=0)))
        stale = driver.ended("a", outcome)
        driver.end("a", Outcome.FAILED)
        self.ignored(driver, replace(stale, number=1))

    @pytest.mark.parametrize("outcome", Outcome)
    def test_the_end_of_a_settled_task_is_ignored(self, driver: Driver, outcome: Outcome):
        """Its row is written; it does not end twice."""
        driver.submit(new("a"))
        stale = driver.ended("a", outcome)
        driver.end("a")
        self.ignored(driver, stale)

    def test_the_end_of_an_attempt_that_never_was_is_ignored(self, driver: Driver):
        """A number to come, a task that waits, a task nobody knows."""
        driver.submit(new("a"), new("b"))
        self.ignored(driver, replace(driver.ended("a"), number=2))
        self.ignored(driver, replace(driver.ended("b"), number=0))
        self.ignored(driver, replace(driver.ended("b"), seq=99))

    def test_a_pid_is_noted_of_the_running_attempt_only(self, driver: Driver):
        """A hint that comes late is no hint."""
        driver.submit(new("a"))
        spawned = AttemptSpawned(1, 1, 42, 7)
        assert driver.step(spawned).spawned == [spawned]
        self.ignored(driver, replace(spawned, number=2))
        driver.end("a")
        self.ignored(driver, spawned)

    @staticmethod
    def ignored(driver: Driver, event) -> None:
        before, out = snapshot(driver.machine), Output()
        driver.machine.handle(event, driver.now, out)
        assert snapshot(driver.machine) == before
        assert not out.has_rows()
        assert not out.effects


class TestRuns:
    """`every` and `times`: fixed rate from the planned start."""

    def test_runs_start_at_their_planned_times(self, driver: Driver):
        """However long a run takes within its period, the next starts a whole period after the last was planned."""
        driver.submit(new("a", recurrence=Recurrence(10, 4)))
        starts = []
        for took in (1, 9, 4, 2):
            starts.append(driver.now - START)
            driver.now += took
            driver.end("a")
            if (due := driver.machine.next_due()) is not None:
                driver.now = due
                driver.step()
        assert starts == [0, 10, 20, 30]
        assert driver.status("a") is Status.SUCCEEDED
        assert driver.kinds("a") == ["started", "run"] * 3 + ["started", "succeeded"]
        assert [(start.number, start.run) for start in driver.started] == [(1, 1), (2, 2), (3, 3), (4, 4)]

    @pytest.mark.parametrize(
        ("mode", "planned", "missed"),
        [(CatchUp.ALL, 10, None), (CatchUp.LATEST, 30, 2), (CatchUp.NONE, 40, 3)],
    )
    def test_a_run_that_overran_is_caught_up_as_asked(
        self, driver: Driver, mode: CatchUp, planned: int, missed: int | None
    ):
        """The first run ends at 35: all makes up for the start at 10, latest for that at 30, none waits for 40."""
        driver.submit(new("a", recurrence=Recurrence(10, 3, mode)))
        driver.now += 35
        out = driver.end("a")
        task = driver.tasks["a"]
        assert task.run_at == task.planned_at == START + planned
        assert task.status is (Status.PENDING if planned > 35 else Status.RUNNING)
        run = next(line for line in out.events if line.kind == "run")
        assert run.detail == ({"run": 1, "missed": missed} if missed else {"run": 1})

    def test_missed_runs_follow_each_other_and_then_the_beat(self, driver: Driver):
        """Catching up on all, late starts keep their planned times, so the beat is found again."""
        driver.submit(new("a", recurrence=Recurrence(10, 6)))
        driver.now += 35
        for _ in range(3):
            driver.end("a")
        driver.end("a")
        assert driver.tasks["a"].run_at == START + 40
        assert driver.status("a") is Status.PENDING

    def test_attempts_begin_anew_in_each_run(self, driver: Driver):
        """A retry inside a run moves neither the run's planned start nor the next one."""
        driver.submit(new("a", recurrence=Recurrence(10, 2), retry=RetryPolicy(max_attempts=2, base_delay=3)))
        task = driver.tasks["a"]
        driver.end("a", Outcome.FAILED)
        driver.advance(3)
        assert (task.attempts, task.planned_at) == (1, START)
        driver.end("a")
        assert (task.attempts, task.runs, task.run_at) == (0, 1, START + 10)
        driver.advance(7)
        driver.end("a", Outcome.FAILED)
        assert task.status is Status.PENDING
        assert [(start.number, start.run) for start in driver.started] == [(1, 1), (2, 1), (3, 2)]

    def test_a_run_that_fails_for_good_fails_the_task(self, driver: Driver):
        """The runs that were left are not run."""
        driver.submit(new("a", recurrence=Recurrence(10, 9)), new("child", "a"))
        driver.end("a", Outcome.FAILED, error="no")
        assert driver.statuses() == {"a": "failed", "child": "skipped"}

    def test_an_interrupted_run_is_the_same_run(self, driver: Driver):
        """It starts again at once and the beat goes on from its planned start."""
        driver.submit(new("a", recurrence=Recurrence(10, 2)))
        driver.now += 4
        driver.end("a", Outcome.INTERRUPTED)
        driver.now += 1
        driver.end("a")
        assert [(start.number, start.run) for start in driver.started] == [(1, 1), (2, 1)]
        assert driver.tasks["a"].run_at == START + 10

    def test_children_wait_for_the_last_run(self, driver: Driver):
        """A run is not an end."""
        driver.submit(new("a", recurrence=Recurrence(1, 2)), new("child", "a"))
        driver.end("a")
        assert driver.status("child") is Status.PENDING
        driver.advance(1)
        driver.end("a")
        assert driver.status("child") is Status.RUNNING
