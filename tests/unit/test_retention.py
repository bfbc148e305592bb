"""Keeping history within bounds, on a real engine in a thread: rows and logs together, by age, name and count."""

import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from schedd.core.batch import NewBatch
from schedd.core.model import NewTask
from schedd.engine.inbox import Call
from schedd.engine.loop import Unavailable
from schedd.engine.requests import HoldTasks, SubmitBatch
from schedd.retention import FIRST_LOOK_S, Policy, Pruner, Removed, Retention
from schedd.store import migrate
from support.api_daemon import ApiDaemon


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[ApiDaemon]:
    """A daemon whose attempts the test ends."""
    template = tmp_path / "template.db"
    migrate.upgrade(template)
    daemon = ApiDaemon(tmp_path, template, workers=1_000)
    daemon.start()
    yield daemon
    daemon.stop()


def submit(daemon: ApiDaemon, *names: str, batch: str | None = None) -> list[str]:
    """Tasks that have ended when this returns, with a log each."""
    tasks = [NewTask("{}", name) for name in names]
    ids: list[str] = daemon.engine.call(Call(SubmitBatch(NewBatch(tasks, batch)))).result()["ids"]
    for task_id in ids:
        daemon.end(task_id)
    settle(daemon)
    for row in daemon.reads.tasks(ids=ids, limit=1_000):
        path = daemon.log_path(row["seq"], 1)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("output")
    return ids


def settle(daemon: ApiDaemon) -> None:
    """Until what was told so far is committed: a question is answered after it."""
    daemon.engine.ask(lambda machine: None).result()


def ids_of(daemon: ApiDaemon) -> list[str]:
    return [row["id"] for row in daemon.reads.tasks(limit=10_000)]


def logs_of(daemon: ApiDaemon) -> int:
    return sum(daemon.log_path(seq, 1).exists() for seq in range(1, 1_000))


def pruner_of(daemon: ApiDaemon) -> Pruner:
    return Pruner(daemon.engine, daemon.reads, daemon.remove_logs)


def test_what_is_old_goes_with_its_logs(daemon: ApiDaemon):
    """And a dry run counts the same without a trace."""
    submit(daemon, "a", "b", batch="ci")
    submit(daemon, "c")
    pruner, everything = pruner_of(daemon), Policy(time.time() + 1)
    assert pruner.count(everything) == 3
    assert logs_of(daemon) == 3
    removed = pruner.run(everything, 10)
    assert (removed.tasks, removed.more) == (3, False)
    assert removed.lines > 0
    assert (ids_of(daemon), logs_of(daemon)) == ([], 0)
    assert pruner.run(everything, 10).tasks == 0


def test_the_newest_of_a_name_stay(daemon: ApiDaemon):
    """However old they are."""
    for _ in range(3):
        submit(daemon, "a", batch="ci")
    assert pruner_of(daemon).run(Policy(time.time() + 1, keep_last=2), 10).tasks == 1
    assert ids_of(daemon) == ["ci-2/a", "ci-3/a"]


def test_too_many_go_oldest_first(daemon: ApiDaemon):
    """Whole batches, until no more are left than asked; what is young enough goes too then."""
    for number in range(6):
        submit(daemon, f"x{number}", f"y{number}")
    assert pruner_of(daemon).run(Policy(0.0, keep_tasks=5), 10).tasks == 8
    assert ids_of(daemon) == ["x4", "y4", "x5", "y5"]
    assert pruner_of(daemon).run(Policy(0.0, keep_tasks=5), 10).tasks == 0


def test_open_tasks_stay(daemon: ApiDaemon):
    """With their batch, whatever of it has ended."""
    submit(daemon, "gone")
    daemon.engine.call(Call(SubmitBatch(NewBatch([NewTask("{}", "done"), NewTask("{}", "held")])))).result()
    daemon.engine.call(Call(HoldTasks(("held",), True))).result()
    daemon.end("done")
    settle(daemon)
    assert pruner_of(daemon).run(Policy(time.time() + 1), 10).tasks == 1
    assert ids_of(daemon) == ["done", "held"]


def test_a_budget_ends_it_and_the_next_goes_on(daemon: ApiDaemon):
    """Without time nothing goes; stopped in the middle, the rest goes another time."""
    for number in range(5):
        submit(daemon, f"t{number}")
    pruner, everything = pruner_of(daemon), Policy(time.time() + 1)
    assert pruner.run(everything, 0.0) == Removed(0, 0, more=True)
    asked = iter([False, False, False, True])
    first = pruner.run(everything, 10, lambda: next(asked, True))
    assert first.more
    assert 0 < first.tasks < 5
    assert pruner.run(everything, 10).tasks == 5 - first.tasks


def test_a_large_batch_goes_in_steps(daemon: ApiDaemon, monkeypatch: pytest.MonkeyPatch):
    """No request deletes more than a step."""
    monkeypatch.setattr("schedd.retention.TASKS_PER_STEP", 7)
    submit(daemon, *(f"t{number}" for number in range(30)))
    sizes: list[int] = []
    ask = Pruner._ask

    def watched(self: Pruner, request: Any) -> dict[str, Any]:
        sizes.append(len(getattr(request, "seqs", ())))
        return ask(self, request)

    monkeypatch.setattr(Pruner, "_ask", watched)
    assert pruner_of(daemon).run(Policy(time.time() + 1), 10).tasks == 30
    assert max(sizes) == 7
    assert ids_of(daemon) == []


def test_retention_looks_now_and_then(daemon: ApiDaemon, monkeypatch: pytest.MonkeyPatch):
    """It tells what it removed, survives a fault of the database, and stops when told."""
    monkeypatch.setattr("schedd.retention.FIRST_LOOK_S", 0.01)
    monkeypatch.setattr("schedd.retention.LOOK_EVERY_S", 0.01)
    submit(daemon, "a")
    told = threading.Event()
    faults = iter([Unavailable("busy")])

    def policy() -> Policy:
        fault = next(faults, None)
        if fault is not None:
            raise fault
        return Policy(time.time() + 1)

    seen: list[Removed] = []

    def on_removed(removed: Removed) -> None:
        seen.append(removed)
        told.set()

    retention = Retention(pruner_of(daemon), policy, on_removed)
    retention.start()
    try:
        assert told.wait(20)
    finally:
        retention.stop()
    assert sum(removed.tasks for removed in seen) == 1
    assert ids_of(daemon) == []
    assert FIRST_LOOK_S > 1
