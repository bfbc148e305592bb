"""What every store must do: one suite for memory and SQLite, driven by the engine and the machine themselves."""

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from schedd.core.batch import NewBatch
from schedd.core.events import Output
from schedd.core.graph import children_of
from schedd.core.machine import Machine
from schedd.core.model import CatchUp, Dependency, NewTask, Outcome, Recurrence, RetryPolicy, Status, When
from schedd.core.rebuilding import rebuild
from schedd.engine.inbox import Call
from schedd.engine.loop import Engine
from schedd.engine.requests import CancelTasks, DependTasks, HoldTasks, PauseStarting, SubmitBatch
from support.fakes import FakeClock, FakeExecutor

Reopen = Callable[[], Any]


class Life:
    """An engine on a store, through restarts."""

    def __init__(self, reopen: Reopen, workers: int = 2) -> None:
        self._reopen = reopen
        self.workers = workers
        self.clock = FakeClock()
        self.restart()

    def restart(self) -> None:
        self.store = self._reopen()
        self.executor = FakeExecutor()
        self.engine = Engine(self.store, self.executor, self.clock, self.workers)
        self.recovery = self.engine.recover()

    def ask(self, request: Any) -> Any:
        call = Call(request, arrived=self.clock.monotonic())
        self.engine.step([call])
        return call.future.result(0)

    def submit(self, *tasks: NewTask, name: str | None = None) -> list[str]:
        return list(self.ask(SubmitBatch(NewBatch(tasks, name)))["ids"])

    def end(self, seq: int, outcome: Outcome = Outcome.SUCCEEDED, **more: Any) -> None:
        self.engine.step([self.executor.end(seq, outcome, self.clock.now(), **more)])

    def status(self, task_id: str) -> Status:
        return self.store.find([task_id])[task_id].status


@pytest.fixture
def life(reopen: Reopen) -> Life:
    """A fresh life."""
    return Life(reopen)


def task(name: str, *deps: str | Dependency, **more: Any) -> NewTask:
    edges = tuple(dep if isinstance(dep, Dependency) else Dependency(dep) for dep in deps)
    return NewTask(payload=f'{{"run":"{name}"}}', name=name, deps=edges, **more)


def picture(machine: Machine) -> dict[int, Any]:
    """A machine as plain values, to compare two of them."""
    return {
        seq: (
            open_task.id, open_task.status, open_task.priority, open_task.retry, open_task.recurrence, open_task.run_at,
            open_task.planned_at, open_task.unmet, open_task.attempts, open_task.number, open_task.runs, open_task.held,
            open_task.cancel_requested, open_task.error,
            sorted(child.seq for child in children_of(open_task) if machine.open.get(child.seq) is child),
        )
        for seq, open_task in machine.open.items()
    }  # fmt: skip


def test_a_rebuilt_machine_equals_the_live_one(life: Life):
    """Every field that decides anything survives: through backoff, holds, recurrences, late edges and skips."""
    life.submit(
        task("a"),
        task("b", "a", priority=-3, delay=100.0),
        task("c", Dependency("a", When.FAILED), Dependency("b", When.FINISHED)),
        task("d", retry=RetryPolicy(3, 7.0, 9.0)),
        task("e", "d", recurrence=Recurrence(5.0, 3, CatchUp.LATEST)),
        task("f", recurrence=Recurrence(2.0, 2)),
        task("g", "f"),
        name="ci",
    )
    life.ask(HoldTasks(("ci-1/e",), True))
    life.ask(DependTasks("ci-1/g", "ci-1/e"))
    life.end(1)
    life.end(4, Outcome.FAILED, error="no")
    life.end(6)
    life.clock.advance(2.0)
    life.engine.step([])
    life.ask(CancelTasks(("ci-1/f",)))
    machine = life.engine._machine
    assert machine is not None
    rebuilt = Machine(2)
    rebuild(rebuilt, life.store.load(), life.clock.now(), Output())
    assert picture(rebuilt) == picture(machine)
    assert set(rebuilt.running) == set(machine.running) == {6}


def test_a_rolled_back_transaction_leaves_nothing(life: Life):
    """Neither rows, nor ids, nor the numbers that were handed out."""
    life.submit(task("a"), name="ci")
    before = (life.store.next_seq(), life.store.load())
    life.store.begin()
    row = life.store.add_batch("ci", 1.0)
    assert row.name == "ci-2"
    life.store.remember("key", "digest", "{}", 1.0)
    life.store.rollback()
    assert life.store.answer_of("key") is None
    assert (life.store.next_seq(), life.store.load()) == before
    assert life.submit(task("a"), name="ci") == ["ci-2/a"]


def test_a_rollback_without_a_transaction_is_harmless(life: Life):
    """It is what one does after any fault."""
    life.store.rollback()
    life.store.begin()
    life.store.commit()


def test_numbers_are_never_given_twice(life: Life):
    """Seqs and batch numbers go on after a restart."""
    life.submit(task("a"), name="ci")
    life.submit(task("x"))
    life.restart()
    assert life.store.next_seq() == 3
    assert life.submit(NewTask(payload="{}"), name="ci") == ["ci-2/3"]


def test_a_keyed_answer_is_kept(life: Life):
    """With the digest of its request."""
    life.store.begin()
    life.store.remember("key", "digest", '{"a":1}', 1.0)
    life.store.commit()
    life.restart()
    assert life.store.answer_of("key") == ("digest", '{"a":1}')
    assert life.store.answer_of("other") is None


def test_find_knows_open_and_ended_tasks(life: Life):
    """By full id; unknown ids are absent, ready is told as pending."""
    life.submit(task("a"), task("b"), task("c"), name="ci")
    life.end(1)
    found = life.store.find(["ci-1/a", "ci-1/b", "ci-1/c", "nobody"])
    assert {task_id: known.status for task_id, known in found.items()} == {
        "ci-1/a": Status.SUCCEEDED, "ci-1/b": Status.RUNNING, "ci-1/c": Status.RUNNING,
    }  # fmt: skip
    assert life.store.find([]) == {}


def test_tasks_of_a_batch_come_in_order(life: Life):
    """And an unknown batch is None, not empty."""
    life.submit(task("a"), task("b"), name="ci")
    life.submit(task("a"))
    assert [known.id for known in life.store.tasks_of_batch("ci-1")] == ["ci-1/a", "ci-1/b"]
    assert life.store.tasks_of_batch("ci-2") is None


def test_edges_are_known_with_their_when(life: Life):
    """Between open and ended tasks."""
    life.submit(task("a"), task("b", Dependency("a", When.FINISHED)))
    assert life.store.edge(1, 2) is When.FINISHED
    assert life.store.edge(2, 1) is None


def test_payloads_come_back_as_they_went_in(life: Life):
    """One or many; seqs that do not exist are absent."""
    life.submit(task("a"), task("b"))
    assert life.store.payloads([1]) == {1: '{"run":"a"}'}
    assert life.store.payloads([1, 2, 9]) == {1: '{"run":"a"}', 2: '{"run":"b"}'}


def test_pause_survives_a_restart(life: Life):
    """Paused stays paused, resumed stays resumed."""
    life.ask(PauseStarting(True))
    life.restart()
    assert life.store.load().paused is True
    life.ask(PauseStarting(False))
    life.restart()
    assert life.store.load().paused is False


def test_what_ended_is_not_loaded_again(life: Life):
    """Memory and start-up grow with open tasks only."""
    life.submit(task("a"), task("b", "a"), task("c"))
    life.end(1, Outcome.FAILED, error="no")
    life.end(3)
    assert life.store.load().tasks == []
    assert life.status("b") is Status.SKIPPED


def test_crashed_attempts_count_once_however_often_recovery_runs(life: Life):
    """Restarts without any progress change nothing more."""
    life.submit(task("a", retry=RetryPolicy(3, 50.0)))
    for crashed in (1, 0, 0):
        life.restart()
        assert life.recovery.crashed == crashed
    loaded: Sequence[Any] = life.store.load().tasks
    assert [(row.attempts, row.number) for row in loaded] == [(1, 1)]


def test_rows_show_every_task(life: Life):
    """What the library's `tasks` shows."""
    life.submit(task("a"), task("b"))
    life.end(1, Outcome.FAILED, error="no")
    if hasattr(life.store, "rows"):
        rows = life.store.rows()
    else:
        from schedd.store.reads import Reads

        reads = Reads(life.store.path)
        rows = reads.rows()
        reads.close()
    assert [(row.id, row.status, row.attempts, row.error) for row in rows] == [
        ("a", "failed", 1, "no"),
        ("b", "running", 0, None),
    ]
