"""What is true of a machine between any two events. Run by the test fixtures at teardown and by the simulation.

Each check says what it found; `check` raises on the first. Cost: O(V + E), for tests and `schedctl check`, never for
the hot path. Tests: tests/unit/core/test_invariants.py.
"""

from collections import Counter

from schedd.core import graph
from schedd.core.machine import Machine
from schedd.core.model import Status


class InvariantBroken(AssertionError):
    """The machine contradicts itself: a bug in schedd."""


def check(machine: Machine, now: float) -> None:
    """Raises InvariantBroken with the first contradiction found. `now` is the time of the last claim."""
    _statuses_and_places(machine, now)
    _unmet_counts(machine)
    _no_cycle(machine)


def _require(truth: bool, story: str) -> None:
    if not truth:
        raise InvariantBroken(story)


def _statuses_and_places(machine: Machine, now: float) -> None:
    for seq, task in machine.open.items():
        story = f"task {task.id} (seq {seq}): {task}"
        _require(seq == task.seq, f"filed under the wrong seq: {story}")
        _require(not task.status.is_terminal, f"ended but still open: {story}")
        free = not task.unmet and not task.held
        is_running = task.status is Status.RUNNING
        _require((seq in machine.running) == is_running, f"running and not counted, or the reverse: {story}")
        _require((task in machine.ready) == (task.status is Status.READY), f"ready and not queued: {story}")
        if task.status is Status.READY:
            _require(free, f"ready but unmet or held: {story}")
        if task.status is Status.PENDING:
            _require((task in machine.delayed) == free, f"waits for time and is not in `delayed`: {story}")
            _require(not task.cancel_requested, f"pending with a cancel on it: {story}")
        if is_running:
            _require(not task.unmet, f"runs before what it depends on: {story}")
            _require(task.number > 0, f"runs without an attempt: {story}")
        _require(0 <= task.attempts < max(task.retry.max_attempts, 1), f"attempts out of bounds: {story}")
        if task.recurrence is not None:
            _require(task.runs < task.recurrence.times, f"ran more often than asked: {story}")
    for queue in (machine.ready, machine.delayed):
        for task in queue:
            _require(machine.open.get(task.seq) is task, f"queued but not open: {task}")
        _require(queue.stale() <= len(queue) + 64, f"{queue.stale()} stale entries beside {len(queue)} live ones")
    for task in machine.delayed:
        _require(task.run_at > now, f"due and still delayed: {task}")
    for seq, task in machine.running.items():
        _require(machine.open.get(seq) is task, f"running but not open: {task}")


def _unmet_counts(machine: Machine) -> None:
    counted: Counter[int] = Counter()
    for task in machine.open.values():
        for child in graph.children_of(task):
            if machine.open.get(child.seq) is child:
                counted[child.seq] += 1
    for seq, task in machine.open.items():
        _require(task.unmet == counted[seq], f"unmet is {task.unmet}, its open parents are {counted[seq]}: {task.id}")


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
