"""One attempt in flight: the meeting point of the worker that runs it and whoever wants it to end.

Theory of operation
-------------------
The worker attaches a `Target` when there is something to stop, and detaches it when that has ended; the terminator
asks for the end in between. Both happen under the attempt's lock, so a target is never asked after it ended: a pid that
was reaped is never signalled. What is asked for before `attach` is passed on by it.

The first reason wins, except that a cancel beats the others. Whether the attempt ended *because* of a reason is
decided at `detach`: later reasons find it ended. Tests: tests/unit/workers/test_attempt.py.
"""

import threading
import time
from typing import Any, Protocol

from schedd.core import limits
from schedd.core.events import StartAttempt
from schedd.core.model import Outcome
from schedd.workers.work import Work


class Target(Protocol):
    """What can be made to end. Both methods are called under the attempt's lock and must not raise."""

    def terminate(self) -> bool:
        """Ask it to end; False if there is no way of asking."""

    def kill(self) -> None:
        """Make it end."""


class Attempt:
    """What the pool, a worker and the terminator know of one attempt.

    `reason` is why it should end: CANCELLED, INTERRUPTED or TIMED_OUT. `stopped_by` is the reason by which it did.
    `work` and `worker` are set by the worker that takes it, `began` once there was something to stop. `over` and
    `timed` belong to the terminator.
    """

    __slots__ = (
        "_asked",
        "_doomed",
        "_target",
        "began",
        "lock",
        "order",
        "ordered_at",
        "over",
        "payload",
        "pid",
        "reason",
        "stopped_by",
        "timed",
        "work",
        "worker",
    )

    def __init__(self, order: StartAttempt, payload: Any) -> None:
        self.order = order
        self.payload = payload
        self.ordered_at = time.monotonic()
        self.work: Work | None = None
        self.worker: threading.Thread | None = None
        self.pid: int | None = None
        self.began = False
        self.lock = threading.Lock()  # guards all below up to `over`; held while a target is signalled or reaped
        self.reason: Outcome | None = None
        self.stopped_by: Outcome | None = None
        self._target: Target | None = None
        self._asked = False
        self._doomed = False
        self.over = False
        self.timed = 0

    @property
    def grace(self) -> float:
        """Seconds from being asked to end to being made to."""
        return limits.DEFAULT_GRACE_S if self.work is None else self.work.grace

    # --- for the worker -----------------------------------------------------------------------------------------

    def attach(self, target: Target) -> None:
        """From now on there is something to stop."""
        with self.lock:
            self.began = True
            self._target = target
            if self.reason is not None:
                self._asked = target.terminate()
            if self._doomed:
                target.kill()

    def detach(self) -> None:
        """It has ended by itself or because it was asked to: decide which, and be asked no more."""
        with self.lock:
            self.detach_locked()

    def detach_locked(self) -> None:
        """The same for a caller that holds `lock`, because it must reap a process under it."""
        self._target = None
        if self._asked or self.reason in (Outcome.CANCELLED, Outcome.TIMED_OUT):
            self.stopped_by = self.reason
        # an interrupt that nobody could hear has not ended anything: what ended by itself keeps its outcome

    # --- for the terminator -------------------------------------------------------------------------------------

    def ask_to_end(self, reason: Outcome) -> bool:
        """Ask it to end; True if this was the first to ask, and the grace begins."""
        with self.lock:
            first = self.reason is None
            if first or reason is Outcome.CANCELLED:
                self.reason = reason
            if first and self._target is not None:
                self._asked = self._target.terminate()
        return first

    def make_end(self) -> None:
        """The grace is over."""
        with self.lock:
            self._doomed = True
            if self._target is not None:
                self._target.kill()
