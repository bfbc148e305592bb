"""Fixtures of the core's tests."""

import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager

import pytest

from schedd.core import invariants
from support.core_driver import Driver


@pytest.fixture
def drive() -> Iterator[Callable[..., Driver]]:
    """`drive(workers)` makes a driver; every machine made is checked for contradictions at teardown."""
    made: list[Driver] = []

    def make(workers: int = 1) -> Driver:
        made.append(Driver(workers))
        return made[-1]

    yield make
    for driver in made:
        invariants.check(driver.machine, driver.now)


@pytest.fixture
def driver(drive: Callable[..., Driver]) -> Driver:
    """A driver with one worker."""
    return drive()


@pytest.fixture
def shallow_stack() -> Callable[[], AbstractContextManager[None]]:
    """`with shallow_stack():` leaves room for a few dozen frames, so that any recursion over a graph fails."""

    @contextmanager
    def limited(room: int = 60) -> Iterator[None]:
        depth, frame = 0, sys._getframe()
        while frame is not None:
            depth, frame = depth + 1, frame.f_back
        usual = sys.getrecursionlimit()
        sys.setrecursionlimit(depth + room)
        try:
            yield
        finally:
            sys.setrecursionlimit(usual)

    return limited
