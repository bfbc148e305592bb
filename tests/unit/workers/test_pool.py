"""The pool: every order is answered once, whatever happens to workers."""

import queue
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from workers_bench import Bench, is_alive, until

from schedd.core.events import AttemptEnded, StartAttempt, StopAttempt
from schedd.core.model import Outcome, StopReason
from schedd.workers import command
from schedd.workers.identity import Marker
from schedd.workers.pool import Pool, Running
from schedd.workers.work import Work

ORDER = StartAttempt(1, "a", 1, 1)


def collect() -> "tuple[Pool, queue.SimpleQueue[AttemptEnded]]":
    ends: queue.SimpleQueue[AttemptEnded] = queue.SimpleQueue()
    return Pool(2, ends.put, now=lambda: 123.0), ends


def test_damaged_payload(bench: Bench) -> None:
    """A payload that cannot be read is a start that failed, and counts."""
    ended = bench.run(run="x", command=["y"])
    assert (ended.outcome, ended.counts) == (Outcome.START_FAILED, True)


def test_our_own_bug_before_the_start(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """An error of schedd's own before anything began does not count, and the worker lives on."""

    def broken(*arguments: Any) -> Any:
        raise SystemError("bug")

    with monkeypatch.context() as patch:
        patch.setattr(command, "run", broken)
        ended = bench.run(run="x")
    assert (ended.outcome, ended.counts, ended.error) == (
        Outcome.START_FAILED,
        False,
        "schedd itself failed: SystemError: bug",
    )
    assert bench.run(run="true").outcome is Outcome.SUCCEEDED


def test_our_own_bug_after_the_start(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """An error of schedd's own while a command runs kills and reaps it, and is told as a failure."""

    def broken(pid: int) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(command, "_await_end", broken)
        ended = bench.run(run="sleep 60")
    assert (ended.outcome, ended.error) == (Outcome.FAILED, "schedd itself failed: KeyboardInterrupt")
    (spawned,) = bench.pool.take_spawned()
    assert not Path(f"/proc/{spawned.pid}").exists()


def test_report_that_raises(caplog: pytest.LogCaptureFixture) -> None:
    """A report that raises is logged, and the worker serves the next order."""
    ends: queue.SimpleQueue[AttemptEnded] = queue.SimpleQueue()

    def report(ended: AttemptEnded) -> None:
        if ended.seq == 1:
            raise RuntimeError
        ends.put(ended)

    pool = Pool(1, report)
    for seq in (1, 2):
        pool.start(StartAttempt(seq, str(seq), 1, 1), Work.of_function(len, ["x"]))
    assert ends.get(timeout=20).seq == 2
    assert "could not be reported" in caplog.text
    assert pool.close()


def test_without_opening_and_logs() -> None:
    """The first order opens the pool; without a directory for logs output is thrown away."""
    pool, ends = collect()
    pool.start(ORDER, '{"run": "echo x; exit 4"}')
    ended = ends.get(timeout=20)
    assert (ended.exit_code, ended.ended_at) == (4, 123.0)
    assert pool.close()


def test_stop_of_what_is_not_there(bench: Bench) -> None:
    """Stopping an attempt that has ended, or never was, is no news."""
    seq = bench.run(run="true").seq
    bench.stop(seq)
    bench.stop(99)
    assert bench.run(run="true").outcome is Outcome.SUCCEEDED


def test_workers_run_at_once_and_no_more() -> None:
    """As many attempts run at once as there are workers, whatever that number is changed to."""
    pool, ends = collect()
    gate = threading.Event()
    inside = threading.Semaphore(0)

    def wait() -> None:
        inside.release()
        gate.wait(20)

    for seq in range(1, 6):
        pool.start(StartAttempt(seq, str(seq), 1, 1), Work.of_function(wait))
    for _ in range(2):
        assert inside.acquire(timeout=20)
    assert not inside.acquire(blocking=False)
    pool.resize(4)
    for _ in range(2):
        assert inside.acquire(timeout=20)
    assert [running.seq for running in pool.running()] == [1, 2, 3, 4, 5]
    assert {thread.name for thread in pool._threads} == {f"worker-{number}" for number in range(1, 5)}
    pool.resize(1)
    gate.set()
    for _ in range(5):
        ends.get(timeout=20)
    until(lambda: len(pool._threads) == 1, "three workers to leave")
    pool.start(StartAttempt(9, "9", 1, 1), Work.of_function(wait))
    assert ends.get(timeout=20).seq == 9
    assert pool.close()


def test_running_names_processes(bench: Bench) -> None:
    """A snapshot has the pid of each attempt that is a process."""
    seq = bench.start(run="sleep 60")
    pid = bench.pid(seq)
    assert bench.pool.running() == [Running(seq, 1, pid)]
    assert is_alive(pid)
    bench.stop(seq)
    bench.end()


def test_no_room_for_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without room for a single worker an order is postponed; the next one finds workers when there is."""

    def refuse(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    pool, ends = collect()
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", refuse)
        pool.start(ORDER, Work.of_function(len, ["x"]))
        ended = ends.get(timeout=20)
        assert (ended.outcome, ended.counts) == (Outcome.START_FAILED, False)
    pool.start(StartAttempt(2, "b", 1, 1), Work.of_function(len, ["x"]))
    assert ends.get(timeout=20).outcome is Outcome.SUCCEEDED
    assert pool.close()


def test_close_kills_processes(tmp_path: Path, marker: Marker) -> None:
    """What still runs when the pool is closed is killed at once, commands and calls, and its end is told."""
    bench = Bench(tmp_path, 2, marker)
    module = tmp_path / "deaf.py"
    module.write_text(
        "import signal, time\n"
        "def run():\n"
        "    signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        "    print('up', flush=True)\n"
        "    time.sleep(60)\n"
    )
    one = bench.start(run="trap '' TERM; echo up; while :; do sleep 0.01; done")
    two = bench.start(call="deaf:run", cwd=str(tmp_path))
    for seq in (one, two):
        bench.until_log(seq, b"up")
    pids = [bench.pid(seq) for seq in (one, two)]
    began = time.monotonic()
    assert bench.pool.close()
    assert time.monotonic() - began < 5
    assert {bench.end().outcome for _ in pids} == {Outcome.INTERRUPTED}
    assert not any(is_alive(pid) for pid in pids)


def test_close_does_not_wait_for_what_cannot_be_killed() -> None:
    """A function that does not return keeps `close` no longer than its timeout, and is told as left."""
    pool, _ = collect()
    gate, inside = threading.Event(), threading.Event()

    def wait() -> None:
        inside.set()
        gate.wait(20)

    pool.start(ORDER, Work.of_function(wait))
    assert inside.wait(20)
    threads = list(pool._threads)
    assert not pool.close(0.05)
    gate.set()
    for thread in threads:
        thread.join(20)


def test_closed_pool_answers() -> None:
    """An order to a closed pool is answered as interrupted, not forgotten."""
    pool, ends = collect()
    pool.open()
    assert pool.close()
    pool.start(ORDER, Work.of_function(len, ["x"]))
    pool.stop(StopAttempt(1, 1, StopReason.CANCELLED))
    assert ends.get(timeout=20).outcome is Outcome.INTERRUPTED
