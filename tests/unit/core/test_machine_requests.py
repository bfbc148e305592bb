"""Requests: submit, cancel, hold and release, and that a refused one changes nothing."""

import gc

import pytest

from schedd.core.errors import AlreadyCancelled, AlreadyEnded, UnknownDependency
from schedd.core.events import Cancel, Hold, Release
from schedd.core.lazyheap import SLACK
from schedd.core.machine import Machine
from schedd.core.model import Dependency, KnownTask, OpenTask, Outcome, Recurrence, RetryPolicy, Status, When
from support.core_driver import START, Driver, new, queued

RETRY = RetryPolicy(max_attempts=3, base_delay=5.0)


def bring_about(driver: Driver, end: Status) -> None:
    """Have task `a` end so; `root` comes before it where it is to be skipped."""
    if end is Status.SUCCEEDED:
        driver.end("a")
    elif end is Status.FAILED:
        driver.end("a", Outcome.FAILED)
    elif end is Status.CANCELLED:
        driver.cancel("a")
        driver.end("a")
    else:
        driver.end("root", Outcome.FAILED)
    assert driver.status("a") is end


def upstream(end: Status) -> list:
    """Tasks of which `a` can be made to end so."""
    return [new("root"), new("a", "root")] if end is Status.SKIPPED else [new("a")]


ENDS = [Status.SUCCEEDED, Status.FAILED, Status.CANCELLED, Status.SKIPPED]
JOIN = {
    (end, when): Status.READY if when is When.FINISHED or when.value == end.value else Status.SKIPPED
    for end in ENDS
    for when in When
}
"""What becomes of a child, by the end of what it depends on and the `when` of its edge."""


class TestJoin:
    """The full table of ends by `when`, whenever the child meets the end."""

    @pytest.mark.parametrize(("end", "when"), JOIN)
    def test_a_child_that_waited_is_judged_at_the_end(self, driver: Driver, end: Status, when: When):
        """In the round of the end, in every case: nothing waits for what can no longer come."""
        driver.submit(*upstream(end), new("child", Dependency("a", when)))
        assert driver.status("child") is Status.PENDING
        driver.pause()
        bring_about(driver, end)
        assert driver.status("child") is JOIN[end, when]

    @pytest.mark.parametrize(("end", "when"), JOIN)
    def test_a_child_submitted_after_the_end_is_judged_at_once(self, driver: Driver, end: Status, when: When):
        """What it depends on has left memory long ago; its row says how it ended."""
        driver.submit(*upstream(end))
        bring_about(driver, end)
        driver.pause()
        out = driver.submit(new("child", Dependency("a", when)))
        assert driver.status("child") is JOIN[end, when]
        assert [tuple(edge) for edge in out.edges] == [(driver.tasks["child"].seq, driver.tasks["a"].seq, when)]

    @pytest.mark.parametrize(("end", "when"), JOIN)
    @pytest.mark.parametrize("delay", [0.0, 9.0])
    def test_a_late_edge_to_what_ended_is_judged_at_once(self, driver: Driver, end: Status, when: When, delay: float):
        """A ready or delayed task stays as it is, or is skipped."""
        driver.submit(*upstream(end))
        bring_about(driver, end)
        driver.pause()
        driver.submit(new("child", delay=delay))
        before = driver.status("child")
        out = driver.depend("a", "child", when)
        met = JOIN[end, when] is Status.READY
        assert driver.status("child") is (before if met else Status.SKIPPED)
        assert [tuple(edge) for edge in out.edges] == [(driver.tasks["child"].seq, driver.tasks["a"].seq, when)]

    @pytest.mark.parametrize(
        ("end", "words"),
        [
            (Status.FAILED, "skipped because a failed"),
            (Status.CANCELLED, "skipped because a was cancelled"),
            (Status.SKIPPED, "skipped because a was skipped"),
        ],
    )
    def test_a_skipped_child_says_why(self, driver: Driver, end: Status, words: str):
        """The reason names what it waited for, and how that ended."""
        driver.submit(*upstream(end), new("child", "a"))
        bring_about(driver, end)
        assert driver.tasks["child"].error == words
        assert driver.out.events[-1].detail == {"error": words}


class TestSpread:
    """How ends travel through a graph."""

    def test_a_diamond_is_skipped_once_each(self, driver: Driver):
        """The lower corner hears of it from both sides and settles once."""
        driver.submit(new("top"), new("left", "top"), new("right", "top"), new("bottom", "left", "right"))
        out = driver.end("top", Outcome.FAILED)
        assert driver.statuses() == {"top": "failed", "left": "skipped", "right": "skipped", "bottom": "skipped"}
        assert [line.task_id for line in out.events] == ["top", "left", "right", "bottom"]
        assert driver.tasks["bottom"].error == "skipped because left was skipped"

    def test_a_diamond_waits_for_both_sides(self, drive):
        """The lower corner starts when the last of the two has ended."""
        driver = drive(2)
        driver.submit(new("top"), new("left", "top"), new("right", "top"), new("bottom", "left", "right"))
        driver.end("top")
        driver.end("right")
        assert driver.status("bottom") is Status.PENDING
        driver.end("left")
        assert driver.status("bottom") is Status.RUNNING

    def test_a_task_with_two_doomed_edges_at_submit_settles_once(self, driver: Driver):
        """The first edge that can never be met is the reason."""
        driver.submit(new("a"))
        driver.end("a", Outcome.FAILED)
        driver.submit(new("b"))
        driver.end("b", Outcome.FAILED)
        out = driver.submit(new("child", "b", "a"), new("grandchild", "child", "a"))
        assert driver.kinds("child") == driver.kinds("grandchild") == ["skipped"]
        assert driver.tasks["child"].error == "skipped because b failed"
        assert {added.task.id: added.task.status for added in out.added} == {
            "child": Status.SKIPPED,
            "grandchild": Status.SKIPPED,
        }

    def test_a_finished_child_survives_a_cascade_of_skips(self, driver: Driver):
        """A clean-up task runs after whatever end, and those after it too."""
        finished = [Dependency(task_id, When.FINISHED) for task_id in ("a", "b")]
        driver.submit(new("a"), new("b", "a"), new("clean", *finished), new("report", "clean"))
        driver.end("a", Outcome.FAILED)
        assert driver.statuses() == {"a": "failed", "b": "skipped", "clean": "running", "report": "pending"}

    def test_a_failure_handler_runs_only_after_a_failure(self, drive):
        """Of the two ways out of a task one is taken and the other skipped, and what joins them by `finished` runs."""
        join = [Dependency(task_id, When.FINISHED) for task_id in ("good", "bad")]
        driver = drive(2)
        driver.submit(new("a"), new("good", "a"), new("bad", Dependency("a", When.FAILED)), new("join", *join))
        driver.end("a", Outcome.FAILED)
        assert driver.statuses() == {"a": "failed", "good": "skipped", "bad": "running", "join": "pending"}
        driver.end("bad")
        assert driver.status("join") is Status.RUNNING

    def test_a_released_child_waits_for_its_time_and_its_hold(self, driver: Driver):
        """Dependencies are one of three conditions."""
        driver.submit(new("a"), new("delayed", "a", delay=9), new("held", "a"))
        driver.hold("held")
        driver.end("a")
        assert driver.statuses() == {"a": "succeeded", "delayed": "pending", "held": "pending"}
        assert driver.delayed() == ["delayed"]


class TestSubmit:
    """A batch is accepted whole or refused whole."""

    def test_an_unknown_dependency_refuses_the_whole_batch(self, driver: Driver):
        """Nothing of the sound part is kept."""
        driver.submit(new("old"))
        refusal = driver.refuse(UnknownDependency, driver.submission([new("a"), new("b", "a", "old", "nobody")]))
        assert "b depends on 'nobody'" in str(refusal)

    def test_new_tasks_wait_for_old_ones_that_are_open(self, driver: Driver):
        """Running, ready, delayed: any open task can be waited for, and the row of the edge is written."""
        driver.submit(new("running"), new("ready"), new("delayed", delay=9))
        out = driver.submit(new("child", "running", "ready", "delayed"))
        assert driver.tasks["child"].unmet == 3
        assert [edge.on_seq for edge in out.edges] == [1, 2, 3]


class TestCancel:
    """In every state."""

    @pytest.mark.parametrize("way", ["ready", "delayed", "held", "unmet", "retrying"])
    def test_a_task_that_does_not_run_is_cancelled_at_once(self, driver: Driver, way: str):
        """Wherever it waits; what depends on it follows from the end."""
        cleaner = Dependency("x", When.FINISHED)
        driver.submit(
            new("x", *(["other"] if way == "unmet" else []), delay=9 if way == "delayed" else 0, retry=RETRY),
            new("child", "x"),
            new("clean", cleaner),
            new("other", priority=0 if way == "retrying" else -1),
        )
        if way == "held":
            driver.hold("x")
        if way == "retrying":
            driver.end("x", Outcome.FAILED, error="not yet")
        out = driver.cancel("x")
        task = driver.tasks["x"]
        assert (task.status, task.error, task.settled_at) == (Status.CANCELLED, None, driver.now)
        assert driver.statuses() == {"x": "cancelled", "child": "skipped", "clean": "ready", "other": "running"}
        assert not out.effects
        assert task.seq in out.changed

    def test_cancelling_a_running_task_twice_is_refused(self, driver: Driver):
        """The second time nothing changes and nothing is stopped again."""
        driver.submit(new("x"))
        driver.cancel("x")
        refusal = driver.refuse(AlreadyCancelled, Cancel(driver.known("x")))
        assert str(refusal) == "x is already being cancelled"

    @pytest.mark.parametrize("end", ENDS)
    def test_cancelling_what_has_ended_is_refused(self, driver: Driver, end: Status):
        """The message says how it ended."""
        driver.submit(*upstream(end))
        bring_about(driver, end)
        refusal = driver.refuse(AlreadyEnded, Cancel(driver.known("a")))
        assert str(refusal) == f"a has already ended ({end}); nothing was changed"

    def test_cancelling_what_ended_long_ago_is_refused(self, driver: Driver):
        """The machine never held it; the caller found its row."""
        driver.refuse(AlreadyEnded, Cancel(KnownTask(77, "old", Status.FAILED)))

    def test_a_held_running_task_can_be_cancelled(self, driver: Driver):
        """A hold keeps from starting, not from ending."""
        driver.submit(new("x"))
        driver.hold("x")
        driver.cancel("x")
        driver.end("x", Outcome.FAILED)
        assert driver.status("x") is Status.CANCELLED


class TestHold:
    """A flag that keeps a task from starting."""

    def test_a_held_ready_task_is_pending_until_released(self, drive):
        """It leaves the queue and comes back to its old place in it."""
        driver = drive(0)
        driver.submit(new("a"), new("b"), new("c"))
        out = driver.hold("b")
        assert (driver.status("b"), driver.ready()) == (Status.PENDING, ["a", "c"])
        assert out.changed == {2: driver.tasks["b"]}
        driver.release("b")
        assert driver.ready() == ["a", "b", "c"]
        assert driver.kinds("b") == ["held", "released"]

    def test_a_held_delayed_task_does_not_wake(self, driver: Driver):
        """Its time comes and goes; released after it, it starts at once."""
        driver.submit(new("a", delay=5))
        driver.hold("a")
        assert driver.machine.next_due() is None
        driver.advance(10)
        assert driver.status("a") is Status.PENDING
        driver.release("a")
        assert driver.status("a") is Status.RUNNING

    def test_a_task_released_before_its_time_waits_for_it(self, driver: Driver):
        """A hold does not change when a task may start."""
        driver.submit(new("a", delay=5))
        driver.hold("a")
        driver.release("a")
        assert driver.machine.next_due() == START + 5

    def test_a_held_unmet_task_needs_both(self, driver: Driver):
        """Released while it still waits, and held while all is met."""
        driver.submit(new("a"), new("b", "a"), new("c", "a"))
        driver.hold("b")
        driver.hold("c")
        driver.release("b")
        driver.end("a")
        assert driver.statuses() == {"a": "succeeded", "b": "running", "c": "pending"}

    @pytest.mark.parametrize("more", [{"retry": RetryPolicy(2, 0)}, {"recurrence": Recurrence(0.5, 2)}])
    def test_a_hold_on_a_running_task_is_for_its_next_attempt(self, driver: Driver, more: dict):
        """A retry and a next run are kept alike; the attempt that runs is left alone."""
        driver.submit(new("a", **more))
        out = driver.hold("a")
        assert (driver.status("a"), out.effects) == (Status.RUNNING, [])
        driver.now += 5
        driver.end("a", Outcome.FAILED if "retry" in more else Outcome.SUCCEEDED)
        assert driver.status("a") is Status.PENDING
        driver.release("a")
        assert driver.status("a") is Status.RUNNING

    def test_a_hold_on_a_running_task_may_be_undone_in_time(self, driver: Driver):
        """Released before the attempt ended, it has kept nothing."""
        driver.submit(new("a", retry=RetryPolicy(2, 0)))
        driver.hold("a")
        driver.release("a")
        driver.end("a", Outcome.FAILED)
        assert driver.status("a") is Status.RUNNING

    def test_a_held_task_can_be_skipped(self, driver: Driver):
        """What can never run is not kept waiting for a release."""
        driver.submit(new("a"), new("b", "a"))
        driver.hold("b")
        driver.end("a", Outcome.FAILED)
        assert driver.status("b") is Status.SKIPPED

    @pytest.mark.parametrize("event", [Hold, Release])
    @pytest.mark.parametrize("end", ENDS)
    def test_what_has_ended_can_be_neither_held_nor_released(self, driver: Driver, event: type, end: Status):
        """Refused, and nothing changes."""
        driver.submit(*upstream(end))
        bring_about(driver, end)
        driver.refuse(AlreadyEnded, event(driver.known("a")))

    def test_holding_twice_is_no_change(self, driver: Driver):
        """Nor is a release of what is not held: no row, no line in the log."""
        driver.submit(new("a"), new("b"))
        driver.hold("b")
        assert not driver.hold("b").has_rows()
        assert not driver.release("a").has_rows()


class TestMemory:
    """What has ended is gone."""

    @pytest.mark.parametrize("end", ENDS)
    def test_nothing_of_a_settled_task_stays(self, driver: Driver, end: Status):
        """Neither in `open` nor in any queue."""
        driver.submit(*upstream(end), new("child", "a"))
        bring_about(driver, end)
        task = driver.tasks["a"]
        machine = driver.machine
        assert task.seq not in machine.open
        assert task.seq not in machine.running
        assert task not in queued(machine.ready)
        assert task not in queued(machine.delayed)

    def test_a_cancelled_graph_is_not_kept_by_what_is_left_in_the_queues(self):
        """A stale entry keeps one record for a while, never the graph that hung on it."""
        before, size = count_records(), 500
        driver = Driver(0)
        driver.submit(new("n0"), *(new(f"n{index}", f"n{index - 1}") for index in range(1, size)))
        driver.cancel("n0")
        assert driver.status(f"n{size - 1}") is Status.SKIPPED
        machine = driver.machine
        del driver
        assert count_records() - before <= SLACK
        assert isinstance(machine, Machine)


def count_records() -> int:
    gc.collect()
    return sum(isinstance(thing, OpenTask) for thing in gc.get_objects())
