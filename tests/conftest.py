"""What every kind of test may use."""

import time
from collections.abc import Callable

import pytest

POLL_S = 0.005


def _eventually(condition: Callable[[], object], timeout: float = 10.0) -> None:
    deadline = time.monotonic() + timeout
    while not condition():
        if time.monotonic() >= deadline:
            pytest.fail(f"not true within {timeout:g} seconds: {getattr(condition, '__name__', condition)!s}")
        time.sleep(POLL_S)


@pytest.fixture
def eventually() -> Callable[..., None]:
    """`eventually(condition, timeout)` returns once `condition()` is true and fails the test at the deadline."""
    return _eventually
