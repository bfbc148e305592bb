"""The daemon's socket: who may use it, and what is never removed to make room for it."""

import fcntl
import grp
import os
import socket
import stat
import threading
from pathlib import Path

import pytest

from schedd.api import socket as api_socket
from schedd.api.socket import SocketError, bind
from schedd.lock import StateDirLock


def mode_of(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_a_new_socket_listens_with_the_mode_asked_for_whatever_the_umask(tmp_path: Path) -> None:
    """The permissions are those asked for, neither cut by the umask nor opened by it."""
    for umask in (0o000, 0o077):
        path = tmp_path / f"s{umask}"
        before = os.umask(umask)
        try:
            with bind(path, 0o660):
                assert mode_of(path) == 0o660
                with socket.socket(socket.AF_UNIX) as client:
                    client.connect(str(path))
        finally:
            os.umask(before)


def test_the_socket_is_never_open_to_others_on_the_way(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Between bind and chmod only the owner may connect, even under a umask of zero."""
    seen: list[int] = []
    real = api_socket._give
    monkeypatch.setattr(api_socket, "_give", lambda path, gid: (seen.append(mode_of(path)), real(path, gid)))
    before = os.umask(0)
    try:
        bind(tmp_path / "s").close()
    finally:
        os.umask(before)
    assert seen == [0o600]


def test_a_missing_directory_is_made_for_owner_and_group_only(tmp_path: Path) -> None:
    """The directory of the socket is 0750, and one that exists is left as it is."""
    path = tmp_path / "run" / "s"
    bind(path).close()
    assert mode_of(path.parent) == 0o750
    tmp_path.chmod(0o701)
    bind(tmp_path / "other").close()
    assert mode_of(tmp_path) == 0o701


def test_the_socket_is_given_to_the_group_named(tmp_path: Path) -> None:
    """The group named gets the socket and the directory made for it."""
    group = grp.getgrgid(os.getgid())
    path = tmp_path / "run" / "s"
    bind(path, 0o660, group.gr_name).close()
    assert path.stat().st_gid == path.parent.stat().st_gid == group.gr_gid


def test_a_group_that_does_not_exist_is_refused_by_name(tmp_path: Path) -> None:
    """A wrong group is an error, not a socket for another one."""
    with pytest.raises(SocketError, match="there is no group 'nobody-has-this'"):
        bind(tmp_path / "s", group="nobody-has-this")
    assert not (tmp_path / "s").exists()


def test_the_socket_of_a_dead_daemon_is_replaced(tmp_path: Path) -> None:
    """A socket that nobody listens on is in the way of nobody."""
    path = tmp_path / "s"
    bind(path).close()
    assert path.is_socket()
    with bind(path), socket.socket(socket.AF_UNIX) as client:
        client.connect(str(path))


def test_the_socket_of_a_living_daemon_is_left_alone(tmp_path: Path) -> None:
    """A second daemon is told who is there, and the first goes on listening."""
    path = tmp_path / "s"
    with bind(path):
        with pytest.raises(SocketError, match=f"another schedd listens on {path}"):
            bind(path)
        with socket.socket(socket.AF_UNIX) as client:
            client.connect(str(path))


@pytest.mark.parametrize("kind", ["file", "directory", "link"])
def test_what_is_not_a_socket_is_never_removed(tmp_path: Path, kind: str) -> None:
    """A file, a directory or a link at the path is refused and kept, even a link to a dead socket."""
    path = tmp_path / "s"
    if kind == "file":
        path.write_text("precious")
    elif kind == "directory":
        path.mkdir()
    else:
        bind(tmp_path / "dead").close()
        path.symlink_to(tmp_path / "dead")
    with pytest.raises(SocketError, match="not a socket"):
        bind(path)
    assert os.path.lexists(path)


def test_a_path_that_is_too_long_is_refused_with_both_lengths(tmp_path: Path) -> None:
    """The message names the length that the path has and the one that is allowed."""
    path = tmp_path / ("s" * 120)
    with pytest.raises(SocketError, match=rf"has {len(str(path))} bytes and the system allows 107"):
        bind(path)


def test_a_directory_that_cannot_be_made_is_told_with_the_systems_reason(tmp_path: Path) -> None:
    """A file in the place of the directory is an error of ours, not a traceback."""
    (tmp_path / "run").write_text("")
    with pytest.raises(SocketError, match=r"cannot make the socket .*: (File exists|Not a directory)"):
        bind(tmp_path / "run" / "s")


def test_of_many_daemons_that_start_at_once_one_gets_the_socket(tmp_path: Path) -> None:
    """A dead socket is removed once: nobody removes the one that another has just made."""
    path = tmp_path / "s"
    bind(path).close()
    made: list[socket.socket] = []
    refused: list[SocketError] = []
    barrier = threading.Barrier(8)

    def start() -> None:
        barrier.wait()
        try:
            made.append(bind(path))
        except SocketError as error:
            refused.append(error)

    threads = [threading.Thread(target=start) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(made) == 1
    assert len(refused) == 7
    with socket.socket(socket.AF_UNIX) as client:
        client.connect(str(path))
    made[0].close()


def test_a_path_that_is_held_by_another_is_refused_after_a_while(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A lock that is never given back does not hold a start for ever."""
    monkeypatch.setattr(api_socket, "LOCK_PATIENCE_S", 0.05)
    held = os.open(tmp_path / "s.lock", os.O_RDONLY | os.O_CREAT)
    try:
        fcntl.flock(held, fcntl.LOCK_EX)
        with pytest.raises(SocketError, match=r"holds .* locked"):
            bind(tmp_path / "s")
    finally:
        os.close(held)


def test_a_socket_may_lie_in_the_state_directory(tmp_path: Path) -> None:
    """Which this daemon holds locked, and for as long as it lives: that is where SCHEDD_STATE_DIR has it."""
    lock = StateDirLock(tmp_path)
    try:
        bind(tmp_path / "s").close()
    finally:
        lock.release()
