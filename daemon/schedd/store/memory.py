"""A store in memory: dicts and an undo log. For the library, and the second witness of the contract suite.

It keeps what the library reads (tasks and their edges) and nothing that grows without need: no event lines, no
attempts. Payloads are any Python object. Tests: tests/unit/store/test_store_contract.py, test_memory.py.
"""

import threading
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any

from schedd.core.errors import InvalidRequest
from schedd.core.events import Output
from schedd.core.model import (
    Capacity,
    Demand,
    KnownTask,
    OpenTask,
    Recurrence,
    RetryPolicy,
    Status,
    Stored,
    StoredEdge,
    StoredTask,
    When,
)
from schedd.core.revival import Kin
from schedd.store.base import NewBatchRow, Pruned, StatementFailed, StoredAnswer


@dataclass(frozen=True, slots=True)
class MemoryRow:
    """One task as the library shows it. Times are UTC seconds."""

    seq: int
    id: str
    batch_seq: int
    status: Status
    priority: int
    retry: RetryPolicy
    recurrence: Recurrence | None
    attempts: int
    number: int
    runs: int
    run_at: float
    planned_at: float | None
    held: bool
    cancel_requested: bool
    error: str | None
    created_at: float
    settled_at: float | None
    base_number: int
    retries: int
    demand: Demand
    start_before: float | None
    deadline: float | None
    wall: int
    expected: float | None
    units: dict[str, list[str]] | None
    allow_failure: bool


class MemoryStore:
    """Rows in dicts. Within a transaction each change notes how to undo it."""

    def __init__(self) -> None:
        self._tasks: dict[int, MemoryRow] = {}
        self._payloads: dict[int, Any] = {}
        self._ids: dict[str, int] = {}
        self._edges: dict[int, dict[int, When]] = {}  # after -> before -> when
        self._batches: dict[str, int] = {}  # full name -> seq of the batch
        self._members: dict[int, list[int]] = {}
        self._counters: dict[str, int] = {}
        self._slots: dict[tuple[int, float | None], bool] = {}  # (schedule, fire time)
        self._capacities: dict[str, Capacity | None] = {}
        self._answers: dict[str, StoredAnswer] = {}
        self._numbers = {"batch": 0, "task": 0, "paused": 0}
        self._undo: list[Callable[[], object]] = []
        self._open = False
        self._transaction = threading.Lock()  # held by an open one: `rows` shows what is committed, and nothing else

    # --- transactions -------------------------------------------------------------------------------------------

    def begin(self) -> None:
        assert not self._open, "a transaction is open already"
        self._transaction.acquire()
        self._open = True

    def commit(self) -> None:
        self._undo.clear()
        self._end()

    def rollback(self) -> None:
        while self._undo:
            self._undo.pop()()
        if self._open:
            self._end()

    def _end(self) -> None:
        self._open = False
        self._transaction.release()

    def tend(self) -> str | None:
        return None

    def close(self) -> None:
        """Nothing to let go of."""

    def _set(self, table: dict[Any, Any], key: Any, value: Any) -> None:
        if key in table:
            before = table[key]
            self._undo.append(lambda: table.__setitem__(key, before))
        else:
            self._undo.append(lambda: table.pop(key, None))
        table[key] = value

    def _drop(self, table: dict[Any, Any], key: Any) -> None:
        if key in table:
            value = table.pop(key)
            self._undo.append(lambda: table.__setitem__(key, value))

    # --- writes -------------------------------------------------------------------------------------------------

    def write(self, out: Output) -> None:
        for added in out.added:
            seq = added.task.seq
            row = _row(added.task, added.batch_seq, added.created_at, added.new.expected, added.new.allow_failure)
            if row.id in self._ids:
                raise StatementFailed(f"there is a task with the id {row.id!r} already")
            self._set(self._tasks, seq, row)
            self._set(self._payloads, seq, added.new.payload)
            self._set(self._ids, row.id, seq)
            self._set(self._numbers, "task", max(self._numbers["task"], seq))
            members = self._members.setdefault(added.batch_seq, [])
            members.append(seq)
            self._undo.append(members.pop)
        for task in out.changed.values():
            old = self._tasks[task.seq]
            row = _row(task, old.batch_seq, old.created_at, old.expected, old.allow_failure)
            self._set(self._tasks, task.seq, row)
            if task.status.is_terminal and task.seq in self._payloads:
                self._set(self._payloads, task.seq, None)  # a closure may hold much, and is not called again
        for edge in out.edges:
            self._set(self._edges.setdefault(edge.task_seq, {}), edge.on_seq, edge.when)
        for task_seq, on_seq in out.removed_edges:
            self._drop(self._edges.setdefault(task_seq, {}), on_seq)
        if out.paused is not None:
            self._set(self._numbers, "paused", int(out.paused))
        for name, capacity in out.capacities.items():
            self._set(self._capacities, name, capacity)

    def add_batch(
        self, base_name: str | None, created_at: float, schedule_seq: int | None = None, slot: float | None = None
    ) -> NewBatchRow:
        if schedule_seq is not None:
            if (schedule_seq, slot) in self._slots:
                raise StatementFailed(f"the schedule {schedule_seq} has fired for {slot} already")
            self._set(self._slots, (schedule_seq, slot), True)
        seq = self._numbers["batch"] + 1
        self._set(self._numbers, "batch", seq)
        name = None
        if base_name is not None:
            number = self._counters.get(base_name, 0) + 1
            self._set(self._counters, base_name, number)
            name = f"{base_name}-{number}"
            self._set(self._batches, name, seq)
        return NewBatchRow(seq, name)

    def remember(self, key: str, digest: str, answer: str, at: float) -> None:
        self._set(self._answers, key, StoredAnswer(digest, answer))

    def prune_tasks(self, seqs: Sequence[int], before: float) -> Pruned:
        awaited = {on for seq, edges in self._edges.items() if not self._tasks[seq].status.is_terminal for on in edges}
        removed = 0
        for seq in seqs:
            row = self._tasks.get(seq)
            if row is None or row.settled_at is None or row.settled_at >= before or seq in awaited:
                continue
            for table in (self._tasks, self._payloads, self._edges):
                self._drop(table, seq)
            self._drop(self._ids, row.id)
            for edges in self._edges.values():
                self._drop(edges, seq)
            members = self._members[row.batch_seq]
            self._set(self._members, row.batch_seq, [member for member in members if member != seq])
            removed += 1
        self._drop_empty_batches()
        return Pruned(removed, more=False)

    def _drop_empty_batches(self) -> None:
        for name, seq in list(self._batches.items()):
            if not self._members.get(seq):
                self._drop(self._batches, name)

    def prune_history(self, before: float) -> Pruned:
        """There is none."""
        return Pruned(0, more=False)

    # --- reads --------------------------------------------------------------------------------------------------

    def answer_of(self, key: str) -> StoredAnswer | None:
        return self._answers.get(key)

    def next_seq(self) -> int:
        return self._numbers["task"] + 1

    def find(self, ids: Collection[str]) -> dict[str, KnownTask]:
        return {task_id: self._known(self._ids[task_id]) for task_id in ids if task_id in self._ids}

    def tasks_of_batch(self, name: str) -> list[KnownTask] | None:
        batch = self._batches.get(name)
        return None if batch is None else [self._known(seq) for seq in self._members.get(batch, [])]

    def family(self, seqs: Collection[int]) -> list[Kin]:
        wanted = set(seqs)
        return [
            self._kin(task_seq, on_seq, when)
            for task_seq, edges in self._edges.items()
            for on_seq, when in edges.items()
            if not wanted.isdisjoint((task_seq, on_seq))
        ]

    def _kin(self, task_seq: int, on_seq: int, when: When) -> Kin:
        child, parent = self._tasks[task_seq], self._tasks[on_seq]
        return Kin(task_seq, on_seq, when, child.status, parent.status, parent.id, child.number > 0)

    def ended_tasks(self, seqs: Collection[int]) -> list[StoredTask]:
        """What a task did is forgotten here when it ends, so none can be run again."""
        if seqs:
            raise InvalidRequest("a scheduler in memory forgets what a task did when it ends; submit it again")
        return []

    def edge(self, before_seq: int, after_seq: int) -> When | None:
        return self._edges.get(after_seq, {}).get(before_seq)

    def payloads(self, seqs: Sequence[int]) -> dict[int, Any]:
        return {seq: self._payloads[seq] for seq in seqs if seq in self._payloads}

    def load(self) -> Stored:
        rows = [row for row in self._tasks.values() if not row.status.is_terminal]
        edges = [
            StoredEdge(row.seq, before, when, self._tasks[before].status)
            for row in rows
            for before, when in self._edges.get(row.seq, {}).items()
        ]
        capacities = {name: capacity for name, capacity in self._capacities.items() if capacity is not None}
        return Stored([_stored(row) for row in rows], edges, [], bool(self._numbers["paused"]), capacities)

    def rows(self) -> list[MemoryRow]:
        """Every task as of the last commit. May be called from any thread, within a transaction from none."""
        with self._transaction:
            return list(self._tasks.values())

    def _known(self, seq: int) -> KnownTask:
        row = self._tasks[seq]
        return KnownTask(seq, row.id, row.status)


def _row(task: OpenTask, batch_seq: int, created_at: float, expected: float | None, allow_failure: bool) -> MemoryRow:
    return MemoryRow(
        seq=task.seq,
        id=task.id,
        batch_seq=batch_seq,
        status=Status.PENDING if task.status is Status.READY else task.status,
        priority=task.priority,
        retry=task.retry,
        recurrence=task.recurrence,
        attempts=task.attempts,
        number=task.number,
        runs=task.runs,
        run_at=task.run_at,
        planned_at=task.planned_at,
        held=task.held,
        cancel_requested=task.cancel_requested,
        error=task.error,
        created_at=created_at,
        settled_at=task.settled_at,
        base_number=task.base_number,
        retries=task.retries,
        demand=task.demand,
        start_before=task.start_before,
        deadline=task.deadline,
        wall=task.wall,
        expected=expected,
        units=task.units,
        allow_failure=allow_failure,
    )


def _stored(row: MemoryRow) -> StoredTask:
    return StoredTask(
        seq=row.seq,
        id=row.id,
        priority=row.priority,
        retry=row.retry,
        recurrence=row.recurrence,
        run_at=row.run_at,
        planned_at=row.planned_at,
        status=row.status,
        attempts=row.attempts,
        number=row.number,
        runs=row.runs,
        held=row.held,
        cancel_requested=row.cancel_requested,
        error=row.error,
        base_number=row.base_number,
        retries=row.retries,
        demand=row.demand,
        start_before=row.start_before,
        deadline=row.deadline,
        wall=row.wall,
        expected=row.expected,
        units=row.units,
    )
