"""Backoff: `min(max_delay, base_delay * 2**(failures-1))`, exactly."""

from fractions import Fraction

import pytest

from schedd.core import limits
from schedd.core.model import RetryPolicy
from schedd.core.retry import backoff


class TestBackoff:
    """The wait after the n-th failure."""

    def test_the_delay_doubles_up_to_its_bound(self):
        """Each failure doubles the wait until the longest one is reached."""
        policy = RetryPolicy(max_attempts=9, base_delay=0.05, max_delay=0.5)
        assert [backoff(policy, failures) for failures in range(1, 7)] == [0.05, 0.1, 0.2, 0.4, 0.5, 0.5]

    @pytest.mark.parametrize("base", [1e-12, 0.001, 0.05, 1.0, 59.5, limits.MAX_DURATION_S])
    @pytest.mark.parametrize("most", [0.0, 0.01, 3_600.0, limits.MAX_DURATION_S])
    def test_it_is_the_formula_for_every_policy(self, base: float, most: float):
        """Compared with exact arithmetic, for any number of failures."""
        policy = RetryPolicy(limits.MAX_ATTEMPTS, base, most)
        for failures in (1, 2, 3, 30, 64, 65, 66, 100, 1_000, 1_024, 1_025, 2_000, limits.MAX_ATTEMPTS):
            exact = min(Fraction(most), Fraction(base) * 2 ** min(failures - 1, 10_000))
            assert backoff(policy, failures) == float(exact), failures

    def test_no_delay_stays_no_delay(self):
        """Nothing doubled is nothing, however often it is doubled."""
        assert backoff(RetryPolicy(max_attempts=2, base_delay=0), limits.MAX_ATTEMPTS) == 0.0

    def test_a_bound_below_the_base_wins(self):
        """max_delay is the longest wait, from the first failure on."""
        assert backoff(RetryPolicy(max_attempts=2, base_delay=10, max_delay=3), 1) == 3.0
