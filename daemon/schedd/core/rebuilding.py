"""Filling an empty machine from rows, in distrust. Tests: tests/unit/core/test_machine_rebuild.py."""

from schedd.core.events import AttemptEnded, Output
from schedd.core.machine import Machine
from schedd.core.model import DEFAULT_RETRY, OpenTask, Outcome, Status, Stored
from schedd.core.records import cause, link, stored_record
from schedd.core.resources import Resources


def rebuild(machine: Machine, stored: Stored, now: float, out: Output) -> None:
    """Fill an empty machine from rows. Running rows become running tasks: whether an attempt of theirs is still
    alive only the caller knows, who says `AttemptEnded(crashed)` where it is not.

    What rows cannot mean is mended here and nowhere else: a damaged row is set aside as failed, an edge to a task
    that is gone or that ended otherwise skips its child. Only what has not started waits: the edges of a task that has
    were met when it started, and those of a damaged one no longer matter.
    """
    assert not machine.open, "rebuild needs an empty machine"
    machine.paused = stored.paused
    for row in stored.tasks:
        machine.open[row.seq] = stored_record(row)
    machine.resources = Resources(stored.capacities)
    waiting = {seq: task for seq, task in machine.open.items() if not task.has_started}
    broken = [
        (OpenTask(row.seq, row.id, 0, DEFAULT_RETRY, None, now, number=row.number), row.reason)
        for row in stored.damaged
    ]
    for task, _ in broken:
        machine.open[task.seq] = task
    doomed: list[tuple[OpenTask, str]] = []
    for edge in stored.edges:
        child = waiting.get(edge.task_seq)
        parent = machine.open.get(edge.on_seq)
        if child is None:
            continue
        if parent is not None:
            link(parent, child, edge.when)
        elif edge.on_status is None:
            doomed.append((child, f"skipped because what it depends on (seq {edge.on_seq}) is gone"))
        elif not edge.when.is_met_by(edge.on_status):
            doomed.append((child, cause(f"what it depends on (seq {edge.on_seq})", edge.on_status)))
    for row in stored.tasks:
        task = machine.open[row.seq]
        machine.watch(task)
        if task.status is Status.RUNNING:
            machine.running[task.seq] = task
            machine.resources.adopt(task)
        else:
            machine.place(task, now)
    for bad in stored.damaged:
        if bad.attempt is not None:
            crashed = AttemptEnded(bad.seq, bad.attempt, Outcome.CRASHED, now, error=bad.reason, task_id=bad.id)
            out.ended.append(crashed)
    for task, reason in broken:
        machine.settle(task, Status.FAILED, f"set aside: {reason}", now, out)
    for task, reason in doomed:
        if not task.status.is_terminal:
            machine.settle(task, Status.SKIPPED, reason, now, out)
