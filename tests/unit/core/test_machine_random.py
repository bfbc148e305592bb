"""Random events against a naive model that keeps no queue and no count, and works everything out anew each time.

All times are multiples of a quarter of a second, so that both sides compute them exactly. Run one seed with
`-k "naive_model_does and 17"`.
"""

import random
from collections.abc import Callable
from dataclasses import dataclass, field

import pytest

from schedd.core.errors import AlreadyCancelled, AlreadyEnded, AlreadyStarted, CycleError
from schedd.core.events import Cancel, ClockStepped, DrainBegan, DrainExpired, Hold, Release, WorkersChanged
from schedd.core.model import CatchUp, Dependency, Outcome, Recurrence, RetryPolicy, When
from support.core_driver import START, Driver, new

SEEDS = 200
STEPS = 60
MOST_TASKS = 40
ENDED = ("succeeded", "failed", "cancelled", "skipped")
MET_BY = {When.SUCCEEDED: ("succeeded",), When.FAILED: ("failed",), When.FINISHED: ENDED}
UNCOUNTED_DELAY = 5.0


@dataclass
class Simple:
    """A task of the naive model: `state` is waiting, running or how it ended."""

    seq: int
    priority: int
    retry: RetryPolicy
    recurrence: Recurrence | None
    run_at: float
    state: str = "waiting"
    planned: float | None = None
    attempts: int = 0
    number: int = 0
    runs: int = 0
    held: bool = False
    cancel: bool = False


@dataclass
class Naive:
    """The rules of scheduling, written as plainly as they can be."""

    workers: int
    now: float = START
    tasks: dict[str, Simple] = field(default_factory=dict)
    edges: list[tuple[str, str, When]] = field(default_factory=list)
    """(child, parent, when)"""
    paused: bool = False
    draining: bool = False
    starts: list[str] = field(default_factory=list)

    def settle(self) -> None:
        """Skip what can never run, until nothing more follows; then start what may start, best first."""
        changed = True
        while changed:
            changed = False
            for child, parent, when in self.edges:
                how = self.tasks[parent].state
                if self.tasks[child].state == "waiting" and how in ENDED and how not in MET_BY[when]:
                    self.tasks[child].state = "skipped"
                    changed = True
        while (
            not (self.paused or self.draining)
            and len(self.running()) < self.workers
            and (ready := self.ready())
        ):  # fmt: skip
            task = self.tasks[ready[0]]
            task.state = "running"
            task.number += 1
            task.planned = self.now if task.planned is None else task.planned
            self.starts.append(ready[0])

    def ready(self) -> list[str]:
        """Who may run, the next one first."""
        waits = {child for child, parent, _ in self.edges if self.tasks[parent].state not in ENDED}
        may = [
            (task.priority, task.seq, task_id)
            for task_id, task in self.tasks.items()
            if task.state == "waiting" and not task.held and task.run_at <= self.now and task_id not in waits
        ]
        return [task_id for _, _, task_id in sorted(may)]

    def running(self) -> list[str]:
        return [task_id for task_id, task in self.tasks.items() if task.state == "running"]

    def statuses(self) -> dict[str, str]:
        ready = self.ready()
        return {
            task_id: ("ready" if task_id in ready else "pending") if task.state == "waiting" else task.state
            for task_id, task in self.tasks.items()
        }

    def end(self, task_id: str, outcome: Outcome, counts: bool) -> None:
        """What becomes of a running task."""
        task = self.tasks[task_id]
        if task.cancel or outcome is Outcome.CANCELLED:
            task.state = "cancelled"
        elif outcome is Outcome.INTERRUPTED:
            task.state, task.run_at = "waiting", self.now
        elif outcome is Outcome.START_FAILED and not counts:
            task.state, task.run_at = "waiting", self.now + UNCOUNTED_DELAY
        elif outcome is Outcome.SUCCEEDED:
            self.run_ended(task)
        else:
            task.attempts += 1
            wait = min(task.retry.max_delay, task.retry.base_delay * 2 ** (task.attempts - 1))
            task.state = "failed" if task.attempts == task.retry.max_attempts else "waiting"
            task.run_at = self.now + wait

    def run_ended(self, task: Simple) -> None:
        task.runs += 1
        every = task.recurrence
        if every is None or task.runs == every.times:
            task.state = "succeeded"
            return
        beats = [task.planned + every.every * count for count in range(1, 2_000)]
        due = [beat for beat in beats if beat <= self.now]
        to_come = next(beat for beat in beats if beat > self.now)
        task.planned = {
            CatchUp.ALL: beats[0],
            CatchUp.LATEST: due[-1] if due else beats[0],
            CatchUp.NONE: to_come,
        }[every.catch_up]
        task.state, task.run_at, task.attempts = "waiting", task.planned, 0

    def refuses_edge(self, before: str, after: str) -> type[Exception] | None:
        task = self.tasks[after]
        if task.state in ENDED:
            return AlreadyEnded
        if task.number:
            return AlreadyStarted
        return CycleError if self.tasks[before].state not in ENDED and self.waits_for(before, after) else None

    def waits_for(self, task_id: str, other: str) -> bool:
        """Whether `task_id` waits for `other` to end, over any number of edges between open tasks."""
        parents = [parent for child, parent, _ in self.edges if child == task_id]
        return any(
            self.tasks[parent].state not in ENDED and (parent == other or self.waits_for(parent, other))
            for parent in parents
        )


class Pair:
    """A machine and a naive model, given the same random events."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        workers = self.chance.randint(1, 3)
        self.driver, self.naive = Driver(workers), Naive(workers)
        self.steps: list[tuple[int, Callable[[], None]]] = [
            (6, self.submit),
            (12, self.end),
            (4, self.depend),
            (3, self.cancel),
            (2, self.hold),
            (3, self.release),
            (6, self.pass_time),
            (1, self.step_clock),
            (1, self.pause),
            (1, self.resize),
            (1, self.restart),
        ]

    def step(self) -> None:
        weights = [weight for weight, _ in self.steps]
        (_, act), = self.chance.choices(self.steps, weights)  # fmt: skip
        act()
        self.compare(act.__name__)

    def compare(self, after: str) -> None:
        driver, naive = self.driver, self.naive
        naive.settle()
        assert driver.starts() == naive.starts, after
        assert driver.statuses() == naive.statuses(), after
        assert driver.ready() == naive.ready(), after
        for task_id, simple in naive.tasks.items():
            task = driver.tasks[task_id]
            if simple.state in ENDED:
                assert task.seq not in driver.machine.open, after
            else:
                assert (task.run_at, task.planned_at, task.attempts, task.number, task.runs, task.held) == (
                    simple.run_at, simple.planned, simple.attempts, simple.number, simple.runs, simple.held,
                ), (after, task_id)  # fmt: skip

    # --- events -------------------------------------------------------------------------------------------------

    def pick(self, *states: str) -> str | None:
        """Any task, or any in one of these states."""
        among = [task_id for task_id, task in self.naive.tasks.items() if not states or task.state in states]
        return self.chance.choice(among) if among else None

    def submit(self) -> None:
        chance, naive = self.chance, self.naive
        batch = []
        for _ in range(min(chance.randint(1, 6), MOST_TASKS - len(naive.tasks))):
            task_id = f"n{len(naive.tasks) + 1}"
            parents = chance.sample([*naive.tasks], min(chance.choice((0, 0, 1, 1, 2, 3)), len(naive.tasks)))
            deps = [Dependency(parent, chance.choice(list(When))) for parent in parents]
            retry = RetryPolicy(chance.randint(1, 3), chance.choice((0.0, 0.5, 4.0)), chance.choice((1.0, 60.0)))
            every = Recurrence(chance.choice((0.5, 3.0)), chance.randint(1, 3), chance.choice(list(CatchUp)))
            simple = Simple(
                seq=len(naive.tasks) + 1,
                priority=chance.randint(-1, 1),
                retry=retry,
                recurrence=every if chance.random() < 0.3 else None,
                run_at=naive.now + (delay := chance.choice((0.0, 0.0, 0.0, 1.0, 7.5))),
            )
            batch.append(
                new(task_id, *deps, retry=retry, recurrence=simple.recurrence, priority=simple.priority, delay=delay)
            )
            naive.tasks[task_id] = simple
            naive.edges += [(task_id, dep.on, dep.when) for dep in deps]
        if batch:
            self.driver.submit(*batch)

    def end(self) -> None:
        task_id = self.pick("running")
        if task_id:
            outcome = self.chance.choice([Outcome.SUCCEEDED] * 6 + list(Outcome))
            counts = self.chance.random() < 0.5
            self.naive.end(task_id, outcome, counts)
            self.driver.end(task_id, outcome, counts=counts)

    def depend(self) -> None:
        before, after = self.pick(), self.pick("waiting") if self.chance.random() < 0.8 else self.pick()
        if before is None or after is None or before == after:
            return
        if any((after, before) == edge[:2] for edge in self.naive.edges):
            return  # the shell answers this one
        when = self.chance.choice(list(When))
        error = self.naive.refuses_edge(before, after)
        if error:
            self.driver.refuse(error, self.driver.dependency(before, after, when))
        else:
            self.naive.edges.append((after, before, when))
            self.driver.depend(before, after, when)

    def cancel(self) -> None:
        task_id = self.pick("running") if self.chance.random() < 0.5 else self.pick()
        if task_id is None:
            return
        simple, event = self.naive.tasks[task_id], Cancel(self.driver.known(task_id))
        if simple.state in ENDED or simple.cancel:
            self.driver.refuse(AlreadyEnded if simple.state in ENDED else AlreadyCancelled, event)
        else:
            simple.cancel = simple.state == "running"
            simple.state = "running" if simple.cancel else "cancelled"
            self.driver.step(event)

    def hold(self) -> None:
        self.set_held(Hold, True)

    def release(self) -> None:
        self.set_held(Release, False)

    def set_held(self, event: type, held: bool) -> None:
        among = [task_id for task_id, simple in self.naive.tasks.items() if simple.held is not held]
        if not among:
            return
        task_id = self.chance.choice(among)
        simple = self.naive.tasks[task_id]
        if simple.state in ENDED:
            self.driver.refuse(AlreadyEnded, event(self.driver.known(task_id)))
        else:
            simple.held = held
            self.driver.step(event(self.driver.known(task_id)))

    def pass_time(self) -> None:
        seconds = self.chance.choice((0.25, 0.5, 1.0, 5.0, 20.0))
        self.naive.now += seconds
        self.driver.advance(seconds)

    def step_clock(self) -> None:
        delta = self.chance.choice((-3_600.0, -0.5, 0.25, 3_600.0))
        self.naive.now += delta
        for simple in self.naive.tasks.values():
            simple.run_at += delta
            simple.planned = None if simple.planned is None else simple.planned + delta
        self.driver.now += delta
        self.driver.step(ClockStepped(delta))

    def pause(self) -> None:
        self.naive.paused = not self.naive.paused
        self.driver.pause(self.naive.paused)

    def resize(self) -> None:
        self.naive.workers = self.chance.randint(0, 3)
        self.driver.step(WorkersChanged(self.naive.workers))

    def restart(self) -> None:
        """The daemon is stopped on purpose, or dies, and starts again."""
        if self.chance.random() < 0.5:
            self.naive.draining = True
            self.driver.step(DrainBegan())
            running = self.naive.running()
            stopped = self.driver.step(DrainExpired()).effects
            assert sorted(order.seq for order in stopped) == sorted(self.naive.tasks[each].seq for each in running)
            outcome = Outcome.INTERRUPTED
        else:
            running, outcome = self.naive.running(), Outcome.CRASHED
            self.driver.machine.draining = self.naive.draining = True  # it is dead: nothing starts meanwhile
        for task_id in running:
            self.naive.end(task_id, outcome, True)
            self.driver.end(task_id, outcome)
            self.compare(f"{outcome} {task_id}")
        self.driver.restart()
        self.naive.draining = False
        self.driver.step()


@pytest.mark.parametrize("seed", range(SEEDS))
def test_the_machine_does_what_a_naive_model_does(seed: int):
    """After every event: the same starts in the same order, the same statuses, the same who is next."""
    pair = Pair(seed)
    for _ in range(STEPS):
        pair.step()


def test_the_seeds_reach_every_end_and_every_refusal(monkeypatch: pytest.MonkeyPatch):
    """The comparison is worth something only if what it compares happens."""
    seen: set[str] = set()
    refuse = Driver.refuse

    def watch(self: Driver, error: type[Exception], event: object) -> object:
        seen.add(error.__name__)
        return refuse(self, error, event)

    monkeypatch.setattr(Driver, "refuse", watch)
    for seed in range(30):
        pair = Pair(seed)
        for _ in range(STEPS):
            pair.step()
        seen.update(pair.naive.statuses().values())
        seen.update(kind for _, kind in pair.driver.log)
    assert seen >= {*ENDED, "AlreadyEnded", "AlreadyStarted", "AlreadyCancelled", "CycleError"}
    assert seen >= {"retry", "run", "interrupted", "start_postponed", "held", "released", "edge_added", "clock_stepped"}
