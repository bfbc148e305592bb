"""What every kind of test may use."""

import signal
import time
from collections.abc import Callable

import pytest

for _number, _default in (
    (signal.SIGINT, signal.default_int_handler),
    (signal.SIGQUIT, signal.SIG_DFL),
    (signal.SIGHUP, signal.SIG_DFL),
):
    # A shell that runs the tests in the background has them ignored, and what the tests start would inherit that.
    if signal.getsignal(_number) is signal.SIG_IGN:
        signal.signal(_number, _default)

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
