"""The database of a real daemon is deleted, replaced or damaged: nothing is written over, nothing is promised."""

import gc
import shutil
import sqlite3
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from schedd.core.model import Outcome
from schedd.engine import loop
from schedd.engine.inbox import Call
from schedd.engine.loop import Unavailable
from schedd.engine.requests import PauseStarting
from schedd.runtime import Runtime
from schedd.store import migrate
from schedd.store.backup import copy_database
from schedd.store.base import StatementFailed, StoreBroken
from support.daemons import RealDaemon, daemon_of, until
from support.engine_bench import Bench, task
from support.pressure import Answer, post

DATABASE_EXIT = 5
BESIDE = ("", "-wal", "-shm")


@pytest.fixture
def daemon() -> Iterator[RealDaemon]:
    """One that runs."""
    with daemon_of() as made:
        yield made


@pytest.fixture
def stopped() -> Iterator[RealDaemon]:
    """One whose state directory is made and that does not run."""
    with daemon_of(start=False) as made:
        made.state_dir.mkdir(mode=0o750)
        yield made


def delete(daemon: RealDaemon) -> None:
    """The database alone."""
    daemon.database.unlink()


def delete_all(daemon: RealDaemon) -> None:
    """The state directory."""
    shutil.rmtree(daemon.state_dir)


def replace(daemon: RealDaemon) -> None:
    """By a copy, as one who restores a backup without stopping the daemon; the old log stays where it is."""
    (daemon.home / "copy").replace(daemon.database)


def delete_log(daemon: RealDaemon) -> None:
    """The write-ahead log, in which all that was committed last still is."""
    Path(f"{daemon.database}-wal").unlink()


# --- under the running daemon ---------------------------------------------------------------------------------------


@pytest.mark.real
@pytest.mark.timeout(180)
@pytest.mark.parametrize("harm", [delete, delete_all, replace, delete_log])
def test_a_database_that_goes_away_stops_the_daemon(daemon: RealDaemon, harm: Callable[[RealDaemon], None]):
    """With its own exit code and a sentence; nothing more is acknowledged, nothing keeps running."""
    done = daemon.submit(name="done", run="true")
    daemon.settle(done)
    copy_database(daemon.database, daemon.home / "copy")
    later = daemon.submit(name="later", deps=["done"], run="exec sleep 600", retry={"max_attempts": 2})
    until(lambda: daemon.task(later)["status"] == "running" and daemon.marked(), "it runs")
    identity = daemon.identity()
    harm(daemon)

    def ask(number: int) -> Answer:
        return post(daemon.socket, "/v1/batches", {"tasks": {f"void{number}": {"run": "true"}}}, f"key{number}")

    with ThreadPoolExecutor(6) as pool:
        answers = list(pool.map(ask, range(6)))
    assert {answer.status for answer in answers} <= {0, 503}, answers
    told = [answer.body["detail"] for answer in answers if answer.status]
    assert told, "who asked while it stopped was answered"
    assert all("the scheduler has ended" in detail for detail in told), told
    assert daemon.process is not None
    assert daemon.process.wait(60) == DATABASE_EXIT, daemon.story()
    assert "was deleted or replaced while schedd used it" in daemon.story()
    daemon.client.close()
    if identity == daemon.identity():  # not where that is gone too
        assert not daemon.marked()
    if harm in (replace, delete_log):
        daemon.start()
        assert daemon.rows("pragma integrity_check") == [("ok",)]
        open_and_done = {"done": "succeeded"} | ({later: "running"} if harm is delete_log else {})
        until(lambda: {t["id"]: t["status"] for t in daemon.client.iter_tasks()} == open_and_done, "the rows are there")
        assert daemon.outcomes(later) == (["crashed", None] if harm is delete_log else [])
        new = daemon.submit(name="new", run="true")
        assert daemon.settle(new) == {new: "succeeded"}


# --- at the start ---------------------------------------------------------------------------------------------------


def garbage(path: Path) -> None:
    """A letter, not a database."""
    path.write_bytes(b"this is a letter, not a database. " * 300)


def foreign(path: Path) -> None:
    """Somebody else's database, with a log that was not written back."""
    _with_log(path, lambda connection: connection.execute("CREATE TABLE theirs (x)"))


def newer(path: Path) -> None:
    """Written by a version that we do not know."""
    migrate.upgrade(path)
    _with_log(path, lambda connection: connection.execute("UPDATE alembic_version SET version_num = '9999'"))


def torn(path: Path) -> None:
    """The pages of the tables are overwritten; the log is whole."""
    migrate.upgrade(path)
    size = path.stat().st_size
    _with_log(path, lambda connection: connection.execute("INSERT INTO setting VALUES ('paused', '1')"))
    with path.open("r+b") as file:
        for page in range(2, size // 4096):
            file.seek(page * 4096)
            file.write(b"\xff" * 4096)


def torn_index(path: Path) -> None:
    """A single page, which nobody reads before recovery does."""
    migrate.upgrade(path)
    with closing(sqlite3.connect(path)) as connection:
        page = connection.execute("SELECT rootpage FROM sqlite_master WHERE name = 'ix_task_open'").fetchone()[0]
    _with_log(path, lambda connection: connection.execute("INSERT INTO setting VALUES ('paused', '1')"))
    with path.open("r+b") as file:
        file.seek((page - 1) * 4096)
        file.write(b"\xff" * 4096)


def cut_off(path: Path) -> None:
    """The end of the file is missing."""
    migrate.upgrade(path)
    with path.open("r+b") as file:
        file.truncate(path.stat().st_size // 2 // 4096 * 4096)


def _with_log(path: Path, change: Callable[[sqlite3.Connection], object]) -> None:
    """Change a database and leave the change in its log, as a program that was killed."""
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("PRAGMA journal_mode = WAL")
        change(connection)
        kept = {suffix: Path(f"{path}{suffix}").read_bytes() for suffix in BESIDE[:2]}
    for suffix, content in kept.items():
        Path(f"{path}{suffix}").write_bytes(content)


REFUSED = {
    garbage: "restore a backup, or move the file away",
    foreign: "move it away, or name another state directory",
    newer: "written by a newer one. Install that version",
    torn: "restore a backup, or move the file away",
    torn_index: "restore a backup, or move the file away",
    cut_off: "restore a backup, or move the file away",
}


@pytest.mark.real
@pytest.mark.timeout(120)
@pytest.mark.parametrize("make", REFUSED)
def test_what_is_not_a_sound_database_of_ours_is_refused_and_left_alone(
    stopped: RealDaemon, make: Callable[[Path], None]
):
    """Its own exit code, what to do, and every byte of the database and its log as it was."""
    make(stopped.database)
    beside = {suffix: Path(f"{stopped.database}{suffix}") for suffix in BESIDE[:2]}
    before = {suffix: path.read_bytes() for suffix, path in beside.items() if path.exists()}
    for _ in range(2):
        assert stopped.spawn().wait(60) == DATABASE_EXIT, stopped.story()
    assert {suffix: path.read_bytes() for suffix, path in beside.items() if suffix in before} == before
    assert REFUSED[make] in stopped.story()
    assert str(stopped.database) in stopped.story()
    assert "Traceback" not in stopped.story()


def test_a_process_that_goes_on_does_not_write_the_log_into_a_damaged_database(tmp_path: Path):
    """The library is refused as the daemon is, and the last connection is not closed: that would do it."""
    path = tmp_path / "file.db"
    torn_index(path)
    before = [Path(f"{path}{suffix}").read_bytes() for suffix in BESIDE[:2]]
    try:
        Runtime.open_file(path, 1)
    except StoreBroken as error:
        message = str(error)
    gc.collect()
    assert "is damaged" in message
    assert [Path(f"{path}{suffix}").read_bytes() for suffix in BESIDE[:2]] == before


# --- rows damaged while it was stopped ------------------------------------------------------------------------------

DAMAGES: dict[str, tuple[str, str]] = {
    "bad_json": ("UPDATE task SET payload = '{\"run\": ' WHERE id = 'bad_json'", "payload is not JSON"),
    "blob_json": ("UPDATE task SET payload = x'ff00fe' WHERE id = 'blob_json'", "payload is not JSON"),
    "other_json": ("UPDATE task SET payload = '[1, 2]' WHERE id = 'other_json'", "JSON object"),
    "odd_command": ("UPDATE task SET payload = '{\"command\": 5}' WHERE id = 'odd_command'", "command"),
    "odd_kwargs": ('UPDATE task SET payload = \'{"call": "a:b", "kwargs": 5}\' WHERE id = \'odd_kwargs\'', "kwargs"),
    "null_json": ("UPDATE task SET payload = NULL WHERE id = 'null_json'", "payload is not JSON"),
    "null_number": ("UPDATE task SET number = NULL WHERE id = 'null_number'", "number is not a count"),
    "null_run_at": ("UPDATE task SET run_at = NULL WHERE id = 'null_run_at'", "not a time"),
    "infinite": ("UPDATE task SET run_at = 9e999 WHERE id = 'infinite'", "not a time"),
    "blob_priority": ("UPDATE task SET priority = x'00' WHERE id = 'blob_priority'", "priority is not a count"),
    "unknown_status": ("UPDATE task SET status = 'thinking' WHERE id = 'unknown_status'", "status 'thinking'"),
    "ready_status": ("UPDATE task SET status = 'ready' WHERE id = 'ready_status'", "status 'ready'"),
    "blob_status": ("UPDATE task SET status = x'ff' WHERE id = 'blob_status'", "status"),
    "dangling": (
        "INSERT INTO dependency SELECT seq, 999999, 'succeeded' FROM task WHERE id = 'dangling'",
        "999999",
    ),
    "odd_when": (
        "INSERT INTO dependency SELECT seq, seq - 1, 'perhaps' FROM task WHERE id = 'odd_when'",
        "`when` 'perhaps'",
    ),
    "looped": (
        "INSERT INTO dependency SELECT seq, seq, 'succeeded' FROM task WHERE id = 'looped'",
        "depends on itself",
    ),
    "odd_retry": ("UPDATE task SET max_attempts = 'many' WHERE id = 'odd_retry'", "retry policy"),
    "not_utf8": ("UPDATE task SET error = CAST(x'ff' AS TEXT) WHERE id = 'not_utf8'", "error is not text"),
}


def damage(path: Path) -> None:
    """Do to a stopped database what its schema would forbid."""
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        sql = connection.execute("SELECT sql FROM sqlite_master WHERE name = 'task'").fetchone()[0]
        version = connection.execute("PRAGMA schema_version").fetchone()[0]
        connection.execute("PRAGMA writable_schema = ON")
        without = sql.replace(" NOT NULL", "")
        connection.execute("UPDATE sqlite_master SET sql = ? WHERE name = 'task'", (without,))
        connection.execute(f"PRAGMA schema_version = {version + 1}")
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("PRAGMA ignore_check_constraints = ON")
        for statement, _ in DAMAGES.values():
            assert connection.execute(statement).rowcount == 1, statement
        connection.execute("PRAGMA writable_schema = ON")
        connection.execute("UPDATE sqlite_master SET sql = ? WHERE name = 'task'", (sql,))
        connection.execute(f"PRAGMA schema_version = {version + 2}")


@pytest.mark.real
@pytest.mark.timeout(180)
def test_damaged_rows_are_set_aside_and_all_others_run(daemon: RealDaemon):
    """Each is failed with its reason; who waits for one is skipped; the daemon goes on, and starts again."""
    client = daemon.client
    client.pause()
    tasks: dict[str, Any] = {name: {"run": f"echo {name} >> {daemon.home / 'ran'}"} for name in DAMAGES}
    tasks["sound"] = {"run": "true"}
    tasks["also_sound"] = {"run": "true", "deps": ["sound"]}
    tasks["orphan"] = {"run": "true", "deps": ["bad_json"]}
    tasks["witness"] = {"run": "true", "deps": [{"task": "bad_json", "when": "finished"}]}
    client.submit({"tasks": tasks})
    daemon.stop()
    damage(daemon.database)
    daemon.start()
    daemon.client.resume()
    states = daemon.settle(*tasks)
    expected = dict.fromkeys(DAMAGES, "failed")
    expected |= {"sound": "succeeded", "also_sound": "succeeded", "orphan": "skipped", "witness": "succeeded"}
    expected["dangling"] = "skipped"  # what it waits for can never come
    assert states == expected
    for name, (_, reason) in DAMAGES.items():
        error = daemon.task(name)["error"]
        assert error, name
        assert reason in error, (name, error)
    assert not (daemon.home / "ran").exists()
    daemon.stop()
    daemon.start()
    assert {task["id"]: task["status"] for task in daemon.client.iter_tasks()} == expected
    daemon.stop()


# --- an engine that has died ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("error", [StatementFailed("no"), ZeroDivisionError("a bug"), StoreBroken("damaged")])
def test_whoever_waits_behind_a_fact_that_ends_the_engine_is_answered(error: Exception):
    """Requests behind it in its round, and questions, are told that the scheduler has ended; so are later ones."""
    bench = Bench(workers=1)
    bench.submit(task("a"))
    calls = [Call(PauseStarting(True), key=f"k{number}") for number in range(3)]
    bench.faults = [("begin", StatementFailed("the round"))] if not isinstance(error, StoreBroken) else []
    bench.faults += [("begin", error)]
    futures = [bench.engine.call(calls[0])] if isinstance(error, StoreBroken) else []
    bench.engine.inbox.post(bench.executor.end(1, Outcome.SUCCEEDED, bench.clock.now()))
    futures += [bench.engine.call(call) for call in calls[1:]]
    asked = bench.engine.ask(lambda machine: len(machine.running))
    with pytest.raises(type(error)):
        bench.engine.run()
    futures.append(bench.engine.call(Call(PauseStarting(True))))
    for future in [*futures, asked]:
        with pytest.raises(Unavailable, match="the scheduler has ended"):
            future.result(0)


def test_a_fault_is_told_once_and_so_is_its_end():
    """To whoever logs it, however often it is tried again."""
    bench = Bench()
    told: list[str | None] = []
    bench.engine.on_fault = lambda fault: told.append(fault and fault.message)
    bench.faults = [("begin", loop.StoreUnavailable("locked"))] * 3
    call = Call(PauseStarting(True), arrived=bench.clock.monotonic())
    call.future.set_running_or_notify_cancel()
    bench.step(call)
    while bench.faults:
        bench.clock.advance(loop.LONGEST_BACKOFF_S / 4)
        bench.step()
    bench.clock.advance(loop.LONGEST_BACKOFF_S)
    bench.step()
    assert told == ["locked", None]
    assert bench.engine.fault is None


def test_a_call_that_waits_for_a_fault_to_pass_is_answered_on_time():
    """Also if the next try is later than the caller's patience."""
    bench = Bench()
    bench.faults = [("begin", loop.StoreUnavailable("locked"))] * 100
    early = Call(PauseStarting(True), arrived=bench.clock.monotonic())
    early.future.set_running_or_notify_cancel()
    bench.step(early)
    while bench.engine._backoff_s < loop.LONGEST_BACKOFF_S:
        wait_s = bench.engine._wait_s()
        assert wait_s is not None
        bench.clock.advance(wait_s)
        bench.step()
    bench.clock.advance(0.1)
    late = Call(PauseStarting(True), arrived=bench.clock.monotonic())
    late.future.set_running_or_notify_cancel()
    bench.step(late)
    began = bench.clock.monotonic()
    while not late.future.done():
        wait_s = bench.engine._wait_s()
        assert wait_s is not None
        bench.clock.advance(wait_s)
        bench.step()
    assert bench.clock.monotonic() - began <= loop.PATIENCE_S
