"""When a failed attempt is tried again. Tests: tests/unit/core/test_retry.py."""

from schedd.core.model import RetryPolicy


def backoff(policy: RetryPolicy, failures: int) -> float:
    """Seconds to wait after the `failures`-th counted failure of a run: the delay doubles up to `max_delay`."""
    exponent = min(failures - 1, 1_023)  # the largest of a float; by then any real delay is over every max_delay
    return min(float(policy.max_delay), policy.base_delay * 2.0**exponent)
