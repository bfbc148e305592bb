"""The disk under a real daemon fills up, for its database, its logs or both, and has room again: nothing is lost."""

import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from schedd.core.batch import NewBatch
from schedd.core.model import NewTask, Outcome
from schedd.engine import loop
from schedd.engine.inbox import Call
from schedd.engine.loop import Engine, Unavailable
from schedd.engine.requests import SubmitBatch
from schedd.store import migrate
from schedd.store.sqlite import open_store
from support.daemons import RealDaemon, daemon_of, short_home, until
from support.fakes import FakeClock, FakeExecutor
from support.pressure import SmallDisk, assert_idles, post, small_disk

MORE_S = 20.0
POWERLESS = """
import ctypes, os, sys
prctl = ctypes.CDLL(None).prctl
for power in (1, 2):  # CAP_DAC_OVERRIDE and CAP_DAC_READ_SEARCH leave the bounding set, and so root's next program
    if os.geteuid() == 0 and prctl(24, power, 0, 0, 0) != 0:
        sys.exit(77)
os.umask(0)
os.execv(sys.argv[1], sys.argv[1:])
"""
"""Makes root as powerless as others against the permissions of files; and a umask that forbids nothing."""


@pytest.fixture
def on_small_disk() -> Iterator[tuple[RealDaemon, SmallDisk]]:
    """A daemon whose state directory is a small disk; it does not run yet."""
    with (
        daemon_of(workers=2, settings=["drain_timeout = 5"], start=False) as daemon,
        small_disk(daemon.state_dir) as disk,
    ):
        try:
            yield daemon, disk
        finally:
            daemon.close()


def degraded(daemon: RealDaemon) -> str:
    """Why the daemon says that it is not well; empty if it is."""
    told = daemon.client.health()["degraded"]
    return told["message"] if told else ""


def gated(daemon: RealDaemon, name: str = "finisher") -> tuple[str, Path, Path]:
    """A task that runs until a file is there and then appends a line to another: its id, and these files."""
    go, ran = daemon.home / f"{name}.go", daemon.home / f"{name}.ran"
    task_id = daemon.submit(name=name, run=f"while [ ! -e {go} ]; do sleep 0.02; done; echo x >> {ran}")
    until(lambda: daemon.task(task_id)["status"] == "running", f"{name} runs")
    return task_id, go, ran


@pytest.mark.real
@pytest.mark.slow
@pytest.mark.timeout(240)
@pytest.mark.parametrize("logs_too", [False, True])
def test_what_ended_on_a_full_disk_is_written_when_there_is_room(
    on_small_disk: tuple[RealDaemon, SmallDisk], logs_too: bool
):
    """Requests are turned away with the reason meanwhile, and a keyed one repeated is taken once."""
    daemon, disk = on_small_disk
    daemon.start()
    finisher, go, ran = gated(daemon)
    after = daemon.submit(name="after", deps=["finisher"], run=f"echo x >> {daemon.home / 'after.ran'}")
    late = {"tasks": {"late": {"run": f"echo x >> {daemon.home / 'late.ran'}"}}}
    if logs_too:
        disk.fill_inodes()
    disk.fill()
    go.touch()
    until(ran.exists, "the finisher has ended")
    for key in ("k", None):
        answer = post(daemon.socket, "/v1/batches", late, key)
        assert answer.status == 503, answer
        assert "the disk is full" in answer.body["detail"]
        assert answer.took_s < loop.PATIENCE_S + MORE_S
    assert "the disk is full" in degraded(daemon)
    assert not daemon.client.health()["ready"]
    assert daemon.process is not None
    assert_idles(daemon.process.pid)
    time.sleep(loop.LONGEST_BACKOFF_S)  # a retry with nothing but the held back end, and one with nothing at all
    assert "the disk is full" in degraded(daemon)
    disk.empty()
    until(lambda: not degraded(daemon), "it is well again")
    first, again = (post(daemon.socket, "/v1/batches", late, "k") for _ in range(2))
    assert (first.status, first.body) == (again.status, again.body) == (201, {"batch": None, "ids": ["late"]})
    ids = [finisher, after, "late"]
    assert daemon.settle(*ids) == dict.fromkeys(ids, "succeeded")
    assert [daemon.outcomes(task_id) for task_id in ids] == [["succeeded"]] * 3
    assert [(daemon.home / f"{name}.ran").read_text() for name in ("finisher", "after", "late")] == ["x\n"] * 3
    daemon.stop()


@pytest.mark.real
@pytest.mark.timeout(180)
def test_health_stays_degraded_until_a_write_has_succeeded(on_small_disk: tuple[RealDaemon, SmallDisk]):
    """With nothing left to write it tries by itself, and does not take silence for an end of the fault."""
    daemon, disk = on_small_disk
    daemon.start()
    disk.fill()
    assert post(daemon.socket, "/v1/pause", {}).status == 503
    deadline = time.monotonic() + 1.5 * loop.LONGEST_BACKOFF_S
    while time.monotonic() < deadline:
        assert "the disk is full" in degraded(daemon)
        time.sleep(0.1)
    disk.empty()
    until(lambda: not degraded(daemon), "it finds out by itself that there is room")
    assert not daemon.client.status()["paused"], "nothing has changed"
    daemon.stop()


@pytest.mark.real
@pytest.mark.timeout(180)
def test_a_command_without_a_log_waits_for_room_and_loses_no_attempt(on_small_disk: tuple[RealDaemon, SmallDisk]):
    """It is `start_failed` with the reason, does not count, and is tried again after a while."""
    daemon, disk = on_small_disk
    daemon.start()
    disk.fill_inodes()
    ran = daemon.home / "ran"
    task_id = daemon.submit(name="t", run=f"echo x >> {ran}; echo hello")
    until(lambda: daemon.outcomes(task_id)[:1] == ["start_failed"], "it cannot be started")
    task = daemon.task(task_id)
    assert (task["status"], task["attempts"]) in [("pending", 0), ("running", 0)]
    assert "log file" in task["history"][0]["error"]
    assert not ran.exists()
    disk.empty()
    assert daemon.settle(task_id) == {task_id: "succeeded"}
    assert daemon.task(task_id)["attempts"] == 1
    assert ran.read_text() == "x\n"
    assert b"".join(daemon.client.log(task_id)) == b"hello\n"
    daemon.stop()


@pytest.mark.real
@pytest.mark.timeout(180)
@pytest.mark.parametrize("end", ["kill", "kill_and_boot"])
def test_starting_on_a_full_disk_waits_for_room(on_small_disk: tuple[RealDaemon, SmallDisk], end: str):
    """It says so, uses no CPU, and recovers what the last daemon left."""
    daemon, disk = on_small_disk
    daemon.start()
    finisher, go, _ = gated(daemon)
    daemon.kill()
    if end == "kill_and_boot":
        next(daemon.state_dir.glob("boot*")).write_text("another boot\n")
    disk.fill_inodes()
    disk.fill()
    process = daemon.spawn()
    until(lambda: process.poll() is not None or "waiting_for_database" in daemon.story(), "it tells why it waits")
    assert_idles(process.pid)
    assert process.poll() is None, daemon.story()
    disk.empty()
    until(daemon.answers, "it comes up")
    go.touch()
    assert daemon.settle(finisher) == {finisher: "failed"}
    assert daemon.outcomes(finisher) == ["crashed"]
    assert daemon.settle(daemon.submit(name="new", run="true")) == {"new": "succeeded"}
    daemon.stop()


def test_an_end_held_back_by_the_largest_size_of_the_database_is_written_later(tmp_path: Path):
    """`max_page_count` is a full disk for the database alone."""
    path = tmp_path / "schedd.db"
    migrate.upgrade(path)
    store, executor, clock = open_store(path), FakeExecutor(), FakeClock()
    engine = Engine(store, executor, clock, 1)  # type: ignore[arg-type]
    engine.recover()

    def submit(name: str, size: int) -> Call:
        tasks = [NewTask(f'{{"run":"{"x" * size}"}}', name)]
        call = Call(SubmitBatch(NewBatch(tasks)), key=name, arrived=clock.monotonic())
        call.future.set_running_or_notify_cancel()
        engine.step([call])
        return call

    try:
        assert submit("a", 10).future.result(0)["ids"] == ["a"]
        pages = store._connection.execute("PRAGMA page_count").fetchone()[0]
        store._connection.execute(f"PRAGMA max_page_count = {pages}")
        refused = submit("b", 100_000)
        assert engine.fault is not None
        engine.step([executor.end(1, Outcome.SUCCEEDED, clock.now())])
        clock.advance(1)
        engine.step([])
        assert store.find(["a"])["a"].status == "succeeded", "the end fits, and does not wait for what is too large"
        assert not refused.future.done()
        clock.advance(loop.PATIENCE_S)
        engine.step([])
        with pytest.raises(Unavailable, match="largest size"):
            refused.future.result(0)
        store._connection.execute("PRAGMA max_page_count = 1000000")
        clock.advance(loop.LONGEST_BACKOFF_S)
        assert submit("b", 100_000).future.result(0)["ids"] == ["b"]
        assert executor.payloads.keys() == {1, 2}
    finally:
        store.close()


# --- read-only ------------------------------------------------------------------------------------------------------


@pytest.fixture
def powerless() -> Iterator[RealDaemon]:
    """A daemon of a user who may not write everywhere; it does not run yet."""
    launcher = [sys.executable, "-c", POWERLESS]
    tried = subprocess.run([*launcher, "/bin/true"], timeout=60, check=False)
    if tried.returncode != 0:
        pytest.skip("root cannot give up its powers here")
    with short_home() as home:
        daemon = RealDaemon(home, 2, launcher=launcher)
        try:
            yield daemon
        finally:
            daemon.close()


@pytest.mark.real
@pytest.mark.timeout(180)
def test_a_read_only_database_is_waited_for_at_the_start(powerless: RealDaemon):
    """It says what to look at; when its permissions are set right it comes up."""
    daemon = powerless
    daemon.start()
    before = daemon.submit(name="before", run="true")
    daemon.settle(before)
    daemon.stop()
    daemon.database.chmod(0o440)
    process = daemon.spawn()
    until(lambda: process.poll() is not None or "waiting_for_database" in daemon.story(), "it tells why it waits")
    assert process.poll() is None, daemon.story()
    assert "read-only" in daemon.story() or "permissions" in daemon.story()
    daemon.database.chmod(0o640)
    until(daemon.answers, "it comes up")
    assert daemon.task(before)["status"] == "succeeded"
    daemon.stop()


@pytest.mark.real
@pytest.mark.timeout(180)
def test_a_read_only_directory_is_refused_at_the_start_and_harmless_later(powerless: RealDaemon):
    """A running daemon has its files open; one that starts says who must own the directory."""
    daemon = powerless
    daemon.start()
    daemon.settle(daemon.submit(name="first", run="true"))
    daemon.state_dir.chmod(0o550)
    for path in daemon.state_dir.glob("schedd.db*"):
        path.chmod(0o440)
    assert daemon.settle(daemon.submit(name="second", run="true")) == {"second": "succeeded"}
    daemon.stop()
    process = daemon.spawn()
    assert process.wait(60) == 4, daemon.story()
    assert "must own it" in daemon.story()
    daemon.state_dir.chmod(0o750)
    for path in daemon.state_dir.glob("schedd.db*"):
        path.chmod(0o640)
    daemon.start()
    assert [task["status"] for task in daemon.client.iter_tasks()] == ["succeeded"] * 2
    daemon.stop()


@pytest.mark.real
def test_the_files_of_the_database_are_not_for_everybody(powerless: RealDaemon):
    """Whatever the umask: environments of tasks are in them."""
    daemon = powerless
    daemon.start()
    daemon.settle(daemon.submit(name="t", run="true"))
    for suffix in ("", "-wal", "-shm"):
        assert Path(f"{daemon.database}{suffix}").stat().st_mode & 0o777 == 0o640, suffix
    daemon.stop()
