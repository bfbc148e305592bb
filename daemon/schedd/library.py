"""schedd as a library: the same engine in your own process, in memory or on an SQLite file.

    from schedd import RetryPolicy, Scheduler, Task

    with Scheduler(workers=4) as scheduler:
        scheduler.submit(Task("fetch", fetch), Task("report", report, deps=["fetch"]))
        scheduler.wait()

Functions run in threads of this process. In memory any callable will do; on a file the tasks must be found again by
the next process, so only functions that can be imported are accepted. Tests: tests/unit/test_library.py.
"""

import json
import os
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any

from schedd.core import limits
from schedd.core.batch import NewBatch
from schedd.core.errors import AlreadyCancelled, AlreadyEnded, CycleError, InvalidRequest, Refused
from schedd.core.events import Logged
from schedd.core.model import DEFAULT_RETRY, Dependency, NewTask, Recurrence, RetryPolicy, Status
from schedd.engine.clock import Clock
from schedd.engine.inbox import Call, Request
from schedd.engine.loop import Committed
from schedd.engine.requests import CancelTasks, DependTasks, SubmitBatch
from schedd.runtime import Runtime
from schedd.store.base import Store
from schedd.store.memory import MemoryStore
from schedd.workers.work import Work


@dataclass(frozen=True)
class Task:
    """A function to run, and when. `deps` are ids, of this submission or of earlier ones. Times are seconds.

    Lower `priority` runs first. `every` with `times` repeats it. A parameter of `fn` named `cancel` receives a
    `threading.Event` that is set when the task should stop.
    """

    task_id: str
    fn: Callable[..., Any]
    deps: Sequence[str | Dependency] = ()
    priority: int = 0
    retry: RetryPolicy = DEFAULT_RETRY
    delay: float = 0.0
    every: float | None = None
    times: int | None = None
    args: Sequence[Any] = ()
    kwargs: Mapping[str, Any] = field(default_factory=dict)


class Scheduler:
    """Runs tasks on `workers` threads, never before what they depend on.

    `store` is None for memory, a path for an SQLite file (made if absent, recovered if not), or a `Store`; `clock` is
    the machine's unless one is given (`schedd.engine.clock.ManualClock`).
    """

    def __init__(
        self, workers: int = 4, store: "Store | str | os.PathLike[str] | None" = None, clock: Clock | None = None
    ) -> None:
        self.log: deque[str] = deque(maxlen=limits.LOG_LENGTH)
        self._changed = threading.Condition()  # guards _commits
        self._commits = 0
        self._on_file = isinstance(store, (str, os.PathLike))
        if isinstance(store, (str, os.PathLike)):
            self._runtime = Runtime.open_file(Path(store), workers, observers=[self._observe], clock=clock)
        else:
            self._runtime = Runtime(store or MemoryStore(), workers, observers=[self._observe], clock=clock)
        self._runtime.start()

    def submit(self, *tasks: Task) -> list[str]:
        """Accept tasks, all or none; their ids. Raises Refused (a ValueError), CycleError among them."""
        batch = NewBatch([self._new_task(task) for task in tasks])
        ids: list[str] = self._call(SubmitBatch(batch))["ids"]
        return ids

    def add_dependency(self, before: str, after: str) -> None:
        """Let `after` wait for `before`. Raises Refused if `after` has started or this would close a cycle."""
        self._call(DependTasks(before, after))

    def cancel(self, task_id: str) -> bool:
        """Cancel a task, running or not; False if it had ended or was being cancelled already."""
        result = self._call(CancelTasks((task_id,)))["results"][0]
        if not result["ok"] and result["error"] not in (AlreadyEnded.code, AlreadyCancelled.code):
            raise Refused(result["message"])
        return bool(result["ok"])

    def is_done(self) -> bool:
        """Whether every task has ended."""
        return bool(self._runtime.engine.ask(lambda machine: not machine.open).result())

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until every task has ended; False if that took longer than `timeout` seconds."""
        deadline = None if timeout is None else time.monotonic() + timeout
        while True:
            self._runtime.check()
            seen = self._commits
            if self.is_done():
                return True
            if not self._await_commit_after(seen, deadline):
                return False

    @property
    def tasks(self) -> dict[str, Any]:
        """Every task the store holds, by id: records with `status`, `attempts`, `runs`, `error` and times."""
        return {row.id: row for row in self._runtime.rows()}

    def status(self, task_id: str) -> Status:
        """The state of one task. Raises KeyError if there is no such task."""
        return Status(self.tasks[task_id].status)

    def shutdown(self, timeout: float | None = None) -> None:
        """Start nothing more, let running tasks finish for `timeout` seconds (None: as long as they take), then ask
        them to stop. What had not ended is still in the file; a memory store forgets it.
        """
        self._runtime.stop(threading.TIMEOUT_MAX if timeout is None else timeout)

    def __enter__(self) -> "Scheduler":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.shutdown()

    def __iter__(self) -> Iterator[str]:
        return iter(self.tasks)

    def _call(self, request: Request) -> dict[str, Any]:
        self._runtime.check()
        answer: dict[str, Any] = self._runtime.engine.call(Call(request)).result()
        return answer

    def _observe(self, committed: Committed) -> None:
        for event in committed.events:
            line = _line(event)
            if line:
                self.log.append(line)
        with self._changed:
            self._commits += 1
            self._changed.notify_all()

    def _await_commit_after(self, seen: int, deadline: float | None) -> bool:
        """Sleep until something more was committed than the first `seen` rounds; False at the deadline."""
        with self._changed:
            while self._commits == seen and self._runtime.is_alive():
                remaining = None if deadline is None else deadline - time.monotonic()
                if remaining is not None and remaining <= 0:
                    return False
                self._changed.wait(remaining)
        return True

    def _new_task(self, task: Task) -> NewTask:
        if (task.every is None) != (task.times is None):
            raise InvalidRequest(f"{task.task_id}: `every` and `times` go together")
        return NewTask(
            payload=_payload(task) if self._on_file else Work.of_function(task.fn, task.args, task.kwargs),
            name=task.task_id,
            deps=tuple(dep if isinstance(dep, Dependency) else Dependency(dep) for dep in task.deps),
            priority=task.priority,
            retry=task.retry,
            recurrence=Recurrence(task.every, task.times)
            if task.every is not None and task.times is not None
            else None,
            delay=task.delay,
        )


def _payload(task: Task) -> str:
    """The task as JSON text. Raises InvalidRequest where the next process could not find or read it again."""
    try:
        work = {
            "call": _import_name(task),
            "args": list(task.args),
            "kwargs": dict(task.kwargs),
            "isolation": "thread",
        }
        return json.dumps(work, separators=(",", ":"), allow_nan=False)
    except (TypeError, ValueError) as error:
        if isinstance(error, Refused):
            raise
        raise InvalidRequest(
            f"{task.task_id}: its arguments must be JSON values to be kept on a file: {error}"
        ) from None


def _import_name(task: Task) -> str:
    module = getattr(task.fn, "__module__", None)
    name = getattr(task.fn, "__qualname__", None)
    why = "a scheduler on a file must find it again after a restart; define it at the top of a module"
    if not module or not name or "<" in name:
        raise InvalidRequest(f"{task.task_id}: {task.fn!r} cannot be imported by name, and {why}")
    if module == "__main__":
        raise InvalidRequest(f"{task.task_id}: {name} is defined in the main script, and {why} of its own")
    found: Any = sys.modules.get(module)
    for part in name.split("."):
        found = getattr(found, part, None)
    if found is not task.fn:
        raise InvalidRequest(f"{task.task_id}: {module}:{name} is another object than the one given, and {why}")
    return f"{module}:{name}"


def _line(event: Logged) -> str | None:
    """The event as a line of the library's log, None for those that are not told there."""
    detail = event.detail or {}
    error = f" ({detail['error']})" if detail.get("error") else ""
    match event.kind:
        case "succeeded" | "cancelled" | "skipped" | "interrupted":
            return f"{event.task_id} {event.kind}"
        case "failed":
            return f"{event.task_id} failed{error}"
        case "retry" | "start_postponed":
            return f"{event.task_id} retry in {detail['delay']:.2f}s{error}"
        case "run":
            return f"{event.task_id} run {detail['run']}"
    return None


__all__ = ["CycleError", "RetryPolicy", "Scheduler", "Status", "Task"]
