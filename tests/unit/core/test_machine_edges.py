"""Late edges: `add_dependency` on tasks that have not started."""

from itertools import pairwise

import pytest

from schedd.core.errors import AlreadyEnded, AlreadyStarted, CycleError, SelfDependency
from schedd.core.model import Dependency, Outcome, Recurrence, RetryPolicy, Status, When
from support.core_driver import START, Driver, new


class TestAccepted:
    """On what has not started."""

    def test_a_ready_task_goes_back_to_pending(self, drive):
        """It leaves the queue until the new dependency has ended, and takes its old place then."""
        driver = drive(0)
        driver.submit(new("a"), new("b"), new("c"))
        out = driver.depend("c", "a")
        assert driver.statuses() == {"a": "pending", "b": "ready", "c": "ready"}
        assert driver.ready() == ["b", "c"]
        assert [tuple(edge) for edge in out.edges] == [(1, 3, When.SUCCEEDED)]
        assert driver.out.events[-1].detail == {"on": "c", "when": "succeeded"}
        driver.machine.workers = 1
        driver.cancel("b")
        driver.end("c")
        assert driver.status("a") is Status.RUNNING

    def test_a_delayed_task_waits_for_both(self, driver: Driver):
        """It leaves the alarm until the dependency has ended; its time stays what it was."""
        driver.submit(new("a"), new("b", delay=5))
        driver.depend("a", "b")
        assert driver.machine.next_due() is None
        driver.advance(2)
        driver.end("a")
        assert driver.machine.next_due() == START + 5

    def test_a_pending_task_waits_for_one_more(self, drive):
        """Each dependency is counted."""
        driver = drive(2)
        driver.submit(new("a"), new("b"), new("c", "a"))
        driver.depend("b", "c")
        driver.end("a")
        assert driver.status("c") is Status.PENDING
        driver.end("b")
        assert driver.status("c") is Status.RUNNING

    def test_a_held_task_may_get_an_edge(self, driver: Driver):
        """It starts when both the hold and the dependency are gone."""
        driver.submit(new("a"), new("b"))
        driver.hold("b")
        driver.depend("a", "b")
        driver.release("b")
        assert driver.status("b") is Status.PENDING
        driver.end("a")
        assert driver.status("b") is Status.RUNNING

    @pytest.mark.parametrize("when", When)
    def test_the_when_of_a_late_edge_is_kept(self, driver: Driver, when: When):
        """It is judged by the end that comes."""
        driver.submit(new("a"), new("b"))
        driver.depend("a", "b", when)
        driver.end("a", Outcome.FAILED)
        assert driver.status("b") is (Status.SKIPPED if when is When.SUCCEEDED else Status.RUNNING)

    def test_a_running_task_may_be_waited_for(self, driver: Driver):
        """Only what waits must not have started."""
        driver.submit(new("a", retry=RetryPolicy(2, 0)), new("b"))
        driver.depend("a", "b")
        driver.end("a", Outcome.FAILED)
        assert driver.running() == {"a"}

    def test_a_late_edge_that_skips_also_skips_what_is_below(self, driver: Driver):
        """The cascade is that of any other skip."""
        driver.submit(new("gone"))
        driver.end("gone", Outcome.FAILED)
        driver.pause()
        driver.submit(new("a"), new("b", "a"), new("c", Dependency("b", When.FINISHED)))
        out = driver.depend("gone", "a")
        assert driver.statuses() == {"gone": "failed", "a": "skipped", "b": "skipped", "c": "ready"}
        assert [line.kind for line in out.events] == ["edge_added", "skipped", "skipped"]


class TestRefused:
    """With a reason, and without any change."""

    def test_on_itself(self, driver: Driver):
        """By its own class, whether it runs or not."""
        driver.submit(new("a"), new("b"))
        for task_id in ("a", "b"):
            refusal = driver.refuse(SelfDependency, driver.dependency(task_id, task_id))
            assert str(refusal) == f"{task_id} cannot depend on itself"

    def test_on_a_running_task(self, driver: Driver):
        """It cannot be told to have waited."""
        driver.submit(new("a"), new("b"))
        refusal = driver.refuse(AlreadyStarted, driver.dependency("b", "a"))
        assert str(refusal).startswith("a has already started")

    @pytest.mark.parametrize(
        ("more", "outcome", "counts"),
        [
            ({"retry": RetryPolicy(2, 60)}, Outcome.FAILED, True),
            ({"recurrence": Recurrence(60, 2)}, Outcome.SUCCEEDED, True),
            ({}, Outcome.INTERRUPTED, True),
            ({}, Outcome.START_FAILED, False),
        ],
        ids=["between attempts", "between runs", "interrupted", "not counted"],
    )
    def test_on_a_task_that_has_started_before(self, driver: Driver, more: dict, outcome: Outcome, counts: bool):
        """Waiting for its next attempt, it has started all the same: an attempt of it ran before the edge."""
        driver.submit(new("a", **more), new("b", delay=99))
        driver.pause()
        driver.end("a", outcome, counts=counts)
        assert driver.status("a") in (Status.PENDING, Status.READY)
        driver.refuse(AlreadyStarted, driver.dependency("b", "a"))

    @pytest.mark.parametrize("outcome", [Outcome.SUCCEEDED, Outcome.FAILED, Outcome.CANCELLED])
    def test_on_a_task_that_has_ended(self, driver: Driver, outcome: Outcome):
        """There is nothing left to wait."""
        driver.submit(new("a"), new("b"))
        driver.end("a", outcome)
        driver.refuse(AlreadyEnded, driver.dependency("b", "a"))

    def test_two_tasks_that_would_wait_for_each_other(self, drive):
        """The shortest cycle there is."""
        driver = drive(0)
        driver.submit(new("a"), new("b", "a"))
        assert driver.refuse(CycleError, driver.dependency("b", "a")).path == ["a", "b", "a"]

    @pytest.mark.parametrize("when", When)
    def test_a_cycle_with_its_exact_path(self, drive, when: When):
        """b depends on a and c on b, so a cannot depend on c: a -> c -> b -> a."""
        driver = drive(0)
        driver.submit(
            new("a"), new("b", Dependency("a", when)), new("c", Dependency("b", When.FINISHED)), new("d", "c")
        )
        refusal = driver.refuse(CycleError, driver.dependency("c", "a", when))
        assert refusal.path == ["a", "c", "b", "a"]
        assert refusal.stuck == 0

    def test_a_cycle_through_edges_added_late(self, drive):
        """Edges of any age close one, and every step of the path is a real dependency."""
        driver = drive(0)
        driver.submit(*(new(name) for name in "abcd"))
        driver.depend("a", "b")
        driver.depend("b", "c")
        driver.depend("c", "d")
        refusal = driver.refuse(CycleError, driver.dependency("d", "b"))
        assert refusal.path == ["b", "d", "c", "b"]
        on = {(edge.task_seq, edge.on_seq) for edge in driver.edges} | {(2, 4)}
        assert on.issuperset(pairwise(driver.tasks[task_id].seq for task_id in refusal.path))

    def test_an_edge_through_what_has_ended_is_no_cycle(self, driver: Driver):
        """b waits for c no more once c has ended, so c's parent may wait for b."""
        driver.submit(new("c"), new("b", Dependency("c", When.FINISHED)), new("a"))
        driver.pause()
        driver.end("c")
        driver.depend("a", "b")
        refusal = driver.refuse(CycleError, driver.dependency("b", "a"))
        assert refusal.path == ["a", "b", "a"]

    def test_a_skipped_task_between_is_no_cycle(self, driver: Driver):
        """A path that leads through a skipped task leads nowhere."""
        driver.submit(new("gone"))
        driver.end("gone", Outcome.FAILED)
        driver.pause()
        driver.submit(new("a"), new("b", "a", "gone"), new("c", Dependency("b", When.FINISHED)))
        driver.depend("c", "a")
        assert driver.statuses() == {"gone": "failed", "a": "pending", "b": "skipped", "c": "ready"}
