"""Questions about rows, from any thread, beside a writer."""

import sqlite3
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import event

from schedd.core.batch import NewBatch
from schedd.core.model import Dependency, NewTask, Outcome, When
from schedd.engine.inbox import Call
from schedd.engine.loop import Engine
from schedd.engine.requests import SubmitBatch
from schedd.store import reads as reads_module
from schedd.store.base import StoreBroken, StoreUnavailable
from schedd.store.reads import SHOWN_PAYLOAD_CHARS, Reads
from schedd.store.sqlite import SqliteStore
from support.fakes import FakeClock, FakeExecutor


class Filled:
    """`ci-1`: a succeeded, b failed, c skipped after b, d running, e pending; `solo`: running, in no named batch."""

    def __init__(self, store: SqliteStore) -> None:
        self.store = store
        self.clock = FakeClock(100.0)
        self.executor = FakeExecutor()
        self.engine = Engine(store, self.executor, self.clock, 2)
        self.engine.recover()
        self.submit(
            NewTask('{"run":"true"}', "a"),
            NewTask('{"run":"false"}', "b"),
            NewTask('{"run":"c"}', "c", (Dependency("b"),)),
            NewTask('{"run":"d"}', "d", (Dependency("b", When.FAILED), Dependency("a"))),
            NewTask('{"run":"e"}', "e", (Dependency("d"),)),
            name="ci",
        )
        self.submit(NewTask('{"run":"solo"}', "solo"))
        self.clock.advance(1.0)
        self.end(1, Outcome.SUCCEEDED, exit_code=0, result='{"answer":42}')
        self.clock.advance(1.0)
        self.end(2, Outcome.FAILED, exit_code=1, error="exit code 1")

    def submit(self, *tasks: NewTask, name: str | None = None) -> None:
        call = Call(SubmitBatch(NewBatch(tasks, name)), arrived=self.clock.monotonic())
        self.engine.step([call])
        call.future.result(0)

    def end(self, seq: int, outcome: Outcome, **more: Any) -> None:
        self.engine.step([self.executor.end(seq, outcome, self.clock.now(), **more)])


@pytest.fixture
def filled(sqlite_store: SqliteStore) -> Filled:
    """A store with something of everything."""
    return Filled(sqlite_store)


@pytest.fixture
def reads(filled: Filled) -> Iterator[Reads]:
    """Questions to it."""
    made = Reads(filled.store.path)
    yield made
    made.close()


def ids(rows: list[dict[str, Any]]) -> list[str]:
    return [row["id"] for row in rows]


ALL = ["ci-1/a", "ci-1/b", "ci-1/c", "ci-1/d", "ci-1/e", "solo"]


def test_one_task_is_found_by_its_full_id(reads: Reads):
    """With its batch, its policy and its last start; an unknown id is None."""
    row = reads.task("ci-1/b")
    assert row is not None
    assert (row["seq"], row["batch"], row["status"], row["error"]) == (2, "ci-1", "failed", "exit code 1")
    assert (row["number"], row["attempts"], row["max_attempts"], row["started_at"]) == (1, 1, 1, 100.0)
    assert (row["held"], row["cancel_requested"], row["payload"]) == (False, False, '{"run":"false"}')
    assert reads.task("b") is None


@pytest.mark.parametrize(
    ("filters", "expected"),
    [
        ({}, ALL),
        ({"statuses": ["running"]}, ["ci-1/d", "solo"]),
        ({"statuses": ["skipped", "failed"]}, ["ci-1/b", "ci-1/c"]),
        ({"statuses": ["pending", "running", "succeeded"], "limit": 2}, ["ci-1/a", "ci-1/d"]),
        ({"batch": "ci-1", "statuses": ["running"]}, ["ci-1/d"]),
        ({"batch": "ci-1"}, ALL[:5]),
        ({"batch": "ci-2"}, []),
        ({"ids": ["solo", "ci-1/a", "nobody"]}, ["ci-1/a", "solo"]),
        ({"ids": ["solo", "ci-1/a"], "statuses": ["running"]}, ["solo"]),
        ({"after": 2, "limit": 2}, ["ci-1/c", "ci-1/d"]),
        ({"after": 6}, []),
    ],
    ids=str,
)
def test_lists_are_filtered_and_in_the_order_of_submission(reads: Reads, filters: Any, expected: list[str]):
    """The last seq of a page is the cursor of the next."""
    assert ids(reads.tasks(**filters)) == expected


def test_pages_put_together_are_the_whole(reads: Reads):
    """Nothing twice, nothing left out, whatever the statuses."""
    statuses = ["failed", "pending", "running", "skipped", "succeeded"]
    found: list[str] = []
    after = 0
    while page := reads.tasks(statuses=statuses, after=after, limit=2):
        found += ids(page)
        after = page[-1]["seq"]
    assert found == ALL


def test_a_list_cuts_payloads_and_one_task_does_not(filled: Filled, reads: Reads):
    """A page of the largest ones would not fit in memory."""
    payload = '{"run":"' + "x" * SHOWN_PAYLOAD_CHARS + '"}'
    filled.submit(NewTask(payload, "large"))
    assert reads.tasks(ids=["large"])[0]["payload"] == payload[:SHOWN_PAYLOAD_CHARS]
    row = reads.task("large")
    assert row is not None
    assert row["payload"] == payload


def test_tasks_by_their_seqs(reads: Reads):
    """In the order of submission; as many as one likes."""
    assert ids(reads.tasks_by_seqs([6, 1, *range(1_000, 100_000)])) == ["ci-1/a", "solo"]


def test_what_runs_and_what_failed_last(filled: Filled, reads: Reads):
    """The newest failure first."""
    filled.clock.advance(1.0)
    filled.end(6, Outcome.FAILED, error="late")
    assert ids(reads.running()) == ["ci-1/d"]
    assert ids(reads.last_failed(5)) == ["solo", "ci-1/b"]
    assert ids(reads.last_failed(1)) == ["solo"]


def test_attempts_are_told_from_the_first_on(reads: Reads):
    """A result is a value again; what still runs has no outcome."""
    (attempt,) = reads.attempts(1)
    assert attempt == {
        "number": 1, "run": 1, "outcome": "succeeded", "started_at": 100.0, "ended_at": 101.0, "exit_code": 0,
        "signal": None, "error": None, "result": {"answer": 42}, "max_rss": None, "cpu_time": None, "pid": None,
        "units": None,
    }  # fmt: skip
    assert [attempt["outcome"] for attempt in reads.attempts(4)] == [None]
    assert reads.attempts(99) == []


def test_dependencies_are_told_from_both_ends(reads: Reads):
    """What it waits for, and what waits for it."""
    up, down = reads.dependencies(4)
    assert up == [
        {"id": "ci-1/a", "when": "succeeded", "status": "succeeded"},
        {"id": "ci-1/b", "when": "failed", "status": "failed"},
    ]
    assert down == [{"id": "ci-1/e", "when": "succeeded", "status": "pending"}]


def test_counts_are_told_by_status(reads: Reads):
    """Of all, and of one batch."""
    assert reads.counts() == {"succeeded": 1, "failed": 1, "skipped": 1, "running": 2, "pending": 1}
    batch = reads.batch("ci-1")
    assert batch is not None
    assert batch["counts"] == {"succeeded": 1, "failed": 1, "skipped": 1, "running": 1, "pending": 1}
    assert (batch["name"], batch["created_at"]) == ("ci-1", 100.0)
    assert reads.batch("solo") is None


def test_names_stand_for_tasks_and_batches(reads: Reads):
    """Each task once, in the order asked, and the names that are neither."""
    assert reads.seqs_of(["solo", "ci-1", "ci-1/a", "nobody", "ci-2"]) == ([6, 1, 2, 3, 4, 5], ["nobody", "ci-2"])


def test_progress_names_what_did_not_succeed(reads: Reads, monkeypatch: pytest.MonkeyPatch):
    """It counts them all and names the first."""
    counts, unsuccessful = reads.progress([1, 2, 3, 4])
    assert counts == {"succeeded": 1, "failed": 1, "skipped": 1, "running": 1}
    assert [(row["id"], row["status"]) for row in unsuccessful] == [("ci-1/b", "failed"), ("ci-1/c", "skipped")]
    assert unsuccessful[1]["error"] == "skipped because ci-1/b failed"
    assert reads.open_among([1, 2, 3, 4, 5]) == [4, 5]
    monkeypatch.setattr(reads_module, "MAX_UNSUCCESSFUL", 1)
    assert len(reads.progress([1, 2, 3, 4])[1]) == 1


def test_events_go_on_from_the_last_one_seen(reads: Reads):
    """In order, by task id, with their details as values."""
    events = reads.events()
    assert [event["id"] for event in events] == list(range(1, len(events) + 1))
    assert reads.last_event_id() == events[-1]["id"]
    failed = next(event for event in events if event["kind"] == "failed")
    assert (failed["task"], failed["at"], failed["detail"]) == ("ci-1/b", 102.0, {"error": "exit code 1"})
    assert reads.events(after=events[1]["id"], limit=3) == events[2:5]
    assert reads.events(after=events[-1]["id"]) == []


def test_only_what_is_committed_is_seen_and_nobody_waits(filled: Filled, reads: Reads):
    """An open transaction of the writer neither shows nor blocks."""
    filled.store.begin()
    filled.store._all("UPDATE task SET status = 'cancelled' WHERE seq = 5")
    assert reads.counts()["pending"] == 1
    filled.store.commit()
    assert reads.counts() == {"succeeded": 1, "failed": 1, "skipped": 1, "running": 2, "cancelled": 1}


def test_more_threads_than_connections_take_turns(filled: Filled):
    """None is refused, and none sees another's rows."""
    reads = Reads(filled.store.path, pool_size=2)
    with ThreadPoolExecutor(8) as threads:
        found = list(threads.map(lambda number: reads.task(ALL[number % 6]), range(120)))
    reads.close()
    assert [row["id"] for row in found if row] == [ALL[number % 6] for number in range(120)]


def test_a_damaged_row_is_shown_as_far_as_it_can_be(filled: Filled, reads: Reads):
    """One bad row does not take the list with it."""
    filled.store._all("UPDATE task SET error = CAST(x'61ff' AS TEXT), payload = '{' WHERE seq = 2")
    filled.store._all("UPDATE attempt SET result = '{broken' WHERE task_seq = 1")
    assert ids(reads.tasks()) == ALL
    row = reads.task("ci-1/b")
    assert row is not None
    assert (row["error"], row["payload"]) == ("a\ufffd", "{")
    assert reads.attempts(1)[0]["result"] == "{broken"


def test_faults_of_the_database_are_told_as_such(tmp_path: Path):
    """A missing file may come back; a file of another kind is broken."""
    with pytest.raises(StoreUnavailable):
        Reads(tmp_path / "missing.db").counts()
    (tmp_path / "letter.db").write_bytes(b"this is a letter, not a database. " * 200)
    with pytest.raises(StoreBroken):
        Reads(tmp_path / "letter.db").counts()


@pytest.mark.parametrize(
    "ask",
    [
        lambda reads: reads.tasks(),
        lambda reads: reads.tasks(statuses=["succeeded"]),
        lambda reads: reads.tasks(statuses=["failed", "pending"]),
        lambda reads: reads.tasks(batch="ci-1"),
        lambda reads: reads.tasks(ids=["solo"]),
        lambda reads: reads.tasks_by_seqs([1]),
        lambda reads: reads.last_failed(5),
        lambda reads: reads.task("solo"),
        lambda reads: reads.dependencies(4),
        lambda reads: reads.events(after=5),
        lambda reads: reads.progress([1, 2]),
    ],
    ids=[
        "page",
        "of_status",
        "of_statuses",
        "of_batch",
        "of_ids",
        "by_seqs",
        "failed",
        "one",
        "edges",
        "events",
        "wait",
    ],
)
def test_no_question_scans_history(reads: Reads, ask: Any):
    """Every table is reached through a key or an index."""
    plan = explained(reads, ask)
    tables = ("task", "attempt", "batch", "dependency", "event")
    scans = [step for step in plan if step.split()[0] == "SCAN" and step.split()[1] in tables]
    assert [step for step in scans if "ix_task_failed" not in step] == []


def test_the_last_failures_are_not_sorted_out_of_all(reads: Reads):
    """They are the end of an index of their own, however many there are before them."""
    plan = explained(reads, lambda reads: reads.last_failed(5))
    assert any("ix_task_failed" in step for step in plan)


def explained(reads: Reads, ask: Callable[[Reads], object]) -> list[str]:
    """The steps of SQLite's plans for what is asked."""
    plan: list[str] = []

    def explain(connection: Any, cursor: Any, statement: str, parameters: Any, context: Any, many: bool) -> None:
        if statement.lstrip().startswith("SELECT"):
            driver: sqlite3.Connection = cursor.connection
            plan.extend(row[3] for row in driver.execute(f"EXPLAIN QUERY PLAN {statement}", parameters))

    event.listen(reads._engine, "before_cursor_execute", explain)
    ask(reads)
    assert plan
    return plan
