"""The fixtures of the workers' tests; see workers_bench.py."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from workers_bench import Bench

from schedd.workers.identity import Marker


@pytest.fixture
def marker() -> Marker:
    return Marker.for_this_start("0123456789abcdef")


@pytest.fixture
def bench(tmp_path: Path, marker: Marker) -> Iterator[Bench]:
    made = Bench(tmp_path / "logs", 2, marker)
    made.pool.open()
    yield made
    assert made.pool.close(), "a worker is left"
    assert not made.pool.running()
    assert made.ends.empty(), "an end that nobody expected"
