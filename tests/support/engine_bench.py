"""A bench for the engine: memory store, fake executor, fake clock, and rounds driven by hand."""

from concurrent.futures import Future
from typing import Any

from schedd.core import invariants
from schedd.core.batch import NewBatch
from schedd.core.model import Dependency, NewTask, Outcome, Status
from schedd.engine.inbox import Call, Message, Request
from schedd.engine.loop import Committed, Engine
from schedd.engine.requests import SubmitBatch
from schedd.store.memory import MemoryStore
from support.fakes import FailingStore, FakeClock, FakeExecutor


class Bench:
    """An engine whose every round is taken by hand. `faults` are raised by the store's next operations by name."""

    def __init__(self, workers: int = 2) -> None:
        self.memory = MemoryStore()
        self.faults: list[tuple[str, BaseException]] = []
        self.late: list[BaseException] = []
        self.store = FailingStore(self.memory, self._fail, lambda count: self.late.pop(0) if self.late else None)
        self.clock = FakeClock()
        self.executor = FakeExecutor()
        self.workers = workers
        self.told: list[Committed] = []
        self.engine = self.new_engine()
        self.engine.recover()

    def new_engine(self) -> Engine:
        engine = Engine(self.store, self.executor, self.clock, self.workers)  # type: ignore[arg-type]
        engine.observe(self.told.append)
        return engine

    def _fail(self, name: str, count: int) -> BaseException | None:
        if self.faults and self.faults[0][0] == name:
            return self.faults.pop(0)[1]
        return None

    def step(self, *messages: Message) -> None:
        self.engine.step(list(messages))
        machine = self.engine._machine
        if machine is not None:
            invariants.check(machine, self.clock.now())

    def call(self, request: Request, key: str | None = None, digest: str = "") -> "Future[Any]":
        call = Call(request, key=key, digest=digest, arrived=self.clock.monotonic())
        call.future.set_running_or_notify_cancel()
        self.step(call)
        return call.future

    def submit(self, *tasks: NewTask, name: str | None = None) -> list[str]:
        ids: list[str] = self.call(SubmitBatch(NewBatch(tasks, name))).result(0)["ids"]
        return ids

    def end(self, seq: int, outcome: Outcome = Outcome.SUCCEEDED, **more: Any) -> None:
        self.step(self.executor.end(seq, outcome, self.clock.now(), **more))

    def status(self, task_id: str) -> Status:
        return self.memory.find([task_id])[task_id].status


def task(name: str, *deps: str, **more: Any) -> NewTask:
    """A task that does nothing."""
    return NewTask(payload=f"payload of {name}", name=name, deps=tuple(Dependency(dep) for dep in deps), **more)
