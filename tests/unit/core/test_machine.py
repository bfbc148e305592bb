"""The table of legal moves, and where a task stands: who is next, who waits for time, who is nowhere."""

from collections.abc import Callable
from itertools import product
from typing import NamedTuple

import pytest

from schedd.core.errors import IllegalTransition
from schedd.core.events import Output, StartAttempt, WorkersChanged
from schedd.core.machine import LEGAL, Machine
from schedd.core.model import DamagedTask, Moment, OpenTask, Outcome, RetryPolicy, Status, Stored
from schedd.core.rebuilding import rebuild
from support.core_driver import START, Driver, new, snapshot

PENDING, READY, RUNNING = Status.PENDING, Status.READY, Status.RUNNING
SUCCEEDED, FAILED, CANCELLED, SKIPPED = Status.SUCCEEDED, Status.FAILED, Status.CANCELLED, Status.SKIPPED

ILLEGAL = sorted(set(product(Status, Status)) - LEGAL)


class WatchedMachine(Machine):
    """A machine that remembers its moves, as (id, from, to)."""

    __slots__ = ("moves",)

    def __init__(self, workers: int) -> None:
        super().__init__(workers)
        self.moves: list[tuple[str, Status, Status]] = []

    def _move(self, task: OpenTask, status: Status) -> None:
        before = task.status
        super()._move(task, status)
        self.moves.append((task.id, before, status))


class Way(NamedTuple):
    """One way to bring about a move of task `x`: what comes before it, and the event that makes it."""

    workers: int
    before: Callable[[Driver], object]
    act: Callable[[Driver], object]


def nothing(_: Driver) -> None:
    """There is nothing to prepare."""


def submit(**more: object) -> Callable[[Driver], object]:
    return lambda driver: driver.submit(new("x", **more))


def failed_and_ready(driver: Driver) -> None:
    """`gone` has failed, `x` is ready."""
    driver.submit(new("gone"))
    driver.end("gone", Outcome.FAILED)
    driver.step(WorkersChanged(0))
    driver.submit(new("x"))


def running_and_cancelled(driver: Driver) -> None:
    driver.submit(new("x"))
    driver.cancel("x")


def set_aside(driver: Driver) -> None:
    rebuild(driver.machine, Stored(damaged=[DamagedTask(1, "x", "no priority")]), driver.now, Output())


WAYS: dict[tuple[Status, Status], Way] = {
    (PENDING, READY): Way(0, submit(delay=5), lambda driver: driver.advance(5)),
    (PENDING, CANCELLED): Way(0, submit(delay=5), lambda driver: driver.cancel("x")),
    (PENDING, SKIPPED): Way(
        1, lambda driver: driver.submit(new("a"), new("x", "a")), lambda driver: driver.end("a", Outcome.FAILED)
    ),
    (PENDING, FAILED): Way(0, nothing, set_aside),
    (READY, RUNNING): Way(0, submit(), lambda driver: driver.step(WorkersChanged(1))),
    (READY, PENDING): Way(0, submit(), lambda driver: driver.hold("x")),
    (READY, CANCELLED): Way(0, submit(), lambda driver: driver.cancel("x")),
    (READY, FAILED): Way(0, submit(deadline=Moment(5)), lambda driver: driver.advance(5)),
    (READY, SKIPPED): Way(1, failed_and_ready, lambda driver: driver.depend("gone", "x")),
    (RUNNING, SUCCEEDED): Way(1, submit(), lambda driver: driver.end("x")),
    (RUNNING, FAILED): Way(1, submit(), lambda driver: driver.end("x", Outcome.FAILED)),
    (RUNNING, CANCELLED): Way(1, running_and_cancelled, lambda driver: driver.end("x", Outcome.CANCELLED)),
    (RUNNING, PENDING): Way(
        1, submit(retry=RetryPolicy(max_attempts=2)), lambda driver: driver.end("x", Outcome.FAILED)
    ),
}


class TestMoves:
    """Every cell of the table, and every cell that is not in it."""

    def test_there_is_a_way_for_every_legal_move(self):
        """The table holds no move that cannot happen, and none that is not tried here."""
        assert set(WAYS) == LEGAL

    @pytest.mark.parametrize("move", WAYS, ids="-".join)
    def test_a_legal_move_is_made(self, drive, move: tuple[Status, Status]):
        """The event makes exactly this move of the task, and no other."""
        way = WAYS[move]
        driver = drive(way.workers)
        driver.machine = WatchedMachine(way.workers)
        way.before(driver)
        driver.machine.moves.clear()
        way.act(driver)
        assert [(before, after) for task_id, before, after in driver.machine.moves if task_id == "x"] == [move]

    @pytest.mark.parametrize(("before", "after"), sorted(LEGAL))
    def test_the_move_itself_changes_the_status_alone(self, driver: Driver, before: Status, after: Status):
        """Where the task belongs is decided elsewhere."""
        task = OpenTask(1, "x", 0, RetryPolicy(), None, START, status=before)
        machine = snapshot(driver.machine)
        driver.machine._move(task, after)
        assert task.status is after
        assert snapshot(driver.machine) == machine

    @pytest.mark.parametrize(("before", "after"), ILLEGAL)
    def test_an_illegal_move_raises_and_changes_nothing(self, before: Status, after: Status):
        """For every pair that is not in the table; the story names the task and both states."""
        machine = Machine(1)
        task = machine.open[7] = OpenTask(7, "x", 0, RetryPolicy(), None, START, status=before)
        picture = snapshot(machine)
        with pytest.raises(IllegalTransition, match=rf"task x \(seq 7\) cannot go from {before} to {after}"):
            machine._move(task, after)
        assert snapshot(machine) == picture

    def test_an_illegal_end_raises_and_changes_nothing(self, drive):
        """A ready task that cannot end so stays in its queue."""
        driver = drive(0)
        driver.submit(new("x"), new("child", "x"))
        picture, out = snapshot(driver.machine), Output()
        with pytest.raises(IllegalTransition):
            driver.machine.settle(driver.tasks["x"], SUCCEEDED, None, driver.now, out)
        assert snapshot(driver.machine) == picture
        assert not out.has_rows()


class TestOrder:
    """Lower priority first, then who came first."""

    def test_ready_tasks_start_by_priority_then_seq(self, drive):
        """Two of one priority start in the order of their submission."""
        driver = drive(0)
        driver.submit(new("a", priority=5), new("b"), new("c", priority=-1), new("d", priority=5), new("e"))
        assert driver.ready() == ["c", "b", "e", "a", "d"]
        driver.step(WorkersChanged(5))
        assert driver.starts() == ["c", "b", "e", "a", "d"]

    def test_priority_beats_having_waited(self, driver: Driver):
        """A task submitted later with a lower priority goes before those that wait."""
        driver.submit(new("first"), new("waits"))
        driver.submit(new("urgent", priority=-1))
        driver.end("first")
        assert driver.running() == {"urgent"}

    def test_an_old_task_made_ready_late_keeps_its_seq(self, driver: Driver):
        """Ties are broken by the stored seq, not by when a task became ready."""
        driver.submit(new("a"), new("b", delay=5), new("c", delay=4), new("d"))
        driver.advance(5)
        driver.end("a")
        assert driver.running() == {"b"}
        assert driver.ready() == ["c", "d"]

    def test_delayed_tasks_wake_by_their_time_then_seq(self, drive):
        """`next_due` is always the earliest of those that wait for time alone."""
        driver = drive(0)
        driver.submit(new("a", delay=3), new("b", delay=1), new("c", delay=2), new("d", delay=1), new("e", "a"))
        assert driver.delayed() == ["b", "d", "c", "a"]
        woken = []
        while (due := driver.machine.next_due()) is not None:
            driver.now = due
            driver.step()
            woken.append((due - START, driver.ready()))
        assert woken == [(1, ["b", "d"]), (2, ["b", "c", "d"]), (3, ["a", "b", "c", "d"])]

    def test_a_task_is_not_woken_before_its_time(self, driver: Driver):
        """A moment before it is too early; at the very moment it starts."""
        driver.submit(new("a", delay=2))
        driver.advance(1.999)
        assert driver.statuses() == {"a": "pending"}
        driver.advance(0.001)
        assert driver.statuses() == {"a": "running"}

    def test_nothing_is_due_when_nothing_waits_for_time(self, driver: Driver):
        """Running, ready, held and unmet tasks need no alarm."""
        driver.submit(new("running"), new("ready"), new("unmet", "ready"), new("held", delay=9))
        driver.hold("held")
        assert driver.machine.next_due() is None


class TestStarts:
    """What a start says."""

    def test_a_start_is_a_row_an_attempt_and_an_effect(self, driver: Driver):
        """The status, the attempt and the order to start it belong to one round."""
        out = driver.submit(new("a"))
        task = driver.tasks["a"]
        assert out.changed == {1: task}
        assert out.started == [(1, 1, 1, START, None)]
        assert out.effects == [StartAttempt(1, "a", 1, 1)]
        assert (task.status, task.number, task.attempts, task.planned_at) == (RUNNING, 1, 0, START)
        assert driver.kinds("a") == ["started"]

    def test_only_free_workers_get_work(self, drive):
        """Never more attempts than workers."""
        driver = drive(3)
        driver.submit(*(new(None) for _ in range(5)))
        assert driver.running() == {"1", "2", "3"}
        driver.end("2")
        assert driver.running() == {"1", "3", "4"}

    def test_a_submitted_task_is_a_row_with_its_record(self, drive):
        """The row is written from the record as it stands at the flush; what was submitted goes with it."""
        driver = drive(0)
        tasks = [new("a", delay=2), new("b", "a", priority=3)]
        out = driver.submit(*tasks)
        assert [(added.new, added.task.id, added.batch_seq, added.created_at) for added in out.added] == [
            (tasks[0], "a", 1, START),
            (tasks[1], "b", 1, START),
        ]
        assert out.edges == [(2, 1, "succeeded")]
        assert not out.changed
        assert [(task.run_at, task.priority, task.unmet) for task in driver.tasks.values()] == [
            (START + 2, 0, 0),
            (START, 3, 1),
        ]
