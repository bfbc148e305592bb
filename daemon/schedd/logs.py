"""How schedd logs: structlog, as JSON lines or for a terminal, on standard error.

The engine thread must never wait for a slow log, so what it commits goes through a `Journal`: a queue and a thread of
its own that writes the lines. Tests: tests/unit/test_logs.py.
"""

import io
import logging
import queue
import sys
import threading
from contextlib import suppress
from typing import Any, NamedTuple, TextIO, cast

import structlog

from schedd.core.model import Outcome
from schedd.engine.loop import Committed

MAX_QUEUED = 10_000
"""Rounds that may wait for the journal's thread; beyond that lines are dropped and their number is logged."""

_LEVELS = {"failed": "warning", "retry": "warning", "skipped": "warning", "start_postponed": "error"}


def configure(log_format: str, level: str) -> None:
    """Set up structlog for the process. `log_format`: auto, json or console; `level`: debug, info, warning, error."""
    console = log_format == "console" or (log_format == "auto" and sys.stderr.isatty())
    renderer: Any = structlog.dev.ConsoleRenderer() if console else structlog.processors.JSONRenderer()
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            renderer,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(logging.getLevelNamesMapping()[level.upper()]),
        logger_factory=structlog.PrintLoggerFactory(cast(TextIO, _Sink(sys.stderr))),
        cache_logger_on_first_use=True,
    )


class _Sink(io.TextIOBase):
    """A stream whose reader may go away: a line that nobody can read is not worth an end without a drain."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        with suppress(OSError, ValueError):
            self._stream.write(text)
        return len(text)

    def flush(self) -> None:
        with suppress(OSError, ValueError):
            self._stream.flush()


class _Note(NamedTuple):
    level: str
    event: str
    fields: dict[str, object]


class Journal:
    """An engine observer that logs what was committed, in a thread of its own."""

    def __init__(self) -> None:
        self._queue: queue.Queue[Committed | _Note | None] = queue.Queue(MAX_QUEUED)
        self._dropped = 0
        self._thread = threading.Thread(target=self._run, name="journal", daemon=True)
        self._thread.start()

    def __call__(self, committed: Committed) -> None:
        """Take what a round committed; never blocks."""
        self._put(committed)

    def note(self, level: str, event: str, **fields: object) -> None:
        """Log a line of its own; never blocks."""
        self._put(_Note(level, event, fields))

    def close(self, timeout_s: float = 5.0) -> None:
        """Write what is queued and end the thread."""
        with suppress(queue.Full):
            self._queue.put(None, timeout=timeout_s)
            self._thread.join(timeout_s)

    def _put(self, item: "Committed | _Note") -> None:
        try:
            self._queue.put_nowait(item)
        except queue.Full:
            self._dropped += 1

    def _run(self) -> None:
        log = structlog.get_logger("schedd")
        while (committed := self._queue.get()) is not None:
            if self._dropped:
                log.warning("log_lines_dropped", rounds=self._dropped)
                self._dropped = 0
            if isinstance(committed, _Note):
                getattr(log, committed.level)(committed.event, **committed.fields)
                continue
            for ended in committed.ended:
                fields = {"task": ended.task_id, "attempt": ended.number, "outcome": ended.outcome.value}
                optional = {
                    "duration_s": None if ended.duration is None else round(ended.duration, 6),
                    "exit_code": ended.exit_code,
                    "signal": ended.signal,
                    "error": ended.error,
                }
                fields |= {name: value for name, value in optional.items() if value is not None}
                write = log.info if ended.outcome is Outcome.SUCCEEDED else log.warning
                write("attempt_ended", **fields)
            for event in committed.events:
                write = getattr(log, _LEVELS.get(event.kind, "info"))
                detail = {f"{name}": value for name, value in (event.detail or {}).items()}
                write(f"task_{event.kind}" if event.task_id else event.kind, task=event.task_id, **detail)
