"""When the next run of a recurring task is planned. Tests: tests/unit/core/test_recurrence.py."""

import math

from schedd.core.model import CatchUp, Recurrence


def next_planned(recurrence: Recurrence, planned_at: float, now: float) -> tuple[float, int]:
    """The planned start of the run after the one planned at `planned_at`, and how many starts were left out.

    Fixed rate: planned from the last *planned* start, not from when it ended. Where that lies in the past, `all`
    keeps it (and each one after it), `latest` takes the last one that is due, `none` the first one still to come.
    """
    following = planned_at + recurrence.every
    if recurrence.catch_up is CatchUp.ALL or following > now:
        return following, 0
    missed = math.floor((now - following) / recurrence.every)
    if following + (missed + 1) * recurrence.every <= now:
        missed += 1  # the division was rounded down past a start that is due this very moment
    elif following + missed * recurrence.every > now:
        missed -= 1  # or up to one that is not
    if recurrence.catch_up is CatchUp.NONE:
        missed += 1
    return following + missed * recurrence.every, missed
