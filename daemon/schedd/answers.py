"""The answers of the daemon as JSON: every shape that comes back over the socket, for its two ends.

Types (and how a `loc` is written), standard library only, so that the client and the command line can use them
without the server's libraries. What goes in is `wire`. Times are UTC seconds since the epoch, durations are seconds.
The shapes are written by `engine.requests`, `store.reads` and `api`; tests/api compares what they write with these.
"""

from collections.abc import Sequence
from typing import Any, Required, TypedDict


class TaskView(TypedDict):
    """One task in a list. `status` has `ready` laid over it; `what` is its work on one line, for people.

    `error` says why it failed, was skipped or waits to be tried again; `started_at` is the start of its last attempt.
    """

    id: str
    seq: int
    batch: str | None
    status: str
    priority: int
    attempts: int
    max_attempts: int
    number: int
    runs: int
    times: int | None
    every: float | None
    run_at: float
    created_at: float
    started_at: float | None
    settled_at: float | None
    held: bool
    cancel_requested: bool
    error: str | None
    what: str


class RetryView(TypedDict):
    """A task's retry policy."""

    max_attempts: int
    base_delay: float
    max_delay: float


class EdgeView(TypedDict):
    """One end of a dependency: the other task, its status, and which end of the first one releases the second."""

    id: str
    when: str
    status: str


class AttemptView(TypedDict):
    """One attempt. `outcome` and `ended_at` are None while it runs; `max_rss` counts bytes, `cpu_time` seconds.

    `units` are the named units of resources that it held.
    """

    number: int
    run: int
    outcome: str | None
    started_at: float
    ended_at: float | None
    exit_code: int | None
    signal: int | None
    error: str | None
    result: Any
    max_rss: int | None
    cpu_time: float | None
    pid: int | None
    units: dict[str, list[str]] | None


class TaskDetail(TaskView):
    """One task with all that is known of it. `work` is its payload, `history` its attempts, oldest first."""

    work: dict[str, Any]
    retry: RetryView
    deps: list[EdgeView]
    dependents: list[EdgeView]
    history: list[AttemptView]


class SubmitAnswer(TypedDict):
    """An accepted batch: its full name, None without one, and the full ids of its tasks in the order of the spec."""

    batch: str | None
    ids: list[str]


class TaskResult(TypedDict, total=False):
    """What became of one id of a request. `error` (a code) and `message` are there when `ok` is False."""

    id: Required[str]
    ok: Required[bool]
    error: str
    message: str


class ResultsAnswer(TypedDict):
    """What became of each id of a request, in the order asked."""

    results: list[TaskResult]


class DependAnswer(TypedDict):
    """An edge asked for; `added` is False if it was there already."""

    before: str
    after: str
    when: str
    added: bool


class UndependAnswer(TypedDict):
    """An edge to be removed; `removed` is False, and `when` None, if it was not there."""

    before: str
    after: str
    when: str | None
    removed: bool


class RetryAnswer(TypedDict):
    """How each task asked for was judged, and the ids of all tasks that run again, in the order of submission."""

    results: list[TaskResult]
    retried: list[str]


class PausedAnswer(TypedDict):
    """Whether the starting of tasks is paused."""

    paused: bool


class PruneAnswer(TypedDict):
    """How many tasks, and lines of history (events, answers of keyed requests), were removed.

    `more` says that there is more, for which there was no time.
    """

    tasks: int
    lines: int
    more: bool


class Degraded(TypedDict):
    """What the daemon cannot do at the moment, or what an admin should see to; since when."""

    since: float
    message: str


class Health(TypedDict):
    """`live`: it answers. `ready`: it accepts work. `degraded`: it holds back what it cannot write, or (while
    `ready`) its files need an admin.
    """

    live: bool
    ready: bool
    degraded: Degraded | None


class StatusAnswer(TypedDict):
    """The daemon at a glance. `failed` holds the tasks that failed last; `counts` has a number for each status."""

    version: str
    pid: int
    started_at: float
    workers: int
    busy: int
    paused: bool
    draining: bool
    counts: dict[str, int]
    running: list[TaskView]
    failed: list[TaskView]
    health: Health
    state_dir: str


class TasksAnswer(TypedDict):
    """One page of tasks; `next` is the cursor for `after`, None on the last page."""

    tasks: list[TaskView]
    next: int | None


class BatchView(TypedDict):
    """A batch: how many of its tasks are in which status, and whether all have ended."""

    name: str
    created_at: float
    counts: dict[str, int]
    done: bool


class Unsuccessful(TypedDict):
    """A task that ended otherwise than `succeeded`."""

    id: str
    status: str
    error: str | None


class WaitAnswer(TypedDict):
    """How far what was waited for has come. `done`: all of it has ended; `open`: how many tasks have not."""

    done: bool
    open: int
    counts: dict[str, int]
    unsuccessful: list[Unsuccessful]


class EventView(TypedDict):
    """One line of the ordered log; `task` is the id of the task it is about, if it is about one."""

    id: int
    at: float
    task: str | None
    kind: str
    detail: dict[str, Any] | None


class EventsAnswer(TypedDict):
    """Events in order; `next` is the last id, to go on from."""

    events: list[EventView]
    next: int


class FindingView(TypedDict):
    """One thing that a check found; `task` is the id of the task that it is about, if it is about one."""

    task: str | None
    message: str


class FindingsView(TypedDict):
    """All that a check found of one `kind`: the first of them, how many there are, and what to do about them.

    `severity` is `error` for what schedd never does, `note` for what can come about without a fault.
    """

    kind: str
    severity: str
    advice: str
    count: int
    shown: list[FindingView]


class CheckAnswer(TypedDict):
    """What a check of a state directory found. `unjudged` says why the rows were not judged, if they were not."""

    state_dir: str
    database: str
    revision: str | None
    tasks: int
    attempts: int
    sound: bool
    errors: int
    notes: int
    unjudged: str | None
    findings: list[FindingsView]


class ErrorItem(TypedDict):
    """One thing wrong with a document: `loc` leads from its top to the place, by keys and list positions."""

    loc: list[str | int]
    message: str


class Problem(TypedDict, total=False):
    """An error answer, `application/problem+json` (RFC 9457). `code` is the machine's word for it."""

    type: Required[str]
    title: Required[str]
    status: Required[int]
    detail: Required[str]
    code: Required[str]
    errors: list[ErrorItem]


def dotted(loc: Sequence[str | int]) -> str:
    """A `loc` as people read it: `tasks.build.deps[0].task`; empty for the document itself."""
    text = ""
    for part in loc:
        text += f"[{part}]" if isinstance(part, int) else f".{part}"
    return text.removeprefix(".")
