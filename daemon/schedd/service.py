"""The daemon: `schedd` puts a runtime, a socket and the API together, and minds signals and exit codes.

The main thread owns the signals and waits; everything else has a thread of its own.
Tests: tests/acceptance, tests/crash/test_stopping.py.
"""

import argparse
import os
import select
import signal
import sys
import threading
import time
from contextlib import suppress
from enum import IntEnum
from pathlib import Path
from typing import Any

from schedd import __version__


class ExitCode(IntEnum):
    """How the daemon ends. From CONFIG on, a restart alone cures nothing."""

    OK = 0
    FAULT = 1
    """A fault that schedd could not pass; a restart may help."""
    CONFIG = 2
    """Wrong use or configuration."""
    LOCKED = 3
    """Another schedd serves this state directory."""
    STATE_DIR = 4
    """The state directory cannot be used."""
    DATABASE = 5
    """The database is damaged, is not one, or is newer than this program."""
    SOCKET = 6
    """The socket cannot be made."""
    LEFT_RUNNING = 7
    """Stopped on purpose, but not all that it had started could be ended: it waits in the kernel, or beyond it."""


class Refusal(Exception):
    """The daemon cannot start: what to tell the admin, and the exit code."""

    def __init__(self, code: ExitCode, message: str) -> None:
        super().__init__(message)
        self.code = code


class Signals:
    """SIGTERM, SIGINT and SIGHUP (a closed terminal; not under nohup), counted, and a pipe to wait on.

    A handler runs between any two steps of the main thread, so it may take no lock that the main thread takes: it
    counts, no more, and the interpreter writes to the pipe. What follows is done by the main thread when it looks.
    """

    def __init__(self) -> None:
        self.count = 0
        self._woken, self._waker = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        signal.set_wakeup_fd(self._waker, warn_on_full_buffer=False)
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._take)
        if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
            signal.signal(signal.SIGHUP, self._take)

    def wake(self) -> None:
        """End the present or the next `wait`. From any thread."""
        with suppress(BlockingIOError):  # it is full of reasons to wake up
            os.write(self._waker, b"\0")

    def wait(self) -> None:
        """Until a signal or `wake` came since the last wait."""
        select.select([self._woken], [], [])
        os.read(self._woken, 4_096)

    def _take(self, number: int, frame: object) -> None:
        self.count += 1


def main(argv: list[str] | None = None) -> None:
    """The command `schedd`. Ends the process."""
    signals = Signals()  # before all that takes time: a signal before this line ends the process as any other
    arguments = _parse(argv)
    try:
        code = serve(arguments, signals)
    except Refusal as refusal:
        print(f"schedd: {refusal}", file=sys.stderr)
        code = refusal.code
    sys.stderr.flush()
    os._exit(code)  # abandoned threads and what they hold must not keep a stopped daemon alive


def serve(arguments: argparse.Namespace, signals: Signals) -> ExitCode:
    """Run until a signal or a fault. Raises Refusal when it cannot start."""
    from schedd import config as configuration
    from schedd import logs

    overrides = {"state_dir": arguments.state_dir, "socket": arguments.socket, "workers": arguments.workers}
    try:
        config = configuration.load(arguments.config, overrides)
    except configuration.ConfigError as error:
        raise Refusal(ExitCode.CONFIG, str(error)) from None
    logs.configure(config.log_format, config.log_level)
    return Daemon(config, signals).run()


class Daemon:
    """One life of the daemon."""

    def __init__(self, config: Any, signals: Signals) -> None:
        import structlog

        from schedd.api.feed import Feed
        from schedd.logs import Journal

        self._config = config
        self._log = structlog.get_logger("schedd")
        self._journal = Journal()
        self._feed = Feed()
        self._signals = signals
        self._started_at = time.time()

    def run(self) -> ExitCode:
        """Open, serve, drain, close."""
        config = self._config
        self._log.info("starting", version=__version__, pid=os.getpid(), state_dir=str(config.state_dir))
        if self._signals.count:
            return self._stopped_early()
        runtime = self._open()
        if self._signals.count:
            runtime.close()
            return self._stopped_early()
        try:
            server = self._listen(runtime)
        except Refusal:
            runtime.close()
            raise
        runtime.engine.on_fault = self._on_fault
        runtime.engine.on_complaint = self._on_complaint
        runtime.start()
        retention = self._retention(runtime)
        retention.start()
        watcher = threading.Thread(target=self._watch, args=(runtime,), name="watcher", daemon=True)
        watcher.start()
        self._log.info("ready", socket=str(config.socket_path), workers=config.workers)
        while not self._signals.count and runtime.is_alive():  # a byte may stand for a signal that means nothing to us
            self._signals.wait()
        retention.stop()
        code = self._stop(runtime)
        server.stop(2.0)
        survivors = runtime.close()
        if survivors:
            self._log.error("leftovers_not_killed", pids=list(survivors))
            code = code or ExitCode.LEFT_RUNNING
        self._log.info("stopped", code=int(code))
        self._journal.close()
        return code

    def _stopped_early(self) -> ExitCode:
        """A signal came before anything was started: there is nothing to drain."""
        self._log.info("stopped", code=int(ExitCode.OK))
        self._journal.close()
        return ExitCode.OK

    def _open(self) -> Any:
        from schedd.lock import AlreadyLocked
        from schedd.runtime import Runtime, StateDirError
        from schedd.store.base import StoreBroken
        from schedd.store.migrate import StoreTooNew

        config = self._config
        try:
            runtime = Runtime.open(
                config.state_dir, config.workers, observers=[self._journal, self._feed.notify], on_wait=self._on_wait
            )
        except AlreadyLocked as error:
            raise Refusal(ExitCode.LOCKED, str(error)) from None
        except StateDirError as error:
            raise Refusal(ExitCode.STATE_DIR, str(error)) from None
        except OSError as error:
            raise Refusal(ExitCode.STATE_DIR, f"cannot use {config.state_dir}: {error}") from None
        except (StoreBroken, StoreTooNew) as error:
            raise Refusal(ExitCode.DATABASE, str(error)) from None
        opened = runtime.opened
        assert opened is not None
        self._log.info(
            "recovered",
            open_tasks=opened.recovery.open_tasks,
            crashed=opened.recovery.crashed,
            damaged=opened.recovery.damaged,
            killed=opened.killed,
            backup=str(opened.backup) if opened.backup else None,
        )
        if opened.survivors:
            self._log.error("leftovers_not_killed", pids=list(opened.survivors), held=list(opened.recovery.held))
        return runtime

    def _listen(self, runtime: Any) -> Any:
        from schedd.api.app import Backend, Info, create_app
        from schedd.api.server import ApiServer, ServerError
        from schedd.api.socket import SocketError, bind

        config = self._config
        info = Info(
            version=__version__,
            pid=os.getpid(),
            started_at=self._started_at,
            state_dir=str(config.state_dir),
            workers=config.workers,
        )
        backend = Backend(
            engine=runtime.engine,
            reads=runtime.reads,
            feed=self._feed,
            log_path=runtime.log_path,
            remove_logs=runtime.remove_logs,
            info=info,
        )
        try:
            bound = bind(config.socket_path, config.socket_mode, config.socket_group)
        except SocketError as error:
            raise Refusal(ExitCode.SOCKET, str(error)) from None
        server = ApiServer(create_app(backend), bound)
        try:
            server.start()
        except ServerError as error:
            bound.close()
            raise Refusal(ExitCode.SOCKET, str(error)) from None
        return server

    def _retention(self, runtime: Any) -> Any:
        from schedd.retention import Policy, Pruner, Retention

        config = self._config

        def policy() -> Any:
            return Policy(time.time() - config.keep_for, config.keep_last, config.keep_tasks)

        def on_removed(removed: Any) -> None:
            self._journal.note("info", "history_removed", tasks=removed.tasks, lines=removed.lines)

        return Retention(Pruner(runtime.engine, runtime.reads, runtime.remove_logs), policy, on_removed)

    def _stop(self, runtime: Any) -> ExitCode:
        if runtime.failure is None:
            runtime.engine.stop(self._config.drain_timeout, _give_up_s())
            self._log.info("draining", timeout_s=self._config.drain_timeout)
            hurried = False
            while not runtime.wait_ended(0):
                if self._signals.count > 1 and not hurried:
                    hurried = True
                    runtime.engine.stop(0.0, _give_up_s())
                self._signals.wait()
        if runtime.failure is not None:
            return self._explain(runtime.failure)
        fault = runtime.engine.fault
        if fault is not None:  # it gave up: what ended meanwhile counts as crashed at the next start
            self._log.error("stopped_without_writing_all", message=fault.message, since=fault.since)
            return ExitCode.FAULT
        if runtime.engine.left_running:
            tasks, pids = list(runtime.engine.left_running), [running.pid for running in runtime.pool.running()]
            message = "these attempts did not end when they were killed; they count as crashed at the next start"
            self._log.error("stopped_with_attempts_running", tasks=tasks, pids=pids, message=message)
            return ExitCode.LEFT_RUNNING
        return ExitCode.OK

    def _explain(self, failure: BaseException) -> ExitCode:
        from schedd.store.base import StoreBroken

        self._log.error("engine_failed", error=f"{type(failure).__name__}: {failure}", exc_info=failure)
        return ExitCode.DATABASE if isinstance(failure, StoreBroken) else ExitCode.FAULT

    def _on_fault(self, fault: Any) -> None:
        if fault is None:
            self._journal.note("info", "database_available", message="all that was held back is written")
        else:
            self._journal.note("error", "database_unavailable", message=fault.message, since=fault.since)

    def _on_complaint(self, complaint: Any) -> None:
        if complaint is None:
            self._journal.note("info", "database_well")
        else:
            self._journal.note("warning", "database_needs_attention", message=complaint.message)

    def _watch(self, runtime: Any) -> None:
        """Wakes the main thread when the engine has ended."""
        runtime.wait_ended()
        self._signals.wake()

    def _on_wait(self, reason: str) -> None:
        if self._signals.count:
            raise Refusal(ExitCode.OK, "stopped while it waited for the database")
        self._log.warning("waiting_for_database", reason=reason)


def _give_up_s() -> float:
    from schedd.runtime import GIVE_UP_S

    return GIVE_UP_S


def _parse(argv: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="schedd",
        description="A persistent, restart-safe task scheduler for one machine. Talk to it with schedctl.",
    )
    parser.add_argument("--state-dir", type=Path, metavar="DIR", help="where schedd keeps its data")
    parser.add_argument("--socket", type=Path, metavar="PATH", help="the unix socket of the API")
    parser.add_argument("--workers", type=int, metavar="N", help="how many tasks run at once (default: one per CPU)")
    parser.add_argument("--config", type=Path, metavar="FILE", help="a schedd.toml")
    parser.add_argument("--version", action="version", version=f"schedd {__version__}")
    return parser.parse_args(argv)


if __name__ == "__main__":
    main()
