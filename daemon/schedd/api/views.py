"""Rows as answers: `ready` laid over what is stored, the payload as words. Tests: tests/api/test_task_routes.py."""

import json
from collections.abc import Collection, Iterable, Mapping
from typing import Any, cast

from schedd.answers import TaskDetail, TaskView
from schedd.api.backend import Backend
from schedd.api.what import what
from schedd.core.machine import Machine
from schedd.core.model import Status
from schedd.engine.loop import Unavailable

Row = dict[str, Any]
"""A row of `store.reads`."""


def task_view(row: Row, ready: Collection[int]) -> TaskView:
    """A task of a list."""
    return {
        "id": row["id"],
        "seq": row["seq"],
        "batch": row["batch"],
        "status": Status.READY.value if row["seq"] in ready else row["status"],
        "priority": row["priority"],
        "attempts": row["attempts"],
        "max_attempts": row["max_attempts"],
        "number": row["number"],
        "runs": row["runs"],
        "times": row["times"],
        "every": row["every"],
        "run_at": row["run_at"],
        "created_at": row["created_at"],
        "started_at": row["started_at"],
        "settled_at": row["settled_at"],
        "held": row["held"],
        "cancel_requested": row["cancel_requested"],
        "error": row["error"],
        "what": what(row["payload"]),
    }


async def task_views(backend: Backend, rows: Iterable[Row]) -> list[TaskView]:
    """Tasks of a list, with one question to the engine for all of them."""
    found = list(rows)
    ready = await ready_among(backend, pending_of(found))
    return [task_view(row, ready) for row in found]


async def task_detail(backend: Backend, row: Row) -> TaskDetail:
    """One task with its dependencies and its attempts."""
    seq = row["seq"]

    def rows() -> tuple[list[Row], list[Row], list[Row]]:
        return *backend.reads.dependencies(seq), backend.reads.attempts(seq)

    deps, dependents, history = await backend.read(rows)
    ready = await ready_among(backend, pending_of([row]))
    edges = [edge for edge in (*deps, *dependents) if edge["status"] == Status.PENDING]
    ready_ids = await _ready_ids_among(backend, {edge["id"] for edge in edges})
    for edge in edges:
        if edge["id"] in ready_ids:
            edge["status"] = Status.READY.value
    more: dict[str, Any] = {
        "work": _work(row["payload"]),
        "retry": {name: row[name] for name in ("max_attempts", "base_delay", "max_delay")},
        "deps": deps,
        "dependents": dependents,
        "history": history,
    }
    return cast("TaskDetail", {**task_view(row, ready), **more})


def counts_view(stored: Mapping[str, int], ready: int) -> dict[str, int]:
    """A number for each status: the stored ones, with `ready` of the pending ones told apart."""
    counts = {status.value: stored.get(status.value, 0) for status in Status}
    counts[Status.READY.value] = min(ready, counts[Status.PENDING.value])  # read a moment apart
    counts[Status.PENDING.value] -= counts[Status.READY.value]
    return counts


def pending_of(rows: Iterable[Row]) -> list[int]:
    """The seqs of those that may be ready."""
    return [row["seq"] for row in rows if row["status"] == Status.PENDING]


async def ready_among(backend: Backend, seqs: Collection[int]) -> set[int]:
    """Which of these tasks are ready. None of them if the engine cannot say: none will start until it can."""

    def question(machine: Machine) -> set[int]:
        found = ((seq, machine.open.get(seq)) for seq in seqs)
        return {seq for seq, task in found if task is not None and task.status is Status.READY}

    return await _or_empty(backend, question) if seqs else set()


async def ready_in_batch(backend: Backend, name: str) -> int:
    """How many tasks of a named batch are ready; 0 if the engine cannot say."""
    prefix = f"{name}/"
    try:
        return await backend.ask(lambda machine: sum(task.id.startswith(prefix) for task in machine.ready))
    except Unavailable:
        return 0


async def _ready_ids_among(backend: Backend, ids: Collection[str]) -> set[str]:
    def question(machine: Machine) -> set[str]:
        return {task.id for task in machine.ready if task.id in ids}

    return await _or_empty(backend, question) if ids else set()


async def _or_empty(backend: Backend, question: Any) -> set[Any]:
    try:
        return await backend.ask(question)
    except Unavailable:
        return set()


def _work(payload: str) -> dict[str, Any]:
    """The payload as it is shown; a damaged one as its text."""
    try:
        work = json.loads(payload)
    except ValueError:
        work = None
    return work if isinstance(work, dict) else {"damaged": payload}
