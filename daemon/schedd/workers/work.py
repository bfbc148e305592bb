"""What an attempt does: the payload of a task, decoded.

A payload is either a `Work` (in memory, where it may hold any callable) or JSON text of an object with its fields, as
`wire` has checked and written it. It is judged again here: a damaged row must cost one attempt, not a worker.
Tests: tests/unit/workers/test_work.py.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from schedd.core import limits

PROCESS = "process"
THREAD = "thread"


class BadPayload(ValueError):
    """The stored description of this task cannot be read."""


@dataclass(frozen=True, slots=True)
class Work:
    """Exactly one of `run` (shell text), `command` (argv), `call` ("package.module:function") and `function` is set.

    `timeout` and `grace` are seconds. `cwd` and `env` are for processes; a call in a thread has the daemon's.
    """

    run: str | None = None
    command: Sequence[str] | None = None
    call: str | None = None
    function: Callable[..., Any] | None = None
    args: Sequence[Any] = ()
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    isolation: str = PROCESS
    cwd: str | None = None
    env: Mapping[str, str] = field(default_factory=dict)
    timeout: float | None = None
    grace: float = limits.DEFAULT_GRACE_S

    @classmethod
    def of_function(
        cls, function: Callable[..., Any], args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> "Work":
        """A call of a callable of this process, in a thread."""
        return cls(function=function, args=args, kwargs=kwargs or {}, isolation=THREAD)

    @property
    def in_thread(self) -> bool:
        """Whether it runs in a thread of this process."""
        return self.function is not None or (self.call is not None and self.isolation == THREAD)


_FIELDS = frozenset(Work.__slots__) - {"function"}


def decode(payload: Any) -> Work:
    """The work that a payload stands for. Raises BadPayload."""
    if type(payload) is Work:
        return payload
    try:
        fields = json.loads(payload)
    except (TypeError, ValueError, RecursionError) as error:
        raise BadPayload(f"the stored task is not JSON text: {error}") from None
    if type(fields) is not dict:
        raise BadPayload(f"the stored task must be a JSON object, not {type(fields).__name__}")
    if not fields.keys() <= _FIELDS:
        raise BadPayload(f"the stored task has unknown keys: {', '.join(sorted(fields.keys() - _FIELDS))}")
    work = Work(**fields)
    problem = _problem(work)
    if problem:
        raise BadPayload(f"the stored task is damaged: {problem}")
    return work


def _problem(work: Work) -> str | None:
    """What is wrong with decoded fields, if anything."""
    if (work.run is None) + (work.command is None) + (work.call is None) != 2:
        return "exactly one of `run`, `command` and `call` is needed"
    if type(work.run or work.call or "") is not str:
        return "`run` and `call` must be text"
    if work.command is not None and not (type(work.command) is list and work.command and _all_text(work.command)):
        return "`command` must be a list of at least one text"
    if not isinstance(work.args, (list, tuple)) or type(work.kwargs) is not dict:
        return "`args` must be a list and `kwargs` an object"
    if work.isolation not in (PROCESS, THREAD):
        return f"`isolation` must be {PROCESS!r} or {THREAD!r}"
    if type(work.env) is not dict or not _all_text(work.env.values()):
        return "`env` must be an object of texts"
    if work.cwd is not None and type(work.cwd) is not str:
        return "`cwd` must be a text"
    for seconds in (work.timeout, work.grace):
        if seconds is not None and not (type(seconds) in (int, float) and 0 <= seconds <= limits.MAX_DURATION_S):
            return "`timeout` and `grace` must be numbers of seconds"
    return None


def _all_text(values: Any) -> bool:
    return all(type(value) is str for value in values)
