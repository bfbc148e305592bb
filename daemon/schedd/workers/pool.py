"""A fixed number of worker threads that carry out the engine's orders: `engine.loop.Executor`.

Theory of operation
-------------------
Orders wait in one queue; a worker takes one, runs the attempt to its end and reports it. An attempt is in `_attempts`
from its order until its end is claimed: whoever takes it out of there reports it, so that every order is answered
exactly once. Usually that is its worker. When a function in a thread ignores its flag past the grace, the terminator
claims the end, and a new worker takes the place of the thread, whose return then finds nothing to claim.

It refuses to know which task runs when. Tests: tests/unit/workers/test_pool.py.
"""

import contextlib
import logging
import os
import queue
import threading
import time
from collections import deque
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from schedd.core.events import AttemptEnded, AttemptSpawned, StartAttempt, StopAttempt
from schedd.core.model import Outcome, StopReason
from schedd.workers import call, command, ending, environment, logfiles, signals, text
from schedd.workers.attempt import Attempt
from schedd.workers.cgroups import Cgroups
from schedd.workers.ending import Ending
from schedd.workers.identity import Marker
from schedd.workers.server import Server
from schedd.workers.terminator import Terminator
from schedd.workers.work import BadPayload, Work, decode

CLOSE_PATIENCE_S = 5.0

OUTCOME_OF = {
    StopReason.CANCELLED: Outcome.CANCELLED,
    StopReason.INTERRUPTED: Outcome.INTERRUPTED,
    StopReason.DEADLINE: Outcome.TIMED_OUT,
}


class Running(NamedTuple):
    """An attempt in flight; `pid` is None before its process exists, and for a function in a thread."""

    seq: int
    number: int
    pid: int | None


class Pool:
    """`workers` threads. `report` is called from any of them, must not block, and gets each attempt's end once.

    Without `log_dir` output is thrown away; without `marker` recovery could not find what is left of an attempt,
    without `cgroups` what left an attempt's process group outlives it.
    """

    def __init__(
        self,
        workers: int,
        report: Callable[[AttemptEnded], None],
        *,
        log_dir: Path | None = None,
        marker: Marker | None = None,
        cgroups: Cgroups | None = None,
        now: Callable[[], float] = time.time,
    ) -> None:
        self._report = report
        self._log_dir = log_dir
        self._marker = marker
        self._cgroups = cgroups
        self._now = now
        self._environment = environment.base(os.environ)
        self._orders: queue.SimpleQueue[Attempt | None] = queue.SimpleQueue()
        self._attempts: dict[tuple[int, int], Attempt] = {}
        self._spawned: deque[AttemptSpawned] = deque()
        self._terminator = Terminator()
        self._server = Server(self._environment, marker)
        self._lock = threading.Lock()  # guards _wanted, _threads and _named
        self._wanted = workers
        self._threads: set[threading.Thread] = set()
        self._named = 0

    # --- for the engine -----------------------------------------------------------------------------------------

    def start(self, order: StartAttempt, payload: Any) -> None:
        """Begin an attempt; its end is reported, whatever happens."""
        attempt = Attempt(order, payload)
        self._attempts[order.seq, order.number] = attempt
        if not self._wanted:
            self._end(attempt, Ending(Outcome.INTERRUPTED))  # closed
            return
        if len(self._threads) < self._wanted:
            self._fill()
            if not self._threads:
                self._end(attempt, ending.schedd_failed("there is no room for a single worker thread"))
                return
        self._orders.put(attempt)

    def stop(self, order: StopAttempt) -> None:
        """Ask a running attempt to end; one that has ended already is no news."""
        attempt = self._attempts.get((order.seq, order.number))
        if attempt is not None:
            self._terminator.stop(attempt, OUTCOME_OF[order.reason])

    def take_spawned(self) -> list[AttemptSpawned]:
        """The processes that came to be since the last call."""
        spawned: list[AttemptSpawned] = []
        while self._spawned:
            spawned.append(self._spawned.popleft())
        return spawned

    # --- for whoever owns the pool ------------------------------------------------------------------------------

    def open(self) -> None:
        """Start the workers (else the first order does). Called by the main thread it also sees to it that processes
        inherit no ignored signals.
        """
        if self._log_dir is not None:
            signals.keep_ignored_from_children()
        self._fill()

    def resize(self, workers: int) -> None:
        """Have this many workers; those that are too many end when they are free."""
        with self._lock:
            surplus = self._wanted - workers
            self._wanted = workers
        for _ in range(surplus):
            self._orders.put(None)
        self._fill()

    def running(self) -> list[Running]:
        """The attempts in flight, by submission."""
        attempts = sorted(self._attempts.copy().items())
        return [Running(seq, number, attempt.pid) for (seq, number), attempt in attempts]

    def close(self, timeout: float = CLOSE_PATIENCE_S) -> bool:
        """End the workers, and kill the processes of attempts that still run; False if a worker is left after
        `timeout` seconds (a function in a thread cannot be killed). Ends are reported as ever.
        """
        deadline = time.monotonic() + timeout
        with self._lock:
            self._wanted = 0
            threads = list(self._threads)
        for _ in threads:
            self._orders.put(None)
        for attempt in self._attempts.copy().values():
            attempt.ask_to_end(Outcome.INTERRUPTED)
            if attempt.work is not None and not attempt.work.in_thread:
                attempt.make_end()
        for thread in threads:
            thread.join(max(deadline - time.monotonic(), 0.0))
        self._server.close(max(deadline - time.monotonic(), 1.0))
        self._terminator.close()
        return not any(thread.is_alive() for thread in threads)

    # --- the workers --------------------------------------------------------------------------------------------

    def _fill(self) -> None:
        """Start the workers that are missing, as far as there is room for threads."""
        with self._lock:
            while len(self._threads) < self._wanted:
                self._named += 1
                thread = threading.Thread(target=self._work, name=f"worker-{self._named}", daemon=True)
                try:
                    thread.start()
                except RuntimeError:  # no more threads; the next order tries again
                    return
                self._threads.add(thread)

    def _work(self) -> None:
        """The life of a worker: until it is one too many, or was replaced."""
        me = threading.current_thread()
        while (attempt := self._orders.get()) is not None:
            attempt.worker = me
            if not self._end(attempt, self._carry_out(attempt)):
                break  # abandoned: another has taken this place
        with self._lock:
            self._threads.discard(me)

    def _carry_out(self, attempt: Attempt) -> Ending:
        """Run the attempt to its end, whatever happens."""
        try:
            return self._run(attempt)
        except BadPayload as error:
            return ending.start_failed(str(error))
        except BaseException as error:  # a bug of ours must cost neither the attempt's end nor a worker
            logging.getLogger(__name__).exception("an attempt could not be carried out: %r", attempt.order)
            reason = f"schedd itself failed: {text.of_error(error)}"
            return ending.failed(reason) if attempt.began else ending.schedd_failed(reason)

    def _run(self, attempt: Attempt) -> Ending:
        work = attempt.work = decode(attempt.payload)
        if attempt.reason is not None:
            return Ending(attempt.reason)  # stopped before it began
        if not work.in_thread:
            return self._run_process(attempt, work)
        if work.timeout is not None:
            self._terminator.limit(attempt, work.timeout)
        return call.run_in_thread(
            attempt, work, partial(self._abandon, attempt), partial(self._write_log, attempt.order)
        )

    def _run_process(self, attempt: Attempt, work: Work) -> Ending:
        order = attempt.order
        try:
            log = self._open_log(order, anew=True)
        except OSError as error:
            return ending.schedd_failed(f"cannot open the log file {error.filename!r}: {error.strerror}")
        cgroup = self._cgroups.take() if self._cgroups is not None else None
        try:
            variables = environment.for_attempt(self._environment, work.env, order, self._marker)
            setting = command.Setting(variables, log, self._began, cgroup)
            if work.call is not None:
                return call.run_in_process(attempt, work, setting, self._server)
            return command.run(attempt, work, setting)
        finally:
            os.close(log)
            if self._cgroups is not None and cgroup is not None:
                self._cgroups.give_back(cgroup)

    def _began(self, attempt: Attempt, work: Work, pid: int, started: int) -> None:
        """A process came to be."""
        attempt.pid = pid
        self._spawned.append(AttemptSpawned(attempt.order.seq, attempt.order.number, pid, started))
        if work.timeout is not None:
            self._terminator.limit(attempt, work.timeout)

    def _abandon(self, attempt: Attempt) -> None:
        """Wait no longer for a function that does not end: report it, and replace the thread that it keeps."""
        reason = attempt.reason
        assert reason is not None, "only what was asked to end is abandoned"
        why = _why_stopped(attempt, reason) or "it was told to stop"
        error = f"abandoned: {why}, did not return within {attempt.grace:g} s, and still occupies its thread"
        if self._end(attempt, Ending(reason, error=error)) and attempt.worker is not None:
            with self._lock:
                self._threads.discard(attempt.worker)
            self._fill()

    def _end(self, attempt: Attempt, ended: Ending) -> bool:
        """Report the end of an attempt; False if that was done already."""
        order = attempt.order
        if self._attempts.pop((order.seq, order.number), None) is None:
            return False
        self._terminator.forget(attempt)
        stopped_by = attempt.stopped_by
        if stopped_by is not None and ended.outcome is not Outcome.START_FAILED:
            ended = ended._replace(outcome=stopped_by, error=_why_stopped(attempt, stopped_by), result=None)
        try:
            self._report(ending.event(ended, order, self._now(), time.monotonic() - attempt.ordered_at))
        except BaseException:  # `report` is not ours, and the worker has others to serve
            logging.getLogger(__name__).exception("the end of an attempt could not be reported: %r", order)
        return True

    # --- logs ---------------------------------------------------------------------------------------------------

    def _open_log(self, order: StartAttempt, *, anew: bool = False) -> int:
        if self._log_dir is None:
            return os.open(os.devnull, os.O_WRONLY | os.O_CLOEXEC)
        return logfiles.open_log(logfiles.log_path(self._log_dir, order.seq, order.number), anew=anew)

    def _write_log(self, order: StartAttempt, output: str) -> None:
        """Add to an attempt's log. A log is worth having, not worth failing for."""
        if self._log_dir is None:
            return
        with contextlib.suppress(OSError):
            log = self._open_log(order)
            with open(log, "wb") as file:
                file.write(output.encode("utf-8", "replace"))


def _why_stopped(attempt: Attempt, reason: Outcome) -> str | None:
    """For the error of an attempt that was made to end; a cancel and a shutdown explain themselves."""
    if reason is Outcome.TIMED_OUT and attempt.work is not None and attempt.work.timeout is not None:
        return f"timed out after {attempt.work.timeout:g} s"
    return None
