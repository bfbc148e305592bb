"""Whether and when a failed attempt is tried again. Tests: tests/unit/core/test_retry.py."""

from schedd.core.events import AttemptEnded
from schedd.core.model import Jitter, Outcome, RetryPolicy


def may_retry(policy: RetryPolicy, ended: AttemptEnded) -> bool:
    """Whether a failure is of a kind that the policy tries again.

    What never ran by itself (`crashed`, `start_failed`) always is. A command that a signal killed has no exit code:
    it is tried again unless `on_exit_codes` names those that are.
    """
    if ended.outcome is Outcome.TIMED_OUT:
        return policy.on_timeout
    if ended.outcome is not Outcome.FAILED:
        return True
    if policy.on_exceptions is not None and ended.exceptions:
        return not set(policy.on_exceptions).isdisjoint(ended.exceptions)
    if ended.exit_code in policy.never_on_exit_codes:
        return False
    return policy.on_exit_codes is None or ended.exit_code in policy.on_exit_codes


def backoff(policy: RetryPolicy, failures: int, luck: float = 1.0) -> float:
    """Seconds to wait after the `failures`-th counted failure of a run: the delay doubles up to `max_delay`.

    With full jitter only the part `luck` (0 to 1) of it.
    """
    exponent = min(failures - 1, 1_023)  # the largest of a float; by then any real delay is over every max_delay
    delay = min(float(policy.max_delay), policy.base_delay * 2.0**exponent)
    return delay * luck if policy.jitter is Jitter.FULL else delay
