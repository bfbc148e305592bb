"""Functions in threads: results, errors, the flag, and the threads that do not come back."""

import functools
import json
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from workers_bench import Bench, until

from schedd.core.model import Outcome, StopReason
from schedd.workers.pool import OUTCOME_OF
from schedd.workers.work import THREAD, Work


def function(call: Any, *args: Any, grace: float = 10.0, timeout: float | None = None) -> Work:
    return Work(function=call, args=args, isolation=THREAD, grace=grace, timeout=timeout)


class Stuck:
    """A function that returns when the test lets it."""

    def __init__(self) -> None:
        self.entered = threading.Semaphore(0)
        self.let_go = threading.Event()
        self.left = threading.Semaphore(0)

    def __call__(self) -> str:
        self.entered.release()
        self.let_go.wait(20)
        self.left.release()
        return "late"


@pytest.fixture
def stuck() -> Iterator[Stuck]:
    made = Stuck()
    yield made
    made.let_go.set()


def raising(error: BaseException) -> Any:
    def call() -> None:
        raise error

    return call


def test_result(bench: Bench) -> None:
    """A function's result is kept as JSON text; None is no result."""
    ended = bench.run(function(lambda left, right: [left, right], 1, "é"))
    assert (ended.outcome, ended.result, ended.exit_code) == (Outcome.SUCCEEDED, '[1,"é"]', None)
    assert bench.run(function(lambda: None)).result is None
    assert bench.run(function(object)).outcome is Outcome.SUCCEEDED


def test_named_function(bench: Bench) -> None:
    """With isolation `thread` a named function is imported in this process."""
    assert bench.run(call="os:getpid", isolation="thread").result == json.dumps(__import__("os").getpid())
    ended = bench.run(call="no_such_module:f", isolation="thread")
    assert (ended.outcome, ended.counts) == (Outcome.START_FAILED, True)
    assert "ModuleNotFoundError" in (ended.error or "")


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (ConnectionError("test db not up yet"), "ConnectionError: test db not up yet"),
        (ValueError(), "ValueError"),
        (KeyboardInterrupt(), "KeyboardInterrupt"),
        (SystemExit(3), "SystemExit: 3"),
        (GeneratorExit(), "GeneratorExit"),
    ],
)
def test_failure(bench: Bench, error: BaseException, text: str) -> None:
    """Whatever a function raises is the error of its attempt, with the traceback in the log."""
    ended = bench.run(function(raising(error)))
    assert (ended.outcome, ended.error) == (Outcome.FAILED, text)
    log = bench.log(1)
    assert b"in call" in log
    assert b"run_in_thread" not in log
    assert bench.run(function(lambda: 1)).result == "1", "the worker lives on"


def test_leaving_with_zero_is_success(bench: Bench) -> None:
    """`sys.exit(0)` says what it says everywhere."""
    assert bench.run(function(raising(SystemExit(0)))).outcome is Outcome.SUCCEEDED


def test_unreadable_error(bench: Bench) -> None:
    """An exception that cannot be turned into text is still an error with a name."""

    class Mute(Exception):
        def __str__(self) -> str:
            raise RuntimeError

    assert bench.run(function(raising(Mute()))).error == "Mute: (its message cannot be read: RuntimeError)"


@pytest.mark.parametrize("reason", list(StopReason))
def test_flag(bench: Bench, reason: StopReason) -> None:
    """A parameter named `cancel` is an event; what ends after it was set ended because of it."""
    entered = threading.Event()

    def heed(cancel: threading.Event) -> bool:
        entered.set()
        return cancel.wait(20)

    seq = bench.start(function(heed))
    assert entered.wait(20)
    bench.stop(seq, reason)
    ended = bench.end()
    assert (ended.outcome, ended.result) == (OUTCOME_OF[reason], None)


def test_timeout_sets_the_flag(bench: Bench) -> None:
    """A timeout sets the flag too."""
    ended = bench.run(function(lambda cancel: cancel.wait(20), timeout=0.02))
    assert (ended.outcome, ended.error) == (Outcome.TIMED_OUT, "timed out after 0.02 s")


def test_interrupt_that_cannot_be_heard_ends_nothing(bench: Bench, stuck: Stuck) -> None:
    """A function without the parameter that returns within its grace has done its work: it is not run again."""
    seq = bench.start(function(stuck))
    stuck.entered.acquire()
    bench.stop(seq, StopReason.INTERRUPTED)
    attempt = bench.pool._attempts[seq, 1]
    until(lambda: attempt.reason, "the reason to arrive")
    stuck.let_go.set()
    ended = bench.end()
    assert (ended.outcome, ended.result) == (Outcome.SUCCEEDED, '"late"')


def test_cancelled_is_cancelled_even_if_it_succeeded(bench: Bench, stuck: Stuck) -> None:
    """A function that cannot hear of its cancel and succeeds is cancelled."""
    seq = bench.start(function(stuck))
    stuck.entered.acquire()
    bench.stop(seq)
    attempt = bench.pool._attempts[seq, 1]
    until(lambda: attempt.reason, "the reason to arrive")
    stuck.let_go.set()
    assert bench.end().outcome is Outcome.CANCELLED


def test_abandoned_and_replaced(bench: Bench, stuck: Stuck) -> None:
    """Threads that ignore their flag past the grace are abandoned, said so, replaced, and their return is dropped."""
    seqs = [bench.start(function(stuck, grace=0.02)) for _ in range(2)]
    for _ in seqs:
        stuck.entered.acquire()
    for seq in seqs:
        bench.stop(seq)
    for _ in seqs:
        ended = bench.end()
        assert ended.outcome is Outcome.CANCELLED
        assert "abandoned" in (ended.error or "")
        assert "0.02 s" in (ended.error or "")
    assert bench.run(function(lambda: 1)).result == "1", "both threads are occupied, so this is a new one"
    assert len(bench.pool._threads) == 2
    stuck.let_go.set()
    for _ in seqs:
        stuck.left.acquire()
    names = {thread.name for thread in bench.pool._threads}
    until(
        lambda: {thread.name for thread in threading.enumerate() if thread.name.startswith("worker-")} <= names,
        "the abandoned threads to end",
    )
    assert bench.run(function(lambda: 2)).result == "2"


def test_timeout_abandons(bench: Bench, stuck: Stuck) -> None:
    """A timeout that is not heard abandons the thread and says after how long it came."""
    ended = bench.run(function(stuck, timeout=0.02, grace=0.02))
    assert ended.outcome is Outcome.TIMED_OUT
    assert "timed out after 0.02 s" in (ended.error or "")


def test_stopped_before_it_began(bench: Bench, stuck: Stuck) -> None:
    """What is cancelled while it waits for a worker never begins."""
    seqs = [bench.start(function(stuck)) for _ in range(2)]
    for _ in seqs:
        stuck.entered.acquire()
    ran: list[int] = []
    waiting = bench.start(function(ran.append, 1))
    bench.stop(waiting)
    until(lambda: bench.pool._attempts[waiting, 1].reason, "the reason to arrive")
    stuck.let_go.set()
    outcomes = {ended.seq: ended.outcome for ended in (bench.end() for _ in range(3))}
    assert outcomes[waiting] is Outcome.CANCELLED
    assert ran == []


def test_cancel_given_by_the_task(bench: Bench) -> None:
    """An argument named `cancel` of the task's own is not replaced."""
    work = Work(function=lambda cancel: cancel, kwargs={"cancel": "mine"}, isolation=THREAD)
    assert bench.run(work).result == '"mine"'
    assert bench.run(function(functools.partial(lambda cancel: cancel, "mine"))).result == '"mine"'
