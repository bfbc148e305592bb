"""The operator's retry: ended tasks again, with what was skipped only because of them.

Tests: tests/unit/engine/test_retrying.py.
"""

from dataclasses import dataclass
from typing import Any

from schedd.core import revival
from schedd.core.errors import AlreadyEnded, NotEnded, Refused
from schedd.core.model import KnownTask, Status, StoredEdge
from schedd.core.revival import Plan, Revive
from schedd.engine.requests import result_of
from schedd.engine.round import Round

_AGAIN = (Status.FAILED, Status.CANCELLED, Status.SKIPPED)


@dataclass(frozen=True, slots=True)
class RetryTasks:
    """Run ended tasks again, by id, or all of a batch that failed, was cancelled or skipped, by its name.

    `downstream` also brings back what ran after them, `only_failed` leaves out what was cancelled, `dry_run` only
    tells. Answer: `{"results": [{"id", "ok", ...}, ...], "retried": [id, ...]}`: how each task asked for was judged,
    and all that comes back, in order of submission.
    """

    ids: tuple[str, ...]
    downstream: bool = False
    only_failed: bool = False
    dry_run: bool = False

    def apply(self, round_: Round) -> dict[str, Any]:
        named, of_batches = round_.select_ended(self.ids)
        refused = {task.seq: refusal for task in named if (refusal := self._refusal(task))}
        roots = {task.seq: task for task in named if task.seq not in refused}
        wanted = {task.seq: task for task in of_batches if self._is_wanted(task)}
        made, blocked = _plan({**wanted, **roots}, self.downstream, round_)
        refused.update((seq, AlreadyEnded(reason)) for seq, reason in blocked.items() if seq in roots)
        rows = round_.store.ended_tasks(made.seqs)
        event = _event(made, rows)
        if self.dry_run:
            revival.check(round_.machine, event)
        elif rows:
            round_.handle(event)
        asked = [*named, *(task for task in of_batches if task.seq in made.seqs and task.seq not in roots)]
        return {
            "results": [result_of(task, refused.get(task.seq)) for task in asked],
            "retried": [row.id for row in rows],
        }

    def _is_wanted(self, task: KnownTask) -> bool:
        return task.status is Status.FAILED or (not self.only_failed and task.status in _AGAIN)

    def _refusal(self, task: KnownTask) -> Refused | None:
        if not task.status.is_terminal:
            return NotEnded(f"{task.id} has not ended ({task.status}); there is nothing to retry")
        if task.status is Status.SUCCEEDED and not self.downstream:
            return AlreadyEnded(f"{task.id} has succeeded; `--downstream` runs it again with what came after it")
        if self.only_failed and task.status is not Status.FAILED and task.status is not Status.SUCCEEDED:
            return AlreadyEnded(f"{task.id} has not failed ({task.status})")
        return None


def _plan(roots: dict[int, KnownTask], downstream: bool, round_: Round) -> tuple[Plan, dict[int, str]]:
    """What comes back, and why the other roots cannot: something that they depend on has ended otherwise and stays so.

    A root that is left out takes along what would have come back only with it, which may block another root in turn:
    so all is planned anew until no root is blocked.
    """
    blocked: dict[int, str] = {}
    while True:
        made = revival.plan(roots.keys() - blocked.keys(), downstream, round_.store.family)
        found = {seq: kins[0] for seq in roots.keys() - blocked.keys() if (kins := made.blockers_of(seq))}
        if not found:
            return made, blocked
        for seq, kin in found.items():
            story = f"{roots[seq].id} depends on {kin.on_id}, which is {kin.on_status}; retry {kin.on_id}"
            blocked[seq] = f"{story}, and {roots[seq].id} comes back with it"


def _event(made: Plan, rows: list[Any]) -> Revive:
    mine = {row.seq for row in rows}
    edges = [StoredEdge(kin.task_seq, kin.on_seq, kin.when, kin.on_status) for kin in made.edges.values()]
    return Revive(
        tuple(rows),
        tuple(edge for edge in edges if edge.task_seq in mine),
        tuple(edge for edge in edges if edge.on_seq in mine and edge.task_seq not in mine),
    )
