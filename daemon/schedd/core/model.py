"""The nouns of the core: what a task, its policies and its states are.

Frozen shapes come in from outside (`NewTask`, `RetryPolicy`, `Recurrence`); `OpenTask` is the one mutable record,
one for each task that has not ended. Only `machine.py` writes to it. Times are UTC seconds since the epoch.
Tests: tests/unit/core/test_model.py.
"""

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from schedd.core import limits
from schedd.core.errors import InvalidRequest

_SELECTORS = frozenset("*?[]")


def check_duration(name: str, value: float) -> None:
    """Raises InvalidRequest unless `value` is a number of seconds from 0 to a hundred years."""
    if not 0 <= value <= limits.MAX_DURATION_S:  # also False for NaN
        raise InvalidRequest(f"{name} must be from 0 to {limits.MAX_DURATION_S:g} seconds, not {value!r:.40}")


def check_id(value: str, what: str = "id", max_chars: int = limits.MAX_ID_CHARS) -> None:
    """Raises InvalidRequest unless `value` may be given by a user as an id or a batch name."""
    if not value or len(value) > max_chars:
        raise InvalidRequest(f"{what} must have 1 to {max_chars} characters, not {len(value)}")
    if "/" in value:
        raise InvalidRequest(f"{what} {value!r} must not hold '/': it separates a batch from its tasks")
    if not value.isprintable() or value != value.strip():
        raise InvalidRequest(f"{what} {value!r} must be printable, without spaces at its ends")
    if value.isdecimal():
        raise InvalidRequest(f"{what} {value!r} must not be a number: those name tasks without an id")
    if value[0] in "-@":
        raise InvalidRequest(f"{what} {value!r} must not begin with {value[0]!r}: the command line gives it a meaning")
    if not _SELECTORS.isdisjoint(value):
        raise InvalidRequest(f"{what} {value!r} must not hold any of * ? [ ]: they select several tasks")


class Status(StrEnum):
    """The state of a task. READY is derived (a pending task that may start now) and is never stored."""

    PENDING = "pending"
    READY = "ready"
    RUNNING = "running"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"
    SKIPPED = "skipped"

    @property
    def is_terminal(self) -> bool:
        """Whether a task in this state has ended."""
        return self in TERMINAL


TERMINAL = frozenset({Status.SUCCEEDED, Status.FAILED, Status.CANCELLED, Status.SKIPPED})


class Outcome(StrEnum):
    """How one attempt ended."""

    SUCCEEDED = "succeeded"
    FAILED = "failed"
    TIMED_OUT = "timed_out"
    CANCELLED = "cancelled"
    CRASHED = "crashed"
    START_FAILED = "start_failed"
    INTERRUPTED = "interrupted"


class When(StrEnum):
    """Which end of a dependency releases the task that waits for it."""

    SUCCEEDED = "succeeded"
    FAILED = "failed"
    FINISHED = "finished"

    def is_met_by(self, status: Status) -> bool:
        """Whether a dependency that ended in `status` (terminal) releases its child."""
        return self is When.FINISHED or self.value == status.value


class StopReason(StrEnum):
    """Why a running attempt is told to stop."""

    CANCELLED = "cancelled"
    INTERRUPTED = "interrupted"


class CatchUp(StrEnum):
    """What happens to planned starts that were missed."""

    ALL = "all"
    LATEST = "latest"
    NONE = "none"


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """How often a task may be tried in one run, and how long it waits between attempts (seconds)."""

    max_attempts: int = 1
    base_delay: float = 1.0
    max_delay: float = 3_600.0

    def __post_init__(self) -> None:
        if not 1 <= self.max_attempts <= limits.MAX_ATTEMPTS:
            raise InvalidRequest(f"max_attempts must be from 1 to {limits.MAX_ATTEMPTS}, not {self.max_attempts}")
        for name, value in (("base_delay", self.base_delay), ("max_delay", self.max_delay)):
            check_duration(name, value)


@dataclass(frozen=True, slots=True)
class Recurrence:
    """A finite repetition: `times` runs, `every` seconds apart by their planned starts."""

    every: float
    times: int
    catch_up: CatchUp = CatchUp.ALL

    def __post_init__(self) -> None:
        check_duration("every", self.every)
        if self.every < limits.MIN_EVERY_S:
            raise InvalidRequest(f"every must be at least {limits.MIN_EVERY_S} seconds, not {self.every:g}")
        if not 1 <= self.times <= limits.MAX_TIMES:
            raise InvalidRequest(f"times must be from 1 to {limits.MAX_TIMES}, not {self.times}")


@dataclass(frozen=True, slots=True)
class Dependency:
    """What a new task waits for: `on` names a task of the same batch first, then an existing full id."""

    on: str
    when: When = When.SUCCEEDED


DEFAULT_RETRY = RetryPolicy()


@dataclass(frozen=True, slots=True)
class NewTask:
    """A task as it is submitted. `payload` says what it does; the core hands it on and never looks inside.

    `name` is its name within the batch; without one its id will be its decimal `seq`.
    """

    payload: Any
    name: str | None = None
    deps: tuple[Dependency, ...] = ()
    priority: int = 0
    retry: RetryPolicy = DEFAULT_RETRY
    recurrence: Recurrence | None = None
    delay: float = 0.0

    def __post_init__(self) -> None:
        if self.name is not None:
            check_id(self.name)
        if not -limits.MAX_PRIORITY <= self.priority <= limits.MAX_PRIORITY:
            raise InvalidRequest(f"priority must be within {limits.MAX_PRIORITY} of zero, not {self.priority}")
        if len(self.deps) > limits.MAX_DEPS_PER_TASK:
            raise InvalidRequest(f"a task may have at most {limits.MAX_DEPS_PER_TASK} deps, not {len(self.deps)}")
        check_duration("delay", self.delay)


@dataclass(slots=True, eq=False)
class OpenTask:
    """One task that has not ended, as the machine knows it. Shared by reference: edges point at records.

    `unmet` counts the dependencies that have not ended yet. `attempts` counts those that count in the current run,
    `number` every attempt of the task's life. `planned_at` is the planned start of the current run, from which the
    next one is planned; None before the first run could start. `run_at` is the earliest start.
    The three lists hold the children by the `when` of their edge; None stands for an empty one (memory).
    """

    seq: int
    id: str
    priority: int
    retry: RetryPolicy
    recurrence: Recurrence | None
    run_at: float
    planned_at: float | None = None
    status: Status = Status.PENDING
    unmet: int = 0
    attempts: int = 0
    number: int = 0
    runs: int = 0
    held: bool = False
    cancel_requested: bool = False
    error: str | None = None
    settled_at: float | None = None
    # Not in the repr: it would tell the whole graph below, by recursion.
    children: "list[OpenTask] | None" = field(default=None, repr=False)
    children_if_failed: "list[OpenTask] | None" = field(default=None, repr=False)
    children_if_finished: "list[OpenTask] | None" = field(default=None, repr=False)

    def __lt__(self, other: "OpenTask") -> bool:
        """By submission order, so that heap entries with equal keys can be compared."""
        return self.seq < other.seq


@dataclass(frozen=True, slots=True)
class KnownTask:
    """What the store knows of an existing task: enough to judge an edge to it."""

    seq: int
    id: str
    status: Status


@dataclass(frozen=True, slots=True)
class StoredTask:
    """An open task's row as recovery reads it: the machine's input when it is rebuilt."""

    seq: int
    id: str
    priority: int
    retry: RetryPolicy
    recurrence: Recurrence | None
    run_at: float
    planned_at: float | None
    status: Status
    attempts: int
    number: int
    runs: int
    held: bool
    cancel_requested: bool
    error: str | None = None


@dataclass(frozen=True, slots=True)
class StoredEdge:
    """A dependency row of an open task; `on_status` is None where the task it names is gone."""

    task_seq: int
    on_seq: int
    when: When
    on_status: Status | None


@dataclass(frozen=True, slots=True)
class DamagedTask:
    """A row that cannot be read as a task: set aside as failed, with the reason.

    `attempt` is the number of an attempt of it that has no outcome yet, `number` that of its last one: no later attempt
    may have it again.
    """

    seq: int
    id: str
    reason: str
    attempt: int | None = None
    number: int = 0


@dataclass(frozen=True, slots=True)
class Stored:
    """All that a machine is rebuilt from. Tasks are in the order of their `seq`."""

    tasks: list[StoredTask] = field(default_factory=list)
    edges: list[StoredEdge] = field(default_factory=list)
    damaged: list[DamagedTask] = field(default_factory=list)
    paused: bool = False
