"""One batch in the foreground, by the daemon's own engine: what `run` does once it knows what and where.

The main thread waits for what the engine's thread makes durable, and shows it. A first signal cancels the tasks and
lets them end; a second one kills them. Tests: tests/acceptance/test_schedctl_run.py.
"""

import queue
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Final

from schedd.cli.errors import ExitCode, WrongUse, complain
from schedd.cli.progress import Board, PlainView, tail_of, view_of
from schedd.cli.render import tally, write
from schedd.core.batch import NewBatch
from schedd.core.errors import Refused
from schedd.engine.inbox import Call
from schedd.engine.loop import Committed, Unavailable
from schedd.engine.requests import CancelTasks, SubmitBatch
from schedd.lock import AlreadyLocked
from schedd.runtime import Runtime, StateDirError
from schedd.store.base import StoreBroken
from schedd.store.migrate import StoreTooNew

SIGNALS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
ONE_SIGNAL_S: Final = 0.3
"""Signals so close together are one: `timeout` sends its signal to a process and then to its group."""

SHOWN_FAILURES: Final = 10
SHOWN_LINES: Final = 20


class News(queue.SimpleQueue[Committed | signal.Signals | None]):
    """What the main thread waits for: what was made durable, signals, and None for the end of the engine."""


class Foreground:
    """One batch on a runtime of its own."""

    def __init__(self, state_dir: Path, workers: int, news: News) -> None:
        self._news = news
        self._runtime = _open(state_dir, workers, news)
        self._signal: signal.Signals | None = None
        self._signal_at = 0.0

    def run(self, batch: NewBatch) -> int:
        """The exit code. Raises WrongUse if the batch is refused."""
        with self._runtime as runtime:
            threading.Thread(target=self._report_end, name="watcher", daemon=True).start()
            try:
                answer = runtime.engine.call(Call(SubmitBatch(batch))).result()
            except Refused as refusal:
                raise WrongUse(str(refusal)) from None
            except Unavailable as fault:
                complain([str(fault)])
                return ExitCode.TASKS_FAILED
            board = Board(answer["ids"], answer["batch"])
            with view_of(board) as view:
                self._watch(board, view)
            self._conclude(board)
            if self._signal is not None:
                return 128 + self._signal
            if board.open:
                complain([f"the engine has stopped: {runtime.failure or 'nobody knows why'}"])
            return ExitCode.DONE if board.all_succeeded else ExitCode.TASKS_FAILED

    def _watch(self, board: Board, view: PlainView) -> None:
        """Until every task has ended, or the engine."""
        while board.open:
            news = self._news.get()
            if news is None:
                return
            if isinstance(news, signal.Signals):
                self._stop(news, board)
            else:
                for style, line in board.take(news.events, news.ended):
                    view.tell(style, line)

    def _stop(self, received: signal.Signals, board: Board) -> None:
        """Cancel what is open; at the second signal kill it."""
        if self._signal is not None:
            if time.monotonic() >= self._signal_at + ONE_SIGNAL_S:
                self._runtime.engine.stop(0.0, 0.0)
            return
        self._signal, self._signal_at = received, time.monotonic()
        complain(["stopping what runs; once more kills it"])
        self._runtime.engine.call(Call(CancelTasks(tuple(board.open))))

    def _conclude(self, board: Board) -> None:
        """What a person wants to see at the end: the last words of what failed, and the sums."""
        for task_id, attempt in [*board.failures.items()][:SHOWN_FAILURES]:
            if attempt is None:
                continue
            last = tail_of(self._runtime.log_path(attempt.seq, attempt.number), SHOWN_LINES)
            if last:
                write(["", f"{board.name(task_id)}, the end of its log:", *(f"  {line}" for line in last)])
        counts = {name: count for name, count in board.counts().items() if name in ("running", "waiting") or count}
        write(["", tally(counts)])
        sys.stdout.flush()

    def _report_end(self) -> None:
        self._runtime.wait_ended()
        self._news.put(None)


@contextmanager
def signals_into(news: News) -> Iterator[None]:
    """Signals become news for the main thread, until all is cleaned up: no impatience leaves anything behind."""

    def note(number: int, frame: FrameType | None) -> None:
        news.put(signal.Signals(number))

    before = {number: signal.signal(number, note) for number in SIGNALS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _open(state_dir: Path, workers: int, news: News) -> Runtime:
    """A runtime on `state_dir` that puts what it makes durable into `news`. Raises WrongUse, or KeyboardInterrupt."""

    def on_wait(reason: str) -> None:
        if not news.empty():  # nothing but a signal can have come
            raise KeyboardInterrupt
        complain([f"waiting: {reason}"])

    try:
        return Runtime.open(state_dir, workers, observers=[news.put], on_wait=on_wait)
    except (AlreadyLocked, StateDirError, StoreBroken, StoreTooNew) as error:
        raise WrongUse(str(error)) from None
