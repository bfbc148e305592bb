"""The clocks of the engine: wall time for records and due times, a monotonic one for waiting.

Tests: tests/unit/engine/test_clock.py.
"""

import time
from collections.abc import Callable
from typing import Protocol

LONGEST_WAIT_S = 30.0
"""No wait for a due time is longer: the wall clock may be set, the machine suspended, while we wait."""

SMALLEST_STEP_S = 1.0
"""A smaller disagreement between wall and boot clock is drift or slewing, not a step."""


class Clock(Protocol):
    """What the engine asks of time."""

    def now(self) -> float:
        """Wall time, UTC seconds since the epoch."""

    def monotonic(self) -> float:
        """Seconds that never go back, for bounds on waiting."""

    def wait_for(self, due: float) -> float:
        """How many seconds to wait for a message before it is worth asking for `due` (wall time) again."""

    def take_step(self) -> float:
        """By how many seconds the wall clock was set since the last call; 0.0 if it was not."""

    def subscribe(self, wake: Callable[[], None]) -> None:
        """Have `wake` called whenever waiting should be thought over because the clock was moved by hand."""


class SystemClock:
    """The machine's clocks. Steps are seen by comparing wall time with CLOCK_BOOTTIME, which counts suspends too."""

    def __init__(self) -> None:
        self._offset = self._measure_offset()

    def now(self) -> float:
        return time.time()

    def monotonic(self) -> float:
        return time.monotonic()

    def wait_for(self, due: float) -> float:
        return min(max(due - time.time(), 0.0), LONGEST_WAIT_S)

    def take_step(self) -> float:
        offset = self._measure_offset()
        step = offset - self._offset
        if abs(step) < SMALLEST_STEP_S:
            return 0.0
        self._offset = offset
        return step

    def subscribe(self, wake: Callable[[], None]) -> None:
        """Nothing to do: a real clock moves by itself."""

    @staticmethod
    def _measure_offset() -> float:
        return time.time() - time.clock_gettime(time.CLOCK_BOOTTIME)


class ManualClock:
    """A clock that stands still until it is told to move: for tests and simulations. Thread-safe enough for both."""

    def __init__(self, start: float = 0.0) -> None:
        self._now = start
        self._wakes: list[Callable[[], None]] = []

    def now(self) -> float:
        return self._now

    def monotonic(self) -> float:
        return time.monotonic()

    def wait_for(self, due: float) -> float:
        return LONGEST_WAIT_S

    def take_step(self) -> float:
        return 0.0

    def subscribe(self, wake: Callable[[], None]) -> None:
        self._wakes.append(wake)

    def advance(self, seconds: float) -> None:
        """Let time pass; never backwards."""
        assert seconds >= 0
        self._now += seconds
        for wake in self._wakes:
            wake()
