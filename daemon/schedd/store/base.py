"""The contract between the engine and what keeps its rows, and the ways in which keeping can fail.

Two implementations, `store.sqlite.SqliteStore` and `store.memory.MemoryStore`, pass one suite:
tests/unit/store/test_store_contract.py. Only the engine thread uses a Store; readers have `store.reads`.
"""

from collections.abc import Collection, Sequence
from typing import Any, NamedTuple, Protocol

from schedd.core.events import Output
from schedd.core.model import KnownTask, Stored, StoredTask, When
from schedd.core.revival import Kin


class StoreUnavailable(Exception):
    """The database cannot be written at the moment; schedd holds back what it must write and tries again.

    The fault can pass: the file is locked by another process, the disk is full, an I/O error, a read-only file.
    """


class StatementFailed(Exception):
    """A statement was refused by the database; what asked for it is to blame, the database is sound."""


class StoreBroken(Exception):
    """The database is damaged, is not one, or was replaced under the daemon; nothing more may be written to it."""


class NewBatchRow(NamedTuple):
    """A batch row just made: `name` is the full one (`ci-3`), None for a batch without a name."""

    seq: int
    name: str | None


class StoredAnswer(NamedTuple):
    """What a keyed request was answered: `answer` is JSON text, `digest` tells its body from another one."""

    digest: str
    answer: str


class Pruned(NamedTuple):
    """What a step of pruning deleted, and whether the same step has more to do."""

    removed: int
    more: bool


class Store(Protocol):
    """Rows under one writer. Every method may raise StoreUnavailable, StatementFailed or StoreBroken.

    After any of these the caller calls `rollback()` (which never raises) before it begins again. Reads see what the
    open transaction has written.
    """

    def begin(self) -> None:
        """Begin the round's transaction; waits for another writer for a second at most."""

    def commit(self) -> None:
        """Make the transaction durable. If this raises, its outcome is unknown until the rows are read again."""

    def rollback(self) -> None:
        """Forget the transaction, if there is one. Never raises."""

    def write(self, out: Output) -> None:
        """Put the rows of `out` into the transaction. It does not clear `out`."""

    def add_batch(
        self, base_name: str | None, created_at: float, schedule_seq: int | None = None, slot: float | None = None
    ) -> NewBatchRow:
        """Add a batch row; a named one gets the next number of its name, which is never given again.

        One that a schedule submits says for which of its fire times; there is one for each at most (StatementFailed).
        """

    def remember(self, key: str, digest: str, answer: str, at: float) -> None:
        """Store the answer of a keyed request."""

    def answer_of(self, key: str) -> StoredAnswer | None:
        """The stored answer of a keyed request."""

    def next_seq(self) -> int:
        """The first seq that no task has ever had."""

    def find(self, ids: Collection[str]) -> dict[str, KnownTask]:
        """The tasks with these full ids; ids that no task has are absent."""

    def tasks_of_batch(self, name: str) -> list[KnownTask] | None:
        """The tasks of the batch with this full name in order of seq, or None if there is no such batch."""

    def family(self, seqs: Collection[int]) -> list[Kin]:
        """Every dependency that has one of these tasks at either end."""

    def ended_tasks(self, seqs: Collection[int]) -> list[StoredTask]:
        """The rows of these ended tasks, in order of seq. Raises InvalidRequest for one that cannot be run again."""

    def edge(self, before_seq: int, after_seq: int) -> When | None:
        """The `when` under which `after` depends on `before`, or None if it does not."""

    def payloads(self, seqs: Sequence[int]) -> dict[int, Any]:
        """What these tasks do, as it was submitted (`NewTask.payload`)."""

    def load(self) -> Stored:
        """Every open task and its dependencies, for `Machine.rebuild`."""

    def prune_tasks(self, seqs: Sequence[int], before: float) -> Pruned:
        """Delete those of these tasks that ended before `before` and that nothing open depends on, with their edges
        and attempts, and their batches where these are empty then; as much of it as one small step may.
        """

    def prune_history(self, before: float) -> Pruned:
        """Delete the oldest lines of the event log and answers of keyed requests from before `before`, a small step."""

    def tend(self) -> str | None:
        """Look after the files between two transactions; what an admin should see to, if anything. Never raises."""

    def close(self) -> None:
        """Let go of files. Never raises."""
