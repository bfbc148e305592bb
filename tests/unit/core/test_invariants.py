"""Each kind of corruption is caught, and a sound machine is left in peace."""

from collections.abc import Callable
from copy import copy

import pytest

from schedd.core import invariants
from schedd.core.invariants import InvariantBroken
from schedd.core.machine import Machine
from schedd.core.model import OpenTask, Outcome, Recurrence, RetryPolicy, Status
from support.core_driver import START, Driver, new

Corruption = Callable[[Machine, dict[str, OpenTask]], object]


@pytest.fixture
def sound() -> Driver:
    """A machine with tasks in every place."""
    driver = Driver(1)
    driver.submit(
        new("running", retry=RetryPolicy(max_attempts=3), recurrence=Recurrence(5, 2)),
        new("ready"),
        new("delayed", delay=9),
        new("held"),
        new("unmet", "ready"),
        new("below", "unmet"),
    )
    driver.hold("held")
    return driver


def put(**fields: object) -> Corruption:
    """Overwrite fields of one task, named `of`."""
    name = fields.pop("of")

    def corrupt(machine: Machine, tasks: dict[str, OpenTask]) -> None:
        for field, value in fields.items():
            setattr(tasks[name], field, value)

    return corrupt


def overfill(machine: Machine, tasks: dict[str, OpenTask]) -> None:
    """Stale entries that were never pruned."""
    (heap,) = machine.ready._heaps.values()
    heap._entries += heap._entries[:1] * 100


def ghost(machine: Machine, tasks: dict[str, OpenTask]) -> None:
    """Another record under the seq of one that is running."""
    machine.running[tasks["running"].seq] = copy(tasks["running"])


def overslept(machine: Machine, tasks: dict[str, OpenTask]) -> None:
    """A task whose time has come, still in the queue of those that wait for theirs."""
    tasks["delayed"].run_at = START
    machine.delayed.push(START, tasks["delayed"])


def close_cycle(machine: Machine, tasks: dict[str, OpenTask]) -> None:
    """Two tasks that wait for each other, and count it."""
    tasks["below"].children = [tasks["unmet"]]
    tasks["unmet"].unmet += 1


CORRUPTIONS: dict[str, tuple[Corruption, str]] = {
    "wrong seq": (put(of="held", seq=99), "filed under seq 4"),
    "ended and open": (put(of="held", status=Status.SKIPPED), "ended but still open"),
    "running and not counted": (lambda machine, tasks: machine.running.clear(), "running and not counted"),
    "counted and not running": (put(of="running", status=Status.PENDING), "running and not counted"),
    "counted and not open": (lambda machine, tasks: machine.running.update({9: tasks["held"]}), "running but not open"),
    "a ghost runs": (ghost, "running but not open"),
    "ready and not queued": (lambda machine, tasks: machine.ready.discard(tasks["ready"]), "ready and not queued"),
    "queued and not ready": (lambda machine, tasks: machine.ready.push(0, tasks["held"]), "ready and not queued"),
    "ready and held": (put(of="ready", held=True), "ready but unmet or held"),
    "queued under another priority": (put(of="ready", priority=5), "queued under another priority"),
    "not in delayed": (lambda machine, tasks: machine.delayed.discard(tasks["delayed"]), "waits for time alone"),
    "held and delayed": (put(of="delayed", held=True), "waits for time alone"),
    "released and nowhere": (put(of="held", held=False), "waits for time alone"),
    "running and delayed": (lambda machine, tasks: machine.delayed.push(START + 9, tasks["running"]), "waits for time"),
    "delayed until another time": (put(of="delayed", run_at=START + 5), "delayed until another time"),
    "due and delayed": (overslept, "due and still delayed"),
    "queued and not open": (lambda machine, tasks: machine.ready.push(0, record(99)), "queued but not open"),
    "delayed and not open": (lambda machine, tasks: machine.delayed.push(START + 1, record(99)), "queued but not open"),
    "never pruned": (overfill, "stale entries"),
    "waits with a cancel on it": (put(of="held", cancel_requested=True), "has a cancel on it"),
    "runs too early": (put(of="running", unmet=1), "runs before what it depends on"),
    "runs without an attempt": (put(of="running", number=0), "runs without an attempt"),
    "too many attempts": (put(of="running", attempts=3, number=9), "attempts out of bounds"),
    "fewer than no attempts": (put(of="running", attempts=-1), "attempts out of bounds"),
    "attempts never made": (put(of="running", attempts=2), "more attempts counted than made"),
    "too many runs": (put(of="running", runs=2), "ran more often than asked"),
    "runs of one that does not recur": (put(of="held", runs=1), "ran more often than asked"),
    "unmet too high": (put(of="unmet", unmet=2), "unmet is 2, its open parents are 1"),
    "unmet too low": (put(of="ready", children=None), "unmet is 1, its open parents are 0"),
    "lost": (lambda machine, tasks: machine.open.pop(tasks["below"].seq), "lost: unmet releases it"),
    "a cycle": (close_cycle, "a cycle among open tasks: [5, 6, 5]"),
}  # fmt: skip


def record(seq: int) -> OpenTask:
    return OpenTask(seq, f"n{seq}", 0, RetryPolicy(), None, START)


class TestInvariants:
    """A machine that contradicts itself."""

    def test_a_sound_machine_is_left_in_peace(self, sound: Driver):
        """Also while it ends, and when it is empty."""
        invariants.check(sound.machine, sound.now)
        sound.end("running", Outcome.CANCELLED)
        sound.end("ready", Outcome.FAILED)
        invariants.check(sound.machine, sound.now)
        invariants.check(Machine(0), START)

    @pytest.mark.parametrize("name", CORRUPTIONS)
    def test_every_corruption_is_caught(self, sound: Driver, name: str):
        """By the check that was made for it; the story tells the record."""
        corrupt, story = CORRUPTIONS[name]
        corrupt(sound.machine, sound.tasks)
        with pytest.raises(InvariantBroken) as caught:
            invariants.check(sound.machine, sound.now)
        assert story in str(caught.value)

    def test_time_that_went_by_without_a_claim_is_caught(self, sound: Driver):
        """`now` is the time of the last claim, after which nothing due may be delayed."""
        with pytest.raises(InvariantBroken, match="due and still delayed"):
            invariants.check(sound.machine, START + 9)

    def test_a_deep_graph_is_checked_without_recursion(self, shallow_stack):
        """The story of a record does not tell the graph below it."""
        driver = Driver(0)
        driver.submit(new("n0"), *(new(f"n{index}", f"n{index - 1}") for index in range(1, 2_000)), check=False)
        with shallow_stack():
            invariants.check(driver.machine, driver.now)
            driver.tasks["n0"].held = True
            with pytest.raises(InvariantBroken):
                invariants.check(driver.machine, driver.now)
