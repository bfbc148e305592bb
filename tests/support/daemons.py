"""A real daemon that a test starts, kills, stops and starts again, on a short directory of its own.

Whatever the test does, nothing that carries the marker of its state directory is left at the end.
"""

import contextlib
import itertools
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from schedd.client import Client, ClientError
from schedd.workers import processes

PATIENCE_S = 60.0
POLL_S = 0.01
_numbers = itertools.count()
OPEN = ("pending", "ready", "running")


def until(condition: Callable[[], object], what: str, patience_s: float = PATIENCE_S) -> None:
    """Poll until it is true; fail the test at the deadline."""
    deadline = time.monotonic() + patience_s
    while not condition():
        if time.monotonic() >= deadline:
            pytest.fail(f"not within {patience_s:g} s: {what}")
        time.sleep(POLL_S)


def is_alive(pid: int) -> bool:
    """Whether there is such a process that is no zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def minds_signals(pid: int) -> bool:
    """Whether a process has a handler for SIGTERM."""
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return False
    caught = next((line.split()[1] for line in status.splitlines() if line.startswith("SigCgt")), "0")
    return bool(int(caught, 16) >> (signal.SIGTERM - 1) & 1)


class RealDaemon:
    """A `schedd` on `home/state`; `settings` are lines of its configuration file."""

    def __init__(
        self, home: Path, workers: int = 2, settings: Sequence[str] = (), launcher: Sequence[str] = ()
    ) -> None:
        self.home = home
        self.state_dir = home / "state"
        self.database = self.state_dir / "schedd.db"
        self.socket = home / "s"
        self.client = Client(self.socket)
        self.process: subprocess.Popen[bytes] | None = None
        self._launcher = list(launcher)
        self._config = home / "schedd.toml"
        self._config.write_text("\n".join([f"workers = {workers}", 'log_format = "json"', *settings]) + "\n")

    def spawn(self) -> "subprocess.Popen[bytes]":
        """Start it and go on."""
        command = [sys.executable, "-m", "schedd.service", "--config", str(self._config)]
        paths = ["--state-dir", str(self.state_dir), "--socket", str(self.socket)]
        with (self.home / "schedd.log").open("ab") as log:
            self.process = subprocess.Popen(
                [*self._launcher, *command, *paths], cwd="/", stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )
        return self.process

    def start(self) -> None:
        """Start it, and wait until it answers."""
        process = self.spawn()
        until(lambda: process.poll() is not None or self.answers(), f"the daemon answers: {self.story()}")
        assert process.poll() is None, self.story()

    def answers(self) -> bool:
        """Whether it is there and ready."""
        try:
            return bool(self.client.health()["ready"])
        except ClientError:
            return False

    def kill(self) -> None:
        """SIGKILL."""
        self.client.close()
        assert self.process is not None
        self.process.kill()
        assert self.process.wait(PATIENCE_S) == -signal.SIGKILL, self.story()

    def stop(self, patience_s: float = PATIENCE_S) -> None:
        """SIGTERM; it must exit with 0."""
        self.client.close()
        assert self.process is not None
        self.process.terminate()
        assert self.process.wait(patience_s) == 0, self.story()

    def story(self) -> str:
        """The end of its log."""
        path = self.home / "schedd.log"
        return path.read_text(errors="replace")[-4000:] if path.exists() else "(no log)"

    def submit(self, **task: Any) -> str:
        """Submit one task; its id."""
        task.setdefault("name", f"t{next(_numbers)}")
        return self.client.submit({"tasks": {task.pop("name"): task}})["ids"][0]

    def task(self, task_id: str) -> Any:
        """What it tells of a task."""
        return self.client.task(task_id)

    def settle(self, *ids: str, patience_s: float = PATIENCE_S) -> dict[str, str]:
        """Wait until these tasks have ended, however often the daemon is started meanwhile; their states."""

        def states() -> dict[str, str]:
            try:
                return {task_id: self.task(task_id)["status"] for task_id in ids}
            except ClientError:
                return {}

        until(lambda: (seen := states()) and not set(seen.values()) & set(OPEN), f"the end of {ids}", patience_s)
        return states()

    def outcomes(self, task_id: str) -> list[str | None]:
        """The outcomes of a task's attempts, from the rows."""
        sql = "select outcome from attempt join task on task.seq = task_seq where id = ? order by attempt.number"
        return [row[0] for row in self.rows(sql, task_id)]

    def rows(self, sql: str, *parameters: object) -> list[Any]:
        """What the database holds."""
        connection = sqlite3.connect(f"file:{self.database}?mode=ro", uri=True, timeout=10)
        try:
            return connection.execute(sql, parameters).fetchall()
        finally:
            connection.close()

    def identity(self) -> str:
        """The identity of the state directory; empty before its first start."""
        path = self.state_dir / "identity"
        return path.read_text().strip() if path.exists() else ""

    def marked(self) -> list[int]:
        """The live processes that carry a marker of this state directory."""
        sought = f"{processes.MARKER_VARIABLE}={self.identity()}:".encode()
        found = []
        for entry in Path("/proc").iterdir():
            if entry.name.isdecimal() and is_alive(int(entry.name)):
                with contextlib.suppress(OSError):
                    if sought in (entry / "environ").read_bytes():
                        found.append(int(entry.name))
        return found

    def close(self) -> None:
        """Leave nothing behind."""
        self.client.close()
        if self.process is not None and self.process.poll() is None:
            self.process.kill()
            self.process.wait(PATIENCE_S)
        if self.identity():
            processes.kill_leftovers(self.identity(), [], 10.0)


class Supervisor:
    """Starts a daemon again whenever it is killed, as a service manager does."""

    def __init__(self, daemon: RealDaemon) -> None:
        self.deaths = 0
        self._daemon = daemon
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> "Supervisor":
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._stopping.set()
        self._thread.join(PATIENCE_S)

    def _run(self) -> None:
        while not self._stopping.wait(0.05):
            process = self._daemon.process
            if process is not None and process.poll() is not None:
                self.deaths += 1
                self._daemon.spawn()


@contextmanager
def short_home() -> Iterator[Path]:
    """A directory with a path short enough for a socket in it."""
    made = Path(tempfile.mkdtemp(prefix="schedd-", dir="/tmp"))
    try:
        yield made
    finally:
        shutil.rmtree(made, ignore_errors=True)


@contextmanager
def daemon_of(
    workers: int = 2, settings: Sequence[str] = (), start: bool = True, launcher: Sequence[str] = ()
) -> Iterator[RealDaemon]:
    """A daemon on a directory of its own."""
    with short_home() as home:
        daemon = RealDaemon(home, workers, settings, launcher)
        try:
            if start:
                daemon.start()
            yield daemon
        except BaseException as error:
            error.add_note(f"the daemon's log ends with:\n{daemon.story()}")
            raise
        finally:
            daemon.close()


def pids_in(path: Path) -> list[int]:
    """The pids that processes have appended to a file, one a line."""
    return [int(line) for line in path.read_text().split()] if path.exists() else []


def end_all(pids: Iterator[int] | Sequence[int]) -> None:
    """Kill processes that a test knows by pid."""
    for pid in pids:
        if pid > 1 and is_alive(pid):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


def fast_retries(attempts: int) -> Mapping[str, Any]:
    """A retry policy that hardly waits."""
    return {"max_attempts": attempts, "base_delay": 0.01, "max_delay": 0.05}
