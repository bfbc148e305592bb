"""The daemon's end of the fork server: starts it when it is first needed, replaces it when it dies.

A reader thread hands each message of the server to the call that waits for it. When the server dies, the calls it ran
are lost: their processes are killed before anybody is told. Tests: tests/unit/workers/test_call.py.
"""

import contextlib
import json
import os
import queue
import signal
import socket
import struct
import subprocess
import sys
import threading
from collections.abc import Mapping
from typing import Any

from schedd.workers.forkserver import MAX_MESSAGE_BYTES
from schedd.workers.identity import MARKER_VARIABLE, Marker
from schedd.workers.processes import hunt

SEND_PATIENCE_S = 5
"""A server that takes no message for this long is taken for dead."""
HUNT_PATIENCE_S = 10.0


class ServerLost(Exception):
    """The process that starts calls has died and is being replaced."""


class Call:
    """One call in the server's hands. `mailbox` gets the server's messages, and `["lost"]` if it dies."""

    __slots__ = ("environment", "link", "mailbox", "number", "process")

    def __init__(self, link: "_Link", number: int, environment: Mapping[str, str]) -> None:
        self.link = link
        self.number = number
        self.environment = environment
        self.mailbox: queue.SimpleQueue[list[Any]] = queue.SimpleQueue()
        self.process: tuple[int, int] | None = None  # pid and when it began

    def first_message(self, patience_s: float) -> list[Any]:
        """What the server says of it first; one that says nothing for so long is given up for dead, with its calls."""
        try:
            return self.mailbox.get(timeout=patience_s)
        except queue.Empty:
            self.link.hang_up()
            return self.mailbox.get()

    def signal(self, number: signal.Signals) -> None:
        """Have its group signalled, if it has not ended."""
        with contextlib.suppress(ServerLost):  # then its children are being killed already
            self.link.send(["signal", self.number, number])


class Server:
    """The fork server, whichever process that is at the moment."""

    def __init__(self, environment: Mapping[str, str], marker: Marker | None) -> None:
        self._environment = environment
        self._marker = marker
        self._lock = threading.Lock()  # guards all below
        self._link: _Link | None = None
        self._starts = 0
        self._calls = 0
        self._closed = False

    def spawn(self, environment: Mapping[str, str], log: int, exchange: int) -> Call:
        """Order a process; its messages come to the call's mailbox. Raises ServerLost or OSError, and then nothing was
        started.
        """
        with self._lock:
            link = self._link
            if link is None or link.is_lost:
                if self._closed:
                    raise ServerLost("schedd is stopping")
                self._starts += 1
                link = self._link = _Link(self._environment, self._marker, self._starts)
            self._calls += 1
            call = Call(link, self._calls, environment)
        link.spawn(call, [log, exchange])
        return call

    def close(self, timeout_s: float) -> None:
        """End the server and every process it has started."""
        with self._lock:
            self._closed = True
            link = self._link
        if link is not None:
            link.close(timeout_s)


class _Link:
    """One server process and the socket to it."""

    def __init__(self, environment: Mapping[str, str], marker: Marker | None, generation: int) -> None:
        paths = dict.fromkeys(path for path in sys.path if os.path.isabs(path))
        environment = {**environment, "PYTHONPATH": os.pathsep.join(paths)}  # what the daemon can import, a call can
        self._markers: list[str] = []
        if marker is not None:
            self._markers = [marker.value(0, generation)]
            environment[MARKER_VARIABLE] = self._markers[0]
        self.is_lost = False
        self._calls: dict[int, Call] = {}
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        try:
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, struct.pack("ll", SEND_PATIENCE_S, 0))
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-m", "schedd.workers.forkserver", str(theirs.fileno())],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                env=environment,
                pass_fds=[theirs.fileno()],
                start_new_session=True,
            )
        except BaseException:
            self._socket.close()
            raise
        finally:
            theirs.close()
        self._reader = threading.Thread(target=self._read, name="fork-server", daemon=True)
        try:
            self._reader.start()
        except BaseException:
            self._socket.close()
            self._process.kill()
            self._process.wait()
            raise

    def spawn(self, call: Call, descriptors: list[int]) -> None:
        """Raises ServerLost, and then the call was not started."""
        self._calls[call.number] = call
        try:
            self.send(["spawn", call.number], descriptors)
        except ServerLost:
            self._calls.pop(call.number, None)
            raise

    def send(self, message: list[Any], descriptors: list[int] | None = None) -> None:
        """Hand the server a message. Raises ServerLost."""
        try:
            socket.send_fds(self._socket, [json.dumps(message).encode()], descriptors or [])
        except OSError as error:
            self.hang_up()
            raise ServerLost(f"the process that starts calls does not answer: {error.strerror}") from None

    def close(self, timeout_s: float) -> None:
        """End the server; its children are killed by it, or else by the reader."""
        self.hang_up()
        self._reader.join(timeout_s)

    def hang_up(self) -> None:
        """Use it no more: the reader finds the socket shut, kills the server and buries its calls."""
        self.is_lost = True
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)

    def _read(self) -> None:
        try:
            with contextlib.suppress(OSError):
                while data := self._socket.recv(MAX_MESSAGE_BYTES):
                    self._deliver(json.loads(data))
        finally:
            self._bury()

    def _deliver(self, message: list[Any]) -> None:
        kind, number = message[0], message[1]
        call = self._calls[number] if kind == "started" else self._calls.pop(number)
        if kind == "started":
            call.process = (message[2], message[3])
        call.mailbox.put(message)

    def _bury(self) -> None:
        """The server is gone: see that nothing it started outlives it, then tell those who wait."""
        self.hang_up()  # whoever sends from here on is refused, so the calls below are all there are
        self._process.kill()
        self._process.wait()
        lost = list(self._calls.values())
        markers = [call.environment[MARKER_VARIABLE] for call in lost if MARKER_VARIABLE in call.environment]
        hunt([*self._markers, *markers], [call.process for call in lost if call.process], HUNT_PATIENCE_S)
        for call in lost:
            call.mailbox.put(["lost"])
        self._socket.close()
