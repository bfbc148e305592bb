"""HTTP over a unix socket, and a sentence for each reason why nobody can be reached there.

Standard library only: the command line starts with it. Tests: tests/api/test_client_errors.py.
"""

import os
import socket
import time
from collections.abc import Callable
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

MAX_SOCKET_PATH_BYTES = 107
"""What the kernel allows in the address of a unix socket."""

BUSY_PAUSE_S = 0.05


class ClientError(Exception):
    """The daemon could not be asked, or said no."""


class NoDaemon(ClientError):
    """There is no daemon to talk to; start one with `schedd`."""


class SocketPathTooLong(NoDaemon):
    """The path of the socket is longer than the system allows."""


class UnixConnection(HTTPConnection):
    """HTTP over the unix socket at `path`. `timeout` bounds each wait in seconds; None: no bound."""

    def __init__(self, path: Path, timeout: float | None) -> None:
        super().__init__("localhost", timeout=timeout)
        self._path = path

    def connect(self) -> None:
        """Raises NoDaemon."""
        self.sock = connect(self._path, self.timeout)


def connect(path: Path, timeout_s: float | None) -> socket.socket:
    """A connected socket. Raises NoDaemon with a sentence for each way in which that can fail."""
    length = len(os.fsencode(path))
    if length > MAX_SOCKET_PATH_BYTES:
        raise SocketPathTooLong(
            f"the socket path {path} has {length} bytes and the system allows {MAX_SOCKET_PATH_BYTES}; "
            "use a shorter one, for schedd and schedctl alike"
        )
    made = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        made.settimeout(timeout_s)
        _connect_patiently(made, path, timeout_s)
    except BaseException as error:
        made.close()
        if isinstance(error, OSError):
            raise NoDaemon(_why_not(path, error)) from error
        raise
    return made


def _connect_patiently(made: socket.socket, path: Path, timeout_s: float | None) -> None:
    """Connect, waiting while the daemon's queue of new connections is full (EAGAIN)."""
    deadline = None if timeout_s is None else time.monotonic() + timeout_s
    while True:
        try:
            made.connect(os.fspath(path))
            return
        except BlockingIOError:
            if deadline is not None and time.monotonic() >= deadline:
                raise
            time.sleep(BUSY_PAUSE_S)


def _why_not(path: Path, error: OSError) -> str:
    """A sentence on why nothing answers at `path`, and what to do."""
    where = "or name the socket it listens on (--socket or SCHEDD_SOCKET)"
    if isinstance(error, FileNotFoundError | NotADirectoryError):
        return f"schedd is not running: there is no socket at {path}; start it with `schedd`, {where}"
    if isinstance(error, ConnectionRefusedError):
        if not path.is_socket():
            return f"{path} is not a socket; name the socket schedd listens on (--socket or SCHEDD_SOCKET)"
        return f"schedd is not running: nobody listens at {path} any more; start it again with `schedd`, {where}"
    if isinstance(error, PermissionError):
        return f"you may not use schedd's socket {path}: {_who_may(path)}"
    if isinstance(error, BlockingIOError):
        return f"schedd at {path} is too busy to take a connection; try again"
    return f"cannot connect to schedd at {path}: {error.strerror or error}"


def _who_may(path: Path) -> str:
    """Who may use the socket, for somebody who may not."""
    import grp
    import pwd

    def name_of(look_up: Callable[[int], tuple[Any, ...]], number: int) -> str:
        try:
            return str(look_up(number)[0])
        except KeyError:
            return str(number)

    for place in (path, path.parent):
        try:
            found = place.stat()
        except OSError:
            continue
        owner, group = name_of(pwd.getpwuid, found.st_uid), name_of(grp.getgrgid, found.st_gid)
        return f"it is for the user {owner} and the group {group}; join that group (`usermod -aG {group} USER`)"
    return "a directory on the way to it is closed to you; ask who runs schedd"
