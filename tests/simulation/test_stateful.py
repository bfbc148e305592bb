"""The simulated world again, driven by Hypothesis: a failure is shrunk to the few steps that it takes.

The seeds of test_simulation.py reach further; this one explains better. What it found is a list of rule calls to
paste into a test.
"""

import os
import shutil
import tempfile
from pathlib import Path
from typing import Any, ClassVar

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from schedd.core.batch import NewBatch
from schedd.core.errors import Refused
from schedd.core.model import CatchUp, Dependency, NewTask, Outcome, Recurrence, RetryPolicy, StopReason, When
from schedd.engine.requests import CancelTasks, DependTasks, HoldTasks, PauseStarting, SubmitBatch
from schedd.store.base import StoreUnavailable
from support import tally
from support.nth import Crash
from support.world import World

EXAMPLES = int(os.environ.get("SCHEDD_STATEFUL_EXAMPLES", "50"))

whens = st.sampled_from(list(When))
tasks = st.fixed_dictionaries(
    {
        "deps": st.lists(st.tuples(st.integers(0, 5), whens), max_size=2),
        "outside": st.none() | st.tuples(st.integers(0, 30), whens),
        "priority": st.integers(-1, 1),
        "attempts": st.integers(1, 3),
        "base": st.sampled_from([0.0, 0.5, 5.0]),
        "delay": st.sampled_from([0.0, 2.0, 60.0]),
        "every": st.none() | st.sampled_from([0.5, 10.0]),
        "catch_up": st.sampled_from(list(CatchUp)),
    }
)


class ArmedWorld(World):
    """A world whose store fails where it was told to, and nowhere else."""

    def __init__(self, folder: Path, template: Path, workers: int) -> None:
        self.armed: list[tuple[int, BaseException, bool]] = []
        super().__init__(0, folder, template, 0)
        self.fault_rate = self.late_rate = self.crash_rate = 0.0
        self.repeat_rate = 1.0
        self.workers = self.engine._workers = workers
        self.boot()

    def arm(self, operations: int, error: BaseException, after: bool) -> None:
        """Fail after so many further operations of the store, or at the first commit after them that succeeded."""
        self.armed.append((self.store.count + operations, error, after))

    def _fail(self, name: str, count: int) -> BaseException | None:
        return self._take(count, False)

    def _fail_late(self, count: int) -> BaseException | None:
        return self._take(count, True)

    def _take(self, count: int, after: bool) -> BaseException | None:
        for one in self.armed:
            if one[0] <= count and one[2] is after:
                self.armed.remove(one)
                return one[1]
        return None


class Life(RuleBasedStateMachine):
    """Each rule is one thing that can happen to a daemon."""

    template: ClassVar[Path]

    @initialize(workers=st.integers(1, 3))
    def begin(self, workers: int) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="schedd-stateful-", dir=self.template.parent))
        self.world = ArmedWorld(self.folder, self.template, workers)

    def teardown(self) -> None:
        if not hasattr(self, "world"):
            return
        try:
            self.world.armed.clear()
            self.world.finish()
        finally:
            self.world.close()
            shutil.rmtree(self.folder, ignore_errors=True)
        tally.add(examples=1, crashes=self.world.crashes)

    def pick(self, index: int) -> str:
        return self.world.ids[index % len(self.world.ids)]

    def has_tasks(self) -> bool:
        return bool(self.world.ids)

    def has_running(self) -> bool:
        return bool(self.world.executor.running)

    @rule(specs=st.lists(tasks, min_size=1, max_size=4), name=st.sampled_from([None, "ci"]))
    def submit(self, specs: list[dict[str, Any]], name: str | None) -> None:
        self.world.tags += 1
        made = []
        for index, spec in enumerate(specs):
            deps = {f"n{on % index}": when for on, when in spec["deps"] if index}
            if spec["outside"] and self.world.ids:
                deps[self.pick(spec["outside"][0])] = spec["outside"][1]
            every = spec["every"]
            made.append(
                NewTask(
                    payload=str(self.world.tags),
                    name=f"n{index}" if name else f"t{self.world.tags}-n{index}",
                    deps=tuple(
                        Dependency(on if name or on in self.world.ids else f"t{self.world.tags}-{on}", when)
                        for on, when in deps.items()
                    ),
                    priority=spec["priority"],
                    retry=RetryPolicy(spec["attempts"], spec["base"], 8.0),
                    recurrence=Recurrence(every, 2, spec["catch_up"]) if every else None,
                    delay=spec["delay"],
                )
            )
        try:
            batch = NewBatch(made, name)
        except Refused:
            return
        self.world.call(SubmitBatch(batch))

    @precondition(has_running)
    @rule(index=st.integers(0, 2), outcome=st.sampled_from([Outcome.SUCCEEDED, Outcome.FAILED, Outcome.START_FAILED]))
    def end(self, index: int, outcome: Outcome) -> None:
        world = self.world
        running = sorted(world.executor.running)
        seq = running[index % len(running)]
        number = world.executor.running[seq].number
        reasons = {stop.reason for stop in world.executor.stopped if (stop.seq, stop.number) == (seq, number)}
        if StopReason.CANCELLED in reasons:
            outcome = Outcome.CANCELLED
        if outcome is Outcome.START_FAILED:
            world.step(world.end(seq, outcome, error="schedd's fault", counts=False))
        else:
            world.step(world.end(seq, outcome, error=None if outcome is Outcome.SUCCEEDED else "simulated"))

    @precondition(has_tasks)
    @rule(index=st.integers(0, 30))
    def cancel(self, index: int) -> None:
        self.world.call(CancelTasks((self.pick(index),)))

    @precondition(has_tasks)
    @rule(index=st.integers(0, 30), held=st.booleans())
    def hold(self, index: int, held: bool) -> None:
        self.world.call(HoldTasks((self.pick(index),), held))

    @precondition(has_tasks)
    @rule(before=st.integers(0, 30), after=st.integers(0, 30), when=whens)
    def depend(self, before: int, after: int, when: When) -> None:
        self.world.call(DependTasks(self.pick(before), self.pick(after), when))

    @rule(paused=st.booleans())
    def pause(self, paused: bool) -> None:
        self.world.call(PauseStarting(paused))

    @rule(seconds=st.sampled_from([0.1, 1.0, 6.0, 60.0]))
    def wait(self, seconds: float) -> None:
        self.world.clock.advance(seconds)
        self.world.step()

    @rule(delta=st.sampled_from([-3600.0, 3600.0]))
    def set_clock(self, delta: float) -> None:
        self.world.set_clock(delta)

    @rule()
    def stop_and_start(self) -> None:
        self.world.stop_on_purpose()

    @rule(operations=st.integers(1, 12), after=st.booleans())
    def arm_a_crash(self, operations: int, after: bool) -> None:
        self.world.arm(operations, Crash(), after)

    @rule(operations=st.integers(1, 12), after=st.booleans())
    def arm_a_fault(self, operations: int, after: bool) -> None:
        self.world.arm(operations, StoreUnavailable("simulated"), after)

    @invariant()
    def the_ledger_agrees(self) -> None:
        if hasattr(self, "world"):
            self.world.ledger.check()


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_no_order_of_things_breaks_a_promise(template: Path, scratch: Path):
    """Any sequence of requests, ends, waits, faults and crashes ends with every promise kept."""
    copy = scratch / "template.db"
    shutil.copy(template, copy)
    machine = type("Life", (Life,), {"template": copy})
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=EXAMPLES,
            stateful_step_count=30,
            deadline=None,
            derandomize=EXAMPLES <= 50,
            database=None,
            suppress_health_check=list(HealthCheck),
        ),
    )
