"""Starting under resources, compared with a simulator that knows no heaps: it looks at every ready task each time.

The rules are those of docs and `core.machine`, written down once more, naively: best first by (priority, seq); what
does not fit is passed over; the first that lacks a resource (and is not kept by its group alone) is remembered when
another starts before it, and after `reserve_after` seconds what it needs is kept for it.
"""

from dataclasses import dataclass, field
from random import Random

import pytest

from schedd.core.events import SetCapacity
from schedd.core.model import Capacity, NewTask, Outcome
from support.core_driver import Driver

INSTANCES = 300
RESERVE_AFTER = 40.0


@dataclass
class Naive:
    """Lists and loops."""

    workers: int
    capacity: dict[str, int]
    waiting: list[tuple[int, int, NewTask]] = field(default_factory=list)  # (priority, seq, task)
    running: dict[str, NewTask] = field(default_factory=dict)
    passed: dict[str, float] = field(default_factory=dict)

    def free(self, name: str) -> float:
        held = sum(dict(task.demand).get(name, 0) for task in self.running.values())
        return self.capacity.get(name, float("inf")) - held

    def starts(self, now: float) -> list[str]:
        """What starts now, in order."""
        names = []
        while len(self.running) < self.workers:
            chosen = self.choose(now)
            if chosen is None:
                break
            self.waiting.remove(chosen)
            task = chosen[2]
            assert task.name is not None
            self.running[task.name] = task
            self.passed.pop(task.name, None)
            names.append(task.name)
        return names

    def choose(self, now: float) -> tuple[int, int, NewTask] | None:
        best: NewTask | None = None
        reserved: dict[str, int] = {}
        for entry in sorted(self.waiting, key=lambda entry: entry[:2]):
            task = entry[2]
            short = [name for name, amount in task.demand if self.free(name) < amount]
            if short:
                if best is None and not any(name.startswith("group/") for name in short):
                    best = task
                    if best.name in self.passed and now - self.passed[best.name] >= RESERVE_AFTER:
                        reserved = dict(best.demand)
                continue
            touches = [
                name for name, amount in task.demand if name in reserved and self.free(name) - amount < reserved[name]
            ]
            if touches:
                continue
            if best is not None and best.name is not None:
                self.passed.setdefault(best.name, now)
            return entry
        return None


def a_task(random: Random, number: int, capacity: dict[str, int]) -> NewTask:
    demand = {
        name: random.randint(1, total) for name, total in capacity.items() if "/" not in name and random.random() < 0.4
    }
    group = random.choice([None, None, "g", "h"])
    return NewTask(
        None, f"t{number}", priority=random.randint(0, 2), resources=tuple(sorted(demand.items())), group=group
    )


@pytest.mark.parametrize("part", range(10))
def test_the_machine_starts_what_the_naive_simulator_starts(part: int):
    """The same tasks in the same order, with restarts, until all have ended; a failure names its seed."""
    for seed in range(part, INSTANCES, 10):
        random = Random(seed)
        workers = random.randint(1, 6)
        capacity = {"gpu": random.randint(1, 4), "db": random.randint(1, 3), "tape": 1, "group/g": random.randint(1, 3)}
        driver, naive = Driver(workers), Naive(workers, capacity)
        driver.machine.reserve_after = RESERVE_AFTER
        driver.step(*(SetCapacity(name, Capacity(total)) for name, total in capacity.items()))
        count = 0
        started: list[str] = []
        for _ in range(60):
            driver.now += random.choice([0.5, 3.0, 20.0])
            if random.random() < 0.6 and count < 60:
                tasks = [a_task(random, count + index, capacity) for index in range(random.randint(1, 5))]
                for task in tasks:
                    count += 1
                    naive.waiting.append((task.priority, count, task))
                started += naive.starts(driver.now)
                driver.submit(*tasks)
            elif naive.running:
                name = random.choice(sorted(naive.running))
                del naive.running[name]
                started += naive.starts(driver.now)
                driver.end(name, Outcome.SUCCEEDED)
            else:
                started += naive.starts(driver.now)
                driver.step()
            assert driver.starts() == started, f"seed {seed}"
        while naive.running:
            name = sorted(naive.running)[0]
            del naive.running[name]
            started += naive.starts(driver.now)
            driver.end(name)
            driver.now += 1
            assert driver.starts() == started, f"seed {seed}"
        assert len(started) == count, f"seed {seed}: somebody starved"
        assert not driver.machine.open
