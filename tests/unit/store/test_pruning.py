"""Deleting what has ended: what may go, what stays, and in what steps."""

import sqlite3
from contextlib import closing
from typing import Any

import pytest

from schedd.core.batch import NewBatch
from schedd.core.model import Dependency, NewTask, Outcome, When
from schedd.engine.inbox import Call
from schedd.engine.loop import Engine
from schedd.engine.pruning import PruneHistory, PruneTasks
from schedd.engine.requests import HoldTasks, SubmitBatch
from schedd.store import pruning
from schedd.store.reads import Reads
from schedd.store.sqlite import SqliteStore
from support.fakes import FakeClock, FakeExecutor


class Life:
    """An engine on a database, whose attempts end when told."""

    def __init__(self, store: SqliteStore) -> None:
        self.path = store.path
        self.keys = 0
        self.clock = FakeClock()
        self.executor = FakeExecutor()
        self.engine = Engine(store, self.executor, self.clock, 8)  # type: ignore[arg-type]
        self.engine.recover()
        self.reads = Reads(store.path)

    def ask(self, request: Any, key: str | None = None) -> Any:
        call = Call(request, key=key)
        call.future.set_running_or_notify_cancel()
        self.engine.step([call])
        return call.future.result(0)

    def submit(self, *tasks: NewTask, name: str | None = None) -> list[str]:
        self.keys += 1
        ids: list[str] = self.ask(SubmitBatch(NewBatch(tasks, name)), key=f"k{self.keys}")["ids"]
        return ids

    def end_all(self, outcome: Outcome = Outcome.SUCCEEDED) -> None:
        """Until nothing runs any more."""
        while self.executor.running:
            self.engine.step([self.executor.end(seq, outcome, self.clock.now()) for seq in [*self.executor.running]])

    def count(self, table: str) -> int:
        with closing(sqlite3.connect(self.path)) as connection:
            count: int = connection.execute(f"SELECT count(*) FROM {table}").fetchone()[0]
        return count

    def seqs(self) -> list[int]:
        with closing(sqlite3.connect(self.path)) as connection:
            return [row[0] for row in connection.execute("SELECT seq FROM task ORDER BY seq")]


@pytest.fixture
def life(sqlite_store: SqliteStore) -> Any:
    life = Life(sqlite_store)
    yield life
    life.reads.close()


def task(name: str, *deps: str | Dependency) -> NewTask:
    return NewTask("{}", name, tuple(dep if isinstance(dep, Dependency) else Dependency(dep) for dep in deps))


def test_all_that_belongs_to_a_task_goes_with_it(life: Life):
    """Its attempts and edges, and its batch when it was the last; the number of the batch is never given again."""
    life.submit(task("a"), task("b", "a"), name="ci")
    life.end_all()
    assert life.ask(PruneTasks((2, 1), life.clock.now() + 1)) == {"removed": 2, "more": False}
    assert [life.count(table) for table in ("task", "attempt", "dependency", "batch")] == [0, 0, 0, 0]
    assert life.submit(task("a"), name="ci") == ["ci-2/a"]
    assert life.seqs() == [3], "nor is a seq"


def test_what_is_young_open_or_awaited_stays(life: Life):
    """Each is judged by itself, whatever the caller believed."""
    life.submit(task("old"))
    life.submit(task("awaited"))
    life.end_all()
    life.clock.advance(100)
    between = life.clock.now()
    life.clock.advance(100)
    life.submit(task("young"))
    life.end_all()
    life.submit(task("open", "awaited", Dependency("old", When.FINISHED)), task("runs"))
    life.ask(HoldTasks(("open",), True))
    assert life.ask(PruneTasks((1, 2, 3, 4, 5, 77), between)) == {"removed": 0, "more": False}
    life.engine.step([life.executor.end(4, Outcome.SUCCEEDED, life.clock.now())])
    life.end_all()
    assert life.ask(PruneTasks((1, 2, 3, 4, 5, 77), between)) == {"removed": 2, "more": False}
    assert life.seqs() == [3, 4, 5]


def test_a_step_is_small_whatever_a_task_has(life: Life, monkeypatch: pytest.MonkeyPatch):
    """Edges and attempts go first, a bounded number in each step."""
    monkeypatch.setattr(pruning, "MAX_ROWS", 10)
    life.submit(task("root"), *(task(f"c{number}", "root") for number in range(35)))
    life.end_all()
    steps = [life.ask(PruneTasks((1,), life.clock.now() + 1)) for _ in range(4)]
    assert steps == [{"removed": 0, "more": True}] * 3 + [{"removed": 1, "more": False}]
    assert life.count("dependency") == 0
    assert len(life.seqs()) == 35


def test_history_goes_from_its_beginning(life: Life, monkeypatch: pytest.MonkeyPatch):
    """Lines of the event log and answers of keyed requests; what is younger stays."""
    monkeypatch.setattr(pruning, "MAX_ROWS", 10)
    for number in range(5):
        life.submit(task(f"t{number}"))
        life.end_all()
        life.clock.advance(10)
    events, between = life.count("event"), life.clock.now()
    life.submit(task("young"))
    rounds = []
    while not rounds or rounds[-1]["more"]:
        rounds.append(life.ask(PruneHistory(between)))
    assert sum(each["removed"] for each in rounds) == events + 5
    assert (life.count("request"), life.count("event")) == (1, 2)  # submitted, started


def test_candidates_are_whole_batches(life: Life):
    """Ended as a whole, long enough ago, with nothing open behind them, and not among the newest of their name."""
    for _ in range(3):
        life.submit(task("a"), task("b"), name="ci")
    life.submit(task("loose"))
    life.submit(task("awaited"))
    life.end_all()
    life.clock.advance(10)
    life.submit(task("open", "awaited"), name="waits")
    life.submit(task("half"), task("rest", "half"), name="half")
    now = life.clock.now() + 1
    assert life.reads.prunable_batches(now, 0, 0, 10) == [1, 2, 3, 4]
    assert life.reads.prunable_batches(now, 1, 0, 10) == [1, 2, 4]
    assert life.reads.prunable_batches(now, 2, 0, 10) == [1, 4]
    assert life.reads.prunable_batches(now, 0, 2, 1) == [3]
    assert life.reads.prunable_batches(now - 11, 0, 0, 10) == []
    assert life.reads.prunable_tasks(2, 10) == [(4, 1), (3, 1)]
    assert (life.reads.batch_size(2), life.reads.ended()) == (2, 8)


def test_free_pages_go_back(life: Life):
    """The file shrinks while rows go."""
    life.submit(*(NewTask("x" * 20_000, f"t{number}") for number in range(100)))
    life.end_all()
    with closing(sqlite3.connect(life.path)) as connection:
        pages = connection.execute("PRAGMA page_count").fetchone()[0]
        assert life.ask(PruneTasks(tuple(range(1, 101)), life.clock.now() + 1))["removed"] == 100
        left = connection.execute("PRAGMA page_count").fetchone()[0]
    assert pages - left >= pruning.VACUUM_PAGES
