"""A daemon without workers: the real engine, SQLite store, application, server and socket, and attempts that the test
ends.
"""

import os
import shutil
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from schedd.api.app import Backend, Info, create_app
from schedd.api.feed import Feed
from schedd.api.server import ApiServer
from schedd.api.socket import bind
from schedd.client import Client
from schedd.core.events import StartAttempt
from schedd.core.model import Outcome
from schedd.engine.clock import SystemClock
from schedd.engine.inbox import Inbox
from schedd.engine.loop import Engine
from schedd.store.base import Store
from schedd.store.reads import Reads
from schedd.store.sqlite import open_store
from support.fakes import FakeExecutor


class ApiDaemon:
    """Serves at `socket`. `store_of` may wrap the store; `executor` holds what runs, until `end` is told."""

    def __init__(
        self, home: Path, template: Path, workers: int = 2, store_of: Callable[[Store], Any] = lambda store: store
    ) -> None:
        self.home = home
        self.socket = home / "s"
        self.database = home / "schedd.db"
        shutil.copyfile(template, self.database)
        self.store = open_store(self.database)
        self.executor = FakeExecutor()
        self.inbox = Inbox()
        self.engine = Engine(store_of(self.store), self.executor, SystemClock(), workers, self.inbox)
        self.feed = Feed()
        self.engine.observe(self.feed.notify)
        self.engine.recover()
        self.reads = Reads(self.database)
        info = Info("1.2.3", os.getpid(), time.time(), str(home), workers)
        self.backend = Backend(self.engine, self.reads, self.feed, self.log_path, self.remove_logs, info)
        self.app = create_app(self.backend)
        self.server = ApiServer(self.app, bind(self.socket))
        self._thread = threading.Thread(target=self.engine.run, name="engine", daemon=True)

    def start(self) -> None:
        """Let the engine run, and serve."""
        self._thread.start()
        self.server.start()

    def stop(self) -> None:
        """End both; attempts that still run are forgotten."""
        self.server.stop(1.0)
        self.engine.stop(0.0, 0.0)
        self._thread.join(10.0)
        assert not self._thread.is_alive()
        self.reads.close()
        self.store.close()

    def client(self) -> Client:
        """A client of its own."""
        return Client(self.socket, timeout=30.0)

    def log_path(self, seq: int, number: int) -> Path:
        """Where the output of an attempt would be."""
        return self.home / f"{seq}.{number}.log"

    def remove_logs(self, seq: int, number: int) -> None:
        """Remove the output of every attempt of a task."""
        for each in range(1, number + 1):
            self.log_path(seq, each).unlink(missing_ok=True)

    def order_of(self, task_id: str) -> StartAttempt | None:
        """The attempt of a task that runs now."""
        return next((order for order in [*self.executor.running.values()] if order.id == task_id), None)

    def end(self, task_id: str, outcome: Outcome = Outcome.SUCCEEDED, **more: Any) -> None:
        """End the attempt of a task, which must have been started; waits for its start."""
        deadline = time.monotonic() + 10.0
        while (order := self.order_of(task_id)) is None:
            assert time.monotonic() < deadline, f"{task_id} has not been started"
            time.sleep(0.002)
        self.inbox.post(self.executor.end(order.seq, outcome, time.time(), **more))
