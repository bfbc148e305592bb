"""The bench of the engine's tests."""

from collections.abc import Iterator

import pytest

from schedd.core import invariants
from support.engine_bench import Bench


@pytest.fixture
def bench() -> Iterator[Bench]:
    """A fresh bench; the machine's invariants are checked at teardown."""
    made = Bench()
    yield made
    machine = made.engine._machine
    if machine is not None:
        invariants.check(machine, made.clock.now())
