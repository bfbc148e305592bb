"""One scheduler, put together: lock, database, recovery, workers and the engine's thread.

The daemon, `schedctl run` and the library all run on a `Runtime`; they differ in what they put around it. The order in
which things open is the order in which they are needed for recovery, and they close in reverse.
Tests: tests/unit/test_runtime.py, tests/acceptance.
"""

import os
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

from schedd.engine.clock import Clock, SystemClock
from schedd.engine.inbox import Inbox
from schedd.engine.loop import Committed, Engine, Observer, Recovery
from schedd.lock import StateDirLock
from schedd.store.base import Store, StoreBroken, StoreUnavailable
from schedd.workers import cgroups, logfiles, processes
from schedd.workers.cgroups import Cgroups
from schedd.workers.pool import Pool

DATABASE = "schedd.db"
LOG_DIR = "logs"
LEFTOVER_PATIENCE_S = 30.0
CLOSE_PATIENCE_S = 5.0
OPEN_PATIENCE_S = 10.0
"""How long a library waits for a database that another process has locked."""

GIVE_UP_S = 30.0
"""How long a stop tries, after its drain, to write what it knows (a full disk, a locked database)."""


class StateDirError(Exception):
    """The state directory cannot be used."""


class EngineDied(Exception):
    """The engine has stopped because of a fault that it could not pass; nothing more is accepted."""


@dataclass(frozen=True, slots=True)
class Opened:
    """What opening a state directory found and did, for the log."""

    recovery: Recovery
    backup: Path | None
    killed: int
    survivors: tuple[int, ...]
    """Processes of earlier attempts that could not be killed; `recovery.held` are the tasks that wait for their end."""


class Runtime:
    """An engine on a store, with its workers. Nothing runs until `start()`."""

    def __init__(
        self,
        store: Store,
        workers: int,
        *,
        observers: Sequence[Observer] = (),
        clock: Clock | None = None,
        log_dir: Path | None = None,
        marker: "processes.Marker | None" = None,
        slots: Cgroups | None = None,
        lock: StateDirLock | None = None,
        reads: Any = None,
    ) -> None:
        clock = clock or SystemClock()
        inbox = Inbox()
        self.workers = workers
        self.pool = Pool(workers, inbox.post, log_dir=log_dir, marker=marker, cgroups=slots, now=clock.now)
        self.engine = Engine(store, self.pool, clock, workers, inbox)
        for observer in observers:
            self.engine.observe(observer)
        self.reads = reads
        self.failure: BaseException | None = None
        self.opened: Opened | None = None
        self._ended = threading.Event()
        self._observers = tuple(observers)
        self._store = store
        self._lock = lock
        self._log_dir = log_dir
        self._marker = marker
        self._slots = slots
        self._thread = threading.Thread(target=self._run, name="engine", daemon=True)

    # --- opening ------------------------------------------------------------------------------------------------

    @classmethod
    def open(
        cls,
        state_dir: Path,
        workers: int,
        *,
        observers: Sequence[Observer] = (),
        clock: Clock | None = None,
        on_wait: Callable[[str], None] = lambda reason: None,
    ) -> "Runtime":
        """Everything of a state directory, recovered and ready to start.

        `on_wait` is told why, while another process keeps the database locked; it may raise to give up. Raises
        StateDirError, AlreadyLocked, StoreTooNew or StoreBroken with what to do.
        """
        from schedd.store.reads import Reads

        _make_dir(state_dir)
        lock = StateDirLock(state_dir)
        try:
            identity = processes.load_identity(state_dir)
            log_dir = state_dir / LOG_DIR
            log_dir.mkdir(mode=0o750, exist_ok=True)
            store, backup = _open_database(state_dir / DATABASE, on_wait)
            hints = _patiently(lambda: _hints(state_dir, store), on_wait)
            leftovers = processes.kill_leftovers(identity, hints, LEFTOVER_PATIENCE_S)
            own = cgroups.delegated()
            slots = None if own is None else Cgroups(own, identity)
            in_cgroups = [] if slots is None else slots.clear(CLOSE_PATIENCE_S)
            survivors = tuple(sorted({*leftovers.survivors, *in_cgroups}))
            in_the_way = [(processes.task_of(identity, pid), pid) for pid in survivors]
            runtime = cls(
                store,
                workers,
                observers=observers,
                clock=clock,
                log_dir=log_dir,
                marker=processes.Marker.for_this_start(identity),
                slots=slots,
                lock=lock,
                reads=Reads(state_dir / DATABASE),
            )
            recovery = _recover(runtime.engine, store, in_the_way, on_wait)
            runtime.opened = Opened(recovery, backup, leftovers.killed, survivors)
            _patiently(lambda: _remember_boot(state_dir), on_wait)
        except BaseException:
            lock.release()
            raise
        return runtime

    @classmethod
    def open_file(
        cls, path: Path, workers: int, *, observers: Sequence[Observer] = (), clock: Clock | None = None
    ) -> "Runtime":
        """A single SQLite file, for the library: functions in threads, no logs, no processes to look for."""
        from schedd.store.reads import Reads

        lock = StateDirLock.of_file(path)
        try:
            store, _ = _open_database(path, _bounded(OPEN_PATIENCE_S))
            runtime = cls(store, workers, observers=observers, clock=clock, lock=lock, reads=Reads(path))
            _recover(runtime.engine, store, (), lambda reason: None)
        except BaseException:
            lock.release()
            raise
        return runtime

    # --- running ------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Start the workers and the engine's thread."""
        self.pool.open()
        self._thread.start()

    def wait_ended(self, timeout_s: float | None = None) -> bool:
        """Wait until the engine's thread has ended, by `stop` or by a fault (then `failure` says which)."""
        return self._ended.wait(timeout_s)

    def is_alive(self) -> bool:
        """Whether the engine still takes work."""
        return not self._ended.is_set()

    def check(self) -> None:
        """Raises EngineDied if a fault has ended the engine."""
        if self._ended.is_set():
            raise EngineDied(str(self.failure) if self.failure else "this scheduler was shut down")

    def stop(self, drain_s: float) -> None:
        """Let what runs finish for `drain_s` seconds, interrupt the rest, write all, and close. Idempotent."""
        if self._thread.is_alive():
            self.engine.stop(drain_s, GIVE_UP_S)
            self._thread.join()
        self.close()

    def close(self) -> tuple[int, ...]:
        """Let go of everything, killing what still runs; the pids of what could not be killed. For after the engine's
        end.
        """
        self.pool.close()
        survivors: set[int] = set()
        if self._marker is not None:  # what left its attempt's group; it would be killed at the next start anyway
            survivors.update(processes.hunt([self._marker.of_all], [], CLOSE_PATIENCE_S).survivors)
        if self._slots is not None:
            survivors.update(self._slots.clear(CLOSE_PATIENCE_S))
        if self.reads is not None:
            self.reads.close()
        self._store.close()
        if self._lock is not None:
            self._lock.release()
        return tuple(sorted(survivors))

    def log_path(self, seq: int, number: int) -> Path:
        """Where the output of an attempt is kept."""
        assert self._log_dir is not None, "this runtime keeps no logs"
        return logfiles.log_path(self._log_dir, seq, number)

    def remove_logs(self, seq: int, number: int) -> None:
        """Remove the output of a task that has had `number` attempts."""
        assert self._log_dir is not None, "this runtime keeps no logs"
        logfiles.remove_logs(self._log_dir, seq, number)

    def rows(self) -> list[Any]:
        """Every task, as plain records with `id`, `status`, `attempts`, `runs`, `error` and times."""
        source: Any = self.reads if self.reads is not None else self._store
        rows: list[Any] = source.rows()
        return rows

    def __enter__(self) -> "Runtime":
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop(0.0)

    def _run(self) -> None:
        try:
            self.engine.run()
        except BaseException as error:  # noqa: BLE001 - the top of the thread
            self.failure = error
        finally:
            self._ended.set()
            for observer in self._observers:
                observer(Committed([], []))  # whoever waits for a commit must look up: there will be none


def _bounded(patience_s: float) -> Callable[[str], None]:
    """An `on_wait` that gives up after a time, with the reason."""
    deadline = time.monotonic() + patience_s

    def on_wait(reason: str) -> None:
        if time.monotonic() >= deadline:
            raise StoreUnavailable(reason)

    return on_wait


def _make_dir(state_dir: Path) -> None:
    try:
        state_dir.mkdir(mode=0o750, parents=True, exist_ok=True)
    except OSError as error:
        raise StateDirError(f"cannot make the state directory {state_dir}: {error.strerror}") from None
    if not os.access(state_dir, os.R_OK | os.W_OK | os.X_OK):
        raise StateDirError(f"cannot write to the state directory {state_dir}; who runs schedd must own it")


def _open_database(path: Path, on_wait: Callable[[str], None]) -> tuple[Store, Path | None]:
    from schedd.store import migrate
    from schedd.store.sqlite import open_store

    upgrade = _patiently(lambda: migrate.upgrade(path), on_wait)
    return _patiently(lambda: open_store(path), on_wait), upgrade.backup


def _patiently(action: Callable[[], Any], on_wait: Callable[[str], None]) -> Any:
    """Do something that needs the database, however long another process keeps it."""
    pause_s = 0.1
    while True:
        try:
            return action()
        except StoreUnavailable as fault:
            on_wait(str(fault))
            time.sleep(pause_s)
            pause_s = min(pause_s * 2, 2.0)


def _recover(
    engine: Engine, store: Any, in_the_way: Iterable[tuple[int | None, int]], on_wait: Callable[[str], None]
) -> Recovery:
    try:
        recovery: Recovery = _patiently(lambda: engine.recover(in_the_way), on_wait)
    except StoreBroken:
        store.abandon()
        raise
    return recovery


def _remember_boot(state_dir: Path) -> None:
    try:
        processes.remember_boot(state_dir)
    except OSError as error:  # a full disk is waited for, as by the database
        raise StoreUnavailable(f"cannot write to {state_dir}: {error.strerror}") from error


def _hints(state_dir: Path, store: Any) -> Sequence[Any]:
    """The processes that the last daemon wrote down for its running attempts, if the machine was not booted since."""
    return store.running_pids() if processes.is_same_boot(state_dir) else []
