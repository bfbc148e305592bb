"""The 1st, 2nd, 3rd ... statement of one fixed scenario fails, until it comes to its end without a failure.

The faults are put between the store and SQLite, one statement at a time (COMMIT included), once before it did its
work and once after. For each place: an error that passes, an error that stays for a while, one that stays until the
daemon has given up, was stopped and is started again, and a crash. Whatever happens, every request is answered at
last, the ledger finds every promise kept at every step, and each task ends as it does without any fault. The same for
the statements of a recovery.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

import pytest

from schedd.core.batch import NewBatch
from schedd.core.model import CatchUp, Dependency, NewTask, Outcome, Recurrence, RetryPolicy, StopReason, When
from schedd.engine.inbox import Message, Request
from schedd.engine.loop import Unavailable
from schedd.engine.requests import CancelTasks, DependTasks, HoldTasks, PauseStarting, SubmitBatch
from schedd.store.sqlite import open_store
from support import tally
from support.nth import BUSY, FULL, IOERR, FailingConnection, Place
from support.world import World

PARTS = 4
LONG_FAULT_S = 12.0
"""A fault that stays does so for longer than the patience of a call (5 s), so some are answered `Unavailable`."""

BOOTS_IN_A_LONG_FAULT = 3


class Scenario(World):
    """One fixed life in which everything happens once. The outcomes belong to the tasks, not to the moments."""

    OUTCOMES: ClassVar = {
        "retried": [Outcome.FAILED, Outcome.TIMED_OUT],
        "fails": [Outcome.FAILED] * 9,
        "unlucky": [Outcome.START_FAILED],
    }
    ENDLESS = frozenset({"endless"})
    """Ends only when it is stopped."""

    def __init__(self, folder: Path, template: Path, place: Place, for_ever: bool = False) -> None:
        self.place = Place(0, None)
        self.for_ever = for_ever
        self.answers: dict[str | None, Any] = {}
        self.fault_since: float | None = None
        self.boots_in_fault = 0
        self.said: dict[str, int] = {}  # name -> how many ends a worker has reported
        super().__init__(0, folder, template, 0)
        self.fault_rate = self.late_rate = self.crash_rate = 0.0
        self.repeat_rate = 1.0
        self.workers = 3
        self.place = place
        self.put_between()
        self.boot()

    def put_between(self) -> None:
        """The place between store and SQLite."""
        self._real = self._store._connection
        self.connection = FailingConnection(self._real, self.place)
        self._store._connection = self.connection  # type: ignore[assignment]

    def close(self) -> None:
        self._store._connection = self._real
        super().close()

    def on_boot(self) -> None:
        """A fault that stays does so for some starts too."""
        if self.place.stays and self.place.hits:
            self.boots_in_fault += 1
            if self.boots_in_fault > BOOTS_IN_A_LONG_FAULT:
                self.place.lift()

    def step(self, *messages: Message) -> None:
        """A fault that stays is over some time after it came."""
        if self.place.hits and self.fault_since is None:
            self.fault_since = self.clock.monotonic()
        if self.fault_since is not None and self.clock.monotonic() - self.fault_since >= LONG_FAULT_S:
            if self.for_ever and self.place.counting:
                self.give_up()
                return
            self.place.lift()
        super().step(*messages)

    def give_up(self) -> None:
        """The fault stays for ever: the daemon is stopped, gives up what it cannot write, and is started again after
        somebody has seen to the disk. Its workers and what they reported are gone.
        """
        self.engine.stop(0.0, 0.0)
        super().step()
        assert self.engine._is_over()
        self.place.lift()
        self._store._connection = self._real
        self._store.close()
        self._store = self.store.inner = open_store(self.path)
        self._store_pragmas()
        self.put_between()
        self.crashes += 1
        self.boot()

    def an_end(self, seq: int) -> Message:
        order = self.executor.running[seq]
        name = order.id.rpartition("/")[2]
        reasons = [stop.reason for stop in self.executor.stopped if (stop.seq, stop.number) == (seq, order.number)]
        if StopReason.CANCELLED in reasons:
            return self.end(seq, Outcome.CANCELLED, error="simulated")
        if reasons:
            return self.end(seq, Outcome.INTERRUPTED, error="simulated")
        outcomes, index = self.OUTCOMES.get(name, []), self.said.get(name, 0)
        self.said[name] = index + 1
        outcome = outcomes[index] if index < len(outcomes) else Outcome.SUCCEEDED
        if outcome is Outcome.START_FAILED:
            return self.end(seq, outcome, error="schedd's fault", counts=False)
        return self.end(seq, outcome, error=None if outcome is Outcome.SUCCEEDED else "simulated")

    def ends(self) -> list[Message]:
        """Everything that runs and ends by itself, or was told to end, ends."""
        told = {stop.seq for stop in self.executor.stopped}
        running = sorted(self.executor.running.items())
        free = [seq for seq, order in running if seq in told or order.id.rpartition("/")[2] not in self.ENDLESS]
        return [self.an_end(seq) for seq in free]

    def ask(self, request: Request) -> Any:
        """Ask until it is answered, with one key, as a good client does."""
        self.keys += 1
        key = f"scenario-{self.keys}"
        for _ in range(200):
            call = self.call(request, key=key)
            for _ in range(200):
                pending = [one for one, _ in self.unanswered if one.key == key]
                if not pending:
                    break
                self.pass_time(0.5)
            answered = self.answers.get(key)
            if answered is not None:
                return answered
            if call.future.done():
                error = call.future.exception()
                assert error is None or isinstance(error, Unavailable), f"refused: {error!r}"
        raise AssertionError(f"never answered: {request}")

    def note(self, call: Any, answer: dict[str, Any]) -> None:
        self.answers.setdefault(call.key, answer)
        super().note(call, answer)

    def pass_time(self, seconds: float) -> None:
        """And see what is due."""
        self.clock.advance(seconds)
        self.step()

    def play(self) -> dict[str, str]:
        """The scenario; the final status of each task."""
        patient = RetryPolicy(6, 0.5, 4.0)
        tasks = [
            NewTask("1", "first", retry=patient),
            NewTask("1", "fails", retry=RetryPolicy(2, 0.5, 4.0)),
            NewTask("1", "retried", deps=(Dependency("first"),), retry=patient),
            NewTask("1", "if-failed", deps=(Dependency("fails", When.FAILED),), retry=patient),
            NewTask("1", "if-finished", deps=(Dependency("fails", When.FINISHED),), retry=patient, priority=-1),
            NewTask("1", "never", deps=(Dependency("fails"),), retry=patient),
            NewTask("1", "below-never", deps=(Dependency("never", When.FINISHED),), retry=patient),
            NewTask("1", "beat", recurrence=Recurrence(3.0, 3, CatchUp.LATEST), retry=patient),
            NewTask("1", "unlucky", retry=patient),
            NewTask("1", "endless", priority=-2, retry=patient),
            NewTask("1", "much-later", delay=500.0, retry=patient),
            NewTask("1", "below-cancelled", deps=(Dependency("much-later"),), retry=patient),
            NewTask("1", "held", delay=1.0, retry=patient),
        ]
        ids = {name.rpartition("/")[2]: name for name in self.ask(SubmitBatch(NewBatch(tasks, "all")))["ids"]}
        self.ask(HoldTasks((ids["held"],), True))
        self.step(*self.ends())
        self.ask(PauseStarting(True))
        self.ask(CancelTasks((ids["endless"], ids["much-later"])))
        self.step(*self.ends())
        late = self.ask(SubmitBatch(NewBatch([NewTask("2", "late", delay=2.0, retry=patient)])))["ids"][0]
        self.ask(DependTasks(ids["held"], late))
        self.ask(PauseStarting(False))
        self.set_clock(3600.0)
        self.step(*self.ends())
        self.stop_on_purpose()
        self.ask(HoldTasks((ids["held"],), False))
        for _ in range(300):
            self.step(*self.ends())
            self.pass_time(1.0)
            if not self.executor.running and not self.engine._backlog and self.engine.fault is None:
                rows = self.ledger.read().tasks.values()
                if all(row["settled_at"] is not None for row in rows):
                    break
        self.place.lift()
        self.finish()
        return {row["id"].rpartition("/")[2]: row["status"] for row in self.ledger.read().tasks.values()}


EXPECTED = {
    "first": "succeeded",
    "fails": "failed",
    "retried": "succeeded",
    "if-failed": "succeeded",
    "if-finished": "succeeded",
    "never": "skipped",
    "below-never": "succeeded",
    "beat": "succeeded",
    "unlucky": "succeeded",
    "endless": "cancelled",
    "much-later": "cancelled",
    "below-cancelled": "skipped",
    "held": "succeeded",
    "late": "succeeded",
}


def play(folder: Path, template: Path, place: Place, for_ever: bool = False) -> Scenario:
    """One life with a fault in one place, judged."""
    scenario = Scenario(folder, template, place, for_ever)
    try:
        seen = scenario.play()
        assert seen == EXPECTED
        rows = scenario.ledger.read()
        assert len({row["batch_seq"] for row in rows.tasks.values()}) == 2, "a batch too many or too few"
    except BaseException as error:
        where = f"{place.met[:3]} of {place.count} points"
        error.add_note(f"Place({place.at}, {place.kind}, {place.stays}), for ever {for_ever}: {where}")
        raise
    finally:
        scenario.close()
    return scenario


def places(part: int, kinds: list[int | None], stays: bool) -> Iterator[Place]:
    """Every `PARTS`-th place, for as long as the last one was reached; the kinds take turns."""
    at = part + 1
    while True:
        place = Place(at, kinds[at % len(kinds)], stays)
        yield place
        if not place.hits:
            return
        at += PARTS


def test_the_scenario_comes_to_its_end_without_a_fault(template: Path, scratch: Path):
    """And has enough statements to fail."""
    place = Place(0, None)
    scenario = play(scratch, template, place)
    assert scenario.crashes == scenario.faults == 0
    assert place.count > 200


@pytest.mark.slow
@pytest.mark.parametrize("part", range(PARTS))
@pytest.mark.parametrize("stays", [False, True], ids=["once", "for-a-while"])
@pytest.mark.parametrize("crash", [False, True], ids=["error", "crash"])
def test_whichever_statement_fails(crash: bool, stays: bool, part: int, template: Path, scratch: Path):
    """Full disk, I/O error, lock, or the end of the daemon, before and after each statement: all ends as it should."""
    kinds: list[int | None] = [None] if crash else [FULL, IOERR, BUSY]
    reached = 0
    for place in places(part, kinds, stays):
        play(scratch, template, place)
        reached += 1
    tally.add(**{"crashes" if crash else "faults": reached})
    assert reached > 200 // PARTS, "the loop has ended early: it proves nothing"


@pytest.mark.slow
@pytest.mark.parametrize("part", range(PARTS))
def test_a_fault_that_stays_until_the_daemon_is_started_again(part: int, template: Path, scratch: Path):
    """What was answered is there, what was not is repeated, and what could not be written counts as crashed, once."""
    reached = gave_up = 0
    for place in places(part, [FULL, IOERR, BUSY], True):
        scenario = play(scratch, template, place, for_ever=True)
        reached += 1
        gave_up += bool(scenario.crashes)
    tally.add(faults=reached)
    assert gave_up > 150 // PARTS, "hardly any daemon had to give up: it proves nothing"


def die_and_recover(folder: Path, template: Path, place: Place) -> None:
    """Die while much runs, waits and is being cancelled, and meet the place while recovering."""
    scenario = Scenario(folder, template, Place(0, None))
    patient = RetryPolicy(3, 0.5, 4.0)
    tasks = [
        NewTask("1", "endless", retry=patient),
        NewTask("1", "one-try"),
        NewTask("1", "first", retry=patient),
        NewTask("1", "child", deps=(Dependency("first"),), retry=patient),
        NewTask("1", "orphan", deps=(Dependency("one-try"),), retry=patient),
        NewTask("1", "mourner", deps=(Dependency("one-try", When.FAILED),), retry=patient),
    ]
    try:
        scenario.ask(SubmitBatch(NewBatch(tasks)))
        assert sorted(scenario.executor.running) == [1, 2, 3]
        scenario.ask(CancelTasks(("endless",)))
        scenario.place = scenario.connection.place = place
        scenario._die()
        scenario.boot()
        place.lift()
        scenario.finish()
        rows = scenario.ledger.read()
        seen = {
            row["id"]: (row["status"], [at["outcome"] for at in rows.attempts[seq]]) for seq, row in rows.tasks.items()
        }
        assert seen == {
            "endless": ("cancelled", ["cancelled"]),
            "one-try": ("failed", ["crashed"]),
            "first": ("succeeded", ["crashed", "succeeded"]),
            "child": ("succeeded", ["succeeded"]),
            "orphan": ("skipped", []),
            "mourner": ("succeeded", ["succeeded"]),
        }
    except BaseException as error:
        error.add_note(f"in recovery: Place({place.at}, {place.kind}, {place.stays}): {place.met[:3]}")
        raise
    finally:
        scenario.close()


@pytest.mark.parametrize("stays", [False, True], ids=["once", "for-a-while"])
@pytest.mark.parametrize("kind", [FULL, IOERR, BUSY, None], ids=["full", "ioerr", "busy", "crash"])
def test_whichever_statement_of_a_recovery_fails(kind: int | None, stays: bool, template: Path, scratch: Path):
    """It is begun again, and comes to the same rows: each lost attempt is counted once."""
    at = 0
    while True:
        at += 1
        place = Place(at, kind, stays)
        die_and_recover(scratch, template, place)
        if not place.hits:
            break
    tally.add(**{"crashes" if kind is None else "faults": at})
    assert at > 15, "the loop has ended early: it proves nothing"
