"""uvicorn in a thread of its own, on a socket made by `api.socket`, without what a daemon cannot use of it.

Left out: its signal handlers (the main thread has those) and its main loop, which wakes ten times a second; an idle
server here makes no system calls. Put in: a deadline for the head of a request, so that half a request does not hold a
connection for ever, and an end of all long polls when it stops. Tests: tests/api/test_server.py.
"""

import asyncio
import logging
import os
import socket
import threading
from collections.abc import Callable
from typing import Any

import h11
import structlog
import uvicorn
from fastapi import FastAPI
from uvicorn.protocols.http.h11_impl import H11Protocol

from schedd.api.socket import BACKLOG

MAX_HEAD_BYTES = 262_144
"""The longest head of a request. A wait for thousands of ids fits (see `client.MAX_TARGET_BYTES`)."""

HEAD_DEADLINE_S = 10.0
"""How long a client may take from its connection, or the first byte of a further request, to the end of the head."""

KEEP_ALIVE_S = 30
MAX_CONNECTIONS = 512
START_PATIENCE_S = 30.0
ACCEPT_TURNS = 3
"""How many turns of the loop a connection takes from accept to its protocol; cut off in between it would leak."""

THREAD_PATIENCE_S = 2.0
"""How long `stop` waits for the thread beyond the time it was given."""


class ServerError(Exception):
    """The API could not be started."""


class ApiServer:
    """Serves an app on a listening socket, which it owns from here on and removes when it stops.

    `app.state.on_stop` is called in the event loop when a stop begins, so that what waits for a long time can end.
    """

    def __init__(self, app: FastAPI, sock: socket.socket) -> None:
        self._socket = sock
        self._path = sock.getsockname()
        self._identity = _identity(self._path)
        self._server = _Server(_config(app), app.state.on_stop)
        self._thread = threading.Thread(target=self._run, name="api", daemon=True)
        self._failure: BaseException | None = None

    def start(self) -> None:
        """Start the thread; returns when requests are answered. Raises ServerError."""
        self._thread.start()
        self._server.decided.wait(START_PATIENCE_S)
        if not self._server.started:
            raise ServerError(f"the API did not start: {self._failure or 'it took too long'}") from self._failure

    def stop(self, timeout: float) -> None:
        """Take no more requests, let those in progress end for `timeout` seconds, cut off the rest. Idempotent."""
        if self._thread.is_alive():
            self._server.stop(timeout)
            self._thread.join(timeout + THREAD_PATIENCE_S)
        self._socket.close()
        if self._identity is not None and _identity(self._path) == self._identity:
            os.unlink(self._path)
        self._identity = None

    def _run(self) -> None:
        try:
            self._server.run(sockets=[self._socket])
        except BaseException as error:  # noqa: BLE001  # the top of a thread: told by `start`, or in the log
            self._failure = error
            if self._server.started:
                structlog.get_logger("schedd").error("api_failed", exc_info=error)
        finally:
            self._server.decided.set()


class _Server(uvicorn.Server):
    """uvicorn's server, woken by events instead of by the clock. `decided` is set when it serves, or has failed."""

    def __init__(self, config: uvicorn.Config, on_stop: Callable[[], None]) -> None:
        super().__init__(config)
        self.decided = threading.Event()
        self._on_stop = on_stop
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stopping: asyncio.Event | None = None

    async def main_loop(self) -> None:
        """Serve until `stop`."""
        self._loop = asyncio.get_running_loop()
        self._stopping = asyncio.Event()
        self.decided.set()
        await self._stopping.wait()
        self._on_stop()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Graceful as far as the time allows; then what is left is cut off and closed."""
        loop = asyncio.get_running_loop()
        for sock in sockets or []:
            loop.remove_reader(sock)
        for _ in range(ACCEPT_TURNS):
            await asyncio.sleep(0)
        await super().shutdown(sockets)
        for connection in list(self.server_state.connections):
            connection.transport.abort()

    def stop(self, timeout: float) -> None:
        """End `main_loop`; from any thread, when `decided` is set."""
        # The setting is typed as whole seconds; it goes to asyncio.wait_for, which takes any.
        self.config.timeout_graceful_shutdown = timeout  # type: ignore[assignment]
        if self._loop is not None and self._stopping is not None:
            try:
                self._loop.call_soon_threadsafe(self._stopping.set)
            except RuntimeError:
                return  # its loop has ended already


class _Protocol(H11Protocol):
    """uvicorn's HTTP, with a deadline for the head of a request."""

    _head_deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._mind_head()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._mind_head()

    def connection_lost(self, exc: Exception | None) -> None:
        self._forget_deadline()
        super().connection_lost(exc)

    def _mind_head(self) -> None:
        """Run the deadline while a head is awaited, from its first byte on; bytes that trickle do not move it."""
        if self.conn.their_state is not h11.IDLE:
            self._forget_deadline()
        elif self._head_deadline is None:
            self._head_deadline = self.loop.call_later(HEAD_DEADLINE_S, self._close_late)

    def _close_late(self) -> None:
        self._head_deadline = None
        if not self.transport.is_closing():
            self.transport.close()

    def _forget_deadline(self) -> None:
        if self._head_deadline is not None:
            self._head_deadline.cancel()
            self._head_deadline = None


class _Bridge(logging.Handler):
    """Hands what uvicorn logs to schedd's log. What clients do wrong is worth no more than a debug line."""

    def emit(self, record: logging.LogRecord) -> None:
        log = structlog.get_logger("schedd")
        message = record.getMessage().strip()
        cut_off = record.exc_info is not None and isinstance(record.exc_info[1], asyncio.CancelledError)
        if record.levelno < logging.ERROR or cut_off:  # cut off by a stop, which says so itself
            log.debug("http_server", message=message)
        else:
            log.error("http_server", message=message, exc_info=record.exc_info)


def _config(app: FastAPI) -> uvicorn.Config:
    for name in ("uvicorn.error", "asyncio"):
        logger = logging.getLogger(name)
        logger.propagate = False
        if not any(isinstance(handler, _Bridge) for handler in logger.handlers):
            logger.addHandler(_Bridge())
    settings: dict[str, Any] = {
        "loop": "asyncio",
        "http": _Protocol,
        "ws": "none",
        "lifespan": "off",
        "interface": "asgi3",
        "log_config": None,
        "access_log": False,
        "proxy_headers": False,
        "server_header": False,
        "date_header": False,
        "limit_concurrency": MAX_CONNECTIONS,
        "timeout_keep_alive": KEEP_ALIVE_S,
        "h11_max_incomplete_event_size": MAX_HEAD_BYTES,
        "backlog": BACKLOG,  # listen() is called again by asyncio, and must not make the queue shorter
    }
    return uvicorn.Config(app, **settings)


def _identity(path: str) -> tuple[int, int] | None:
    try:
        found = os.lstat(path)
    except OSError:
        return None
    return found.st_dev, found.st_ino
