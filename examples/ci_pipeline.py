"""A CI pipeline on the library: retries, priorities, a refused cycle, a cancel, a failure and a heartbeat.

    python examples/ci_pipeline.py

Everything runs in this process, in memory. What it prints is the same every time:
tests/acceptance/test_example_ci_pipeline.py compares it word for word.
"""

import itertools
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from schedd import CycleError, RetryPolicy, Scheduler, Task

PATIENCE_S = 30.0


def noop() -> None:
    """The work of a step that always succeeds."""


def fails(times: int, error: Exception) -> Callable[[], None]:
    """A step that raises `error` the first `times` times and then succeeds."""
    left = itertools.count(times, -1)

    def step() -> None:
        if next(left) > 0:
            raise error

    return step


def pipeline() -> list[Task]:
    """From checkout to deploy. The tests need a database that is not up at once."""
    flaky_test = fails(2, ConnectionError("test db not up yet"))
    return [
        Task("checkout", noop),
        Task("build", noop, deps=["checkout"]),
        Task("lint", noop, deps=["checkout"], priority=5),
        Task("docs", noop, deps=["checkout"], priority=9),
        Task("test", flaky_test, deps=["build"], retry=RetryPolicy(max_attempts=3, base_delay=0.05)),
        Task("package", noop, deps=["build", "test"]),
        Task("deploy", noop, deps=["package", "lint"]),
    ]


def cycle() -> list[Task]:
    """Four tasks of which three wait for one another and one waits behind them."""
    return [
        Task("a", noop, deps=["c"]),
        Task("b", noop, deps=["a"]),
        Task("c", noop, deps=["b"]),
        Task("d", noop, deps=["c"]),
    ]


@dataclass
class Span:
    """When a task of the layered graph ran, in seconds of the monotonic clock."""

    deps: tuple[str, ...]
    started_at: float = 0.0
    ended_at: float = 0.0

    def run(self) -> None:
        """The task: note both ends of a little work."""
        self.started_at = time.monotonic()
        time.sleep(0.002)
        self.ended_at = time.monotonic()


@dataclass
class Layers:
    """A graph of 5 layers with 8 tasks each; every task depends on two of the layer before."""

    depth: int = 5
    width: int = 8
    spans: dict[str, Span] = field(default_factory=dict)

    def tasks(self) -> list[Task]:
        """The tasks, each of which writes its span."""
        for layer in range(self.depth):
            for place in range(self.width):
                above = (place, (place + 1) % self.width) if layer else ()
                deps = tuple(f"layer-{layer - 1}-{index}" for index in above)
                self.spans[f"layer-{layer}-{place}"] = Span(deps)
        return [Task(name, span.run, deps=span.deps) for name, span in self.spans.items()]

    def is_in_order(self) -> bool:
        """Whether every task ran, and started after both its dependencies had ended."""
        return all(
            span.ended_at > span.started_at > max((self.spans[dep].ended_at for dep in span.deps), default=0.0)
            for span in self.spans.values()
        )


def finish(scheduler: Scheduler) -> None:
    """Wait until all tasks have ended, and print what the log says since the last time."""
    if not scheduler.wait(PATIENCE_S):
        raise SystemExit("the tasks did not end in time")
    while scheduler.log:
        print(scheduler.log.popleft())


def main() -> None:
    """The whole tour."""
    with Scheduler(workers=1) as scheduler:
        scheduler.submit(*pipeline())
        finish(scheduler)

        try:
            scheduler.submit(*cycle())
        except CycleError as error:
            print(f"refused: {error}")

        scheduler.submit(Task("report", noop, delay=60), Task("email", noop, deps=["report"]))
        print(f"cancel report: {scheduler.cancel('report')} | again: {scheduler.cancel('report')}")

        disk_full = fails(2, RuntimeError("disk full"))
        scheduler.submit(
            Task("migrate", disk_full, retry=RetryPolicy(max_attempts=2, base_delay=0.05)),
            Task("notify", noop, deps=["migrate"]),
        )
        finish(scheduler)

        scheduler.submit(Task("heartbeat", noop, every=0.05, times=3))
        finish(scheduler)

    with Scheduler(workers=4) as scheduler:
        layers = Layers()
        scheduler.submit(*layers.tasks())
        if not scheduler.wait(PATIENCE_S):
            raise SystemExit("the layers did not end in time")
        print(f"{len(layers.spans)} tasks in {layers.depth} layers on 4 workers, in order: {layers.is_in_order()}")


if __name__ == "__main__":
    main()
