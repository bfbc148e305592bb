"""Thousands of seeded lives, each judged after every step."""

import os
from pathlib import Path

import pytest

from support import tally
from support.world import World

SEEDS = int(os.environ.get("SCHEDD_SIMULATION_SEEDS", "2000"))
FIRST = int(os.environ.get("SCHEDD_SIMULATION_FIRST", "0"))
PARTS = 20


def live(seed: int, folder: Path, template: Path) -> World:
    """One life; a failure names its seed and how to replay it."""
    world = World(seed, folder, template)
    try:
        world.run()
    except BaseException as error:
        replay = f"SCHEDD_SIMULATION_FIRST={seed} SCHEDD_SIMULATION_SEEDS=1 pytest tests/simulation/test_simulation.py"
        error.add_note(f"seed {seed}; replay with: {replay}")
        raise
    finally:
        world.close()
    return world


@pytest.mark.parametrize("part", range(PARTS))
def test_every_seed_keeps_the_promises(part: int, template: Path, scratch: Path):
    """Random work, faults and crashes never lose, repeat, reorder or half-do anything."""
    seeds = range(FIRST + part, FIRST + SEEDS, PARTS)
    crashes = faults = retries = 0
    for seed in seeds:
        world = live(seed, scratch, template)
        crashes += world.crashes
        faults += world.faults
        retries += sum(world.ledger.last.retried.values()) if world.ledger.last else 0
    tally.add(seeds=len(seeds), crashes=crashes, faults=faults)
    if len(seeds) >= 50:
        assert crashes > 10, "the simulation has stopped to crash: it proves nothing"
        assert retries > 10, "the simulation retries nothing: it proves nothing"
        assert faults > 10, "the simulation has stopped to fail: it proves nothing"
