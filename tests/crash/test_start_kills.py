"""A daemon that is killed while it starts, again and again, over a database with 5,000 open tasks.

Nothing is lost, no attempt is counted twice, and the first start that is left alone listens and runs what is due.
`SCHEDD_START_KILLS` asks for more kills than the few of a normal run, `SCHEDD_START_SEED` repeats their moments.
"""

import os
import random
import time
from pathlib import Path
from typing import Any

import pytest

from schedd.core.batch import NewBatch
from schedd.core.model import Dependency, NewTask, RetryPolicy
from schedd.engine.clock import SystemClock
from schedd.engine.inbox import Call
from schedd.engine.loop import Engine
from schedd.engine.requests import SubmitBatch
from schedd.store import migrate
from schedd.store.sqlite import open_store
from support import tally
from support.daemons import RealDaemon, daemon_of, until
from support.fakes import FakeExecutor
from support.ledger import Ledger, Snapshot

KILLS = int(os.environ.get("SCHEDD_START_KILLS", "10"))
SEED = int(os.environ.get("SCHEDD_START_SEED", "0")) or random.SystemRandom().randrange(1, 2**32)
TASKS = 5_000
DUE = 20
RUNNING = 4
FAR_S = 30 * 86_400.0
TRUE = '{"command": ["/bin/true"]}'
SLEEP = '{"command": ["/bin/sleep", "600"]}'

pytestmark = [pytest.mark.real, pytest.mark.slow, pytest.mark.timeout(180 + 10 * KILLS)]


def fill(daemon: RealDaemon, running: int) -> None:
    """Write the tasks as a daemon would that died with `running` attempts: the first ones, which sleep."""
    daemon.state_dir.mkdir(mode=0o750)
    migrate.upgrade(daemon.database)
    store = open_store(daemon.database)
    store.set_synchronous_off()
    again = RetryPolicy(1_000_000, 0.01, 0.05)
    tasks = [NewTask(SLEEP, f"running-{index}", retry=again, priority=-1) for index in range(running)]
    tasks += [NewTask(TRUE, f"due-{index}", retry=again) for index in range(DUE)]
    tasks += [
        NewTask(TRUE, f"far-{index}", delay=FAR_S, deps=(Dependency(f"due-{index % DUE}"),) if index % 2 else ())
        for index in range(TASKS - len(tasks))
    ]
    try:
        engine = Engine(store, FakeExecutor(), SystemClock(), running)
        engine.recover()
        call = Call(SubmitBatch(NewBatch(tasks)))
        call.future.set_running_or_notify_cancel()
        engine.step([call])
        assert len(call.future.result(0)["ids"]) == TASKS
    finally:
        store.close()


def read(daemon: RealDaemon) -> Snapshot:
    """All rows, each of them sound in itself."""
    ledger = Ledger(daemon.database)
    try:
        now = ledger.read()
    finally:
        ledger.close()
    assert len(now.tasks) == TASKS, "tasks are lost, or there are more than there were"
    for seq, row in now.tasks.items():
        Ledger._attempts_are_sound(now, seq, row)
    return now


def named(now: Snapshot, prefix: str) -> list[dict[str, Any]]:
    """The rows of the tasks with such an id."""
    return [row for row in now.tasks.values() if row["id"].startswith(prefix)]


def kill_after(daemon: RealDaemon, seconds: float) -> None:
    """Start it and kill it so much later."""
    process = daemon.spawn()
    time.sleep(seconds)
    assert process.poll() is None, f"it ended by itself: {daemon.story()}"
    daemon.kill()


def expect_all_well(daemon: RealDaemon) -> Snapshot:
    """A normal start: it listens, and runs what is due; what is far away is all there and untouched."""
    daemon.start()
    daemon.settle(*(f"due-{index}" for index in range(DUE)))
    now = read(daemon)
    assert {row["status"] for row in named(now, "due-")} == {"succeeded"}
    far = named(now, "far-")
    assert {(row["status"], row["attempts"], row["number"]) for row in far} == {("pending", 0, 0)}
    assert len(now.edges) == sum(1 for row in far if int(row["id"].removeprefix("far-")) % 2)
    assert min(row["run_at"] for row in far) > time.time() + FAR_S - 7_200
    for row in named(now, "due-"):
        outcomes = [attempt["outcome"] for attempt in now.attempts[row["seq"]]]
        assert outcomes == ["crashed"] * (len(outcomes) - 1) + ["succeeded"], f"{row}: {outcomes}"
    return now


def test_kills_within_the_first_half_second_of_a_start() -> None:
    """At random moments from 0 to 500 ms after it was started."""
    rng = random.Random(SEED)
    with daemon_of(start=False) as daemon:
        fill(daemon, 0)
        for _ in range(KILLS):
            kill_after(daemon, rng.uniform(0.0, 0.5))
            read(daemon)
        expect_all_well(daemon)
        daemon.stop()
    tally.add(kills=KILLS)


def test_kills_while_a_start_recovers_from_a_kill() -> None:
    """With attempts running when it died, killed anywhere between its start and its being ready, all over again.

    An attempt that died with a daemon is counted once, however many recoveries were begun before one was committed.
    """
    rng = random.Random(SEED + 1)
    with daemon_of(workers=RUNNING + 2, start=False) as daemon:
        fill(daemon, RUNNING)
        first = read(daemon)
        assert [row["status"] for row in named(first, "running-")] == ["running"] * RUNNING
        began = time.monotonic()
        daemon.start()
        until_running(daemon)
        ready_s = time.monotonic() - began
        daemon.kill()
        before, unrecovered, recovered = read(daemon), 0, 0
        for _ in range(KILLS):
            kill_after(daemon, rng.uniform(0.0, 1.1 * ready_s))
            after = read(daemon)
            for row in named(after, "running-"):
                counted = row["attempts"] - before.tasks[row["seq"]]["attempts"]
                if before.tasks[row["seq"]]["status"] == "running":
                    assert counted in (0, 1), f"one death was counted {counted} times: {row}"
                    unrecovered += counted == 0
                    recovered += counted == 1
            before = after
        now = expect_all_well(daemon)
        for row in named(now, "running-"):
            outcomes = [attempt["outcome"] for attempt in now.attempts[row["seq"]]]
            assert row["status"] in ("running", "pending")
            assert [outcome for outcome in outcomes if outcome] == ["crashed"] * row["attempts"], f"{row}: {outcomes}"
            assert row["number"] - row["attempts"] == (row["status"] == "running")
        assert unrecovered + recovered > 0, f"no kill met a running row (seed {SEED})"
        daemon.kill()
    tally.add(kills=KILLS + 2)


def until_running(daemon: RealDaemon) -> None:
    """Wait until the sleepers sleep (again)."""
    sql = "select count(*) from task where status = 'running' and id like 'running-%'"
    until(lambda: daemon.rows(sql)[0][0] == RUNNING, "the long tasks run")


@pytest.fixture(autouse=True)
def _tell_the_seed(request: pytest.FixtureRequest) -> None:
    """Shown by pytest when a test fails."""
    print(f"SCHEDD_START_SEED={SEED} SCHEDD_START_KILLS={KILLS} pytest {Path(__file__).name}")
