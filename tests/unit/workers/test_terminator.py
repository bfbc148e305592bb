"""Deadlines: when attempts are asked to end, and when they are made to."""

import queue
import threading
import time
from collections.abc import Iterator

import pytest

from schedd.core.events import StartAttempt
from schedd.core.model import Outcome
from schedd.workers.attempt import Attempt
from schedd.workers.terminator import Terminator
from schedd.workers.work import Work


class Told:
    """A target that hands on what it is told, and when."""

    def __init__(self) -> None:
        self.said: queue.SimpleQueue[tuple[str, float]] = queue.SimpleQueue()

    def terminate(self) -> bool:
        self.said.put(("terminate", time.monotonic()))
        return True

    def kill(self) -> None:
        self.said.put(("kill", time.monotonic()))

    def next(self) -> tuple[str, float]:
        return self.said.get(timeout=20)


class Broken(Told):
    def terminate(self) -> bool:
        super().terminate()
        raise RuntimeError


@pytest.fixture
def terminator() -> Iterator[Terminator]:
    made = Terminator()
    yield made
    made.close()
    assert made._thread is None or not made._thread.is_alive()


def attempt(target: Told, grace: float = 60.0) -> Attempt:
    one = Attempt(StartAttempt(1, "a", 1, 1), None)
    one.work = Work(run="x", grace=grace)
    one.attach(target)
    return one


def test_stop(terminator: Terminator) -> None:
    """A stop asks at once and makes it end after the grace."""
    target = Told()
    terminator.stop(attempt(target, grace=0.05), Outcome.CANCELLED)
    (first, asked_at), (second, killed_at) = target.next(), target.next()
    assert (first, second) == ("terminate", "kill")
    assert killed_at - asked_at >= 0.05


def test_limit(terminator: Terminator) -> None:
    """A limit asks when it is reached, and an earlier one of another attempt does not wait for it."""
    late, soon = Told(), Told()
    began = time.monotonic()
    terminator.limit(attempt(late), 0.1)
    terminator.limit(attempt(soon), 0.02)
    soon_at, late_at = soon.next()[1], late.next()[1]
    assert soon_at - began >= 0.02
    assert late_at - began >= 0.1
    assert soon_at < late_at


def test_forgotten(terminator: Terminator) -> None:
    """An attempt that is over is not asked any more."""
    target, other = Told(), Told()
    over = attempt(target)
    terminator.limit(over, 0.01)
    terminator.forget(over)
    terminator.stop(over, Outcome.CANCELLED)
    terminator.limit(attempt(other), 0.03)
    assert other.next()[0] == "terminate"
    assert target.said.empty()


def test_deadlines_of_the_past_do_not_pile_up(terminator: Terminator) -> None:
    """What is over leaves the heap long before its deadline."""
    for _ in range(2_000):
        one = attempt(Told())
        terminator.limit(one, 3_000_000_000.0)
        terminator.forget(one)
    assert len(terminator._heap) < 300


def test_a_broken_target_ends_nothing_but_itself(terminator: Terminator, caplog: pytest.LogCaptureFixture) -> None:
    """A target that raises is logged; the next one is served."""
    broken, sound = Broken(), Told()
    terminator.stop(attempt(broken), Outcome.CANCELLED)
    broken.next()
    terminator.stop(attempt(sound), Outcome.CANCELLED)
    assert sound.next()[0] == "terminate"
    assert "could not be told to end" in caplog.text


def test_idle_sleeps(terminator: Terminator) -> None:
    """Without deadlines the thread waits without a timeout: an idle daemon makes no system calls."""
    target = Told()
    one = attempt(target, grace=0.0)
    terminator.stop(one, Outcome.CANCELLED)
    assert [target.next()[0], target.next()[0]] == ["terminate", "kill"]
    terminator.forget(one)
    waits: queue.SimpleQueue[float | None] = queue.SimpleQueue()
    real = terminator._wake.wait

    def wait(timeout: float | None = None) -> bool:
        waits.put(timeout)
        return real(timeout)

    terminator._wake.wait = wait  # type: ignore[method-assign]
    with terminator._wake:
        terminator._wake.notify()
    assert waits.get(timeout=20) is None


def test_no_room_for_a_thread(terminator: Terminator, monkeypatch: pytest.MonkeyPatch) -> None:
    """A deadline that came when no thread could be started is kept, and served as soon as one can."""

    def refuse(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    first, second = Told(), Told()
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", refuse)
        terminator.stop(attempt(first), Outcome.CANCELLED)
    terminator.stop(attempt(second), Outcome.CANCELLED)
    assert first.next()[0] == second.next()[0] == "terminate"
