"""How an attempt ended, as its runner tells it: the pool adds whose it was and when. Tests: every runner's.

Exit code and signal are apart: a process that SIGKILL ended has signal 9 and no exit code.
"""

import errno
import os
import random
import signal as signals
from typing import NamedTuple

from schedd.core.events import AttemptEnded, StartAttempt
from schedd.core.model import Outcome
from schedd.workers.text import clean

SCHEDD_FAULTS = frozenset({errno.EAGAIN, errno.ENOMEM, errno.EMFILE, errno.ENFILE})
"""Errors of a start that say the machine or schedd had no room, not that the task cannot be started."""


class Ending(NamedTuple):
    """`max_rss` is bytes (None where it cannot be told), `cpu_time` seconds of user and system time, `result` JSON
    text. `counts` is False only for a start that failed through no fault of the task. `exceptions` as in AttemptEnded.
    """

    outcome: Outcome
    exit_code: int | None = None
    signal: int | None = None
    error: str | None = None
    result: str | None = None
    max_rss: int | None = None
    cpu_time: float | None = None
    counts: bool = True
    exceptions: tuple[str, ...] = ()


SUCCEEDED = Ending(Outcome.SUCCEEDED)


def failed(error: str, exceptions: tuple[str, ...] = ()) -> Ending:
    """An attempt that failed, with the reason."""
    return Ending(Outcome.FAILED, error=clean(error), exceptions=exceptions)


def start_failed(reason: str) -> Ending:
    """A task that cannot be started as it is."""
    return Ending(Outcome.START_FAILED, error=clean(reason))


def schedd_failed(reason: str) -> Ending:
    """A start that failed because of schedd or the machine: it does not count as an attempt."""
    return Ending(Outcome.START_FAILED, error=clean(reason), counts=False)


def crashed(reason: str) -> Ending:
    """An attempt that was lost while it ran."""
    return Ending(Outcome.CRASHED, error=clean(reason))


def of_status(status: int) -> Ending:
    """The end of a process by its wait status."""
    code = os.waitstatus_to_exitcode(status)
    if code == 0:
        return Ending(Outcome.SUCCEEDED, exit_code=0)
    if code > 0:
        return Ending(Outcome.FAILED, exit_code=code, error=f"exited with code {code}")
    dumped = " (core dumped)" if os.WCOREDUMP(status) else ""
    return Ending(Outcome.FAILED, signal=-code, error=f"killed by {_name(-code)}{dumped}")


def event(ended: Ending, order: StartAttempt, ended_at: float, duration: float) -> AttemptEnded:
    """The ending as the engine hears of it."""
    return AttemptEnded(
        order.seq,
        order.number,
        ended.outcome,
        ended_at,
        exit_code=ended.exit_code,
        signal=ended.signal,
        error=ended.error,
        result=ended.result,
        max_rss=ended.max_rss,
        cpu_time=ended.cpu_time,
        duration=duration,
        task_id=order.id,
        counts=ended.counts,
        exceptions=ended.exceptions,
        luck=random.random(),  # noqa: S311 - spreads retries, guards nothing
    )


def _name(number: int) -> str:
    try:
        return signals.Signals(number).name
    except ValueError:
        return f"signal {number}"
