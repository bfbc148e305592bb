"""Ends attempts: at once when asked, at their timeout, and for good when their grace is over.

One thread sleeps until the next deadline; without deadlines it sleeps until somebody comes. It refuses to know why an
attempt must end and how that is done (`attempt.Target`). Tests: tests/unit/workers/test_terminator.py.
"""

import heapq
import itertools
import logging
import threading
import time

from schedd.core.model import Outcome
from schedd.workers.attempt import Attempt

_Entry = tuple[float, int, Attempt, Outcome | None]  # when (monotonic), order of arrival, whose, why (None: for good)
_SLACK = 64
LONGEST_INTERRUPT_S = 15.0
"""A stop of schedd waits no longer than this for an attempt that was told to end, whatever its own grace."""


class Terminator:
    """Every method may be called from any thread; none blocks longer than it takes to note a deadline."""

    def __init__(self) -> None:
        self._wake = threading.Condition()  # guards all below, and every attempt's `over` and `timed`
        self._heap: list[_Entry] = []
        self._stale = 0
        self._count = itertools.count()
        self._thread: threading.Thread | None = None
        self._closed = False

    def stop(self, attempt: Attempt, reason: Outcome) -> None:
        """Ask an attempt to end now; make it end after its grace."""
        self._push(time.monotonic(), attempt, reason)

    def limit(self, attempt: Attempt, timeout_s: float) -> None:
        """Ask an attempt to end when it has taken `timeout_s` seconds from now."""
        self._push(time.monotonic() + timeout_s, attempt, Outcome.TIMED_OUT)

    def forget(self, attempt: Attempt) -> None:
        """An attempt is over: its deadlines mean nothing any more. Cheap for one that has none."""
        attempt.over = True  # before the look at `timed`: whoever pushes after it sees it
        if not attempt.timed:
            return
        with self._wake:
            self._stale += attempt.timed
            attempt.timed = 0
            if self._stale > len(self._heap) // 2 + _SLACK:
                self._heap = [entry for entry in self._heap if not entry[2].over]
                heapq.heapify(self._heap)
                self._stale = 0

    def close(self) -> None:
        """End the thread; deadlines that are left are dropped."""
        with self._wake:
            self._closed = True
            self._wake.notify()
            thread = self._thread
        if thread is not None and thread is not threading.current_thread():
            thread.join(1.0)

    def _push(self, at: float, attempt: Attempt, reason: Outcome | None) -> None:
        with self._wake:
            if attempt.over or self._closed:
                return
            attempt.timed += 1
            heapq.heappush(self._heap, (at, next(self._count), attempt, reason))
            if self._thread is None:
                self._start()
            if self._heap[0][2] is attempt:
                self._wake.notify()

    def _start(self) -> None:
        thread = threading.Thread(target=self._run, name="terminator", daemon=True)
        try:
            thread.start()
        except RuntimeError:  # no room for a thread: the deadline is kept, and the next push tries again
            return
        self._thread = thread

    def _run(self) -> None:
        while (entry := self._next()) is not None:
            try:
                self._act(entry[2], entry[3])
            except Exception:
                logging.getLogger(__name__).exception("an attempt could not be told to end: seq %d", entry[2].order.seq)

    def _next(self) -> _Entry | None:
        """Wait for the next deadline that means something; None when closed."""
        with self._wake:
            while not self._closed:
                if not self._heap:
                    self._wake.wait()
                    continue
                remaining_s = self._heap[0][0] - time.monotonic()
                if remaining_s > 0 and not self._heap[0][2].over:
                    self._wake.wait(min(remaining_s, threading.TIMEOUT_MAX))
                    continue
                entry = heapq.heappop(self._heap)
                attempt = entry[2]
                if attempt.over:
                    self._stale = max(self._stale - 1, 0)
                    continue
                attempt.timed -= 1
                return entry
        return None

    def _act(self, attempt: Attempt, reason: Outcome | None) -> None:
        if reason is None:
            attempt.make_end()
            return
        first = attempt.ask_to_end(reason)
        if reason is Outcome.INTERRUPTED:  # also for one that was asked before, and has its grace still
            self._push(time.monotonic() + min(attempt.grace, LONGEST_INTERRUPT_S), attempt, None)
        elif first:
            self._push(time.monotonic() + attempt.grace, attempt, None)
