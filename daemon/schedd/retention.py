"""Keeping history within bounds: rows, events and logs of what ended long ago go together, in small steps.

The logs of a task go before its rows: a stop in between leaves a task without its output, which says so, and never
files that nobody knows. Candidates are read beside the engine; each step of deleting is a request like any other, so
tasks start and end between the steps. Tests: tests/unit/test_retention.py.
"""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

from schedd.engine.inbox import Call
from schedd.engine.loop import Engine, RequestFailed, Unavailable
from schedd.engine.pruning import PruneHistory, PruneTasks
from schedd.store.base import StoreUnavailable
from schedd.store.reads import Reads

TASKS_PER_STEP: Final = 200
BATCHES_PER_LOOK: Final = 100
LOOK_EVERY_S: Final = 3_600.0
FIRST_LOOK_S: Final = 60.0
PAUSE_S: Final = 0.01
"""Between two steps, so that what else there is to do gets its turn."""


@dataclass(frozen=True, slots=True)
class Policy:
    """What is kept: what ended at `before` (UTC seconds) or later, the `keep_last` newest batches of each name, and at
    most `keep_tasks` ended tasks, if there is such a limit.
    """

    before: float
    keep_last: int = 0
    keep_tasks: int | None = None


@dataclass(slots=True)
class Removed:
    """What was removed so far; `more` says that there is more, for which there was no time."""

    tasks: int = 0
    lines: int = 0
    more: bool = False


class Pruner:
    """Removes what a policy does not keep. `remove_logs(seq, number)` removes those of a task that has had `number`
    attempts.
    """

    def __init__(
        self,
        engine: Engine,
        reads: Reads,
        remove_logs: Callable[[int, int], None],
        now: Callable[[], float] = time.time,
    ) -> None:
        self._engine = engine
        self._reads = reads
        self._remove_logs = remove_logs
        self._now = now
        self._one = threading.Lock()  # held by who removes: two at once would only be in each other's way

    def count(self, policy: Policy) -> int:
        """How many tasks would go now."""
        return sum(self._reads.batch_size(batch) for batch, _ in self._batches(policy))

    def run(self, policy: Policy, budget_s: float, stopped: Callable[[], bool] = lambda: False) -> Removed:
        """Remove for `budget_s` seconds at most. Raises what the engine and the reads raise."""
        deadline = time.monotonic() + budget_s
        removed = Removed()

        def is_over() -> bool:
            return time.monotonic() >= deadline or stopped()

        with self._one:
            for batch, before in self._batches(policy):
                if is_over() or not self._remove_batch(batch, before, removed, is_over):
                    removed.more = True
                    return removed
            while not is_over():
                step = self._ask(PruneHistory(policy.before))
                removed.lines += step["removed"]
                if not step["more"]:
                    return removed
            removed.more = True
        return removed

    def _batches(self, policy: Policy) -> Iterator[tuple[int, float]]:
        """The batches that go, oldest first, each with the time before which its tasks must have ended."""
        yield from self._old(policy.before, policy.keep_last)
        if policy.keep_tasks is not None:
            now = self._now()
            excess = self._reads.ended() - policy.keep_tasks
            for batch, before in self._old(now, policy.keep_last):
                if excess <= 0:
                    return
                excess -= self._reads.batch_size(batch)
                yield batch, before

    def _old(self, before: float, keep_last: int) -> Iterator[tuple[int, float]]:
        last = 0
        while found := self._reads.prunable_batches(before, keep_last, last, BATCHES_PER_LOOK):
            yield from ((batch, before) for batch in found)
            last = found[-1]

    def _remove_batch(self, batch: int, before: float, removed: Removed, is_over: Callable[[], bool]) -> bool:
        """Remove a batch, step by step; False if the time is over before it is gone."""
        while tasks := self._reads.prunable_tasks(batch, TASKS_PER_STEP):
            if is_over():
                return False
            for seq, number in tasks:
                self._remove_logs(seq, number)
            step = self._ask(PruneTasks(tuple(seq for seq, _ in tasks), before))
            removed.tasks += step["removed"]
            if not step["removed"] and not step["more"]:
                return True  # a task of it is wanted again
        return True

    def _ask(self, request: PruneTasks | PruneHistory) -> dict[str, Any]:
        time.sleep(PAUSE_S)
        answer: dict[str, Any] = self._engine.call(Call(request)).result()
        return answer


class Retention:
    """Applies a policy now and then, from a thread of its own. Stop it before the engine."""

    def __init__(self, pruner: Pruner, policy: Callable[[], Policy], on_removed: Callable[[Removed], None]) -> None:
        self._pruner = pruner
        self._policy = policy
        self._on_removed = on_removed
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="retention", daemon=True)

    def start(self) -> None:
        """The first look is after `FIRST_LOOK_S`, not amid all that a start has to do."""
        self._thread.start()

    def stop(self) -> None:
        """Let go after the present step."""
        self._stopped.set()
        self._thread.join()

    def _run(self) -> None:
        pause_s = FIRST_LOOK_S
        while not self._stopped.wait(pause_s):
            pause_s = LOOK_EVERY_S
            with suppress(Unavailable, StoreUnavailable, RequestFailed):  # the engine tells of its faults itself
                removed = self._pruner.run(self._policy(), LOOK_EVERY_S, self._stopped.is_set)
                if removed.tasks or removed.lines:
                    self._on_removed(removed)
