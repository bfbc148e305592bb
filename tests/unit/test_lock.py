"""One scheduler per state directory."""

import errno
import fcntl
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from schedd import lock as lock_module
from schedd.lock import AlreadyLocked, StateDirLock


def test_the_second_is_told_who_holds_it(tmp_path: Path):
    """The message names the directory and the pid."""
    lock = StateDirLock(tmp_path)
    with pytest.raises(AlreadyLocked) as caught:
        StateDirLock(tmp_path)
    assert f"pid {os.getpid()};" in str(caught.value)
    assert str(tmp_path) in str(caught.value)
    assert (tmp_path / "lock").read_text() == f"{os.getpid()}\n"
    lock.release()
    StateDirLock(tmp_path).release()


def test_a_symlink_leads_to_the_same_lock(tmp_path: Path):
    """Whatever path leads there."""
    real = tmp_path / "real"
    real.mkdir()
    (tmp_path / "link").symlink_to(real)
    lock = StateDirLock(real)
    with pytest.raises(AlreadyLocked):
        StateDirLock(tmp_path / "link")
    lock.release()


@pytest.mark.parametrize("replaced", [False, True], ids=["removed", "replaced"])
def test_without_its_file_the_lock_holds(tmp_path: Path, replaced: bool):
    """Who tidies up a "stale" lock file lets nobody in, and the holder is told all the same."""
    lock = StateDirLock(tmp_path)
    (tmp_path / "lock").unlink()
    if replaced:
        (tmp_path / "lock").write_text("\n")
    with pytest.raises(AlreadyLocked, match=f"pid {os.getpid()};"):
        StateDirLock(tmp_path)
    lock.release()
    StateDirLock(tmp_path).release()


def test_where_the_kernel_does_not_say_who_the_file_does(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """A holder in another container is none of /proc."""
    monkeypatch.setattr(lock_module, "_holder", lambda descriptor: None)
    lock = StateDirLock(tmp_path)
    with pytest.raises(AlreadyLocked, match=f"pid {os.getpid()};"):
        StateDirLock(tmp_path)
    (tmp_path / "lock").write_text("?")
    with pytest.raises(AlreadyLocked, match="another process"):
        StateDirLock(tmp_path)
    lock.release()


def test_an_older_schedd_holds_it_by_the_file_alone(tmp_path: Path):
    """Before an upgrade has reached the running daemon."""
    script = (
        "import fcntl, os, sys\n"
        "file = open(sys.argv[1], 'w')\n"
        "fcntl.flock(file, fcntl.LOCK_EX)\n"
        "print(os.getpid(), file=file, flush=True)\n"
        "print('locked', flush=True)\n"
        "sys.stdin.read()\n"
    )
    command = [sys.executable, "-c", script, str(tmp_path / "lock")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as old:
        assert old.stdout is not None
        assert old.stdout.readline() == b"locked\n"
        with pytest.raises(AlreadyLocked, match=f"pid {old.pid};"):
            StateDirLock(tmp_path)
        old.kill()
    StateDirLock(tmp_path).release()


def test_a_file_system_that_cannot_lock_a_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """The file alone holds the lock then; any other error is told."""
    real: Any = fcntl.flock
    code = errno.EBADF

    def flock(descriptor: int, mode: int) -> None:
        if os.path.isdir(f"/proc/self/fd/{descriptor}"):
            raise OSError(code, "simulated")
        real(descriptor, mode)

    monkeypatch.setattr(fcntl, "flock", flock)
    lock = StateDirLock(tmp_path)
    with pytest.raises(AlreadyLocked):
        StateDirLock(tmp_path)
    lock.release()
    code = errno.EIO
    with pytest.raises(OSError, match="simulated"):
        StateDirLock(tmp_path)


def test_files_of_libraries_share_a_directory_that_no_daemon_uses(tmp_path: Path):
    """Two databases in one directory have nothing to do with each other; each has one user, and none is a daemon's."""
    first, second = StateDirLock.of_file(tmp_path / "a.db"), StateDirLock.of_file(tmp_path / "b.db")
    with pytest.raises(AlreadyLocked):
        StateDirLock.of_file(tmp_path / "a.db")
    with pytest.raises(AlreadyLocked):
        StateDirLock(tmp_path)
    first.release()
    second.release()
    daemon = StateDirLock(tmp_path)
    with pytest.raises(AlreadyLocked):
        StateDirLock.of_file(tmp_path / "schedd.db")
    daemon.release()


def test_a_refusal_leaves_nothing_open(tmp_path: Path):
    """Or a scheduler that tries again and again would run out of descriptors."""
    lock = StateDirLock(tmp_path)
    before = sorted(os.listdir("/proc/self/fd"))
    for _ in range(3):
        with pytest.raises(AlreadyLocked):
            StateDirLock(tmp_path)
    assert sorted(os.listdir("/proc/self/fd")) == before
    lock.release()


def test_release_twice_is_harmless(tmp_path: Path):
    """A close after a failed start."""
    lock = StateDirLock(tmp_path)
    lock.release()
    lock.release()
