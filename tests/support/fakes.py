"""Fakes of what the engine drives: an executor that only remembers, clocks that stand still, a store that fails."""

from collections.abc import Callable
from typing import Any

from schedd.core.events import AttemptEnded, AttemptSpawned, StartAttempt, StopAttempt
from schedd.core.model import Outcome
from schedd.store.base import Store


class FakeClock:
    """Wall and monotonic time that move only when told to; the wall may also be set."""

    def __init__(self, start: float = 1_000_000.0) -> None:
        self.wall = start
        self.mono = 0.0
        self.step = 0.0

    def now(self) -> float:
        return self.wall

    def monotonic(self) -> float:
        return self.mono

    def wait_for(self, due: float) -> float:
        return max(due - self.wall, 0.0)

    def take_step(self) -> float:
        step, self.step = self.step, 0.0
        return step

    def subscribe(self, wake: Callable[[], None]) -> None:
        """A fake clock wakes nobody."""

    def advance(self, seconds: float) -> None:
        """Let time pass."""
        self.wall += seconds
        self.mono += seconds

    def set_by(self, delta: float) -> None:
        """Set the wall clock, as an admin would."""
        self.wall += delta
        self.step += delta


class FakeExecutor:
    """Remembers what it was told; the test decides how attempts end."""

    def __init__(self) -> None:
        self.started: list[StartAttempt] = []
        self.running: dict[int, StartAttempt] = {}
        self.payloads: dict[int, Any] = {}
        self.stopped: list[StopAttempt] = []
        self.spawned: list[AttemptSpawned] = []

    def start(self, order: StartAttempt, payload: Any) -> None:
        assert order.seq not in self.running, f"two attempts of task {order.id} at once"
        self.started.append(order)
        self.running[order.seq] = order
        self.payloads[order.seq] = payload

    def stop(self, order: StopAttempt) -> None:
        self.stopped.append(order)

    def take_spawned(self) -> list[AttemptSpawned]:
        spawned, self.spawned = self.spawned, []
        return spawned

    def end(self, seq: int, outcome: Outcome, now: float, **more: Any) -> AttemptEnded:
        """The end of a running attempt, as a worker would post it."""
        order = self.running.pop(seq)
        return AttemptEnded(order.seq, order.number, outcome, now, task_id=order.id, **more)


class FailingStore:
    """A real store whose methods raise when `fail(method, count)` says so, before or after they did their work.

    `fail` is called before each operation with its name and the number of operations so far (from 1); what it returns
    is raised. `fail_late` is called after each commit that succeeded: what it returns is raised although the commit
    is durable.
    """

    def __init__(
        self,
        inner: Store,
        fail: Callable[[str, int], BaseException | None],
        fail_late: Callable[[int], BaseException | None] = lambda count: None,
    ) -> None:
        self.inner = inner
        self.count = 0
        self._fail = fail
        self._fail_late = fail_late

    def __getattr__(self, name: str) -> Any:
        method = getattr(self.inner, name)
        if name in ("rollback", "tend", "close"):
            return method

        def call(*args: Any) -> Any:
            self.count += 1
            error = self._fail(name, self.count)
            if error is not None:
                raise error
            result = method(*args)
            if name == "commit":
                late = self._fail_late(self.count)
                if late is not None:
                    raise late
            return result

        return call
