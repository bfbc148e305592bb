"""Finding functions by name, and their parameter named `cancel`."""

import functools
from collections.abc import Callable
from typing import Any

import pytest

from schedd.workers.functions import exit_code, takes_cancel


def plain(first: Any, cancel: Any = None) -> None: ...
def keyword(*, cancel: Any) -> None: ...
def positional(cancel: Any, /) -> None: ...
def local(first: Any) -> None:
    cancel = first
    del cancel


def anything(**kwargs: Any) -> None: ...


@functools.wraps(plain)
def wrapped(*args: Any, **kwargs: Any) -> None: ...


class Callables:
    def method(self, cancel: Any) -> None: ...

    def __call__(self, cancel: Any) -> None: ...


@pytest.mark.parametrize(
    ("function", "given", "expected"),
    [
        (plain, 0, True),
        (plain, 1, True),
        (plain, 2, False),
        (keyword, 0, True),
        (keyword, 3, True),
        (positional, 0, False),
        (local, 0, False),
        (anything, 0, False),
        (wrapped, 1, True),
        (wrapped, 2, False),
        (Callables().method, 0, True),
        (Callables().method, 1, False),
        (Callables(), 0, True),
        (functools.partial(plain, 1), 0, True),
        (len, 0, False),
        (dict, 0, False),
    ],
)
def test_takes_cancel(function: Callable[..., Any], given: int, expected: bool) -> None:
    """A parameter named `cancel` counts if it can be given by name and was not given otherwise."""
    assert takes_cancel(function, given, {}) is expected
    assert not takes_cancel(function, given, {"cancel": 1})


@pytest.mark.parametrize(("code", "expected"), [(None, 0), (0, 0), (True, 1), (3, 3), (256, 0), (-1, 255), ("x", 1)])
def test_exit_code(code: Any, expected: int) -> None:
    """SystemExit ends a process as Python would."""
    assert exit_code(SystemExit(code)) == expected
