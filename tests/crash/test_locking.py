"""Two daemons on one state directory, whatever path leads there: the second names the first and leaves it alone."""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from schedd.service import ExitCode
from support.daemons import PATIENCE_S, RealDaemon, daemon_of, is_alive, until

pytestmark = [pytest.mark.real, pytest.mark.slow, pytest.mark.timeout(180)]


def start_second(state_dir: Path, socket: Path) -> "subprocess.CompletedProcess[str]":
    """A second daemon on that path; it must end by itself."""
    command = [sys.executable, "-m", "schedd.service", "--state-dir", str(state_dir), "--socket", str(socket)]
    return subprocess.run(command, cwd="/", capture_output=True, text=True, timeout=PATIENCE_S, check=False)


def expect_refused(first: RealDaemon, state_dir: Path, socket: Path) -> None:
    """The second one says who is there and ends; the first one, and what runs under it, do not notice."""
    assert first.process is not None
    running = first.submit(command=["sleep", "600"])
    pid = _pid_of(first, running)
    done = start_second(state_dir, socket)
    assert done.returncode == ExitCode.LOCKED == 3, done.stderr
    assert f"pid {first.process.pid}" in done.stderr
    assert "Traceback" not in done.stderr
    assert first.answers()
    assert is_alive(pid), "the second daemon took the first one's process for a leftover"
    assert first.task(running)["status"] == "running"
    assert first.settle(first.submit(command=["true"])).popitem()[1] == "succeeded"
    assert first.outcomes(running) == [None]


def _pid_of(daemon: RealDaemon, task_id: str) -> int:
    sql = "select pid from attempt join task on seq = task_seq where id = ? and pid is not null"
    until(lambda: daemon.rows(sql, task_id), "the pid of the attempt")
    return int(daemon.rows(sql, task_id)[0][0])


@contextmanager
def bind_mount(source: Path, target: Path) -> Iterator[None]:
    """The same directory at a second place, by the kernel. Skips where that is not allowed."""
    mount = shutil.which("mount")
    if mount is None or os.geteuid() != 0:
        pytest.skip("only root may mount")
    target.mkdir()
    made = subprocess.run([mount, "--bind", str(source), str(target)], capture_output=True, text=True, check=False)
    if made.returncode != 0:
        pytest.skip(f"cannot mount here: {made.stderr.strip()}")
    try:
        yield
    finally:
        subprocess.run(["umount", "--lazy", str(target)], check=True, timeout=30)


def test_a_second_daemon_is_told_the_pid_of_the_first() -> None:
    """By the same path, with a socket of its own."""
    with daemon_of(workers=6) as first:
        expect_refused(first, first.state_dir, first.home / "s2")


def test_a_second_daemon_with_the_same_socket_leaves_it_to_the_first() -> None:
    """It refuses before it touches the socket."""
    with daemon_of(workers=6) as first:
        expect_refused(first, first.state_dir, first.socket)


def test_a_second_daemon_through_a_symlink() -> None:
    """To the directory, and to one above it."""
    with daemon_of(workers=6) as first:
        (first.home / "link").symlink_to(first.state_dir)
        (first.home / "above").symlink_to(first.home)
        expect_refused(first, first.home / "link", first.home / "s2")
        expect_refused(first, first.home / "above" / "state", first.home / "s2")


@pytest.mark.parametrize("through_a_link", [False, True], ids=["directly", "through a link"])
def test_a_second_daemon_after_the_lock_file_was_removed(through_a_link: bool) -> None:
    """As somebody does who takes it for a stale one: the directory itself is what is locked."""
    with daemon_of(workers=6) as first:
        (first.state_dir / "lock").unlink()
        (first.home / "link").symlink_to(first.state_dir)
        expect_refused(first, first.home / "link" if through_a_link else first.state_dir, first.home / "s2")


def test_a_second_daemon_through_a_bind_mount() -> None:
    """The lock belongs to the directory, not to the path; also without its file."""
    with daemon_of(workers=6) as first, bind_mount(first.state_dir, first.home / "mounted"):
        expect_refused(first, first.home / "mounted", first.home / "s2")
        (first.state_dir / "lock").unlink()
        expect_refused(first, first.home / "mounted", first.home / "s2")


def test_a_new_daemon_takes_the_place_of_a_dead_one() -> None:
    """What a killed daemon left of its lock, pid included, is in nobody's way."""
    with daemon_of(workers=6) as first:
        first.kill()
        first.start()
        assert first.settle(first.submit(command=["true"])).popitem()[1] == "succeeded"


def test_a_lock_that_a_leftover_inherited_does_not_exist() -> None:
    """A task outlives its killed daemon: the lock does not, for it is closed in every child."""
    with daemon_of(workers=6) as first:
        running = first.submit(command=["sh", "-c", "trap '' TERM; sleep 600"])
        pid = _pid_of(first, running)
        first.kill()
        assert is_alive(pid)
        first.start()
        assert not is_alive(pid)
