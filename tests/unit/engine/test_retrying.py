"""The operator's retry on a real store: whom it takes, whom it refuses, and what it answers."""

from pathlib import Path
from typing import Any

import pytest

from schedd.core.batch import NewBatch
from schedd.core.errors import CycleError, InvalidRequest, Refused, UnknownTask
from schedd.core.model import Dependency, NewTask, Outcome, When
from schedd.engine.inbox import Call
from schedd.engine.loop import Engine
from schedd.engine.requests import CancelTasks, DependTasks, HoldTasks, PauseStarting, SubmitBatch, UndependTasks
from schedd.engine.retrying import RetryTasks
from schedd.store import migrate
from schedd.store.check import check_database
from schedd.store.memory import MemoryStore
from schedd.store.sqlite import SqliteStore, open_store
from support.fakes import FakeClock, FakeExecutor


class Life:
    """An engine on a file; attempts end when told."""

    def __init__(self, store: Any) -> None:
        self.store = store
        self.clock = FakeClock()
        self.boot()

    def boot(self) -> None:
        self.executor = FakeExecutor()
        self.engine = Engine(self.store, self.executor, self.clock, 9)  # type: ignore[arg-type]
        self.engine.recover()

    def ask(self, request: Any) -> Any:
        call = Call(request)
        call.future.set_running_or_notify_cancel()
        self.engine.step([call])
        return call.future.result(0)

    def submit(self, *tasks: NewTask, name: str | None = None) -> None:
        self.ask(SubmitBatch(NewBatch(tasks, name)))

    def end(self, task_id: str, outcome: Outcome = Outcome.SUCCEEDED) -> None:
        seq = next(order.seq for order in self.executor.running.values() if order.id == task_id)
        self.engine.step([self.executor.end(seq, outcome, self.clock.now())])

    def running(self) -> set[str]:
        return {order.id for order in self.executor.running.values()}

    def status(self, task_id: str) -> str:
        return str(self.store.find([task_id])[task_id].status.value)


@pytest.fixture
def life(tmp_path: Path) -> Any:
    migrate.upgrade(tmp_path / "schedd.db")
    store: SqliteStore = open_store(tmp_path / "schedd.db")
    yield Life(store)
    store.close()


def task(name: str, *deps: str | Dependency) -> NewTask:
    return NewTask("{}", name, tuple(dep if isinstance(dep, Dependency) else Dependency(dep) for dep in deps))


@pytest.fixture
def broken(life: Life) -> Life:
    """ci-1: a has failed, b and c were skipped for it, d was cancelled, e has succeeded."""
    life.submit(task("a"), task("b", "a"), task("c", "b"), task("d"), task("e"), name="ci")
    life.end("ci-1/a", Outcome.FAILED)
    life.end("ci-1/e")
    life.ask(CancelTasks(("ci-1/d",)))
    life.end("ci-1/d", Outcome.CANCELLED)
    return life


def test_a_task_comes_back_with_what_hung_on_it(broken: Life):
    """And all of it is durable: a crash right after the answer keeps it."""
    answer = broken.ask(RetryTasks(("ci-1/a",)))
    assert answer == {"results": [{"id": "ci-1/a", "ok": True}], "retried": ["ci-1/a", "ci-1/b", "ci-1/c"]}
    assert broken.running() == {"ci-1/a"}
    broken.boot()
    broken.clock.advance(60)
    broken.engine.step([])
    assert broken.status("ci-1/a") == "failed", "its one attempt crashed with the daemon"
    assert broken.status("ci-1/c") == "skipped"
    broken.ask(RetryTasks(("ci-1/a",)))
    for name in "abc":
        broken.end(f"ci-1/{name}")
    assert broken.status("ci-1/c") == "succeeded"


def test_a_batch_stands_for_what_did_not_succeed(broken: Life):
    """Or for what failed alone."""
    assert broken.ask(RetryTasks(("ci-1",), only_failed=True, dry_run=True))["retried"] == [
        "ci-1/a",
        "ci-1/b",
        "ci-1/c",
    ]
    answer = broken.ask(RetryTasks(("ci-1",)))
    assert answer["retried"] == ["ci-1/a", "ci-1/b", "ci-1/c", "ci-1/d"]
    assert all(result["ok"] for result in answer["results"])
    assert broken.ask(RetryTasks(("ci-1",))) == {"results": [], "retried": []}, "nothing of it has ended badly now"


def test_a_dry_run_changes_nothing(broken: Life):
    """It answers the same."""
    dry = broken.ask(RetryTasks(("ci-1/a",), dry_run=True))
    assert broken.running() == set()
    assert broken.ask(RetryTasks(("ci-1/a",))) == dry


def test_each_id_is_judged_by_itself(broken: Life):
    """What cannot be retried is refused with the reason, and keeps the others from nothing."""
    broken.submit(task("open"))
    answer = broken.ask(RetryTasks(("ci-1/e", "open", "ci-1/b", "ci-1/d")))
    assert answer["retried"] == ["ci-1/d"]
    told = {result["id"]: result.get("message") for result in answer["results"]}
    assert told["ci-1/d"] is None
    assert "has succeeded; `--downstream`" in told["ci-1/e"]
    assert "has not ended" in told["open"]
    assert told["ci-1/b"] == ("ci-1/b depends on ci-1/a, which is failed; retry ci-1/a, and ci-1/b comes back with it")


def test_a_refused_root_takes_along_what_hung_on_it(life: Life):
    """What would have come back only with it stays, and so does a root that waits for it (simulation seed 7104253)."""
    life.submit(task("gone"), task("mid", "gone"), task("skipped", "mid"), task("last", "skipped"))
    life.end("gone", Outcome.FAILED)
    for ids in (("last", "mid"), ("mid", "last"), ("last", "skipped", "mid")):
        answer = life.ask(RetryTasks(ids))
        assert answer["retried"] == []
        assert not any(result["ok"] for result in answer["results"])
    assert life.running() == set()
    assert life.ask(RetryTasks(("last", "gone")))["retried"] == ["gone", "mid", "skipped", "last"]
    assert life.running() == {"gone"}


def test_downstream_reruns_what_ran(broken: Life):
    """A task that had succeeded may be its root."""
    broken.submit(task("after", "ci-1/e"), task("last", "after"))
    broken.end("after")
    broken.end("last", Outcome.FAILED)
    answer = broken.ask(RetryTasks(("ci-1/e",), downstream=True))
    assert answer["retried"] == ["ci-1/e", "after", "last"]
    assert broken.running() == {"ci-1/e"}


def test_an_unknown_id_refuses_all(broken: Life):
    """As for every verb."""
    with pytest.raises(UnknownTask):
        broken.ask(RetryTasks(("ci-1/a", "nobody")))
    assert broken.running() == set()


def test_a_damaged_row_is_refused_with_the_reason(broken: Life):
    """It cannot be read, so it cannot be run."""
    broken.store._connection.execute("UPDATE task SET payload = '{' WHERE id = 'ci-1/b'")
    with pytest.raises(InvalidRequest, match="ci-1/b cannot be run again: its row is damaged: its payload"):
        broken.ask(RetryTasks(("ci-1/a",)))
    assert broken.status("ci-1/a") == "failed"


@pytest.mark.parametrize("dry_run", [True, False])
def test_a_cycle_is_refused_with_its_path(life: Life, dry_run: bool):
    """Closed by a late edge through a task that had ended."""
    life.submit(task("z"), task("y"), task("x", "z", Dependency("y", When.FINISHED)))
    life.ask(HoldTasks(("y",), True))
    life.end("y", Outcome.INTERRUPTED)
    life.submit(task("w"))
    life.ask(HoldTasks(("w",), True))
    life.end("w", Outcome.INTERRUPTED)
    life.submit(NewTask("{}", "v", (Dependency("z"), Dependency("q", When.FINISHED))), NewTask("{}", "q", delay=60))
    life.end("z", Outcome.FAILED)
    life.ask(DependTasks("v", "q", When.FINISHED))
    with pytest.raises(CycleError, match=r"v -> q -> v|q -> v -> q"):
        life.ask(RetryTasks(("z",), dry_run=dry_run))
    assert life.status("z") == "failed"


def test_an_edge_back_to_what_has_started_is_no_cycle(life: Life):
    """`x` started after `a` had failed; `a` is retried and then waits for `x`: both end, and the check finds no fault
    (simulation seed 88006241).
    """
    life.submit(task("a"), task("x", Dependency("a", When.FAILED)))
    life.end("a", Outcome.FAILED)
    life.ask(PauseStarting(True))
    life.ask(RetryTasks(("a",)))
    assert life.ask(DependTasks("x", "a"))["added"]
    assert check_database(life.store.path).kinds == {}
    life.ask(PauseStarting(False))
    assert life.running() == {"x"}
    life.end("x")
    life.end("a")
    assert (life.status("x"), life.status("a")) == ("succeeded", "succeeded")


def test_memory_has_forgotten_what_to_run():
    """And says so."""
    life = Life(MemoryStore())
    life.submit(task("a"), task("b", "a"))
    life.end("a", Outcome.FAILED)
    with pytest.raises(Refused, match="forgets"):
        life.ask(RetryTasks(("a",)))


@pytest.mark.parametrize("kind", ["memory", "sqlite"])
def test_both_stores_know_the_same_family(life: Life, kind: str):
    """Edges at either end of those asked for, each once."""
    lives = Life(MemoryStore()) if kind == "memory" else life
    lives.submit(task("a"), task("b", "a"), task("c", "a", Dependency("b", When.FINISHED)), task("d", "c"))
    lives.end("a")
    lives.end("b", Outcome.FAILED)
    found = {tuple(kin) for kin in lives.store.family([2, 3])}
    assert found == {
        (2, 1, When.SUCCEEDED, "failed", "succeeded", "a", True),
        (3, 1, When.SUCCEEDED, "running", "succeeded", "a", True),
        (3, 2, When.FINISHED, "running", "failed", "b", True),
        (4, 3, When.SUCCEEDED, "pending", "running", "c", False),
    }


def test_an_edge_is_removed(life: Life):
    """What waited for it alone starts; a second time there is nothing to remove."""
    life.submit(task("a"), task("b", "a"))
    answer = life.ask(UndependTasks("a", "b"))
    assert answer == {"before": "a", "after": "b", "when": "succeeded", "removed": True}
    assert life.running() == {"a", "b"}
    assert life.ask(UndependTasks("a", "b")) == {"before": "a", "after": "b", "when": None, "removed": False}
    assert life.store.edge(1, 2) is None
