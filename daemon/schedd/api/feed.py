"""What tells the handlers that something was committed: a bridge from the engine's thread to the event loop.

Theory of operation
-------------------
The engine calls `notify` after each commit: it counts, and only if somebody waits it sends one wake-up to the loop and
puts the bell away. A `Watch` is one request's wait: it remembers the count before its last reading of the rows, hangs
the bell out when it has nothing to do, and comes back at most once in `PACE_S` (later still if its readings take
long). So ten thousand commits a second cost some twenty wake-ups for all who wait, and none when nobody does.

A `Follower` waits for one thing only, the end of an attempt, and keeps an eye on a file meanwhile: it is told when to
ask whether that attempt still runs, so that it need not ask all the time.

Beyond that it refuses to know what was committed. Tests: tests/api/test_feed.py.
"""

import asyncio
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

from schedd.engine.loop import Committed

PACE_S = 0.05
"""No watch comes back sooner than this after its last time."""

SHARE = 4
"""A watch whose readings take long pauses this many times as long as they take, so that it leaves room for others."""

LONGEST_PAUSE_S = 1.0


class Feed:
    """Counts commits and wakes those who watch. `notify` and `close` are for any thread, `watch` for the loop's."""

    def __init__(self) -> None:
        self.count = 0
        self.closed = False
        self._lock = threading.Lock()  # guards _bell (hanging it out against taking it away) and _followers
        self._bell: asyncio.AbstractEventLoop | None = None
        self._waiting: set[asyncio.Future[None]] = set()
        self._followers: dict[tuple[int, int], list[Follower]] = {}  # by (seq, number) of the attempt

    def notify(self, committed: Committed) -> None:  # an engine's observer
        """Something was committed. Quick, and never raises."""
        self.count += 1
        if self._followers:
            self._tell_followers(committed)
        if self._bell is not None:
            self._ring()

    def close(self) -> None:
        """Let every watch end now: the daemon is stopping."""
        self.closed = True
        self._ring()

    def watch(self, timeout_s: float) -> "Watch":
        """A watch that begins now: make it before the first reading of the rows."""
        return Watch(self, timeout_s)

    @contextmanager
    def follow(self, seq: int, number: int) -> "Iterator[Follower]":
        """A follower of that attempt, while the context lasts."""
        follower = Follower()
        with self._lock:
            self._followers.setdefault((seq, number), []).append(follower)
        try:
            yield follower
        finally:
            with self._lock:
                others = self._followers[seq, number]
                others.remove(follower)
                if not others:
                    del self._followers[seq, number]

    async def wait(self, seen: int, timeout_s: float) -> None:
        """Return when the count differs from `seen`, at the timeout, or when the feed closes."""
        loop = asyncio.get_running_loop()
        waiting: asyncio.Future[None] = loop.create_future()
        self._waiting.add(waiting)
        try:
            with self._lock:
                self._bell = loop
            if self.count == seen and not self.closed:  # a commit from here on finds the bell
                await asyncio.wait([waiting], timeout=timeout_s)
        finally:
            self._waiting.discard(waiting)

    def _tell_followers(self, committed: Committed) -> None:
        with self._lock:
            if committed.events or committed.ended:
                told = [self._followers.get((ended.seq, ended.number), []) for ended in committed.ended]
            else:  # a commit that only seemed to fail: nobody knows what has ended in it
                told = list(self._followers.values())
            for followers in told:
                for follower in followers:
                    follower.must_ask = True

    def _ring(self) -> None:
        with self._lock:
            loop, self._bell = self._bell, None
        if loop is not None and not loop.is_closed():
            try:
                loop.call_soon_threadsafe(self._wake)
            except RuntimeError:
                return  # closed in this very moment: nobody waits any more

    def _wake(self) -> None:
        for waiting in self._waiting:
            if not waiting.done():
                waiting.set_result(None)


class Follower:
    """One request's wait for the end of an attempt."""

    def __init__(self) -> None:
        self.must_ask = True  # whether it may have ended since the last question; take it back before you ask


class Watch:
    """One request's wait for commits, up to a timeout. Read the rows, then `await changed()`, and read again."""

    def __init__(self, feed: Feed, timeout_s: float) -> None:
        self._feed = feed
        self._seen = feed.count
        self._read_from = time.monotonic()
        self._deadline = self._read_from + timeout_s

    async def changed(self) -> bool:
        """True when there was a commit since the last reading began, False when the time is up."""
        now = time.monotonic()
        if self._feed.closed or now >= self._deadline:
            return False
        took_s = now - self._read_from
        next_at = now + max(PACE_S - took_s, min(SHARE * took_s, LONGEST_PAUSE_S))
        while not self._feed.closed and self._feed.count == self._seen and (left := self._deadline - now) > 0:
            await self._feed.wait(self._seen, left)  # may end early, by the bell of somebody else's commit
            now = time.monotonic()
        if self._feed.closed or self._feed.count == self._seen:
            return False
        await asyncio.sleep(max(min(next_at, self._deadline) - time.monotonic(), 0.0))
        self._seen = self._feed.count
        self._read_from = time.monotonic()
        return True
