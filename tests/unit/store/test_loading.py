"""Damaged rows are set aside with the reason and keep nobody else from running; settled rows are never scanned."""

import json
from typing import Any

import pytest

from schedd.core.batch import NewBatch
from schedd.core.model import Dependency, NewTask, When
from schedd.engine.inbox import Call
from schedd.engine.loop import Engine
from schedd.engine.requests import SubmitBatch
from schedd.store import loading
from schedd.store.sqlite import SqliteStore
from support.fakes import FakeClock, FakeExecutor


def fill(store: SqliteStore) -> None:
    """Rows: `bad` (waiting for `root`), `child` of it, `cleanup` after its failure, `other` on its own, all pending."""
    engine = Engine(store, FakeExecutor(), FakeClock(), 1)
    engine.recover()
    tasks = [
        NewTask("{}", "root"),
        NewTask("{}", "bad", (Dependency("root"),)),
        NewTask("{}", "child", (Dependency("bad"),)),
        NewTask("{}", "cleanup", (Dependency("bad", When.FAILED),)),
        NewTask("{}", "other", (Dependency("root", When.FINISHED),)),
    ]
    call = Call(SubmitBatch(NewBatch(tasks)))
    engine.step([call])
    call.future.result(0)


def recover(store: SqliteStore) -> Engine:
    engine = Engine(store, FakeExecutor(), FakeClock(), 1)
    engine.recover()
    return engine


def rows(store: SqliteStore) -> dict[str, Any]:
    return {row[0]: row[1:] for row in store._connection.execute("SELECT id, status, error FROM task")}


DAMAGE = [
    ("payload = '{broken'", "payload"),
    ("payload = x'00ff'", "payload"),
    ("status = 'dancing'", "dancing"),
    ("status = x'00'", "status"),
    ("attempts = 'many'", "attempts"),
    ("attempts = -1", "attempts"),
    ("attempts = 5", "5 attempts"),
    ("priority = 'high'", "priority"),
    ("run_at = 'soon'", "run_at"),
    ("run_at = x'01'", "run_at"),
    ("run_at = 9e999", "run_at"),
    ("planned_at = 'soon'", "planned_at"),
    ("held = 'perhaps'", "held"),
    ("cancel_requested = 2", "cancel_requested"),
    ("cancel_requested = 1", "cancelled"),
    ("max_attempts = 0", "max_attempts"),
    ("max_attempts = 'x'", "retry policy"),
    ("base_delay = -1", "base_delay"),
    ("every = 5", "recurrence"),
    ("every = 5, times = 2, catch_up = 'sometimes'", "recurrence"),
    ("every = 5, times = 2, catch_up = 'all', runs = 2", "2 runs"),
    ("status = 'running'", "running"),
    ("error = x'00'", "error"),
    ("error = CAST(x'61ff' AS TEXT)", "error"),
    ("status = CAST(x'ff' AS TEXT)", "status"),
]


@pytest.mark.parametrize(("damage", "word"), DAMAGE, ids=[damage for damage, _ in DAMAGE])
def test_a_damaged_row_is_set_aside(sqlite_store: SqliteStore, damage: str, word: str):
    """It fails with the reason on its row, its children are judged by that, and everything else runs."""
    fill(sqlite_store)
    sqlite_store._connection.execute("PRAGMA ignore_check_constraints = ON")
    sqlite_store._connection.execute(f"UPDATE task SET {damage} WHERE id = 'bad'")
    engine = recover(sqlite_store)
    found = rows(sqlite_store)
    assert found["bad"][0] == "failed"
    assert found["bad"][1].startswith("set aside: ")
    assert word in found["bad"][1]
    assert found["child"] == ("skipped", "skipped because bad failed")
    assert found["cleanup"][0] == "pending", "what waits for the failure may run"
    engine.step([])
    assert rows(sqlite_store)["cleanup"][0] == "running"


def test_a_damaged_running_row_leaves_no_open_attempt(sqlite_store: SqliteStore):
    """Its attempt crashed."""
    fill(sqlite_store)
    sqlite_store._connection.execute("UPDATE task SET attempts = 'x' WHERE id = 'root'")
    recover(sqlite_store)
    attempts = sqlite_store._connection.execute("SELECT outcome FROM attempt").fetchall()
    assert attempts == [("crashed",)]
    assert rows(sqlite_store)["other"][0] == "pending"


@pytest.mark.parametrize("damage", ["priority = 'x'", "number = 'x'", "number = -7", "number = 0, priority = 'x'"])
def test_a_damaged_row_keeps_its_last_number(sqlite_store: SqliteStore, damage: str):
    """Also where the count itself is damaged: a later attempt must not get number, log and key of an earlier one."""
    fill(sqlite_store)
    sqlite_store._connection.execute("UPDATE task SET max_attempts = 9, base_delay = 0 WHERE id = 'root'")
    for _ in range(2):
        recover(sqlite_store).step([])
    sqlite_store._connection.execute("PRAGMA ignore_check_constraints = ON")
    sqlite_store._connection.execute(f"UPDATE task SET {damage} WHERE id = 'root'")
    recover(sqlite_store)
    found = sqlite_store._connection.execute("SELECT status, number FROM task WHERE id = 'root'").fetchone()
    attempts = sqlite_store._connection.execute("SELECT number, outcome FROM attempt ORDER BY number").fetchall()
    assert attempts == [(1, "crashed"), (2, "crashed"), (3, "crashed")]
    assert found == ("failed", 3)


def test_an_unknown_when_sets_its_child_aside(sqlite_store: SqliteStore):
    """Nobody knows what it waits for."""
    fill(sqlite_store)
    sqlite_store._connection.execute("UPDATE dependency SET \"when\" = 'maybe' WHERE task_seq = 3")
    recover(sqlite_store)
    assert "maybe" in rows(sqlite_store)["child"][1]


def test_an_id_that_is_no_text_is_set_aside(sqlite_store: SqliteStore):
    """It is told by its seq, and keeps nobody else from being loaded."""
    fill(sqlite_store)
    sqlite_store._connection.execute("UPDATE task SET id = CAST(x'62ff' AS TEXT) WHERE id = 'bad'")
    loaded = sqlite_store.load()
    assert [(row.seq, row.id, row.reason) for row in loaded.damaged] == [(2, "2", "its id is not text but bytes")]
    assert [row.id for row in loaded.tasks] == ["root", "child", "cleanup", "other"]


def test_a_payload_that_is_no_text_fails_its_own_attempt_only(sqlite_store: SqliteStore):
    """JSON with a damaged byte is still JSON to SQLite; who decodes the work meets the damage."""
    fill(sqlite_store)
    sqlite_store._connection.execute("UPDATE task SET payload = CAST(x'7b2272756e223a22ff227d' AS TEXT) WHERE seq = 2")
    assert sqlite_store.load().damaged == []
    assert sqlite_store.payloads([2]) == {2: b'{"run":"\xff"}'}
    with pytest.raises(ValueError, match="utf-8"):
        json.loads(sqlite_store.payloads([2])[2])


def test_a_dangling_dependency_skips_its_child(sqlite_store: SqliteStore):
    """What it waits for is gone and will never end."""
    fill(sqlite_store)
    sqlite_store._connection.execute("PRAGMA foreign_keys = OFF")
    sqlite_store._connection.execute("DELETE FROM task WHERE id = 'bad'")
    recover(sqlite_store)
    found = rows(sqlite_store)
    assert found["child"] == ("skipped", "skipped because what it depends on (seq 2) is gone")
    assert found["cleanup"][0] == "skipped"
    assert found["other"][0] == "pending"


@pytest.mark.parametrize("query", [loading.SELECT_TASKS, loading.SELECT_EDGES])
def test_settled_tasks_are_not_scanned(sqlite_store: SqliteStore, query: str):
    """The plan goes over the partial index of open tasks and never over the whole table."""
    plan = [row[3] for row in sqlite_store._connection.execute(f"EXPLAIN QUERY PLAN {query}")]
    assert any("ix_task_open" in step for step in plan)
    assert not [step for step in plan if step.startswith("SCAN") and "ix_task_open" not in step]
