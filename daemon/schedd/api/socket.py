"""The daemon's unix socket: made here and handed over to the HTTP server, which would make it writable for everybody.

What is removed is a dead *socket* and nothing else; a live one belongs to another daemon. Check, removal and bind
happen under a lock on a file beside it, so that of two daemons that start at once one gets the path and the other an
error. (Not on the directory: a state directory is locked for as long as its daemon lives.)
Tests: tests/api/test_socket.py.
"""

import fcntl
import grp
import os
import socket
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from schedd.connection import MAX_SOCKET_PATH_BYTES

BACKLOG = 1_024
DIR_MODE = 0o750
LOCK_PATIENCE_S = 2.0
PROBE_TIMEOUT_S = 2.0


class SocketError(Exception):
    """The socket cannot be made."""


def bind(path: Path, mode: int = 0o660, group: str | None = None) -> socket.socket:
    """A listening socket at `path` with these permissions, for `group` if one is named.

    Its directory is made if it is missing (0750, for the same group). Raises SocketError with what to do.
    """
    length = len(os.fsencode(path))
    if length > MAX_SOCKET_PATH_BYTES:
        raise SocketError(
            f"the socket path {path} has {length} bytes and the system allows {MAX_SOCKET_PATH_BYTES}; "
            "name a shorter one with --socket or SCHEDD_SOCKET"
        )
    gid = _gid_of(group)
    try:
        _make_dir(path.parent, gid)
        with _locked(path.with_name(f"{path.name}.lock")):
            _remove_dead(path)
            return _bind(path, mode, gid)
    except OSError as error:
        raise SocketError(f"cannot make the socket {path}: {error.strerror or error}") from error


def _bind(path: Path, mode: int, gid: int) -> socket.socket:
    made = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    bound = False
    try:
        os.fchmod(made.fileno(), 0o600)  # Linux gives a bound socket the mode of its descriptor: no moment of 0755
        made.bind(os.fspath(path))
        bound = True
        _give(path, gid)
        path.chmod(mode)
        made.listen(BACKLOG)
    except BaseException:
        made.close()
        if bound:
            path.unlink()
        raise
    return made


def _remove_dead(path: Path) -> None:
    """Make room for a socket. Raises SocketError if something is there that must not be removed."""
    try:
        found = path.lstat()
    except FileNotFoundError:
        return
    if not stat.S_ISSOCK(found.st_mode):
        raise SocketError(f"{path} is there already and is not a socket; remove it or name another path")
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(PROBE_TIMEOUT_S)
        try:
            probe.connect(os.fspath(path))
        except ConnectionRefusedError:
            path.unlink()
            return
        except FileNotFoundError:
            return
        except BlockingIOError:
            pass  # its queue of new connections is full: it lives
    raise SocketError(f"another schedd listens on {path}; stop it or name another path with --socket")


def _make_dir(directory: Path, gid: int) -> None:
    if directory.is_dir():
        return
    directory.mkdir(mode=DIR_MODE, parents=True)
    directory.chmod(DIR_MODE)  # whatever the umask left of it
    _give(directory, gid)


def _give(path: Path, gid: int) -> None:
    if gid < 0:
        return
    try:
        os.chown(path, -1, gid)
    except PermissionError:
        raise SocketError(
            f"cannot give {path} to the group {gid}: only root and members of a group can; leave socket_group out"
        ) from None


def _gid_of(group: str | None) -> int:
    """The number of a group, -1 for none. Raises SocketError."""
    if group is None:
        return -1
    try:
        return grp.getgrnam(group).gr_gid
    except KeyError:
        raise SocketError(f"there is no group {group!r} to give the socket to; see socket_group") from None


@contextmanager
def _locked(file: Path) -> Iterator[None]:
    """Hold the path against other daemons that start. Raises SocketError if one holds it for too long.

    The file stays: who removed it could take it away from under the next one.
    """
    descriptor = os.open(file, os.O_RDONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o644)
    try:
        deadline = time.monotonic() + LOCK_PATIENCE_S
        while True:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() >= deadline:
                    raise SocketError(f"another process holds {file} locked; try again") from None
            time.sleep(0.02)
        yield
    finally:
        os.close(descriptor)
