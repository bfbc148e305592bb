"""The feed: who waits is woken by a commit, soon but not for every one."""

import asyncio
import threading
import time
from collections.abc import Callable

import pytest

from schedd.api import feed as feed_module
from schedd.api.feed import PACE_S, Feed
from schedd.engine.loop import Committed

NOTHING = Committed([], [])


def test_a_commit_wakes_a_watch_promptly() -> None:
    """What is committed while a watch waits ends its wait at once, from another thread."""

    async def scenario() -> float:
        feed = Feed()
        watch = feed.watch(30.0)
        await asyncio.sleep(PACE_S)  # past the pace, so that only the wake-up counts
        asked = asyncio.create_task(watch.changed())
        while feed._bell is None:
            await asyncio.sleep(0)
        notified = time.monotonic()
        threading.Thread(target=feed.notify, args=(NOTHING,)).start()
        assert await asked
        return time.monotonic() - notified

    assert asyncio.run(scenario()) < 1.0


def test_a_commit_between_the_reading_and_the_wait_is_not_missed() -> None:
    """A watch that was made before the commit returns at once, though it began to wait after it."""

    async def scenario() -> bool:
        feed = Feed()
        watch = feed.watch(30.0)
        feed.notify(NOTHING)
        return await asyncio.wait_for(watch.changed(), 5.0)

    assert asyncio.run(scenario())


def test_a_watch_ends_at_its_timeout_without_a_commit() -> None:
    """At the timeout there is nothing new to read."""

    async def scenario() -> bool:
        return await asyncio.wait_for(Feed().watch(0.01).changed(), 5.0)

    assert not asyncio.run(scenario())


def test_a_watch_of_no_time_does_not_wait() -> None:
    """A timeout of zero means one reading, whatever was committed."""

    async def scenario() -> bool:
        feed = Feed()
        watch = feed.watch(0.0)
        feed.notify(NOTHING)
        return await watch.changed()

    assert not asyncio.run(scenario())


def test_closing_ends_every_watch() -> None:
    """A stop of the daemon ends those that wait and those that begin to."""

    async def scenario() -> list[bool]:
        feed = Feed()
        asked = [asyncio.create_task(feed.watch(30.0).changed()) for _ in range(3)]
        while len(feed._waiting) < 3:
            await asyncio.sleep(0)
        feed.close()
        ended = await asyncio.wait_for(asyncio.gather(*asked), 5.0)
        return [*ended, await feed.watch(30.0).changed()]

    assert asyncio.run(scenario()) == [False] * 4


def test_many_commits_cost_few_wake_ups_and_few_readings() -> None:
    """A storm of commits wakes the loop about once in PACE_S however many watch, and nobody when nobody does."""

    async def scenario() -> tuple[int, int, float]:
        feed = Feed()
        wakes = 0
        real: Callable[[], None] = feed._wake

        def count() -> None:
            nonlocal wakes
            wakes += 1
            real()

        feed._wake = count  # type: ignore[method-assign]
        stop = threading.Event()

        def storm() -> None:
            while not stop.is_set():
                feed.notify(NOTHING)
                time.sleep(0.0001)

        thread = threading.Thread(target=storm)
        began = time.monotonic()
        thread.start()

        async def follow() -> int:
            watch = feed.watch(0.5)
            readings = 0
            while await watch.changed():
                readings += 1
            return readings

        readings = sum(await asyncio.gather(follow(), follow(), follow(), follow()))
        took = time.monotonic() - began
        after, count_then = wakes, feed.count
        while feed.count < count_then + 100:
            await asyncio.sleep(0.001)
        assert wakes <= after + 1, "the loop is woken though nobody waits"
        stop.set()
        thread.join()
        return wakes, readings, took

    wakes, readings, took = asyncio.run(scenario())
    assert readings >= 4
    assert readings <= 4 * (took / PACE_S + 2)
    assert wakes <= 4 * (took / PACE_S + 2)


def test_slow_readings_are_spaced_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """A watch whose reading took long leaves a multiple of that time free before the next."""
    monkeypatch.setattr(feed_module, "PACE_S", 0.0)

    async def scenario() -> float:
        feed = Feed()
        watch = feed.watch(30.0)
        await asyncio.sleep(0.05)  # the reading
        feed.notify(NOTHING)
        began = time.monotonic()
        assert await watch.changed()
        return time.monotonic() - began

    assert asyncio.run(scenario()) >= 0.15


def test_a_commit_after_the_loop_has_gone_is_no_error() -> None:
    """The engine may outlive the API: its commits then ring for nobody."""
    feed = Feed()

    async def scenario() -> None:
        await feed.watch(0.01).changed()

    asyncio.run(scenario())
    assert feed._bell is not None
    feed.notify(NOTHING)
    assert feed._bell is None
