"""schedd as a library: the same engine, in memory and on a file."""

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from schedd import CycleError, RetryPolicy, Scheduler, Status, Task
from schedd.core.errors import AlreadyStarted, DuplicateId, InvalidRequest, UnknownTask
from schedd.core.model import Dependency, When
from schedd.engine.clock import ManualClock
from schedd.lock import AlreadyLocked
from schedd.runtime import EngineDied
from schedd.store.base import StoreBroken
from schedd.store.memory import MemoryStore
from support import functions

PATIENCE_S = 30.0


@pytest.fixture(autouse=True)
def fresh_functions() -> Iterator[None]:
    functions.calls.clear()
    functions.release.clear()
    yield
    functions.release.set()


@pytest.fixture(params=["memory", "file"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    """Where a scheduler keeps its tasks: None for memory, or a path."""
    return None if request.param == "memory" else tmp_path / "jobs.db"


class TestBoth:
    """What holds in memory and on a file."""

    def test_tasks_run_in_the_order_of_their_dependencies(self, store: Any):
        """And by priority among those that are ready; the log tells it."""
        with Scheduler(workers=1, store=store) as scheduler:
            ids = scheduler.submit(
                Task("last", functions.note, deps=["low", "high"], args=["last"]),
                Task("low", functions.note, priority=5, args=["low"]),
                Task("high", functions.note, kwargs={"name": "high"}),
            )
            assert ids == ["last", "low", "high"]
            assert scheduler.wait(PATIENCE_S)
            assert scheduler.is_done()
            assert functions.calls == ["high", "low", "last"]
            assert list(scheduler.log) == ["high succeeded", "low succeeded", "last succeeded"]
            assert scheduler.status("last") is Status.SUCCEEDED

    def test_a_failure_is_retried_and_skips_what_waits(self, store: Any):
        """The log has the delay and the reason; `tasks` has the rows."""
        with Scheduler(workers=2, store=store) as scheduler:
            scheduler.submit(
                Task("bad", functions.fail, retry=RetryPolicy(max_attempts=2, base_delay=0.01)),
                Task("after", functions.note, deps=["bad"], args=["after"]),
                Task("cleanup", functions.note, deps=[Dependency("bad", When.FAILED)], args=["cleanup"]),
            )
            assert scheduler.wait(PATIENCE_S)
            rows = scheduler.tasks
            assert [line for line in scheduler.log if "cleanup" not in line] == [
                "bad retry in 0.01s (RuntimeError: no luck)",
                "bad failed (RuntimeError: no luck)",
                "after skipped",
            ]
        assert (rows["bad"].status, rows["bad"].attempts) == ("failed", 2)
        assert rows["after"].error == "skipped because bad failed"
        assert functions.calls == ["cleanup"]

    def test_a_cancel_is_told_whether_it_did_anything(self, store: Any):
        """True once; False for what was cancelled or has ended; an error for what there is not."""
        with Scheduler(workers=1, store=store) as scheduler:
            scheduler.submit(Task("later", functions.note, delay=60, args=["later"]))
            assert scheduler.cancel("later") is True
            assert scheduler.cancel("later") is False
            with pytest.raises(UnknownTask):
                scheduler.cancel("nobody")

    def test_a_late_dependency_is_kept_or_refused(self, store: Any):
        """Refused where it would close a cycle, with the path, and where the task has started."""
        with Scheduler(workers=1, store=store) as scheduler:
            scheduler.submit(
                Task("running", functions.block),
                Task("a", functions.note, args=["a"]),
                Task("b", functions.note, args=["b"]),
            )
            scheduler.add_dependency("b", "a")
            with pytest.raises(CycleError) as caught:
                scheduler.add_dependency("a", "b")
            assert caught.value.path == ["b", "a", "b"]
            with pytest.raises(AlreadyStarted):
                scheduler.add_dependency("a", "running")
            functions.release.set()
            assert scheduler.wait(PATIENCE_S)
        assert functions.calls == ["b", "a"]

    def test_refusals_are_value_errors_and_store_nothing(self, store: Any):
        """A batch is accepted whole or not at all."""
        with Scheduler(workers=1, store=store) as scheduler:
            scheduler.submit(Task("a", functions.note, args=["a"]))
            with pytest.raises(DuplicateId):
                scheduler.submit(Task("new", functions.note, args=["new"]), Task("a", functions.note))
            with pytest.raises(ValueError, match="go together"):
                scheduler.submit(Task("x", functions.note, every=1.0))
            assert scheduler.wait(PATIENCE_S)
            assert set(scheduler.tasks) == {"a"}

    def test_waiting_has_a_bound(self, store: Any):
        """False when it took too long."""
        with Scheduler(workers=1, store=store) as scheduler:
            scheduler.submit(Task("a", functions.note, delay=3600, args=["a"]))
            assert scheduler.wait(0.05) is False
            assert scheduler.is_done() is False

    def test_nothing_is_accepted_after_a_shutdown(self, store: Any):
        """And shutting down twice does no harm."""
        scheduler = Scheduler(workers=1, store=store)
        scheduler.shutdown()
        scheduler.shutdown()
        with pytest.raises(EngineDied, match="shut down"):
            scheduler.submit(Task("a", functions.note))


class TestMemory:
    """What only memory can do."""

    def test_any_callable_will_do(self):
        """Lambdas and closures."""
        found = []
        with Scheduler(workers=1) as scheduler:
            scheduler.submit(Task("a", lambda: found.append(1)))
            assert scheduler.wait(PATIENCE_S)
        assert found == [1]

    def test_a_function_that_asks_for_it_gets_its_cancel_flag(self):
        """Set by a cancel while it runs; the task ends cancelled although it returned."""
        started = threading.Event()

        def patient(cancel: threading.Event) -> bool:
            started.set()
            return cancel.wait(PATIENCE_S)

        with Scheduler(workers=1) as scheduler:
            scheduler.submit(Task("a", patient))
            assert started.wait(PATIENCE_S)
            assert scheduler.cancel("a") is True
            assert scheduler.wait(PATIENCE_S)
            assert scheduler.status("a") is Status.CANCELLED

    def test_a_manual_clock_decides_what_is_due(self):
        """Delays pass when the clock is told to move, and not before."""
        clock = ManualClock(1_000.0)
        with Scheduler(workers=1, store=MemoryStore(), clock=clock) as scheduler:
            scheduler.submit(Task("a", functions.note, delay=3600, args=["a"]))
            clock.advance(3599)
            assert scheduler.wait(0.05) is False
            clock.advance(1)
            assert scheduler.wait(PATIENCE_S)
        assert functions.calls == ["a"]


class TestFile:
    """What a file asks and gives."""

    def test_work_goes_on_in_the_next_process(self, tmp_path: Path):
        """What had not ended is there again, with what waits for it."""
        path = tmp_path / "jobs.db"
        with Scheduler(workers=1, store=path) as scheduler:
            scheduler.submit(
                Task("a", functions.note, delay=0.3, args=["a"]), Task("b", functions.note, deps=["a"], args=["b"])
            )
        assert functions.calls == []
        with Scheduler(workers=1, store=str(path)) as scheduler:
            assert scheduler.wait(PATIENCE_S)
            assert {row.id: row.status for row in scheduler.tasks.values()} == {"a": "succeeded", "b": "succeeded"}
        assert functions.calls == ["a", "b"]

    @pytest.mark.parametrize(
        ("fn", "words"),
        [(lambda: None, "cannot be imported"), (functions.release.wait, "cannot be imported|another object")],
    )
    def test_what_cannot_be_imported_is_refused_with_the_reason(self, tmp_path: Path, fn: Any, words: str):
        """The next process would not find it."""
        with Scheduler(workers=1, store=tmp_path / "jobs.db") as scheduler:
            with pytest.raises(InvalidRequest, match=words) as caught:
                scheduler.submit(Task("a", fn))
            assert "after a restart" in str(caught.value)

    def test_arguments_must_be_json(self, tmp_path: Path):
        """The message names the task."""
        with (
            Scheduler(workers=1, store=tmp_path / "jobs.db") as scheduler,
            pytest.raises(InvalidRequest, match="a: its arguments must be JSON"),
        ):
            scheduler.submit(Task("a", functions.note, args=[object()]))

    def test_one_scheduler_per_file(self, tmp_path: Path):
        """The second is refused while the first lives."""
        path = tmp_path / "jobs.db"
        with Scheduler(workers=1, store=path), pytest.raises(AlreadyLocked):
            Scheduler(workers=1, store=path)
        Scheduler(workers=1, store=path).shutdown()

    def test_a_file_that_is_no_database_is_refused(self, tmp_path: Path):
        """And left alone, and its lock is let go."""
        path = tmp_path / "jobs.db"
        path.write_bytes(b"my diary " * 1000)
        for _ in range(2):
            with pytest.raises(StoreBroken):
                Scheduler(workers=1, store=path)
        assert path.read_bytes().startswith(b"my diary")
