"""Why the core says no. Each class's docstring is its default message: a sentence that a person can act on.

`Refused` is the caller's fault and changes nothing. `IllegalTransition` is ours.
Tests: tests/unit/core/test_errors.py.
"""

from collections.abc import Sequence


class Refused(ValueError):
    """The request was refused and nothing was changed."""

    code = "refused"

    def __init__(self, message: str = "") -> None:
        super().__init__(message or (type(self).__doc__ or "").strip())


class InvalidRequest(Refused):
    """The request is not valid."""

    code = "invalid"


class DuplicateId(Refused):
    """A task with this id exists already; choose another id."""

    code = "duplicate_id"


class UnknownTask(Refused):
    """There is no such task; `schedctl list` shows those there are."""

    code = "unknown_task"


class UnknownDependency(Refused):
    """A task depends on one that is neither in its batch nor known to schedd."""

    code = "unknown_dependency"


class SelfDependency(Refused):
    """A task cannot depend on itself."""

    code = "self_dependency"


class AlreadyEnded(Refused):
    """The task has already ended."""

    code = "already_ended"


class NotEnded(Refused):
    """The task has not ended yet."""

    code = "not_ended"


class AlreadyCancelled(Refused):
    """The task is already being cancelled."""

    code = "already_cancelled"


class AlreadyStarted(Refused):
    """The task has already started, so what it waits for can no longer be changed."""

    code = "already_started"


class UnknownResource(Refused):
    """A task needs a resource that there is none of; `schedctl resource set` makes one."""

    code = "unknown_resource"


class TooLarge(Refused):
    """A task needs more of a resource than there is."""

    code = "over_capacity"


class KeyReused(Refused):
    """This idempotency key was used for another request; use a new key."""

    code = "key_reused"


class CycleError(Refused):
    """The dependencies form a cycle.

    `path` reads `x depends on y` from left to right and ends where it began; `stuck` counts the other tasks that
    could never start because they wait behind the cycle.
    """

    code = "cycle"

    def __init__(self, path: Sequence[str], stuck: int = 0) -> None:
        self.path = list(path)
        self.stuck = stuck
        behind = ""
        if stuck:
            behind = f" ({stuck} more task{'s wait' if stuck > 1 else ' waits'} behind it)"
        super().__init__(f"dependency cycle: {_shorten(self.path)}{behind}; remove one of these dependencies")


class IllegalTransition(AssertionError):
    """A task was asked to make a move that its states do not allow: a bug in schedd."""


def _shorten(path: list[str], keep: int = 20) -> str:
    """The path as `a -> b -> a`; a very long one keeps its two ends."""
    if len(path) <= keep:
        return " -> ".join(path)
    half = keep // 2
    left_out = len(path) - keep
    return " -> ".join([*path[:half], f"... {left_out} more ...", *path[-half:]])
