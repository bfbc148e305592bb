"""What callers ask of the machine: each request is judged first, and refused or granted whole.

A handler raises Refused before it has changed anything. Tests: tests/unit/core/test_machine*.py.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from schedd.core import graph, revival
from schedd.core.batch import NewBatch
from schedd.core.errors import (
    AlreadyCancelled,
    AlreadyEnded,
    AlreadyStarted,
    CycleError,
    SelfDependency,
    TooLarge,
    UnknownResource,
)
from schedd.core.events import (
    AddDependency,
    AddedEdge,
    AddedTask,
    Cancel,
    Hold,
    Logged,
    Output,
    Release,
    RemoveDependency,
    SetCapacity,
    SetPaused,
    StopAttempt,
    Submit,
)
from schedd.core.model import Capacity, Demand, KnownTask, OpenTask, Status, StopReason, When
from schedd.core.records import cause, link, log, new_record, revived_record, unlink
from schedd.core.revival import Revive

if TYPE_CHECKING:
    from schedd.core.machine import Machine


def _submit(machine: "Machine", event: Submit, now: float, out: Output) -> None:
    batch = event.batch
    batch.check_known(event.known)
    _check_demands(machine, batch)
    first = event.first_seq
    records = [new_record(first + index, event.ids[index], new, now) for index, new in enumerate(batch.tasks)]
    for index, task in enumerate(records):
        machine.open[task.seq] = task
        out.added.append(AddedTask(batch.tasks[index], task, event.batch_seq, now))
        for parent_index, when in batch.parents[index]:
            link(records[parent_index], task, when)
            out.edges.append(AddedEdge(task.seq, records[parent_index].seq, when))
    doomed: list[tuple[OpenTask, str]] = []
    for index, dependencies in batch.external.items():
        task = records[index]
        for dependency in dependencies:
            known = event.known[dependency.on]
            out.edges.append(AddedEdge(task.seq, known.seq, dependency.when))
            reason = _judge_edge(machine, known, task, dependency.when)
            if reason:
                doomed.append((task, reason))
    out.events.append(Logged(now, None, None, "submitted", {"first": event.ids[0], "tasks": len(records)}))
    for task in records:
        machine.watch(task)
        if not task.unmet:
            machine.place(task, now)
    for task, reason in doomed:
        if task.status is not Status.SKIPPED:
            machine.settle(task, Status.SKIPPED, reason, now, out)


def _check_demands(machine: "Machine", batch: NewBatch) -> None:
    """Refuse a batch with a task that can never start for want of a resource. Groups are no reason to."""
    judged: set[Demand] = {()}
    for index, task in enumerate(batch.tasks):
        if task.resources in judged:
            continue
        judged.add(task.resources)
        _check_demand(machine, batch.label(index), task.resources)


def _check_demand(machine: "Machine", label: str, demand: Demand) -> None:
    name = machine.resources.can_ever_fit(demand)
    if name is None:
        return
    capacity = machine.resources.capacities.get(name)
    if capacity is None:
        known = ", ".join(sorted(name for name in machine.resources.capacities if "/" not in name)) or "none"
        raise UnknownResource(f"{label} needs the resource {name}, which is not known (known: {known})")
    raise TooLarge(f"{label} needs {dict(demand)[name]} {name}, and there are {capacity.total} in all")


def _add_dependency(machine: "Machine", event: AddDependency, now: float, out: Output) -> None:
    before, after, when = event.before, event.after, event.when
    if before.seq == after.seq:
        raise SelfDependency(f"{after.id} cannot depend on itself")
    task = _must_be_open(machine, after)
    if task.has_started:
        raise AlreadyStarted(f"{task.id} has already started, so what it waits for can no longer be changed")
    parent = machine.open.get(before.seq)
    if parent is not None:
        path = graph.find_path(task, parent)
        if path is not None:  # task <- ... <- parent: read backwards it says what depends on what
            raise CycleError([task.id, *(step.id for step in reversed(path))])
    out.edges.append(AddedEdge(task.seq, before.seq, when))
    reason = _judge_edge(machine, before, task, when)
    log(out, now, task, "edge_added", {"on": before.id, "when": when.value})
    if reason:
        machine.settle(task, Status.SKIPPED, reason, now, out)
    else:
        machine.place(task, now)


def _remove_dependency(machine: "Machine", event: RemoveDependency, now: float, out: Output) -> None:
    task = _must_be_open(machine, event.after)
    if task.has_started:
        raise AlreadyStarted(f"{task.id} has already started, so what it waits for can no longer be changed")
    parent = machine.open.get(event.before.seq)
    if parent is not None:
        unlink(parent, task, event.when)
    out.removed_edges.append((task.seq, event.before.seq))
    log(out, now, task, "edge_removed", {"on": event.before.id})
    machine.place(task, now)


def _revive(machine: "Machine", event: Revive, now: float, out: Output) -> None:
    """Ended tasks are open again, as if they had just been submitted, but for their history."""
    revival.check(machine, event)
    for row in event.rows:
        _check_demand(machine, row.id, row.demand)
    records = {row.seq: revived_record(row, now) for row in event.rows}
    machine.open.update(records)
    for edge in event.edges:
        parent = machine.open.get(edge.on_seq)
        if parent is not None:
            link(parent, records[edge.task_seq], edge.when)
    for task in records.values():
        out.changed[task.seq] = task
        log(out, now, task, "retried", None)
        machine.watch(task)
    for edge in event.below:
        child = machine.open.get(edge.task_seq)
        if child is not None and not child.has_started and child.seq not in records:
            link(records[edge.on_seq], child, edge.when)
            machine.place(child, now)
    for task in records.values():
        machine.place(task, now)


def _cancel(machine: "Machine", event: Cancel, now: float, out: Output) -> None:
    task = _must_be_open(machine, event.task)
    if task.status is not Status.RUNNING:
        machine.settle(task, Status.CANCELLED, None, now, out)
        return
    if task.cancel_requested:
        raise AlreadyCancelled(f"{task.id} is already being cancelled")
    task.cancel_requested = True
    out.changed[task.seq] = task
    log(out, now, task, "cancel_requested", None)
    out.effects.append(StopAttempt(task.seq, task.number, StopReason.CANCELLED))


def _hold(machine: "Machine", event: Hold, now: float, out: Output) -> None:
    _set_held(machine, event.task, True, now, out)
    if event.reason is not None:
        task = machine.open[event.task.seq]
        task.error = event.reason
        out.changed[task.seq] = task


def _release(machine: "Machine", event: Release, now: float, out: Output) -> None:
    _set_held(machine, event.task, False, now, out)


def _set_held(machine: "Machine", known: KnownTask, held: bool, now: float, out: Output) -> None:
    task = _must_be_open(machine, known)
    if task.held is held:
        return
    task.held = held
    out.changed[task.seq] = task
    log(out, now, task, "held" if held else "released", None)
    if task.status is not Status.RUNNING:
        machine.place(task, now)


def _set_paused(machine: "Machine", event: SetPaused, now: float, out: Output) -> None:
    if machine.paused is not event.paused:
        machine.paused = event.paused
        out.paused = event.paused
        out.events.append(Logged(now, None, None, "paused" if event.paused else "resumed", None))


def _must_be_open(machine: "Machine", known: KnownTask) -> OpenTask:
    task = machine.open.get(known.seq)
    if task is None:
        raise AlreadyEnded(f"{known.id} has already ended ({known.status}); nothing was changed")
    return task


def _judge_edge(machine: "Machine", before: KnownTask, task: OpenTask, when: When) -> str | None:
    """Link `task` to an open parent, or judge an ended one: the cause, if it can never be met."""
    parent = machine.open.get(before.seq)
    if parent is not None:
        link(parent, task, when)
        return None
    return None if when.is_met_by(before.status) else cause(before.id, before.status)


def _set_capacity(machine: "Machine", event: SetCapacity, now: float, out: Output) -> None:
    if machine.resources.capacities.get(event.name) == event.capacity:
        return
    machine.resources.set(event.name, event.capacity)
    out.capacities[event.name] = event.capacity
    capacity = event.capacity
    detail = {"resource": event.name, "capacity": None if capacity is None else _told(capacity)}
    out.events.append(Logged(now, None, None, "capacity", detail))


def _told(capacity: Capacity) -> int | list[str]:
    return capacity.total if capacity.units is None else list(capacity.units)


HANDLERS: Final[dict[type, Callable[["Machine", Any, float, Output], None]]] = {
    Submit: _submit,
    AddDependency: _add_dependency,
    RemoveDependency: _remove_dependency,
    Revive: _revive,
    Cancel: _cancel,
    Hold: _hold,
    Release: _release,
    SetPaused: _set_paused,
    SetCapacity: _set_capacity,
}
