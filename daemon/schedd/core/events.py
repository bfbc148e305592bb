"""What goes into the machine and what comes out of it: the whole vocabulary between core and shell.

In: requests in the imperative (`Submit`, `Cancel`), facts in the past (`AttemptEnded`, `ClockStepped`).
Out: one `Output` for a round: changed rows, and effects (`StartAttempt`, `StopAttempt`) which the shell lets go only
after the rows are committed. Tests: tests/unit/core/test_events.py.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from schedd.core.batch import NewBatch
from schedd.core.model import Capacity, KnownTask, NewTask, OpenTask, Outcome, Status, StopReason, When
from schedd.core.revival import Revive

# --- in: requests -----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Submit:
    """Accept a batch. Its tasks get the seqs from `first_seq` on; `ids[i]` is the full id of task i.

    `known` holds every existing task that the batch's external dependencies name, as of this round.
    """

    batch: NewBatch
    batch_seq: int
    first_seq: int
    ids: tuple[str, ...]
    known: Mapping[str, KnownTask]


@dataclass(frozen=True, slots=True)
class AddDependency:
    """Let `after` wait for `before`."""

    before: KnownTask
    after: KnownTask
    when: When = When.SUCCEEDED


@dataclass(frozen=True, slots=True)
class Cancel:
    """Cancel a task, running or not."""

    task: KnownTask


@dataclass(frozen=True, slots=True)
class Hold:
    """Keep a task from starting its next attempt. The reason, if there is one, becomes the task's error."""

    task: KnownTask
    reason: str | None = None


@dataclass(frozen=True, slots=True)
class Release:
    """Undo a hold."""

    task: KnownTask


@dataclass(frozen=True, slots=True)
class SetPaused:
    """Stop or resume the starting of any task."""

    paused: bool


@dataclass(frozen=True, slots=True)
class SetCapacity:
    """How much there is of a resource from now on; None: there is no such resource, or no limit of such a group."""

    name: str
    capacity: Capacity | None


@dataclass(frozen=True, slots=True)
class RemoveDependency:
    """Let `after` wait for `before` no longer."""

    before: KnownTask
    after: KnownTask
    when: When


# --- in: facts --------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class AttemptEnded:
    """An attempt is over. `ended_at` is UTC seconds, `max_rss` bytes, `cpu_time` and `duration` seconds.

    `result` is JSON text. `counts` is False only for a start that failed through schedd's own fault. `exceptions` names
    the class of what a function raised and its bases, `Name` and `module.Name`. `luck` from 0 to 1 is the part of a
    wait that jitter leaves. Error and result must be within `limits`
    and free of lone surrogates; `workers` sees to that.
    """

    seq: int
    number: int
    outcome: Outcome
    ended_at: float
    exit_code: int | None = None
    signal: int | None = None
    error: str | None = None
    result: str | None = None
    max_rss: int | None = None
    cpu_time: float | None = None
    duration: float | None = None
    task_id: str = ""
    counts: bool = True
    exceptions: tuple[str, ...] = ()
    luck: float = 1.0


@dataclass(frozen=True, slots=True)
class AttemptSpawned:
    """The process of an attempt exists: a hint for recovery, `pid_started` in clock ticks since boot."""

    seq: int
    number: int
    pid: int
    pid_started: int


@dataclass(frozen=True, slots=True)
class ClockStepped:
    """The wall clock was set: it is now `delta` seconds ahead of where it would have been.

    `key` tells one step from another: alone among the facts, this one must not be taken twice.
    """

    delta: float
    key: str = ""


@dataclass(frozen=True, slots=True)
class DrainBegan:
    """The daemon is stopping: start nothing more."""


@dataclass(frozen=True, slots=True)
class DrainExpired:
    """What still runs must be interrupted."""


@dataclass(frozen=True, slots=True)
class WorkersChanged:
    """There are now `workers` of them."""

    workers: int


Event = (
    Submit
    | AddDependency
    | Cancel
    | Hold
    | Release
    | SetPaused
    | SetCapacity
    | RemoveDependency
    | Revive
    | AttemptEnded
    | AttemptSpawned
    | ClockStepped
    | DrainBegan
    | DrainExpired
    | WorkersChanged
)

# --- out: effects -----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class StartAttempt:
    """Run one attempt of a task. `number` is the attempt's, `run` the round's, counted from 1. `units` are the named
    units of resources that it holds, `base_number` its number at the last retry by an operator.
    """

    seq: int
    id: str
    number: int
    run: int
    units: Mapping[str, list[str]] | None = None
    base_number: int = 0


@dataclass(frozen=True, slots=True)
class StopAttempt:
    """End a running attempt: TERM to its group, KILL after its grace."""

    seq: int
    number: int
    reason: StopReason


Effect = StartAttempt | StopAttempt

# --- out: rows --------------------------------------------------------------------------------------------------


class AddedTask(NamedTuple):
    """A new task row: what was submitted, and the record that holds its state."""

    new: NewTask
    task: OpenTask
    batch_seq: int
    created_at: float


class AddedEdge(NamedTuple):
    """A new dependency row."""

    task_seq: int
    on_seq: int
    when: When


class StartedAttempt(NamedTuple):
    """A new attempt row."""

    task_seq: int
    number: int
    run: int
    started_at: float
    units: dict[str, list[str]] | None = None


class Logged(NamedTuple):
    """One line of the ordered event log. `detail` is a small JSON-able mapping."""

    at: float
    task_seq: int | None
    task_id: str | None
    kind: str
    detail: dict[str, Any] | None


class Output:
    """What a round decided: rows to write and effects to let go, in order.

    `changed` holds the records whose row must be written, by seq; `capacities` what there is of a resource from now on
    (None: the resource is gone), `removed_edges` (task_seq, on_seq). A record is written as it stands at the flush, so
    many changes of one task in one round cost one row.
    """

    __slots__ = (
        "added",
        "capacities",
        "changed",
        "edges",
        "effects",
        "ended",
        "events",
        "paused",
        "removed_edges",
        "spawned",
        "started",
    )

    def __init__(self) -> None:
        self.added: list[AddedTask] = []
        self.changed: dict[int, OpenTask] = {}
        self.edges: list[AddedEdge] = []
        self.removed_edges: list[tuple[int, int]] = []
        self.started: list[StartedAttempt] = []
        self.spawned: list[AttemptSpawned] = []
        self.ended: list[AttemptEnded] = []
        self.events: list[Logged] = []
        self.effects: list[Effect] = []
        self.paused: bool | None = None
        self.capacities: dict[str, Capacity | None] = {}

    def clear_rows(self) -> None:
        """Forget the rows (they are in the transaction now) and keep the effects."""
        self.added.clear()
        self.changed.clear()
        self.edges.clear()
        self.removed_edges.clear()
        self.started.clear()
        self.spawned.clear()
        self.ended.clear()
        self.events.clear()
        self.capacities.clear()
        self.paused = None

    def has_rows(self) -> bool:
        """Whether there is anything to write."""
        return bool(
            self.changed or self.added or self.events or self.ended or self.started or self.edges or self.spawned
        ) or (self.paused is not None or bool(self.capacities or self.removed_edges))


__all__ = [
    "AddDependency",
    "AddedEdge",
    "AddedTask",
    "AttemptEnded",
    "AttemptSpawned",
    "Cancel",
    "ClockStepped",
    "DrainBegan",
    "DrainExpired",
    "Effect",
    "Event",
    "Hold",
    "Logged",
    "Output",
    "Release",
    "RemoveDependency",
    "SetCapacity",
    "SetPaused",
    "StartAttempt",
    "StartedAttempt",
    "Status",
    "StopAttempt",
    "Submit",
    "WorkersChanged",
]
