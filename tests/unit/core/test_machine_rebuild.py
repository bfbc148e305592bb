"""A machine rebuilt from rows: the same one, or mended where rows cannot mean what they say."""

import pytest

from schedd.core import invariants
from schedd.core.events import AttemptEnded, Output, WorkersChanged
from schedd.core.machine import Machine
from schedd.core.model import (
    TERMINAL,
    CatchUp,
    DamagedTask,
    Dependency,
    Outcome,
    Recurrence,
    RetryPolicy,
    Status,
    Stored,
    StoredEdge,
    StoredTask,
    When,
)
from schedd.core.rebuilding import rebuild
from support.core_driver import START, Driver, new, picture

ENDS = sorted(TERMINAL)


def row(seq: int, task_id: str, status: Status = Status.PENDING, **more) -> StoredTask:
    """The row of a task that waits, or of one that runs its first attempt."""
    number = int(status is Status.RUNNING)
    fields = {"priority": 0, "retry": RetryPolicy(), "recurrence": None, "run_at": START, "planned_at": None,
              "attempts": 0, "number": number, "runs": 0, "held": False, "cancel_requested": False}  # fmt: skip
    return StoredTask(seq=seq, id=task_id, status=status, **{**fields, **more})


def edge(task_seq: int, on_seq: int, on_status: Status | None, when: When = When.SUCCEEDED) -> StoredEdge:
    return StoredEdge(task_seq, on_seq, when, on_status)


class Rebuilt:
    """A machine filled from rows, and what that decided."""

    def __init__(self, stored: Stored, workers: int = 0) -> None:
        self.machine = Machine(workers)
        self.out = Output()
        rebuild(self.machine, stored, START, self.out)
        invariants.check(self.machine, START)

    @property
    def statuses(self) -> dict[str, Status]:
        return {task.id: task.status for task in [*self.out.changed.values(), *self.machine.open.values()]}

    @property
    def errors(self) -> dict[str, str | None]:
        return {task.id: task.error for task in self.out.changed.values()}


@pytest.fixture
def busy(drive) -> Driver:
    """A machine with a task in every place there is."""
    driver = drive(3)
    retry = RetryPolicy(max_attempts=3, base_delay=7.0)
    driver.submit(
        new("retrying", retry=retry),
        new("recurring", recurrence=Recurrence(10, 5, CatchUp.LATEST), priority=-1),
        new("cancelling", retry=retry),
        new("running", "done", priority=9),
        new("done", priority=-9),
        new("held"),
        new("delayed", delay=99),
        new("unmet", "running", Dependency("delayed", When.FAILED), Dependency("held", When.FINISHED)),
        new("ready", priority=50),
        new("also ready", "done", priority=40),
        new("after failure", Dependency("broken", When.FAILED), priority=30),
        new("broken", priority=-8),
    )
    driver.hold("held")
    driver.end("done")
    driver.end("broken", Outcome.FAILED)
    driver.now += 1
    driver.end("recurring")
    driver.end("retrying", Outcome.FAILED, error="not yet")
    driver.cancel("cancelling")
    assert driver.statuses() == {
        "retrying": "pending",
        "recurring": "pending",
        "cancelling": "running",
        "running": "running",
        "done": "succeeded",
        "held": "pending",
        "delayed": "pending",
        "unmet": "pending",
        "ready": "ready",
        "also ready": "ready",
        "after failure": "running",
        "broken": "failed",
    }
    return driver


class TestRoundTrip:
    """Rows of a live machine and back."""

    def test_a_machine_comes_back_equal(self, busy: Driver):
        """Every field, every edge, every queue; nothing is written and nothing let go."""
        before = picture(busy.machine)
        busy.restart()
        assert picture(busy.machine) == before

    def test_it_goes_on_as_the_old_one_would_have(self, busy: Driver):
        """Ends, releases and times after it are those of a machine that never stopped."""
        busy.restart()
        busy.end("running")
        busy.end("cancelling", Outcome.CRASHED)
        assert busy.statuses()["cancelling"] == "cancelled"
        assert busy.starts()[-2:] == ["also ready", "ready"]
        busy.advance(7)
        busy.end("after failure")
        assert busy.running() == {"also ready", "ready", "retrying"}
        busy.advance(3)
        busy.end("ready")
        assert busy.running() == {"also ready", "retrying", "recurring"}
        assert (busy.started[-1].id, busy.started[-1].run) == ("recurring", 2)

    def test_a_pause_is_kept_and_a_drain_is_not(self, driver: Driver):
        """A pause is the operator's and is stored; a drain ends with the daemon."""
        driver.pause()
        driver.machine.draining = True
        driver.restart()
        assert (driver.machine.paused, driver.machine.draining) == (True, False)

    def test_a_rebuild_claims_nothing(self, drive):
        """Starts belong to rounds: the first one after it makes them."""
        driver = drive(0)
        driver.submit(new("a"))
        driver.restart()
        assert driver.statuses() == {"a": "ready"}
        driver.step(WorkersChanged(1))
        assert driver.running() == {"a"}

    def test_a_machine_is_filled_only_once(self, drive):
        """Rows on top of a machine that has some would be counted twice."""
        driver = drive(0)
        driver.submit(new("a"))
        with pytest.raises(AssertionError, match="empty machine"):
            rebuild(driver.machine, Stored(), START, Output())

    def test_what_came_due_meanwhile_is_ready(self, drive):
        """A task whose time passed while no daemon ran does not wait any longer."""
        driver = drive(0)
        driver.submit(new("a", delay=5))
        rebuilt = Machine(0)
        rebuild(rebuilt, driver.stored(), START + 60, Output())
        assert [task.id for task in rebuilt.ready] == ["a"]


class TestEndedParents:
    """Edges to what has ended, or is gone."""

    @pytest.mark.parametrize("end", ENDS)
    @pytest.mark.parametrize("when", When)
    def test_a_child_is_judged_by_the_row_of_its_parent(self, end: Status, when: When):
        """Met edges are no longer waited for; one that cannot be met skips the child, with the reason."""
        rebuilt = Rebuilt(Stored([row(2, "child")], [edge(2, 1, end, when)]))
        if when is When.FINISHED or when.value == end.value:
            assert rebuilt.statuses == {"child": "ready"}
            assert not rebuilt.out.has_rows()
        else:
            assert rebuilt.statuses == {"child": "skipped"}
            how = {"cancelled": "was cancelled", "skipped": "was skipped"}.get(end.value, end.value)
            assert rebuilt.errors == {"child": f"skipped because what it depends on (seq 1) {how}"}

    @pytest.mark.parametrize("when", When)
    def test_a_child_of_what_is_gone_is_skipped(self, when: When):
        """Nobody knows how it ended, so no `when` is met."""
        rebuilt = Rebuilt(
            Stored([row(2, "child"), row(3, "below")], [edge(2, 1, None, when), edge(3, 2, Status.PENDING)])
        )
        assert rebuilt.statuses == {"child": "skipped", "below": "skipped"}
        assert rebuilt.errors["child"] == "skipped because what it depends on (seq 1) is gone"
        assert not rebuilt.machine.open

    def test_two_such_edges_skip_a_child_once(self):
        """The first one is the reason."""
        edges = [edge(4, 1, Status.FAILED), edge(4, 2, None), edge(4, 3, Status.CANCELLED)]
        rebuilt = Rebuilt(Stored([row(4, "child")], edges))
        assert [(line.kind, line.detail) for line in rebuilt.out.events] == [
            ("skipped", {"error": "skipped because what it depends on (seq 1) failed"})
        ]

    def test_an_edge_of_no_open_task_is_passed_over(self):
        """Its row may be left from a task that has ended."""
        rebuilt = Rebuilt(Stored([row(1, "a")], [edge(7, 1, Status.PENDING)]))
        assert rebuilt.statuses == {"a": "ready"}
        assert rebuilt.machine.open[1].children is None


class TestDamaged:
    """Rows that cannot be read as tasks."""

    @pytest.mark.parametrize("when", When)
    def test_a_damaged_row_is_set_aside_and_its_children_are_judged(self, when: When):
        """It has failed, with the reason; `failed` and `finished` are met by that, `succeeded` is not."""
        stored = Stored(
            [row(2, "child")], [edge(2, 1, Status.PENDING, when)], [DamagedTask(1, "broken", "no priority")]
        )
        rebuilt = Rebuilt(stored)
        assert rebuilt.statuses == {
            "broken": Status.FAILED,
            "child": Status.SKIPPED if when is When.SUCCEEDED else Status.READY,
        }
        assert rebuilt.errors["broken"] == "set aside: no priority"
        assert rebuilt.out.events[0].kind == "failed"
        assert rebuilt.out.changed[1].settled_at == START

    def test_an_open_attempt_of_a_damaged_row_ends_as_crashed(self):
        """It cannot be waited for, and no attempt row may stay without an outcome."""
        rebuilt = Rebuilt(
            Stored(damaged=[DamagedTask(1, "broken", "no priority", attempt=3), DamagedTask(2, "b", "?")])
        )
        assert rebuilt.out.ended == [
            AttemptEnded(1, 3, Outcome.CRASHED, START, error="no priority", task_id="broken"),
        ]
        assert not rebuilt.machine.running

    def test_a_damaged_row_keeps_the_number_of_its_last_attempt(self):
        """An operator's retry goes on from there."""
        rebuilt = Rebuilt(Stored(damaged=[DamagedTask(1, "broken", "no priority", number=3)]))
        assert rebuilt.out.changed[1].number == 3

    def test_one_bad_row_stays_one_bad_row(self):
        """What has nothing to do with it is as it was."""
        stored = Stored([row(1, "a"), row(3, "b")], [], [DamagedTask(2, "broken", "?")])
        assert Rebuilt(stored).statuses == {"broken": "failed", "a": "ready", "b": "ready"}

    @pytest.mark.parametrize("when", When)
    def test_a_damaged_row_after_another_is_set_aside_for_its_own_reason(self, when: When):
        """Its dependencies no longer matter: it has not been skipped, it has failed."""
        damaged = [DamagedTask(1, "first", "no priority"), DamagedTask(2, "second", "no retry")]
        stored = Stored([row(3, "child")], [edge(2, 1, Status.PENDING, when), edge(3, 2, Status.PENDING)], damaged)
        rebuilt = Rebuilt(stored)
        assert rebuilt.statuses == {"first": "failed", "second": "failed", "child": "skipped"}
        assert rebuilt.errors["second"] == "set aside: no retry"

    def test_a_damaged_row_after_what_cannot_release_it_has_failed(self):
        """Nor does an edge that could never be met make it a skipped one."""
        stored = Stored([], [edge(2, 1, None), edge(2, 3, Status.FAILED)], [DamagedTask(2, "broken", "?")])
        assert Rebuilt(stored).statuses == {"broken": "failed"}

    def test_a_damaged_row_after_a_sound_one_no_longer_waits_for_it(self):
        """It leaves at once, and the end of what it waited for finds nothing to release."""
        stored = Stored([row(1, "a")], [edge(2, 1, Status.PENDING)], [DamagedTask(2, "broken", "?")])
        rebuilt = Rebuilt(stored)
        assert rebuilt.statuses == {"broken": "failed", "a": "ready"}


class TestRunning:
    """Rows of attempts that ran when the last daemon ended."""

    def test_a_running_row_is_a_running_task(self):
        """Whether its attempt is alive only the caller knows."""
        rebuilt = Rebuilt(Stored([row(1, "a", Status.RUNNING, cancel_requested=True)]))
        assert list(rebuilt.machine.running) == [1]
        assert rebuilt.machine.open[1].cancel_requested
        assert not rebuilt.out.has_rows()

    @pytest.mark.parametrize("on_status", [None, *ENDS])
    def test_what_ran_had_its_dependencies_met(self, on_status: Status | None):
        """Whatever the rows of its parents say now, what has started is not skipped."""
        rebuilt = Rebuilt(Stored([row(2, "a", Status.RUNNING)], [edge(2, 1, on_status)]))
        assert rebuilt.statuses == {"a": "running"}

    @pytest.mark.parametrize("end", [Outcome.SUCCEEDED, Outcome.FAILED])
    def test_what_ran_waits_for_no_open_task(self, end: Outcome):
        """Rows that say so are wrong; the end of that task leaves the attempt alone."""
        stored = Stored([row(1, "before"), row(2, "a", Status.RUNNING)], [edge(2, 1, Status.PENDING)])
        rebuilt = Rebuilt(stored, workers=2)
        driver = Driver(2)
        driver.machine = rebuilt.machine
        driver.tasks = {task.id: task for task in rebuilt.machine.open.values()}
        driver.step()
        driver.end("before", end)
        assert driver.running() == {"a"}
        driver.end("a")
        assert driver.status("a") is Status.SUCCEEDED

    def test_what_ran_is_not_skipped_by_a_row_set_aside(self):
        """A damaged parent of a running task cannot have been waited for either."""
        stored = Stored(
            [row(2, "a", Status.RUNNING)], [edge(2, 1, Status.PENDING)], [DamagedTask(1, "broken", "no status")]
        )
        assert Rebuilt(stored).statuses == {"broken": "failed", "a": "running"}
