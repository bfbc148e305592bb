"""The state machine of all open tasks: the one place where a task changes its state.

Theory of operation
-------------------
The machine holds one `OpenTask` for each task that has not ended, and nothing of those that have: memory grows with
open tasks, not with history. `handle(event, now, out)` takes one event; it first decides whether the event can be
taken at all (raising `Refused` and changing nothing if not) and only then mutates, noting in `out` which rows must be
written and which effects let go. `claim(now, out)` then ends what is out of time and starts what may start on the
workers that are free. Events are judged in `requests.py` and `facts.py`; here are the moves that they are made of.

A pending task is in exactly one place:

    unmet > 0 or held          nowhere: an event will move it
    due in the future          `delayed`, by run_at
    otherwise (READY)          `ready`, by priority, in the heap of its demand

`place` is the only function that decides between them, `_move` the only one that changes a status, and `LEGAL` says
which changes there are. Besides, whatever has a `deadline` or a `start_before` is in `deadlines`. A task that ends
leaves `open`; records of other tasks may still point at it, and everything that follows such a pointer looks at the
status first.

Ends spread by `settle`: each child's edge is met (its count goes down) or can never be met (the child is skipped and
settles in turn), with an explicit queue, so a chain of any length costs memory and no recursion.

What starts next is the best of all heads by (priority, seq) that fits into what is free. A head that does not fit is
passed over; the first one that was, for longer than `reserve_after`, for want of a resource, has what it needs
reserved: others start only if that leaves it as free as it is. (A group at its limit reserves nothing: it is meant to
wait.)

It refuses to know the clock, ids of settled tasks (the caller looks them up and passes `KnownTask`s), what a task
does, and how anything is stored. Tests: tests/unit/core/test_machine*.py, tests/simulation.
"""

from collections import deque

from schedd.core import facts, requests
from schedd.core.errors import IllegalTransition
from schedd.core.events import Event, Output, StartAttempt, StartedAttempt, StopAttempt
from schedd.core.lazyheap import LazyHeap
from schedd.core.model import GROUP_PREFIX, Demand, OpenTask, Status, StopReason, When
from schedd.core.ready import ReadyQueue
from schedd.core.records import cause, log
from schedd.core.resources import Resources

LEGAL = frozenset(
    {
        (Status.PENDING, Status.READY),  # dependencies met, start time reached, not held
        (Status.PENDING, Status.CANCELLED),
        (Status.PENDING, Status.SKIPPED),  # a dependency ended in a way that never satisfies its `when`; start_before
        (Status.PENDING, Status.FAILED),  # a damaged row is set aside; its deadline has passed
        (Status.READY, Status.RUNNING),  # claimed for a worker
        (Status.READY, Status.PENDING),  # held, or a late edge
        (Status.READY, Status.CANCELLED),
        (Status.READY, Status.SKIPPED),  # a late edge to something that ended otherwise; start_before
        (Status.READY, Status.FAILED),  # its deadline has passed
        (Status.RUNNING, Status.SUCCEEDED),
        (Status.RUNNING, Status.FAILED),
        (Status.RUNNING, Status.CANCELLED),
        (Status.RUNNING, Status.PENDING),  # another attempt, another run, or interrupted
    }
)
"""Every legal transition. (A terminal task comes back only as a new record, by an operator's retry.)"""

DEFAULT_RESERVE_AFTER_S = 300.0
"""How long the best task may be passed over for want of a resource before what it needs is reserved for it."""

_HANDLERS = {**requests.HANDLERS, **facts.HANDLERS}


class Machine:
    """All open tasks of one scheduler. Not thread-safe: one thread owns it."""

    __slots__ = (
        "deadlines",
        "delayed",
        "draining",
        "open",
        "paused",
        "ready",
        "reserve_after",
        "resources",
        "running",
        "workers",
    )

    def __init__(self, workers: int, reserve_after: float = DEFAULT_RESERVE_AFTER_S) -> None:
        self.workers = workers
        self.reserve_after = reserve_after
        self.paused = False
        self.draining = False
        self.open: dict[int, OpenTask] = {}
        self.running: dict[int, OpenTask] = {}
        self.ready = ReadyQueue()
        self.delayed = LazyHeap()
        self.deadlines = LazyHeap()
        self.resources = Resources()

    # --- what the shell calls -----------------------------------------------------------------------------------

    def handle(self, event: Event, now: float, out: Output) -> None:
        """Take one event. Raises Refused (and then nothing has changed) when a request cannot be granted."""
        _HANDLERS[type(event)](self, event, now, out)

    def claim(self, now: float, out: Output) -> None:
        """End what is out of time, make ready what is due, then start ready tasks, best first, on free workers."""
        self._expire(now, out)
        self._wake_due(now)
        if self.paused or self.draining:
            return
        while len(self.running) < self.workers:
            task = self._choose(now)
            if task is None:
                return
            self._start(task, now, out)

    def next_due(self) -> float | None:
        """The earliest time at which `claim` will have something new to do without any event, or None."""
        tops = [top[0] for heap in (self.delayed, self.deadlines) if (top := heap.peek()) is not None]
        return min(tops, default=None)

    def could_start(self, now: float) -> bool:
        """Whether `claim` would start something now, of what is ready."""
        if self.paused or self.draining or len(self.running) >= self.workers:
            return False
        return any(self.resources.fits(head[2].demand) for head in self.ready.heads())

    # --- the moves: for `requests`, `facts` and `rebuilding` ----------------------------------------------------

    def place(self, task: OpenTask, now: float) -> None:
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
            self._make_ready(task)

    def postpone(self, task: OpenTask) -> None:
        """A ready task is due later after all."""
        self._move(task, Status.PENDING)
        self.ready.discard(task)
        self.delayed.push(task.run_at, task)

    def watch(self, task: OpenTask) -> None:
        """Put a task where the next of its time limits will be noticed."""
        limits = [task.deadline] if task.deadline is not None else []
        if task.start_before is not None and not task.has_started:
            limits.append(task.start_before)
        if limits:
            self.deadlines.push(min(limits), task)

    def run_again(self, task: OpenTask, run_at: float, now: float, out: Output, error: str | None = None) -> bool:
        """A running task, out of `running` already, goes back to wait for `run_at`; False if it ends instead, because
        its deadline leaves it no time.
        """
        if task.deadline is not None and max(run_at, now) >= task.deadline:
            story = "its deadline leaves no time to run again"
            self.settle(task, Status.FAILED, f"{error}; {story}" if error else story, now, out)
            return False
        self._move(task, Status.PENDING)
        task.run_at = run_at
        task.error = error
        out.changed[task.seq] = task
        self.place(task, now)
        return True

    def leave_running(self, task: OpenTask) -> None:
        """An attempt is over: what it held is free."""
        del self.running[task.seq]
        if task.demand:
            self.resources.give_back(task)

    def settle(self, task: OpenTask, status: Status, error: str | None, now: float, out: Output) -> None:
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
                            self.place(child, now)
                    else:
                        del self.open[child.seq]
                        queue.append((child, Status.SKIPPED, cause(ended.id, status)))
            # Whoever still holds this record (a stale heap entry) must not hold the graph below it.
            ended.children = ended.children_if_failed = ended.children_if_finished = None

    # --- inside -------------------------------------------------------------------------------------------------

    def _move(self, task: OpenTask, status: Status) -> None:
        """Change a status, if the table allows it. Raises IllegalTransition before anything is changed."""
        if (task.status, status) not in LEGAL:
            raise IllegalTransition(f"task {task.id} (seq {task.seq}) cannot go from {task.status} to {status}")
        task.status = status

    def _make_ready(self, task: OpenTask) -> None:
        self._move(task, Status.READY)
        self.ready.push(task.priority, task)

    def _wake_due(self, now: float) -> None:
        """Move every delayed task whose time has come to the ready queue."""
        delayed = self.delayed
        while (top := delayed.peek()) is not None and top[0] <= now:
            delayed.pop()
            self._make_ready(top[2])

    def _expire(self, now: float, out: Output) -> None:
        """End, or tell to end, what has reached one of its limits in time."""
        while (top := self.deadlines.peek()) is not None and top[0] <= now:
            self.deadlines.pop()
            task = top[2]
            if task.deadline is not None and task.deadline <= now:
                if task.status is Status.RUNNING:
                    out.effects.append(StopAttempt(task.seq, task.number, StopReason.DEADLINE))
                else:
                    self.settle(task, Status.FAILED, facts.DEADLINE_PASSED, now, out)
            elif not task.has_started:
                self.settle(task, Status.SKIPPED, "skipped because it could not start in time", now, out)
            else:
                self.watch(task)

    def _choose(self, now: float) -> OpenTask | None:
        """The best ready task that may start now, or None."""
        resources, passed = self.resources, self.ready.passed
        reserved: Demand = ()
        best: OpenTask | None = None  # the first that lacks a resource
        for _, _, task in self.ready.heads():
            demand = task.demand
            if not demand:
                fits = True
            elif lacking := resources.lacks(demand):
                fits = False
                if best is None and not any(name.startswith(GROUP_PREFIX) for name in lacking):
                    best = task
                    since = passed.get(task.seq)
                    if since is not None and since + self.reserve_after <= now:
                        reserved = demand
            else:
                fits = not reserved or resources.leaves(demand, reserved)
            if fits:
                if best is not None:
                    passed.setdefault(best.seq, now)
                return task
        return None

    def _start(self, task: OpenTask, now: float, out: Output) -> None:
        self.ready.discard(task)
        self._move(task, Status.RUNNING)
        task.number += 1
        if task.planned_at is None:
            task.planned_at = now
        self.running[task.seq] = task
        if task.demand:
            self.resources.take(task)
        out.changed[task.seq] = task
        out.started.append(StartedAttempt(task.seq, task.number, task.runs + 1, now, task.units))
        log(out, now, task, "started", {"attempt": task.number})
        out.effects.append(StartAttempt(task.seq, task.id, task.number, task.runs + 1, task.units, task.base_number))

    def _end(self, task: OpenTask, status: Status, error: str | None, now: float, out: Output) -> None:
        self._move(task, status)
        self.ready.discard(task)
        self.delayed.discard(task)
        self.deadlines.discard(task)
        task.error = error
        task.settled_at = now
        self.open.pop(task.seq, None)
        out.changed[task.seq] = task
        log(out, now, task, status.value, {"error": error} if error else None)
