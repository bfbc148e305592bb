"""Raw talk with a server on a unix socket, for what no client would send."""

import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

PATIENCE_S = 10.0


@contextmanager
def connected(path: Path) -> Iterator[socket.socket]:
    """A connection to the socket at `path`; no wait on it is longer than PATIENCE_S."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as made:
        made.settimeout(PATIENCE_S)
        made.connect(str(path))
        yield made


def read_all(connection: socket.socket) -> bytes:
    """What comes until the other end closes; a reset counts as a close."""
    parts: list[bytes] = []
    try:
        while part := connection.recv(65_536):
            parts.append(part)
    except ConnectionResetError:
        pass
    return b"".join(parts)


def read_until(connection: socket.socket, end: bytes) -> bytes:
    """What comes until it ends with `end`, or the other end closes."""
    got = b""
    while not got.endswith(end) and (part := connection.recv(65_536)):
        got += part
    return got


def exchange(path: Path, *pieces: bytes) -> bytes:
    """Send bytes, close the writing side, and return what comes back."""
    with connected(path) as connection:
        try:
            for piece in pieces:
                connection.sendall(piece)
            connection.shutdown(socket.SHUT_WR)
        except (BrokenPipeError, ConnectionResetError):
            pass  # it has seen enough; what it answered can still be read
        return read_all(connection)
