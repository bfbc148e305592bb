"""A scheduler put together: the order of opening, patience with a locked database, and what a fault leaves open."""

import sqlite3
import threading
from pathlib import Path

import pytest

from schedd.core.batch import NewBatch
from schedd.core.model import NewTask
from schedd.engine.inbox import Call
from schedd.engine.requests import SubmitBatch
from schedd.lock import AlreadyLocked
from schedd.runtime import EngineDied, Runtime, StateDirError
from schedd.store.base import StoreBroken


def test_a_fresh_directory_is_made_and_used(tmp_path: Path):
    """A command runs, its output is where `log_path` says, and all is closed at the end."""
    state_dir = tmp_path / "deep" / "state"
    with Runtime.open(state_dir, 1) as runtime:
        call = Call(SubmitBatch(NewBatch([NewTask('{"run":"echo $SCHEDD_TASK_ID"}', "hello")])))
        runtime.engine.call(call).result(30)
        assert runtime.reads is not None
        done = threading.Event()
        while runtime.reads.counts().get("succeeded") != 1:
            assert not done.wait(0.01)
        assert runtime.log_path(1, 1).read_text() == "hello\n"
        assert runtime.opened is not None
        assert runtime.opened.recovery.crashed == 0
    assert not runtime.is_alive()
    with Runtime.open(state_dir, 1):
        pass


def test_the_second_on_a_directory_is_refused_and_the_first_goes_on(tmp_path: Path):
    """By whatever path."""
    with Runtime.open(tmp_path / "state", 1) as runtime:
        (tmp_path / "link").symlink_to(tmp_path / "state")
        with pytest.raises(AlreadyLocked):
            Runtime.open(tmp_path / "link", 1)
        runtime.check()


def test_a_directory_that_cannot_be_made_is_refused(tmp_path: Path):
    """With its name."""
    (tmp_path / "file").write_text("")
    with pytest.raises(StateDirError, match="file"):
        Runtime.open(tmp_path / "file" / "state", 1)


def test_opening_waits_for_a_locked_database(tmp_path: Path):
    """However long: `on_wait` is told why, and may give up."""
    with Runtime.open(tmp_path, 1):
        pass
    other = sqlite3.connect(tmp_path / "schedd.db", isolation_level=None, check_same_thread=False)
    other.execute("BEGIN IMMEDIATE")
    reasons: list[str] = []

    def unlock(reason: str) -> None:
        reasons.append(reason)
        other.execute("ROLLBACK")

    runtime = Runtime.open(tmp_path, 1, on_wait=unlock)
    assert "locked" in reasons[0]
    runtime.close()
    other.execute("BEGIN IMMEDIATE")

    class GaveUp(Exception):
        pass

    def give_up(reason: str) -> None:
        raise GaveUp

    with pytest.raises(GaveUp):
        Runtime.open(tmp_path, 1, on_wait=give_up)
    other.close()
    Runtime.open(tmp_path, 1).close()


def test_a_fault_that_cannot_pass_ends_the_engine_and_says_why(tmp_path: Path):
    """The failure is kept for the daemon's exit code, and nothing more is accepted."""
    runtime = Runtime.open(tmp_path, 1)
    runtime.start()
    (tmp_path / "schedd.db").unlink()
    call = Call(SubmitBatch(NewBatch([NewTask('{"run":"true"}')])))
    future = runtime.engine.call(call)
    assert runtime.wait_ended(30)
    assert isinstance(runtime.failure, StoreBroken)
    with pytest.raises(EngineDied, match="deleted or replaced"):
        runtime.check()
    assert future.exception(30) is not None, "a caller of a dead engine is answered"
    runtime.close()
