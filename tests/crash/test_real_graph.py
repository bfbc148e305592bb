"""The main job, small: a graph through a real daemon that is killed three times, judged from what its tasks wrote.

`make real` does the same with recorded workflows of a thousand tasks.
"""

import random
from typing import Any

import pytest

from support import benches

graphs: Any = benches.load("graphs")
real: Any = benches.load("real")

pytestmark = [pytest.mark.real, pytest.mark.slow, pytest.mark.timeout(180)]

IDEAL_S = 5.0


def layered_graph(rng: random.Random, layers: int = 6, width: int = 10) -> Any:
    """A graph of `layers` times `width` tasks; each depends on one to three of the layer before it."""
    tasks: list[dict[str, Any]] = []
    for layer in range(layers):
        above = [f"l{layer - 1}/{index}" for index in range(width)] if layer else []
        for index in range(width):
            deps = rng.sample(above, rng.randint(1, 3)) if above else []
            tasks.append({"id": f"l{layer}/{index}", "deps": deps, "runtime_s": rng.uniform(0.2, 1.0)})
    return graphs.from_dict({"name": "layers", "tasks": tasks})


def run_and_judge(graph: Any, seed: int) -> None:
    """Run it with three kills; a failure shows the seed and what was found."""
    with real.short_home() as home:
        verdict = real.run_graph(graphs.scaled(graph, IDEAL_S, real.WORKERS), home, random.Random(seed))
    assert verdict.violations == [], f"seed {seed}: {real.report(graph.name, verdict)}"
    assert (verdict.tasks, verdict.kills) == (len(graph.nodes), real.KILLS), f"seed {seed}"


def test_a_graph_survives_three_kills() -> None:
    """Every task ends, every edge is respected, no attempt is unknown and none overlaps, however the kills fall."""
    seed = random.SystemRandom().randrange(2**32)
    run_and_judge(layered_graph(random.Random(seed)), seed)


@pytest.mark.skipif(not real.GRAPHS.is_dir(), reason="the recorded graphs are not there")
def test_a_recorded_graph_survives_three_kills() -> None:
    """The same with a graph that somebody else drew."""
    seed = random.SystemRandom().randrange(2**32)
    run_and_judge(graphs.load(real.GRAPHS / "stg_50_rand0003.json.gz"), seed)
