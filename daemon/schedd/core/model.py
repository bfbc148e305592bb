"""The nouns of the core: what a task, its policies and its states are.

Frozen shapes come in from outside (`NewTask`, `RetryPolicy`, `Recurrence`); `OpenTask` is the one mutable record,
one for each task that has not ended. Only `machine.py` writes to it. Times are UTC seconds since the epoch.
Tests: tests/unit/core/test_model.py.
"""

from dataclasses import dataclass, field
from enum import IntFlag, StrEnum
from typing import Any, NamedTuple

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
    DEADLINE = "deadline"


class Wall(IntFlag):
    """Which times of a task are dates (`start_at`, ...): setting the clock does not move those, as it moves waits."""

    NONE = 0
    START = 1
    START_BEFORE = 2
    DEADLINE = 4


class Jitter(StrEnum):
    """How the wait before another attempt is spread: not at all, or anywhere between none of it and all."""

    NONE = "none"
    FULL = "full"


class CatchUp(StrEnum):
    """What happens to planned starts that were missed."""

    ALL = "all"
    LATEST = "latest"
    NONE = "none"


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """How often a task may be tried in one run, how long it waits between attempts (seconds), and after what.

    `on_exit_codes` (None: all) and `never_on_exit_codes` judge commands, `on_exceptions` (None: all) functions: names
    of classes, `ConnectionError` or `package.module.Name`, subclasses included. `on_timeout` says whether an attempt
    that took too long is tried again. An attempt that crashed with the daemon or could not start always is.
    """

    max_attempts: int = 1
    base_delay: float = 1.0
    max_delay: float = 3_600.0
    jitter: Jitter = Jitter.NONE
    on_exit_codes: tuple[int, ...] | None = None
    never_on_exit_codes: tuple[int, ...] = ()
    on_exceptions: tuple[str, ...] | None = None
    on_timeout: bool = True

    def __post_init__(self) -> None:
        if not 1 <= self.max_attempts <= limits.MAX_ATTEMPTS:
            raise InvalidRequest(f"max_attempts must be from 1 to {limits.MAX_ATTEMPTS}, not {self.max_attempts}")
        for name, value in (("base_delay", self.base_delay), ("max_delay", self.max_delay)):
            check_duration(name, value)
        for name, codes in (("on_exit_codes", self.on_exit_codes), ("never_on_exit_codes", self.never_on_exit_codes)):
            for code in codes or ():
                if not 1 <= code <= 255:
                    raise InvalidRequest(f"{name} must hold exit codes from 1 to 255, not {code}")


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

Demand = tuple[tuple[str, int], ...]
"""What a task holds while it runs: (name of the resource, amount) sorted by name. Equal demands share one heap."""

GROUP_PREFIX = "group/"
"""A group is a resource with this before its name, of which each of its tasks holds one; without a limit it is none."""


class Moment(NamedTuple):
    """A time that was given in one of two ways: seconds after the submission, or (`is_date`) UTC since the epoch."""

    value: float
    is_date: bool = False

    def at(self, now: float) -> float:
        """The time it stands for, where the submission is `now`."""
        return self.value if self.is_date else now + self.value


def check_resource_name(name: str, what: str = "resource name") -> None:
    """Raises InvalidRequest unless `name` may be a resource's or a group's."""
    if not name or len(name) > limits.MAX_RESOURCE_NAME_CHARS:
        raise InvalidRequest(f"{what} must have 1 to {limits.MAX_RESOURCE_NAME_CHARS} characters, not {len(name)}")
    if not (name[0].isalpha() and name.isascii() and all(char.isalnum() or char in "_-." for char in name)):
        raise InvalidRequest(f"{what} {name!r} must be ASCII letters, digits and any of _ - . and begin with a letter")


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
    start_at: float | None = None
    start_before: Moment | None = None
    deadline: Moment | None = None
    resources: Demand = ()
    group: str | None = None
    allow_failure: bool = False
    expected: float | None = None

    def __post_init__(self) -> None:
        if self.name is not None:
            check_id(self.name)
        if not -limits.MAX_PRIORITY <= self.priority <= limits.MAX_PRIORITY:
            raise InvalidRequest(f"priority must be within {limits.MAX_PRIORITY} of zero, not {self.priority}")
        if len(self.deps) > limits.MAX_DEPS_PER_TASK:
            raise InvalidRequest(f"a task may have at most {limits.MAX_DEPS_PER_TASK} deps, not {len(self.deps)}")
        check_duration("delay", self.delay)
        if self.delay and self.start_at is not None:
            raise InvalidRequest("give `delay` or `start_at`, not both")
        self._check_more()

    def _check_more(self) -> None:
        for name, moment in (("start_before", self.start_before), ("deadline", self.deadline)):
            if moment is not None and not moment.is_date:
                check_duration(name, moment.value)
        if self.expected is not None:
            check_duration("expected", self.expected)
        if self.group is not None:
            check_resource_name(self.group, "group")
        for name, amount in self.resources:
            check_resource_name(name)
            if not 1 <= amount <= limits.MAX_CAPACITY:
                raise InvalidRequest(f"the demand for {name} must be from 1 to {limits.MAX_CAPACITY}, not {amount}")

    @property
    def demand(self) -> Demand:
        """All that it holds while it runs, its place in its group included."""
        if self.group is None:
            return self.resources
        return tuple(sorted((*self.resources, (GROUP_PREFIX + self.group, 1))))


@dataclass(slots=True, eq=False)
class OpenTask:
    """One task that has not ended, as the machine knows it. Shared by reference: edges point at records.

    `unmet` counts the dependencies that have not ended yet. `attempts` counts those that count in the current run,
    `number` every attempt of the task's life. `planned_at` is the planned start of the current run, from which the
    next one is planned; None before the first run could start. `run_at` is the earliest start, `start_before` the
    latest first start, `deadline` when it must have ended; `wall` (`Wall`) says which of them are dates.
    `base_number` is what `number` was at the last retry by an operator (`retries` counts those): above it, it has
    started. `units` are the
    named units that it holds while it runs. `rank` orders equal priorities, smallest first.
    The three lists hold the children by the `when` of their edge; None stands for an empty one (memory).
    """

    seq: int
    id: str
    priority: int
    retry: RetryPolicy
    recurrence: Recurrence | None
    run_at: float
    planned_at: float | None = None
    demand: Demand = ()
    start_before: float | None = None
    deadline: float | None = None
    wall: int = 0
    rank: float = 0.0
    status: Status = Status.PENDING
    unmet: int = 0
    attempts: int = 0
    number: int = 0
    base_number: int = 0
    retries: int = 0
    runs: int = 0
    units: "dict[str, list[str]] | None" = None
    held: bool = False
    cancel_requested: bool = False
    error: str | None = None
    settled_at: float | None = None
    # Not in the repr: it would tell the whole graph below, by recursion.
    children: "list[OpenTask] | None" = field(default=None, repr=False)
    children_if_failed: "list[OpenTask] | None" = field(default=None, repr=False)
    children_if_finished: "list[OpenTask] | None" = field(default=None, repr=False)

    @property
    def has_started(self) -> bool:
        """Whether any attempt was made since it was submitted or retried: what it depends on no longer matters."""
        return self.number > self.base_number

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
    base_number: int = 0
    demand: Demand = ()
    start_before: float | None = None
    deadline: float | None = None
    wall: int = 0
    expected: float | None = None
    units: dict[str, list[str]] | None = None
    retries: int = 0


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
class Capacity:
    """How much there is of a resource; with `units` each of it has a name, and `total` is their number."""

    total: int
    units: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True)
class Stored:
    """All that a machine is rebuilt from. Tasks are in the order of their `seq`."""

    tasks: list[StoredTask] = field(default_factory=list)
    edges: list[StoredEdge] = field(default_factory=list)
    damaged: list[DamagedTask] = field(default_factory=list)
    paused: bool = False
    capacities: dict[str, Capacity] = field(default_factory=dict)
