"""One round of the engine: what was decided between two commits, and the requests' view of the world meanwhile.

A request resolves ids and writes through its `Round`. Before any lookup the rows decided so far are flushed into the
open transaction, so what it reads is what the messages before it have written: a task that ended earlier in this very
round is found ended. Tests: tests/unit/engine/test_engine.py.
"""

from collections.abc import Collection, Iterable

from schedd.core.errors import AlreadyEnded, UnknownTask
from schedd.core.events import AttemptEnded, Event, Logged, Output
from schedd.core.machine import Machine
from schedd.core.model import KnownTask
from schedd.store.base import NewBatchRow, Store


class Round:
    """The open transaction, the machine and the time, as one message sees them."""

    def __init__(self, machine: Machine, store: Store, now: float) -> None:
        self.machine = machine
        self.store = store
        self.now = now
        self.out = Output()
        self.events: list[Logged] = []
        self.ended: list[AttemptEnded] = []

    def handle(self, event: Event) -> None:
        """Hand an event to the machine. Raises Refused, and then nothing has changed."""
        self.machine.handle(event, self.now, self.out)

    def flush(self) -> None:
        """Put the rows decided so far into the transaction."""
        out = self.out
        if out.has_rows():
            self.store.write(out)
            self.events += out.events
            self.ended += out.ended
            out.clear_rows()

    def find(self, ids: Collection[str]) -> dict[str, KnownTask]:
        """The tasks with these ids as of now; unknown ones are absent."""
        self.flush()
        return self.store.find(ids)

    def must_find(self, ids: Iterable[str]) -> list[KnownTask]:
        """The tasks with these ids, in this order. Raises UnknownTask with the first that there is not."""
        wanted = list(ids)
        found = self.find(wanted)
        for task_id in wanted:
            if task_id not in found:
                raise UnknownTask(f"there is no task {task_id!r}; `schedctl list` shows those there are")
        return [found[task_id] for task_id in wanted]

    def select(self, names: Iterable[str]) -> list[KnownTask]:
        """The tasks that these ids and batch names stand for, each once; of a batch, those that have not ended.

        A task wins over a batch of the same name. Raises UnknownTask with the first name that is neither, and
        AlreadyEnded for a batch of which nothing is left to act on.
        """
        wanted = list(names)
        found = self.find(wanted)
        chosen: dict[int, KnownTask] = {}
        for name in wanted:
            task = found.get(name)
            if task is not None:
                chosen[task.seq] = task
                continue
            of_batch = self.store.tasks_of_batch(name)
            if of_batch is None:
                raise UnknownTask(f"there is no task or batch {name!r}; `schedctl list` shows the tasks there are")
            still_open = [task for task in of_batch if not task.status.is_terminal]
            if not still_open:
                raise AlreadyEnded(f"every task of the batch {name} has already ended; nothing was changed")
            chosen.update((task.seq, task) for task in still_open)
        return list(chosen.values())

    def select_ended(self, names: Iterable[str]) -> tuple[list[KnownTask], list[KnownTask]]:
        """The tasks with these ids, and those that have ended of the batches with these names, each once.

        A task wins over a batch of the same name. Raises UnknownTask with the first name that is neither.
        """
        wanted = list(names)
        found = self.find(wanted)
        tasks: dict[int, KnownTask] = {}
        of_batches: dict[int, KnownTask] = {}
        for name in wanted:
            if name in found:
                tasks[found[name].seq] = found[name]
                continue
            of_batch = self.store.tasks_of_batch(name)
            if of_batch is None:
                raise UnknownTask(f"there is no task or batch {name!r}; `schedctl list` shows the tasks there are")
            of_batches.update((task.seq, task) for task in of_batch if task.status.is_terminal)
        return list(tasks.values()), [task for seq, task in of_batches.items() if seq not in tasks]

    def add_batch(self, base_name: str | None) -> NewBatchRow:
        """A new batch row."""
        self.flush()
        return self.store.add_batch(base_name, self.now)

    def next_seq(self) -> int:
        """The first seq that is free."""
        self.flush()
        return self.store.next_seq()
