"""A pool with real workers, driven by orders and asked for ends: what the tests of the workers share."""

import json
import queue
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from schedd.core.events import AttemptEnded, StartAttempt, StopAttempt
from schedd.core.model import StopReason
from schedd.workers import logfiles
from schedd.workers.identity import Marker
from schedd.workers.pool import Pool
from schedd.workers.work import Work

PATIENCE_S = 20.0


def until(condition: Callable[[], Any], what: str) -> Any:
    """Wait for the condition, and say `what` never came if it does not."""
    deadline = time.monotonic() + PATIENCE_S
    while not (value := condition()):
        assert time.monotonic() < deadline, f"still waiting for {what}"
        time.sleep(0.005)
    return value


def is_alive(pid: int) -> bool:
    """Whether there is such a process, zombies not counted."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


class Bench:
    """Orders of one attempt each, numbered from 1."""

    def __init__(self, log_dir: Path, workers: int, marker: Marker | None) -> None:
        self.ends: queue.SimpleQueue[AttemptEnded] = queue.SimpleQueue()
        self.log_dir = log_dir
        self.pool = Pool(workers, self.ends.put, log_dir=log_dir, marker=marker)
        self.ordered = 0

    def start(self, work: Work | None = None, **payload: Any) -> int:
        """Order an attempt; its seq."""
        self.ordered += 1
        order = StartAttempt(self.ordered, f"task-{self.ordered}", 1, 1)
        self.pool.start(order, work if work is not None else json.dumps(payload))
        return self.ordered

    def stop(self, seq: int, reason: StopReason = StopReason.CANCELLED) -> None:
        self.pool.stop(StopAttempt(seq, 1, reason))

    def end(self) -> AttemptEnded:
        """The next end that is reported."""
        return self.ends.get(timeout=PATIENCE_S)

    def run(self, work: Work | None = None, **payload: Any) -> AttemptEnded:
        """Order an attempt and wait for its end."""
        seq = self.start(work, **payload)
        ended = self.end()
        assert ended.seq == seq
        return ended

    def pid(self, seq: int) -> int:
        """The pid of the attempt's process, once it is known."""
        pid: int = until(lambda: {one.seq: one.pid for one in self.pool.running()}[seq], "the process")
        return pid

    def log(self, seq: int) -> bytes:
        return logfiles.log_path(self.log_dir, seq, 1).read_bytes()

    def until_log(self, seq: int, text: bytes) -> bytes:
        """Wait until the attempt has written this."""
        path = logfiles.log_path(self.log_dir, seq, 1)
        until(lambda: path.exists() and text in path.read_bytes(), f"{text!r} in the log")
        return path.read_bytes()
