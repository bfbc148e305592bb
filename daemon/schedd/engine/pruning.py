"""Requests that delete what has ended, one small step each. Tests: tests/unit/engine/test_pruning.py."""

from dataclasses import dataclass
from typing import Any

from schedd.engine.round import Round


@dataclass(frozen=True, slots=True)
class PruneTasks:
    """Delete those of these tasks that ended before `before` (UTC seconds). Answer: `{"removed", "more"}`."""

    seqs: tuple[int, ...]
    before: float

    def apply(self, round_: Round) -> dict[str, Any]:
        round_.flush()
        return round_.store.prune_tasks(self.seqs, self.before)._asdict()


@dataclass(frozen=True, slots=True)
class PruneHistory:
    """Delete old lines of the event log and old answers of keyed requests. Answer as of PruneTasks."""

    before: float

    def apply(self, round_: Round) -> dict[str, Any]:
        round_.flush()
        return round_.store.prune_history(self.before)._asdict()
