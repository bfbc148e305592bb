"""Clocks that are set, machines that sleep, and due times at the end of the calendar: no stall, no early run, no burst.

On the real engine and SQLite store with a fake clock; and once with `SystemClock` on faked clocks of the machine.
"""

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from schedd.core import limits
from schedd.core.batch import NewBatch
from schedd.core.model import CatchUp, NewTask, Outcome, Recurrence, RetryPolicy
from schedd.engine.clock import LONGEST_WAIT_S, SMALLEST_STEP_S, SystemClock
from schedd.engine.requests import SubmitBatch
from support.world import World

HOUR = 3600.0
MONTH = 30 * 86_400.0
JUMPS = pytest.mark.parametrize("jump", [-HOUR, HOUR], ids=["back", "forward"])


class Quiet(World):
    """A world in which nothing happens by chance."""

    def __init__(self, folder: Path, template: Path, workers: int = 8) -> None:
        super().__init__(0, folder, template, 0)
        self.fault_rate = self.late_rate = self.crash_rate = 0.0
        self.workers = workers
        self.boot()

    def add(self, *tasks: NewTask) -> list[str]:
        """Submit tasks; their ids."""
        self.tags += 1
        return list(self.call(SubmitBatch(NewBatch(tasks))).future.result(0)["ids"])

    def starts(self, seconds: float, tick: float = 0.5) -> list[tuple[float, str]]:
        """Let time pass in small steps, ending whatever starts; when what was started, from now."""
        began = self.clock.monotonic()
        seen = []
        while self.clock.monotonic() - began <= seconds:
            self.step()
            seen += [(self.clock.monotonic() - began, order.id) for order in self.executor.started]
            self.step(*[self.end(seq, Outcome.SUCCEEDED) for seq in sorted(self.executor.running)])
            seen += [(self.clock.monotonic() - began, order.id) for order in self.executor.started]
            self.clock.advance(tick)
        return seen

    def wait_s(self) -> float | None:
        """How long the engine's thread would sleep now."""
        return self.engine._wait_s()


@pytest.fixture
def world(template: Path, scratch: Path) -> Iterator[Quiet]:
    """A world that is closed at the end."""
    made = Quiet(scratch, template)
    yield made
    made.close()


def new(name: str, **more: Any) -> NewTask:
    """A task that does nothing."""
    return NewTask("1", name, **more)


@JUMPS
def test_delays_keep_their_length_when_the_clock_is_set(world: Quiet, jump: float):
    """A minute stays a minute: nothing at once, nothing an hour later, each at its own time."""
    world.add(*(new(f"t{index}", delay=10.0 * index) for index in range(1, 6)))
    world.clock.advance(5.0)
    world.set_clock(jump)
    assert world.starts(60.0) == [(10.0 * index - 5.0, f"t{index}") for index in range(1, 6)]


@JUMPS
def test_a_clock_that_is_set_while_tasks_are_due_loses_and_repeats_none(world: Quiet, jump: float):
    """Due, waiting for a worker: they start in their order as soon as there is one."""
    world.workers = 1
    world.boot()
    world.add(*(new(f"t{index}", delay=1.0) for index in range(5)))
    world.clock.advance(1.0)
    world.step()
    world.set_clock(jump)
    assert len(world.executor.running) == 1
    world.starts(20.0)
    rows = world.ledger.read().tasks.values()
    assert [(row["status"], row["number"]) for row in rows] == [("succeeded", 1)] * 5


@JUMPS
def test_a_backoff_keeps_its_length_when_the_clock_is_set(world: Quiet, jump: float):
    """As a delay does."""
    world.add(new("t", retry=RetryPolicy(2, 30.0, 30.0)))
    world.step(world.end(1, Outcome.FAILED, error="simulated"))
    world.set_clock(jump)
    assert world.starts(60.0) == [(30.0, "t")]


@JUMPS
def test_a_recurrence_keeps_its_beat_when_the_clock_is_set(world: Quiet, jump: float):
    """No run at once, none an hour late, no burst of those that an hour would have held."""
    world.add(new("t", recurrence=Recurrence(10.0, 5)))
    world.step(world.end(1, Outcome.SUCCEEDED))
    world.clock.advance(4.0)
    world.set_clock(jump)
    assert [at for at, _ in world.starts(60.0)] == [6.0, 16.0, 26.0, 36.0]


@JUMPS
def test_a_clock_set_again_and_again(world: Quiet, jump: float):
    """Many steps add up to nothing."""
    world.add(new("t", delay=60.0))
    for _ in range(20):
        world.clock.advance(1.0)
        world.set_clock(jump)
    assert world.starts(60.0) == [(40.0, "t")]


@JUMPS
def test_a_clock_set_while_the_database_is_locked(world: Quiet, jump: float):
    """The step waits with everything else, and is taken once, however often its commit seemed to fail."""
    world.add(new("t", delay=60.0))
    world.fault_rate = 0.7
    world.late_rate = 0.7
    world.set_clock(jump)
    for _ in range(10):
        world.clock.advance(1.0)
        world.step()
    world.fault_rate = world.late_rate = 0.0
    assert world.starts(70.0) == [(50.0, "t")]


def test_after_a_suspend_the_due_run_once(world: Quiet):
    """The wall clock and the boot clock went on, the monotonic one did not: what fell due starts at once, once."""
    world.add(
        new("due", delay=60.0),
        new("later", delay=2 * HOUR),
        new("beat", recurrence=Recurrence(60.0, 200, CatchUp.NONE)),
    )
    world.step(world.end(3, Outcome.SUCCEEDED))
    world.clock.wall += HOUR  # no step: the boot clock agrees
    world.not_before.clear()  # the naive model waits by the monotonic clock
    world.engine.step([])
    assert sorted(order.id for order in world.executor.running.values()) == ["beat", "due"]
    for seq in sorted(world.executor.running):
        world.engine.step([world.executor.end(seq, Outcome.SUCCEEDED, world.clock.now())])
    assert not world.executor.running, "the runs that the sleep held were made up for in a burst"


@pytest.mark.parametrize(("year", "at"), [(2038, 2_147_483_648.0), (2100, 4_102_444_800.0), (9999, 253_370_764_800.0)])
def test_a_clock_at_the_end_of_the_calendar(world: Quiet, year: int, at: float):
    """On a machine whose clock says so: due times keep their precision, and times are told as such."""
    world.clock.wall = at - 30.0
    world.clock.step = 0.0
    world.add(new("t", delay=60.0), new("beat", recurrence=Recurrence(25.0, 3)))
    assert world.starts(70.0) == [(25.0, "beat"), (50.0, "beat"), (60.0, "t")]
    assert time.gmtime(at).tm_year == year


@pytest.mark.parametrize(("year", "at"), [(2038, 2_147_483_648.0), (2100, 4_102_444_800.0), (9999, 253_370_764_800.0)])
def test_what_is_due_at_the_end_of_the_calendar_waits_without_a_stall(world: Quiet, year: int, at: float):
    """Rows may say so even where no delay is that long: it survives a restart, and never keeps others from running."""
    world.add(new("far", delay=min(at - world.clock.now(), limits.MAX_DURATION_S)), new("near", delay=60.0))
    world._store._connection.execute("update task set run_at = ? where id = 'far'", (at,))
    world.not_before.clear()
    world.boot()
    world.not_before.clear()
    waits = world.wait_s()
    assert waits is not None and 0 < waits <= 60.0
    assert world.starts(120.0) == [(60.0, "near")]
    waits = world.wait_s()
    assert waits is not None and waits > 0
    world.clock.wall = at - 1.0
    world.engine.step([])
    assert not world.executor.running, "early"
    world.clock.wall = at
    world.engine.step([])
    assert [order.id for order in world.executor.running.values()] == ["far"], f"not in {year}"


@pytest.mark.parametrize(
    ("catch_up", "at_once"), [(CatchUp.ALL, 720), (CatchUp.LATEST, 1), (CatchUp.NONE, 0)], ids=["all", "latest", "none"]
)
def test_after_a_month_of_downtime(template: Path, scratch: Path, catch_up: CatchUp, at_once: int):
    """An hourly task whose daemon was off for 30 days: all 720 missed starts one after the other, the last, or none."""
    world = Quiet(scratch, template)
    try:
        world.add(new("t", recurrence=Recurrence(HOUR, 2_000, catch_up)))
        world.stop_on_purpose()  # interrupts the first run, which begins again at the start
        world.step()
        world.step(world.end(1, Outcome.SUCCEEDED))
        assert world.wait_s() is not None
        world.engine.stop(0.0, 0.0)
        world.step()
        world.clock.advance(MONTH + 1.0)
        world.boot()
        world.step()
        runs = 0
        while world.executor.running:
            assert len(world.executor.running) == 1
            runs += 1
            world.step(world.end(1, Outcome.SUCCEEDED))
        # The start after the first run was planned before the downtime, so it runs once, late, whatever the policy;
        # with its end the policy decides about the starts that it has left behind.
        first = 0 if catch_up is CatchUp.ALL else 1
        assert runs == at_once + first
        (row,) = world.ledger.read().tasks.values()
        assert row["run_at"] > world.clock.now()
        assert row["run_at"] - world.clock.now() <= HOUR
        assert (row["run_at"] - row["created_at"]) % HOUR == pytest.approx(0.0, abs=0.01), "the beat has moved"
    finally:
        world.close()


class Machine:
    """The clocks of a machine, for `SystemClock` to read."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.wall, self.boot, self.mono = 1_700_000_000.0, 5_000.0, 4_000.0
        patch.setattr("schedd.engine.clock.time", self)

    CLOCK_BOOTTIME = time.CLOCK_BOOTTIME

    def time(self) -> float:
        return self.wall

    def monotonic(self) -> float:
        return self.mono

    def clock_gettime(self, which: int) -> float:
        assert which == self.CLOCK_BOOTTIME
        return self.boot

    def advance(self, seconds: float) -> None:
        self.wall += seconds
        self.boot += seconds
        self.mono += seconds

    def suspend(self, seconds: float) -> None:
        self.wall += seconds
        self.boot += seconds


@JUMPS
def test_the_real_clock_tells_a_setting_from_a_sleep(
    monkeypatch: pytest.MonkeyPatch, template: Path, scratch: Path, jump: float
):
    """Set by an hour: delays keep their length. Asleep for an hour: they have passed. Slewed: nothing happens."""
    machine = Machine(monkeypatch)
    world = Quiet(scratch, template)
    try:
        world.clock = SystemClock()  # type: ignore[assignment]
        world.boot()
        world.add(new("minute", delay=60.0), new("hour", delay=HOUR))
        machine.advance(20.0)
        machine.wall += jump
        world.engine.step([])
        assert not world.executor.running, "early"
        assert world.wait_s() == LONGEST_WAIT_S  # 40 s to go, bounded
        machine.advance(20.0)
        machine.wall += SMALLEST_STEP_S / 2  # as ntpd does
        world.engine.step([])
        assert world.wait_s() == pytest.approx(20.0 - SMALLEST_STEP_S / 2)
        machine.advance(20.0)
        world.engine.step([])
        assert [order.id for order in world.executor.running.values()] == ["minute"]
        machine.suspend(HOUR)
        world.engine.step([])
        assert sorted(order.id for order in world.executor.running.values()) == ["hour", "minute"]
        assert machine.mono == 4_060.0
    finally:
        world.close()
