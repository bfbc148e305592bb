"""Another process locks the database of a real daemon, or pins an old state of it: nothing is lost, all is told."""

import os
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from schedd.engine import loop
from schedd.runtime import GIVE_UP_S
from schedd.store.connect import JOURNAL_LIMIT_BYTES
from support.daemons import RealDaemon, daemon_of, until
from support.pressure import assert_idles, locked, post, post_all, read_from

SOAK = bool(os.environ.get("SCHEDD_SOAK"))
HOLDS_S: list[Any] = [
    1.0,
    6.0,
    pytest.param(60.0, marks=pytest.mark.skipif(not SOAK, reason="a minute; set SCHEDD_SOAK")),
]
MORE_S = 20.0
"""How much longer than its patience anything may take on a busy machine."""

pytestmark = [pytest.mark.real]


@pytest.fixture
def daemon() -> Iterator[RealDaemon]:
    """One that waits a second for its tasks when it stops."""
    with daemon_of(workers=3, settings=["drain_timeout = 1"]) as made:
        yield made


def gated(daemon: RealDaemon, name: str) -> tuple[str, Path, Path]:
    """A task that runs until a file is there and then appends a line to another: its id, and these files."""
    go, ran = daemon.home / f"{name}.go", daemon.home / f"{name}.ran"
    task_id = daemon.submit(name=name, run=f"while [ ! -e {go} ]; do sleep 0.02; done; echo x >> {ran}")
    until(lambda: daemon.task(task_id)["status"] == "running", f"{name} runs")
    return task_id, go, ran


def degraded(daemon: RealDaemon) -> str:
    """Why the daemon says that it is not well; empty if it is."""
    told = daemon.client.health()["degraded"]
    return told["message"] if told else ""


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("hold_s", HOLDS_S)
def test_a_lock_held_by_another_process_costs_nothing(daemon: RealDaemon, hold_s: float):
    """While it is held a task finishes, one is cancelled and one submitted; all of it comes true once."""
    finisher, go, ran = gated(daemon, "finisher")
    victim = daemon.submit(name="victim", run="exec sleep 600")
    until(lambda: daemon.task(victim)["status"] == "running", "the victim runs")
    spec = {"tasks": {"late": {"deps": ["finisher"], "run": f"echo x >> {daemon.home / 'late.ran'}"}}}
    requests = [
        ("/v1/batches", spec, "k1"),
        ("/v1/cancel", {"ids": [victim]}, "k2"),
        ("/v1/hold", {"ids": ["x"]}, None),
    ]
    assert daemon.process is not None
    with ThreadPoolExecutor(1) as pool, locked(daemon.database):
        began = time.monotonic()
        go.touch()
        until(ran.exists, "the finisher has ended")
        asked = pool.submit(post_all, daemon.socket, requests)
        if hold_s > loop.PATIENCE_S:
            answers = asked.result(loop.PATIENCE_S + MORE_S)
            assert [answer.status for answer in answers] == [503] * 3, answers
            assert all("locked by another process" in answer.body["detail"] for answer in answers), answers
            assert max(answer.took_s for answer in answers) < loop.PATIENCE_S + MORE_S
            assert "locked by another process" in degraded(daemon)
            assert not daemon.client.health()["ready"]
            assert daemon.task(finisher)["status"] == "running", "its end is held back"
            assert_idles(daemon.process.pid)
        time.sleep(max(hold_s - (time.monotonic() - began), 0.0))
    if hold_s < loop.PATIENCE_S:
        assert [answer.status for answer in asked.result(MORE_S)] == [201, 200, 404], "they waited, and were taken"
    first, again = (post_all(daemon.socket, requests[:2]) for _ in range(2))
    assert [answer.status for answer in first] == [201, 200], first
    assert [answer.body for answer in first] == [answer.body for answer in again], "a key has one answer"
    assert daemon.settle(finisher, victim, "late") == {
        finisher: "succeeded",
        victim: "cancelled",
        "late": "succeeded",
    }
    assert (ran.read_text(), (daemon.home / "late.ran").read_text()) == ("x\n", "x\n")
    assert daemon.rows("select count(*) from task where id = 'late'") == [(1,)]
    until(lambda: not degraded(daemon), "it is well again")
    if hold_s > loop.PATIENCE_S:
        until(lambda: '"database_available"' in daemon.story(), "the log tells the end")
        assert '"database_unavailable"' in daemon.story()
    daemon.stop()


@pytest.mark.timeout(180)
def test_starting_on_a_locked_database_waits_and_minds_signals(daemon: RealDaemon):
    """It says why it waits, ends at once when it is told to, and comes up when the lock is gone."""
    finisher, go, _ = gated(daemon, "finisher")
    daemon.kill()
    go.touch()
    with locked(daemon.database):
        process = daemon.spawn()
        until(lambda: "waiting_for_database" in daemon.story(), "it tells why it waits")
        process.terminate()
        assert process.wait(MORE_S) == 0, daemon.story()
        process = daemon.spawn()
        until(lambda: daemon.story().count("waiting_for_database") > 3, "it waits again")
        assert_idles(process.pid)
        assert process.poll() is None
    until(daemon.answers, "it comes up")
    assert daemon.settle(finisher) == {finisher: "failed"}
    assert daemon.outcomes(finisher) == ["crashed"]
    daemon.stop()


def test_a_stop_during_a_lock_writes_what_it_knows_when_the_lock_goes(daemon: RealDaemon):
    """The task that ended under the lock has ended when the daemon has."""
    finisher, go, ran = gated(daemon, "finisher")
    assert daemon.process is not None
    with locked(daemon.database):
        go.touch()
        until(ran.exists, "the finisher has ended")
        daemon.process.terminate()
        until(lambda: '"draining"' in daemon.story(), "it stops")
        time.sleep(2.0)  # past its drain
        assert daemon.process.poll() is None, "it does not end without having written"
    assert daemon.process.wait(GIVE_UP_S + MORE_S) == 0, daemon.story()
    assert daemon.outcomes(finisher) == ["succeeded"]
    assert daemon.rows("select status from task where id = ?", finisher) == [("succeeded",)]


@pytest.mark.slow
@pytest.mark.timeout(180)
def test_a_stop_during_an_endless_lock_gives_up_in_time_and_says_so(daemon: RealDaemon):
    """Its processes are ended; what it could not write counts as crashed at the next start."""
    finisher, go, ran = gated(daemon, "finisher")
    sleeper = daemon.submit(name="sleeper", run="exec sleep 600", retry={"max_attempts": 2, "base_delay": 0.01})
    until(lambda: daemon.task(sleeper)["status"] == "running", "the sleeper runs")
    assert daemon.process is not None
    with locked(daemon.database):
        go.touch()
        until(ran.exists, "the finisher has ended")
        began = time.monotonic()
        daemon.process.terminate()
        assert daemon.process.wait(1.0 + GIVE_UP_S + MORE_S) == 1, daemon.story()
        assert time.monotonic() - began >= GIVE_UP_S
        assert "stopped_without_writing_all" in daemon.story()
        assert not daemon.marked()
    daemon.start()
    until(lambda: daemon.outcomes(sleeper) == ["crashed", None], "the sleeper runs again")
    assert daemon.outcomes(finisher) == ["crashed"]


@pytest.mark.slow
@pytest.mark.timeout(240)
def test_a_reader_that_pins_the_log_is_named_and_everything_goes_on(daemon: RealDaemon):
    """Past the size that the log is kept to, health says why it grows; with the reader gone it shrinks again."""
    client = daemon.client
    client.pause()
    journal = Path(f"{daemon.database}-wal")
    written, text = 0, "x" * 4_000_000
    ids: list[str] = []

    def write_some() -> bool:
        nonlocal written
        written += 1
        assert post(daemon.socket, "/v1/pause", {}).status == 200
        return True

    with read_from(daemon.database):
        while journal.stat().st_size <= JOURNAL_LIMIT_BYTES:
            ids += client.submit({"tasks": {f"big{len(ids)}": {"run": f"true # {text}"}}})["ids"]
            assert len(ids) < 40, "the log does not grow although its reader stays"
        until(lambda: write_some() and degraded(daemon), "health says why the log grows")
        assert "end that program" in degraded(daemon)
        assert client.health()["ready"], "it goes on taking work"
        client.cancel(ids)
        client.resume()
        small = daemon.submit(name="small", run="true")
        assert daemon.settle(small) == {small: "succeeded"}
    until(lambda: not degraded(daemon), "it looks again by itself, and is content")
    until(lambda: write_some() and journal.stat().st_size <= JOURNAL_LIMIT_BYTES, "the log shrinks")
    until(lambda: '"database_well"' in daemon.story(), "the log tells the end")
    assert '"database_needs_attention"' in daemon.story()
    daemon.stop()
