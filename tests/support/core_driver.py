"""What drives a machine in tests: an owner that gives it events and a time, and keeps the books a store would keep."""

from collections.abc import Sequence
from typing import Any

import pytest

from schedd.core import invariants
from schedd.core.batch import NewBatch
from schedd.core.events import (
    AddDependency,
    AddedEdge,
    AttemptEnded,
    Cancel,
    Event,
    Hold,
    Output,
    Release,
    SetPaused,
    StartAttempt,
    StopAttempt,
    Submit,
)
from schedd.core.graph import children_of
from schedd.core.lazyheap import LazyHeap
from schedd.core.machine import Machine
from schedd.core.model import (
    Dependency,
    KnownTask,
    NewTask,
    OpenTask,
    Outcome,
    Status,
    Stored,
    StoredEdge,
    StoredTask,
    When,
)
from schedd.core.ready import ReadyQueue
from schedd.core.rebuilding import rebuild

START = 1_000.0
"""The time at which every driver begins."""

PLAIN_FIELDS = (
    "seq", "id", "priority", "retry", "recurrence", "run_at", "planned_at", "status", "unmet", "attempts", "number",
    "base_number", "retries", "runs", "held", "cancel_requested", "error", "settled_at", "demand", "start_before",
    "deadline", "wall", "units",
)  # fmt: skip


def new(name: str | None, *deps: str | Dependency, **more: Any) -> NewTask:
    """A task to submit; a plain string among `deps` waits for success."""
    edges = tuple(dep if isinstance(dep, Dependency) else Dependency(dep) for dep in deps)
    return NewTask(payload=f"payload of {name}", name=name, deps=edges, **more)


class Driver:
    """A machine, its time, and everything it ever said. Each step is one round and is checked for contradictions.

    `out` is what the last step decided; `tasks` holds every task ever seen by id, `edges` every dependency row,
    `log` the (id, kind) of every event line, `started` and `stopped` the effects, all in order.
    """

    def __init__(self, workers: int = 1) -> None:
        self.machine = Machine(workers)
        self.now = START
        self.out = Output()
        self.tasks: dict[str, OpenTask] = {}
        self.edges: list[AddedEdge] = []
        self.log: list[tuple[str | None, str]] = []
        self.started: list[StartAttempt] = []
        self.stopped: list[StopAttempt] = []

    # --- rounds -------------------------------------------------------------------------------------------------

    def step(self, *events: Event, check: bool = True) -> Output:
        """One round: handle the events, claim, check. Returns what was decided."""
        out = self.out = Output()
        for event in events:
            self.machine.handle(event, self.now, out)
        self.machine.claim(self.now, out)
        self.keep(out)
        if check:
            invariants.check(self.machine, self.now)
        return out

    def advance(self, seconds: float) -> Output:
        """Let time pass, then take a round without any event."""
        self.now += seconds
        return self.step()

    def refuse(self, error: type[Exception], event: Event) -> Any:
        """Have an event refused; returns the exception. Nothing at all may have changed."""
        before = snapshot(self.machine)
        out = Output()
        with pytest.raises(error) as caught:
            self.machine.handle(event, self.now, out)
        assert snapshot(self.machine) == before
        assert not out.has_rows()
        assert not out.effects
        return caught.value

    def keep(self, out: Output) -> None:
        """Write down what a round decided."""
        self.tasks.update((added.task.id, added.task) for added in out.added)
        self.edges += out.edges
        self.log += [(line.task_id, line.kind) for line in out.events]
        for effect in out.effects:
            if isinstance(effect, StartAttempt):
                self.started.append(effect)
            else:
                self.stopped.append(effect)

    # --- events -------------------------------------------------------------------------------------------------

    def submit(self, *tasks: NewTask, check: bool = True) -> Output:
        """Submit a batch without a name: ids are the tasks' names, or their seqs."""
        return self.step(self.submission(tasks), check=check)

    def submission(self, tasks: Sequence[NewTask], known: Sequence[KnownTask] = ()) -> Submit:
        """The event that submits `tasks`; `known` adds tasks that the driver has never seen."""
        batch = NewBatch(tasks)
        first = len(self.tasks) + 1
        ids = tuple(task.name or str(first + index) for index, task in enumerate(batch.tasks))
        outside = {dep.on for of_task in batch.external.values() for dep in of_task}
        existing = {task_id: self.known(task_id) for task_id in outside if task_id in self.tasks}
        return Submit(batch, 1, first, ids, {**existing, **{task.id: task for task in known}})

    def end(self, task_id: str, outcome: Outcome = Outcome.SUCCEEDED, **more: Any) -> Output:
        """The running attempt of a task ends."""
        return self.step(self.ended(task_id, outcome, **more))

    def ended(self, task_id: str, outcome: Outcome = Outcome.SUCCEEDED, **more: Any) -> AttemptEnded:
        """The event that says how the running attempt of a task ended."""
        task = self.tasks[task_id]
        return AttemptEnded(task.seq, task.number, outcome, self.now, task_id=task_id, **more)

    def cancel(self, task_id: str) -> Output:
        return self.step(Cancel(self.known(task_id)))

    def hold(self, task_id: str) -> Output:
        return self.step(Hold(self.known(task_id)))

    def release(self, task_id: str) -> Output:
        return self.step(Release(self.known(task_id)))

    def pause(self, paused: bool = True) -> Output:
        return self.step(SetPaused(paused))

    def depend(self, before: str, after: str, when: When = When.SUCCEEDED) -> Output:
        return self.step(self.dependency(before, after, when))

    def dependency(self, before: str, after: str, when: When = When.SUCCEEDED) -> AddDependency:
        """The event that lets `after` wait for `before`."""
        return AddDependency(self.known(before), self.known(after), when)

    # --- questions ----------------------------------------------------------------------------------------------

    def known(self, task_id: str) -> KnownTask:
        """What a store would say of a task: `ready` is never written."""
        task = self.tasks[task_id]
        return KnownTask(task.seq, task.id, stored_status(task))

    def status(self, task_id: str) -> Status:
        return self.tasks[task_id].status

    def statuses(self) -> dict[str, str]:
        """The status of every task ever seen."""
        return {task_id: task.status.value for task_id, task in self.tasks.items()}

    def ready(self) -> list[str]:
        """The ids of the ready tasks, the next one first."""
        return [task.id for task in queued(self.machine.ready)]

    def delayed(self) -> list[str]:
        """The ids of the delayed tasks, the next one first."""
        return [task.id for task in queued(self.machine.delayed)]

    def running(self) -> set[str]:
        return {task.id for task in self.machine.running.values()}

    def starts(self) -> list[str]:
        """The ids of all starts so far, in order."""
        return [effect.id for effect in self.started]

    def kinds(self, task_id: str) -> list[str]:
        """What the event log says of one task."""
        return [kind for of_task, kind in self.log if of_task == task_id]

    # --- rows ---------------------------------------------------------------------------------------------------

    def stored(self) -> Stored:
        """The rows of what is open, as a store would load them."""
        by_seq = {task.seq: task for task in self.tasks.values()}
        is_open = self.machine.open
        edges = [
            StoredEdge(edge.task_seq, edge.on_seq, edge.when, stored_status(by_seq[edge.on_seq]))
            for edge in self.edges
            if edge.task_seq in is_open
        ]
        rows = [row_of(task) for seq, task in sorted(by_seq.items()) if seq in is_open]
        return Stored(rows, edges, [], self.machine.paused, dict(self.machine.resources.capacities))

    def restart(self) -> None:
        """Go on with another machine, rebuilt from rows."""
        stored, workers = self.stored(), self.machine.workers
        self.machine = Machine(workers)
        out = Output()
        rebuild(self.machine, stored, self.now, out)
        assert not out.has_rows(), "sound rows need no mending"
        self.tasks.update((task.id, task) for task in self.machine.open.values())


def stored_status(task: OpenTask) -> Status:
    """The status as a row holds it."""
    return Status.PENDING if task.status is Status.READY else task.status


def row_of(task: OpenTask) -> StoredTask:
    """The row of an open task."""
    return StoredTask(
        seq=task.seq,
        id=task.id,
        priority=task.priority,
        retry=task.retry,
        recurrence=task.recurrence,
        run_at=task.run_at,
        planned_at=task.planned_at,
        status=stored_status(task),
        attempts=task.attempts,
        number=task.number,
        runs=task.runs,
        held=task.held,
        cancel_requested=task.cancel_requested,
        error=task.error,
        base_number=task.base_number,
        retries=task.retries,
        demand=task.demand,
        start_before=task.start_before,
        deadline=task.deadline,
        wall=task.wall,
        units=task.units,
    )


def entries(queue: LazyHeap | ReadyQueue) -> list[Any]:
    """What lives in a queue as (key, seq, record), the next one first."""
    return sorted((queue.key_of(task), task.seq, task) for task in queue)


def queued(queue: LazyHeap | ReadyQueue) -> list[OpenTask]:
    """What lives in a queue, the next one first."""
    return [entry[2] for entry in entries(queue)]


def picture(machine: Machine) -> dict[str, Any]:
    """All that a machine means, as plain values: two machines with equal pictures do the same from here on."""
    return {
        "workers": machine.workers,
        "paused": machine.paused,
        "draining": machine.draining,
        "open": {
            seq: {
                **{name: getattr(task, name) for name in PLAIN_FIELDS},
                "children": [
                    sorted(child.seq for child in edges or () if child.seq in machine.open)
                    for edges in (task.children, task.children_if_failed, task.children_if_finished)
                ],
            }
            for seq, task in machine.open.items()
        },
        "running": sorted(machine.running),
        "ready": [entry[:2] for entry in entries(machine.ready)],
        "passed": dict(machine.ready.passed),
        "delayed": [entry[:2] for entry in entries(machine.delayed)],
        "deadlines": [entry[:2] for entry in entries(machine.deadlines)],
        "held": dict(machine.resources.held),
        "taken": dict(machine.resources.taken),
        "capacities": dict(machine.resources.capacities),
    }


def snapshot(machine: Machine) -> dict[str, Any]:
    """`picture`, and which record stands where in which order: what an event that changes nothing leaves alone."""
    return {
        "picture": picture(machine),
        "open": [(seq, id(task)) for seq, task in machine.open.items()],
        "running": [(seq, id(task)) for seq, task in machine.running.items()],
        "edges": {seq: [id(child) for child in children_of(task)] for seq, task in machine.open.items()},
        "ready": [(key, seq, id(task)) for heap in machine.ready._heaps.values() for key, seq, task in heap._entries],
        "delayed": [(key, seq, id(task)) for key, seq, task in machine.delayed._entries],
    }
