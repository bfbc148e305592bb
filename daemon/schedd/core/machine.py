"""The state machine of all open tasks: the one place where a task changes its state.

Theory of operation
-------------------
The machine holds one `OpenTask` for each task that has not ended, and nothing of those that have: memory grows with
open tasks, not with history. `handle(event, now, out)` takes one event; it first decides whether the event can be
taken at all (raising `Refused` and changing nothing if not) and only then mutates, noting in `out` which rows must be
written and which effects let go. `claim(now, out)` then starts what may start on the workers that are free.

A pending task is in exactly one place:

    unmet > 0 or held          nowhere: an event will move it
    due in the future          `delayed`, by run_at
    otherwise (READY)          `ready`, by priority

`_place` is the only function that decides between them, `_move` the only one that changes a status, and `LEGAL` says
which changes there are. A task that ends leaves `open`; records of other tasks may still point at it, and everything
that follows such a pointer looks at the status first.

Ends spread by `_settle`: each child's edge is met (its count goes down) or can never be met (the child is skipped and
settles in turn), with an explicit queue, so a chain of any length costs memory and no recursion.

It refuses to know the clock, ids of settled tasks (the caller looks them up and passes `KnownTask`s), what a task
does, and how anything is stored. Tests: tests/unit/core/test_machine*.py, tests/simulation.
"""

from collections import deque
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from schedd.core import graph, limits
from schedd.core.errors import (
    AlreadyCancelled,
    AlreadyEnded,
    AlreadyStarted,
    CycleError,
    IllegalTransition,
    SelfDependency,
)
from schedd.core.events import (
    AddDependency,
    AddedEdge,
    AddedTask,
    AttemptEnded,
    AttemptSpawned,
    Cancel,
    ClockStepped,
    DrainBegan,
    DrainExpired,
    Event,
    Hold,
    Logged,
    Output,
    Release,
    SetPaused,
    StartAttempt,
    StartedAttempt,
    StopAttempt,
    Submit,
    WorkersChanged,
)
from schedd.core.lazyheap import LazyHeap
from schedd.core.model import (
    DEFAULT_RETRY,
    KnownTask,
    OpenTask,
    Outcome,
    Status,
    StopReason,
    Stored,
    StoredTask,
    When,
)
from schedd.core.recurrence import next_planned
from schedd.core.retry import backoff

LEGAL = frozenset(
    {
        (Status.PENDING, Status.READY),  # dependencies met, start time reached, not held
        (Status.PENDING, Status.CANCELLED),
        (Status.PENDING, Status.SKIPPED),  # a dependency ended in a way that never satisfies its `when`
        (Status.PENDING, Status.FAILED),  # a damaged row is set aside
        (Status.READY, Status.RUNNING),  # claimed for a worker
        (Status.READY, Status.PENDING),  # held, or a late edge
        (Status.READY, Status.CANCELLED),
        (Status.READY, Status.SKIPPED),  # a late edge to something that ended otherwise
        (Status.RUNNING, Status.SUCCEEDED),
        (Status.RUNNING, Status.FAILED),
        (Status.RUNNING, Status.CANCELLED),
        (Status.RUNNING, Status.PENDING),  # another attempt, another run, or interrupted
    }
)
"""Every legal transition. (A terminal task comes back only as a new record, by an operator's retry.)"""


class Machine:
    """All open tasks of one scheduler. Not thread-safe: one thread owns it."""

    __slots__ = ("_handlers", "delayed", "draining", "open", "paused", "ready", "running", "workers")

    def __init__(self, workers: int) -> None:
        self.workers = workers
        self.paused = False
        self.draining = False
        self.open: dict[int, OpenTask] = {}
        self.running: dict[int, OpenTask] = {}
        self.ready = LazyHeap()
        self.delayed = LazyHeap()
        self._handlers: dict[type, Callable[[Any, float, Output], None]] = {
            AttemptEnded: self._attempt_ended,
            AttemptSpawned: self._attempt_spawned,
            Submit: self._submit,
            AddDependency: self._add_dependency,
            Cancel: self._cancel,
            Hold: self._hold,
            Release: self._release,
            SetPaused: self._set_paused,
            ClockStepped: self._clock_stepped,
            DrainBegan: self._drain_began,
            DrainExpired: self._drain_expired,
            WorkersChanged: self._workers_changed,
        }

    # --- what the shell calls -----------------------------------------------------------------------------------

    def handle(self, event: Event, now: float, out: Output) -> None:
        """Take one event. Raises Refused (and then nothing has changed) when a request cannot be granted."""
        self._handlers[type(event)](event, now, out)

    def claim(self, now: float, out: Output) -> None:
        """Make ready what is due, then start ready tasks, best first, while there are free workers."""
        self._wake_due(now)
        if self.paused or self.draining:
            return
        while len(self.running) < self.workers:
            task = self.ready.pop()
            if task is None:
                return
            self._start(task, now, out)

    def next_due(self) -> float | None:
        """The earliest time at which `claim` will have something new to do without any event, or None."""
        top = self.delayed.peek()
        return None if top is None else top[0]

    def rebuild(self, stored: Stored, now: float, out: Output) -> None:
        """Fill an empty machine from rows. Running rows become running tasks: whether an attempt of theirs is still
        alive only the caller knows, who says `AttemptEnded(crashed)` where it is not.

        What rows cannot mean is mended here and nowhere else: a damaged row is set aside as failed, an edge to a task
        that is gone or that ended otherwise skips its child. Only what has not started waits: the edges of a running
        task were met when it started, and those of a damaged one no longer matter.
        """
        assert not self.open, "rebuild needs an empty machine"
        self.paused = stored.paused
        for row in stored.tasks:
            self.open[row.seq] = _record(row)
        waiting = {row.seq: self.open[row.seq] for row in stored.tasks if row.status is not Status.RUNNING}
        broken = [
            (OpenTask(row.seq, row.id, 0, DEFAULT_RETRY, None, now, number=row.number), row.reason)
            for row in stored.damaged
        ]
        for task, _ in broken:
            self.open[task.seq] = task
        doomed: list[tuple[OpenTask, str]] = []
        for edge in stored.edges:
            child = waiting.get(edge.task_seq)
            parent = self.open.get(edge.on_seq)
            if child is None:
                continue
            if parent is not None:
                _link(parent, child, edge.when)
            elif edge.on_status is None:
                doomed.append((child, f"skipped because what it depends on (seq {edge.on_seq}) is gone"))
            elif not edge.when.is_met_by(edge.on_status):
                doomed.append((child, _cause(f"what it depends on (seq {edge.on_seq})", edge.on_status)))
        for row in stored.tasks:
            task = self.open[row.seq]
            if task.status is Status.RUNNING:
                self.running[task.seq] = task
            else:
                self._place(task, now)
        for bad in stored.damaged:
            if bad.attempt is not None:
                crashed = AttemptEnded(bad.seq, bad.attempt, Outcome.CRASHED, now, error=bad.reason, task_id=bad.id)
                out.ended.append(crashed)
        for task, reason in broken:
            self._settle(task, Status.FAILED, f"set aside: {reason}", now, out)
        for task, cause in doomed:
            if not task.status.is_terminal:
                self._settle(task, Status.SKIPPED, cause, now, out)

    # --- requests -----------------------------------------------------------------------------------------------

    def _submit(self, event: Submit, now: float, out: Output) -> None:
        batch = event.batch
        batch.check_known(event.known)
        first = event.first_seq
        records = [
            OpenTask(first + index, event.ids[index], new.priority, new.retry, new.recurrence, now + new.delay)
            for index, new in enumerate(batch.tasks)
        ]
        for index, task in enumerate(records):
            self.open[task.seq] = task
            out.added.append(AddedTask(batch.tasks[index], task, event.batch_seq, now))
            for parent_index, when in batch.parents[index]:
                _link(records[parent_index], task, when)
                out.edges.append(AddedEdge(task.seq, records[parent_index].seq, when))
        doomed: list[tuple[OpenTask, str]] = []
        for index, dependencies in batch.external.items():
            task = records[index]
            for dependency in dependencies:
                known = event.known[dependency.on]
                out.edges.append(AddedEdge(task.seq, known.seq, dependency.when))
                cause = self._judge_edge(known, task, dependency.when)
                if cause:
                    doomed.append((task, cause))
        out.events.append(Logged(now, None, None, "submitted", {"first": event.ids[0], "tasks": len(records)}))
        for task in records:
            if not task.unmet:
                self._place(task, now)
        for task, cause in doomed:
            if task.status is not Status.SKIPPED:
                self._settle(task, Status.SKIPPED, cause, now, out)

    def _add_dependency(self, event: AddDependency, now: float, out: Output) -> None:
        before, after, when = event.before, event.after, event.when
        if before.seq == after.seq:
            raise SelfDependency(f"{after.id} cannot depend on itself")
        task = self._must_be_open(after)
        if task.number:
            raise AlreadyStarted(f"{task.id} has already started, so what it waits for can no longer be changed")
        parent = self.open.get(before.seq)
        if parent is not None:
            path = graph.find_path(task, parent)
            if path is not None:  # task <- ... <- parent: read backwards it says what depends on what
                raise CycleError([task.id, *(step.id for step in reversed(path))])
        out.edges.append(AddedEdge(task.seq, before.seq, when))
        cause = self._judge_edge(before, task, when)
        self._log(out, now, task, "edge_added", {"on": before.id, "when": when.value})
        if cause:
            self._settle(task, Status.SKIPPED, cause, now, out)
        else:
            self._place(task, now)

    def _cancel(self, event: Cancel, now: float, out: Output) -> None:
        task = self._must_be_open(event.task)
        if task.status is not Status.RUNNING:
            self._settle(task, Status.CANCELLED, None, now, out)
            return
        if task.cancel_requested:
            raise AlreadyCancelled(f"{task.id} is already being cancelled")
        task.cancel_requested = True
        out.changed[task.seq] = task
        self._log(out, now, task, "cancel_requested", None)
        out.effects.append(StopAttempt(task.seq, task.number, StopReason.CANCELLED))

    def _hold(self, event: Hold, now: float, out: Output) -> None:
        self._set_held(event.task, True, now, out)
        if event.reason is not None:
            task = self.open[event.task.seq]
            task.error = event.reason
            out.changed[task.seq] = task

    def _release(self, event: Release, now: float, out: Output) -> None:
        self._set_held(event.task, False, now, out)

    def _set_held(self, known: KnownTask, held: bool, now: float, out: Output) -> None:
        task = self._must_be_open(known)
        if task.held is held:
            return
        task.held = held
        out.changed[task.seq] = task
        self._log(out, now, task, "held" if held else "released", None)
        if task.status is not Status.RUNNING:
            self._place(task, now)

    def _set_paused(self, event: SetPaused, now: float, out: Output) -> None:
        if self.paused is not event.paused:
            self.paused = event.paused
            out.paused = event.paused
            out.events.append(Logged(now, None, None, "paused" if event.paused else "resumed", None))

    def _must_be_open(self, known: KnownTask) -> OpenTask:
        task = self.open.get(known.seq)
        if task is None:
            raise AlreadyEnded(f"{known.id} has already ended ({known.status}); nothing was changed")
        return task

    def _judge_edge(self, before: KnownTask, task: OpenTask, when: When) -> str | None:
        """Link `task` to an open parent, or judge an ended one: the cause, if it can never be met."""
        parent = self.open.get(before.seq)
        if parent is not None:
            _link(parent, task, when)
            return None
        return None if when.is_met_by(before.status) else _cause(before.id, before.status)

    # --- facts --------------------------------------------------------------------------------------------------

    def _attempt_ended(self, event: AttemptEnded, now: float, out: Output) -> None:
        """Settle the attempt, and the task unless it runs again.

        An attempt that is not the task's running one is no news (its end was committed although the commit seemed to
        fail): it is ignored, which makes repeating a fact harmless.
        """
        task = self.running.get(event.seq)
        if task is None or task.number != event.number:
            return
        if task.cancel_requested and event.outcome is not Outcome.CANCELLED:
            event = _as_cancelled(event)
        out.ended.append(event)
        del self.running[task.seq]
        outcome = event.outcome
        if outcome is Outcome.INTERRUPTED:
            self._run_again(task, now, now, out)
            self._log(out, now, task, "interrupted", {"attempt": event.number})
            return
        if outcome is Outcome.START_FAILED and not event.counts:
            self._run_again(task, now + limits.SCHEDD_FAULT_DELAY_S, now, out, event.error)
            delay = {"attempt": event.number, "error": event.error, "delay": limits.SCHEDD_FAULT_DELAY_S}
            self._log(out, now, task, "start_postponed", delay)
            return
        task.attempts += 1
        if outcome is Outcome.CANCELLED:
            self._settle(task, Status.CANCELLED, None, now, out)
        elif outcome is Outcome.SUCCEEDED:
            self._run_succeeded(task, now, out)
        elif task.attempts < task.retry.max_attempts:
            delay_s = backoff(task.retry, task.attempts)
            self._run_again(task, now + delay_s, now, out, event.error)
            detail = {"attempt": event.number, "outcome": outcome.value, "error": event.error, "delay": delay_s}
            self._log(out, now, task, "retry", detail)
        else:
            self._settle(task, Status.FAILED, event.error, now, out)

    def _attempt_spawned(self, event: AttemptSpawned, now: float, out: Output) -> None:
        task = self.running.get(event.seq)
        if task is not None and task.number == event.number:
            out.spawned.append(event)

    def _run_succeeded(self, task: OpenTask, now: float, out: Output) -> None:
        recurrence = task.recurrence
        task.runs += 1
        if recurrence is None or task.runs >= recurrence.times:
            self._settle(task, Status.SUCCEEDED, None, now, out)
            return
        assert task.planned_at is not None, f"task {task.seq} ran without a planned start"
        task.planned_at, missed = next_planned(recurrence, task.planned_at, now)
        task.attempts = 0
        self._run_again(task, task.planned_at, now, out)
        self._log(out, now, task, "run", {"run": task.runs, "missed": missed} if missed else {"run": task.runs})

    def _clock_stepped(self, event: ClockStepped, now: float, out: Output) -> None:
        """Move every due time along with the clock, so that what was to wait a minute still waits a minute."""
        for task in self.open.values():
            task.run_at += event.delta
            if task.planned_at is not None:
                task.planned_at += event.delta
            out.changed[task.seq] = task
            if task in self.delayed:
                self.delayed.push(task.run_at, task)
            elif task.status is Status.READY and task.run_at > now:  # placed by a rebuild that did not know of the step
                self._move(task, Status.PENDING)
                self.ready.discard(task)
                self.delayed.push(task.run_at, task)
        out.events.append(Logged(now, None, None, "clock_stepped", {"delta": event.delta}))

    def _drain_began(self, event: DrainBegan, now: float, out: Output) -> None:
        self.draining = True

    def _drain_expired(self, event: DrainExpired, now: float, out: Output) -> None:
        for task in self.running.values():
            out.effects.append(StopAttempt(task.seq, task.number, StopReason.INTERRUPTED))

    def _workers_changed(self, event: WorkersChanged, now: float, out: Output) -> None:
        self.workers = event.workers

    # --- the moves ----------------------------------------------------------------------------------------------

    def _move(self, task: OpenTask, status: Status) -> None:
        """Change a status, if the table allows it. Raises IllegalTransition before anything is changed."""
        if (task.status, status) not in LEGAL:
            raise IllegalTransition(f"task {task.id} (seq {task.seq}) cannot go from {task.status} to {status}")
        task.status = status

    def _place(self, task: OpenTask, now: float) -> None:
        """Put a pending or ready task where it belongs: in `ready`, in `delayed`, or in neither."""
        if task.unmet or task.held:
            if task.status is Status.READY:
                self._move(task, Status.PENDING)
                self.ready.discard(task)
            else:
                self.delayed.discard(task)
        elif task.run_at > now and task.status is Status.PENDING:
            self.delayed.push(task.run_at, task)
        elif task.status is Status.PENDING:
            self.delayed.discard(task)
            self._make_ready(task, now)

    def _make_ready(self, task: OpenTask, now: float) -> None:
        self._move(task, Status.READY)
        self.ready.push(task.priority, task)

    def _wake_due(self, now: float) -> None:
        """Move every delayed task whose time has come to the ready queue."""
        delayed = self.delayed
        while (top := delayed.peek()) is not None and top[0] <= now:
            delayed.pop()
            self._make_ready(top[2], now)

    def _start(self, task: OpenTask, now: float, out: Output) -> None:
        self._move(task, Status.RUNNING)
        task.number += 1
        if task.planned_at is None:
            task.planned_at = now
        self.running[task.seq] = task
        out.changed[task.seq] = task
        out.started.append(StartedAttempt(task.seq, task.number, task.runs + 1, now))
        self._log(out, now, task, "started", {"attempt": task.number})
        out.effects.append(StartAttempt(task.seq, task.id, task.number, task.runs + 1))

    def _run_again(self, task: OpenTask, run_at: float, now: float, out: Output, error: str | None = None) -> None:
        """A running task goes back to wait for `run_at`."""
        self._move(task, Status.PENDING)
        task.run_at = run_at
        task.error = error
        out.changed[task.seq] = task
        self._place(task, now)

    def _settle(self, task: OpenTask, status: Status, error: str | None, now: float, out: Output) -> None:
        """End a task for good and spread what follows from it, breadth first."""
        queue = deque([(task, status, error)])
        while queue:
            ended, status, error = queue.popleft()
            self._end(ended, status, error, now, out)
            for children, when in (
                (ended.children, When.SUCCEEDED),
                (ended.children_if_failed, When.FAILED),
                (ended.children_if_finished, When.FINISHED),
            ):
                if not children:
                    continue
                met = when.is_met_by(status)
                for child in children:
                    if self.open.get(child.seq) is not child:
                        continue  # it has ended, or is about to: it is in the queue
                    child.unmet -= 1
                    if met:
                        if not child.unmet:
                            self._place(child, now)
                    else:
                        del self.open[child.seq]
                        queue.append((child, Status.SKIPPED, _cause(ended.id, status)))
            # Whoever still holds this record (a stale heap entry) must not hold the graph below it.
            ended.children = ended.children_if_failed = ended.children_if_finished = None

    def _end(self, task: OpenTask, status: Status, error: str | None, now: float, out: Output) -> None:
        self._move(task, status)
        self.ready.discard(task)
        self.delayed.discard(task)
        task.error = error
        task.settled_at = now
        self.open.pop(task.seq, None)
        out.changed[task.seq] = task
        self._log(out, now, task, status.value, {"error": error} if error else None)

    @staticmethod
    def _log(out: Output, now: float, task: OpenTask, kind: str, detail: dict[str, Any] | None) -> None:
        out.events.append(Logged(now, task.seq, task.id, kind, detail))


def _record(row: StoredTask) -> OpenTask:
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
    )


def _link(parent: OpenTask, child: OpenTask, when: When) -> None:
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


def _cause(parent_id: str, status: Status) -> str:
    """Why a child is skipped, for its row."""
    how = {Status.CANCELLED: "was cancelled", Status.SKIPPED: "was skipped"}.get(status, status.value)
    return f"skipped because {parent_id} {how}"


def _as_cancelled(event: AttemptEnded) -> AttemptEnded:
    """The same end, told as the end of a cancelled attempt: a cancel beats every outcome."""
    return replace(event, outcome=Outcome.CANCELLED)
