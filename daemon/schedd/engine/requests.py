"""What a caller can ask the engine to change: each request resolves its ids, decides through the core, and answers.

Answers are JSON-able dicts; their shapes are those of `wire.py`. A request that raises `Refused` has changed nothing:
everything is looked up and judged before the first event is handled. Tests: tests/unit/engine/test_requests.py.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from schedd.core.batch import NewBatch
from schedd.core.errors import AlreadyEnded, DuplicateId, InvalidRequest, Refused
from schedd.core.events import AddDependency, Cancel, Hold, Release, RemoveDependency, SetPaused, Submit
from schedd.core.model import KnownTask, When
from schedd.engine.round import Round


@dataclass(frozen=True, slots=True)
class SubmitBatch:
    """Accept a batch whole. Answer: `{"batch": name or None, "ids": [full id, ...]}`."""

    batch: NewBatch

    def apply(self, round_: Round) -> dict[str, Any]:
        batch = self.batch
        named = [] if batch.name else [task.name for task in batch.tasks if task.name is not None]
        outside = {dependency.on for of_task in batch.external.values() for dependency in of_task}
        known = round_.find([*named, *outside])
        for task_id in named:
            if task_id in known:
                status = known[task_id].status.value
                raise DuplicateId(f"there is a task {task_id!r} already ({status}); choose another id")
        batch.check_known(known)
        first_seq = round_.next_seq()
        names = tuple(task.name or str(first_seq + index) for index, task in enumerate(batch.tasks))
        row = round_.add_batch(batch.name)
        ids = tuple(f"{row.name}/{name}" for name in names) if row.name else names
        round_.handle(Submit(batch, row.seq, first_seq, ids, known))
        return {"batch": row.name, "ids": list(ids)}


@dataclass(frozen=True, slots=True)
class CancelTasks:
    """Cancel tasks by id or batch name.

    Answer: `{"results": [{"id", "ok", "error"?, "message"?}, ...]}`, in the order asked.

    Each id is judged by itself: one that has ended is refused with the reason and does not keep the others.
    """

    ids: tuple[str, ...]

    def apply(self, round_: Round) -> dict[str, Any]:
        return _for_each(round_, self.ids, lambda task: round_.handle(Cancel(task)))


@dataclass(frozen=True, slots=True)
class HoldTasks:
    """Hold or release tasks by id or batch name. Answer as of CancelTasks."""

    ids: tuple[str, ...]
    held: bool

    def apply(self, round_: Round) -> dict[str, Any]:
        return _for_each(round_, self.ids, lambda task: round_.handle(Hold(task) if self.held else Release(task)))


@dataclass(frozen=True, slots=True)
class DependTasks:
    """Let `after` wait for `before`.

    Answer: `{"before", "after", "when", "added"}`; `added` is False if it did already.
    """

    before: str
    after: str
    when: When = When.SUCCEEDED

    def apply(self, round_: Round) -> dict[str, Any]:
        before, after = round_.must_find([self.before, self.after])
        answer = {"before": before.id, "after": after.id, "when": self.when.value}
        existing = round_.store.edge(before.seq, after.seq)
        if existing is self.when:
            return {**answer, "added": False}
        if existing is not None:
            raise InvalidRequest(f"{after.id} depends on {before.id} already, as `{existing}`")
        round_.handle(AddDependency(before, after, self.when))
        return {**answer, "added": True}


@dataclass(frozen=True, slots=True)
class UndependTasks:
    """Let `after` wait for `before` no longer.

    Answer: `{"before", "after", "when", "removed"}`; `removed` is False, and `when` None, if it did not.
    """

    before: str
    after: str

    def apply(self, round_: Round) -> dict[str, Any]:
        before, after = round_.must_find([self.before, self.after])
        when = round_.store.edge(before.seq, after.seq)
        if when is not None:
            round_.handle(RemoveDependency(before, after, when))
        answer = {"before": before.id, "after": after.id, "when": None if when is None else when.value}
        return {**answer, "removed": when is not None}


@dataclass(frozen=True, slots=True)
class PauseStarting:
    """Stop or resume the starting of any task. Answer: `{"paused"}`."""

    paused: bool

    def apply(self, round_: Round) -> dict[str, Any]:
        round_.handle(SetPaused(self.paused))
        return {"paused": self.paused}


def _for_each(round_: Round, ids: Sequence[str], act: Callable[[KnownTask], None]) -> dict[str, Any]:
    """Act on each task, the last submitted first: what is cancelled before what it waits for ends as cancelled, not
    as skipped. What was open when the request came and ends by what it does to another task counts as done.
    """
    tasks = round_.select(ids)
    refused: dict[int, Refused] = {}
    for task in sorted(tasks, key=lambda task: -task.seq):
        try:
            act(task)
        except Refused as refusal:
            if not isinstance(refusal, AlreadyEnded) or task.status.is_terminal:
                refused[task.seq] = refusal
    return {"results": [result_of(task, refused.get(task.seq)) for task in tasks]}


def result_of(task: KnownTask, refusal: Refused | None) -> dict[str, Any]:
    """How one task of several was judged, for an answer."""
    if refusal is None:
        return {"id": task.id, "ok": True}
    return {"id": task.id, "ok": False, "error": refusal.code, "message": str(refusal)}
