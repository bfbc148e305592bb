"""Making the records of tasks, linking them, and the words that go with it: leaves of the machine, without decisions.

Tests: tests/unit/core/test_records.py and those of the machine.
"""

from typing import Any

from schedd.core.events import Logged, Output
from schedd.core.model import NewTask, OpenTask, Status, StoredTask, Wall, When


def new_record(seq: int, task_id: str, new: NewTask, now: float) -> OpenTask:
    """The record of a task that is submitted now."""
    task = OpenTask(seq, task_id, new.priority, new.retry, new.recurrence, now + new.delay, demand=new.demand)
    if new.start_at is not None:
        task.run_at = new.start_at
        task.wall |= Wall.START
    if new.start_before is not None:
        task.start_before = new.start_before.at(now)
        task.wall |= Wall.START_BEFORE if new.start_before.is_date else 0
    if new.deadline is not None:
        task.deadline = new.deadline.at(now)
        task.wall |= Wall.DEADLINE if new.deadline.is_date else 0
    return task


def stored_record(row: StoredTask) -> OpenTask:
    """The record of a task as its row has it."""
    return OpenTask(
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
        units=row.units,
    )


def revived_record(row: StoredTask, now: float) -> OpenTask:
    """The record of an ended task that an operator's retry brings back. Its attempts count anew; one that had succeeded
    begins its runs anew too, any other goes on with the run that it was in. Time limits that have passed hold no more.
    """
    task = stored_record(row)
    if row.status is Status.SUCCEEDED:
        task.runs = 0
    task.status = Status.PENDING
    task.attempts = 0
    task.base_number = task.number
    task.retries += 1
    task.run_at, task.planned_at = now, None
    task.wall &= ~Wall.START
    task.held = task.cancel_requested = False
    task.error = None
    if task.deadline is not None and task.deadline <= now:
        task.deadline = None
    if task.start_before is not None and task.start_before <= now:
        task.start_before = None
    return task


def link(parent: OpenTask, child: OpenTask, when: When) -> None:
    """Let `child` wait for an open `parent`."""
    if when is When.SUCCEEDED:
        if parent.children is None:
            parent.children = []
        parent.children.append(child)
    elif when is When.FAILED:
        if parent.children_if_failed is None:
            parent.children_if_failed = []
        parent.children_if_failed.append(child)
    else:
        if parent.children_if_finished is None:
            parent.children_if_finished = []
        parent.children_if_finished.append(child)
    child.unmet += 1


def unlink(parent: OpenTask, child: OpenTask, when: When) -> None:
    """Let `child` wait for an open `parent` no longer. O(children of the parent)."""
    lists = {
        When.SUCCEEDED: parent.children,
        When.FAILED: parent.children_if_failed,
        When.FINISHED: parent.children_if_finished,
    }
    children = lists[when]
    assert children is not None, f"{parent.id} has no child under {when}"
    children.remove(child)  # records compare by identity
    child.unmet -= 1


def cause(parent_id: str, status: Status) -> str:
    """Why a child is skipped, for its row."""
    how = {Status.CANCELLED: "was cancelled", Status.SKIPPED: "was skipped"}.get(status, status.value)
    return f"skipped because {parent_id} {how}"


def log(out: Output, now: float, task: OpenTask, kind: str, detail: dict[str, Any] | None) -> None:
    """A line of the event log about a task."""
    out.events.append(Logged(now, task.seq, task.id, kind, detail))
