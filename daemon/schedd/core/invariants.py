"""What is true of a machine between any two events. Run by the test fixtures at teardown and by the simulation.

Each check says what it found; `check` raises on the first. Cost: O(V + E), for tests and `schedctl check`, never for
the hot path. Tests: tests/unit/core/test_invariants.py.
"""

from collections import Counter

from schedd.core import graph
from schedd.core.lazyheap import SLACK
from schedd.core.machine import Machine
from schedd.core.model import OpenTask, Status
from schedd.core.ready import ReadyQueue


class InvariantBroken(AssertionError):
    """The machine contradicts itself: a bug in schedd."""


def check(machine: Machine, now: float) -> None:
    """Raises InvariantBroken with the first contradiction found. `now` is the time of the last claim."""
    for seq, task in machine.open.items():
        _require(seq == task.seq, f"filed under seq {seq}", task)
        _place(machine, task)
        _time_limits(machine, task, now)
        _counters(task)
    _queues(machine, now)
    _resources(machine)
    _unmet_counts(machine)
    _no_cycle(machine)


def _require(truth: bool, story: str, task: OpenTask | None = None) -> None:
    if not truth:
        raise InvariantBroken(f"{story}: {task}" if task else story)


def _place(machine: Machine, task: OpenTask) -> None:
    """An open task stands in the one place that its status and its conditions say."""
    status = task.status
    free = not task.unmet and not task.held
    _require(not status.is_terminal, "ended but still open", task)
    _require((task.seq in machine.running) == (status is Status.RUNNING), "running and not counted, or reverse", task)
    _require((task in machine.ready) == (status is Status.READY), "ready and not queued, or the reverse", task)
    delayed = status is Status.PENDING and free
    _require((task in machine.delayed) == delayed, "waits for time alone and is not in `delayed`, or the reverse", task)
    if status is Status.READY:
        _require(free, "ready but unmet or held", task)
        _require(machine.ready.key_of(task) == task.priority, "queued under another priority", task)
    elif delayed:
        _require(machine.delayed.key_of(task) == task.run_at, "delayed until another time", task)


def _time_limits(machine: Machine, task: OpenTask, now: float) -> None:
    """What has a limit in time is watched, no later than for the first of them; none has passed unnoticed."""
    limits = [task.deadline] if task.deadline is not None else []
    if task.start_before is not None and not task.has_started:
        limits.append(task.start_before)
    if task.status is Status.RUNNING and limits and limits[0] <= now:
        return  # it was told to stop, and is still at it
    _require(all(limit > now for limit in limits), "its time is over and it goes on", task)
    if limits:
        watched = machine.deadlines.key_of(task)
        _require(watched is not None and watched <= min(limits), f"is watched for {watched} and not in time", task)


def _counters(task: OpenTask) -> None:
    """What a task has behind it agrees with its status and its policies."""
    _require(0 <= task.attempts < task.retry.max_attempts, "attempts out of bounds", task)
    _require(task.attempts <= task.number - task.base_number, "more attempts counted than made", task)
    _require(0 <= task.runs < (task.recurrence.times if task.recurrence else 1), "ran more often than asked", task)
    if task.status is Status.RUNNING:
        _require(not task.unmet, "runs before what it depends on", task)
        _require(task.has_started, "runs without an attempt", task)
    else:
        _require(not task.cancel_requested, "does not run and has a cancel on it", task)


def _queues(machine: Machine, now: float) -> None:
    """Nothing is queued or counted that is not open, and what is due is not delayed."""
    for queue in (machine.ready, machine.delayed, machine.deadlines):
        for task in queue:
            _require(machine.open.get(task.seq) is task, "queued but not open", task)
        heaps = queue.heaps() if isinstance(queue, ReadyQueue) else 1
        slack = len(queue) + heaps * SLACK
        _require(queue.stale() <= slack, f"{queue.stale()} stale entries beside {len(queue)} live ones")
    for task in machine.delayed:
        _require(task.run_at > now, "due and still delayed", task)
    for seq, task in machine.running.items():
        _require(machine.open.get(seq) is task, "running but not open", task)


def _resources(machine: Machine) -> None:
    """Held is what the running tasks demand; a named unit has one holder."""
    resources = machine.resources
    held: Counter[str] = Counter()
    units: Counter[tuple[str, str]] = Counter()
    for task in machine.running.values():
        for name, amount in task.demand:
            held[name] += amount
        units.update((name, unit) for name, names in (task.units or {}).items() for unit in names)
    _require(resources.held == dict(held), f"held is {resources.held}, and the running tasks demand {dict(held)}")
    taken = {(name, unit) for name, names in resources.taken.items() for unit in names}
    _require(taken == set(units), f"taken are {taken}, and the running tasks hold {set(units)}")
    _require(all(count == 1 for count in units.values()), f"a unit has two holders: {units}")
    for task in machine.open.values():
        _require(task.units is None or task.status is Status.RUNNING, "holds units and does not run", task)
    for seq in machine.ready.passed:
        _require(seq in machine.open and machine.open[seq] in machine.ready, f"{seq} was passed over and is not ready")


def _unmet_counts(machine: Machine) -> None:
    """`unmet` is the number of edges from open tasks, and an edge leads to what is open or has ended."""
    counted: Counter[int] = Counter()
    for task in machine.open.values():
        for child in graph.children_of(task):
            if machine.open.get(child.seq) is child:
                counted[child.seq] += 1
            else:
                _require(child.status.is_terminal, f"lost: {task.id} releases it and it is not open", child)
    for seq, task in machine.open.items():
        _require(task.unmet == counted[seq], f"unmet is {task.unmet}, its open parents are {counted[seq]}", task)


def _no_cycle(machine: Machine) -> None:
    seqs = list(machine.open)
    index_of = {seq: index for index, seq in enumerate(seqs)}
    parents: list[list[int]] = [[] for _ in seqs]
    for task in machine.open.values():
        for child in graph.children_of(task):
            if machine.open.get(child.seq) is child:
                parents[index_of[child.seq]].append(index_of[task.seq])
    found = graph.find_cycle(parents)
    _require(found is None, f"a cycle among open tasks: {[seqs[index] for index in found[0]] if found else ''}")
