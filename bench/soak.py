"""The tests of crash recovery for as long as asked, each time with seeds and moments that nobody has tried before.

Round after round until the time is up: the simulation on fresh seeds, Hypothesis on fresh examples, each statement of
a scenario failing, a daemon under load that is killed, a daemon that is killed while it starts, and the other tests of
tests/crash. A line tells of each run, and one for each part at the end. Exits 1 at the first failure, with what pytest
said, which names the seed and the command that repeats it.

    python bench/soak.py --minutes 60 [--first SEED]
"""

import argparse
import json
import os
import random
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
CRASH = ROOT / "tests" / "crash"
SHOWN_LINES = 80
STUCK_S = 3_600.0
"""No run of a part takes longer unless it hangs, however slow the machine."""

TALLY = ("seeds", "examples", "crashes", "faults", "kills", "tests")


@dataclass
class Part:
    """One kind of test: how to run it for a while, and what it has been through."""

    name: str
    arguments: list[str]
    settings: Callable[[int, float], dict[str, str]]
    """From a fresh seed and the seconds that a run should take to the environment that says so."""
    least_s: float = 0.0
    """It is left out where less time than that is left, because it cannot be made shorter."""
    runs: int = 0
    seconds: float = 0.0
    counts: Counter[str] = field(default_factory=Counter)


def parts() -> list[Part]:
    """All of them, in their order."""
    kills, start_kills = CRASH / "test_kills.py", CRASH / "test_start_kills.py"
    others = sorted(str(path) for path in CRASH.glob("test_*.py") if path not in (kills, start_kills))
    simulation = ROOT / "tests" / "simulation"
    return [
        Part(
            "simulation",
            [str(simulation / "test_simulation.py")],
            lambda seed, s: {"SCHEDD_SIMULATION_FIRST": str(seed), "SCHEDD_SIMULATION_SEEDS": str(round(20 * s))},
        ),
        Part(
            "kills",
            [str(kills)],
            lambda seed, s: {"SCHEDD_CRASH_KILLS": str(max(round(s / 2), 5)), "SCHEDD_CRASH_SEED": str(seed)},
        ),
        Part(
            "start kills",
            [str(start_kills)],
            lambda seed, s: {"SCHEDD_START_KILLS": str(max(round(s / 2), 5)), "SCHEDD_START_SEED": str(seed)},
        ),
        Part(
            "hypothesis",
            [str(simulation / "test_stateful.py")],
            lambda seed, s: {"SCHEDD_STATEFUL_EXAMPLES": str(max(round(5 * s), 51))},
        ),
        Part("n-th faults", [str(simulation / "test_nth_fault.py")], lambda seed, s: {}, least_s=20.0),
        Part("stress", others, lambda seed, s: {}, least_s=240.0),
    ]


def run(part: Part, seed: int, slice_s: float, processes: int) -> str | None:
    """One run of a part, added to its counts; what pytest said, if it failed."""
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="schedd-soak-") as folder:
        tally = Path(folder) / "tally"
        output = Path(folder) / "output"
        environment = {**os.environ, **part.settings(seed, slice_s), "SCHEDD_TALLY": str(tally)}
        command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", "-n", str(processes)]
        with output.open("wb") as file:
            process = subprocess.Popen(
                [*command, *part.arguments], cwd=ROOT, env=environment, stdin=subprocess.DEVNULL, stdout=file,
                stderr=subprocess.STDOUT, start_new_session=True,
            )  # fmt: skip
            code = _wait(process)
        said = output.read_text(errors="replace")
        counts = Counter[str]()
        for line in tally.read_text().splitlines() if tally.exists() else []:
            counts.update(json.loads(line))
    passed = re.search(r"(\d+) passed", said)
    counts["tests"] += int(passed[1]) if passed else 0
    part.runs += 1
    part.seconds += time.monotonic() - began
    part.counts.update(counts)
    print(f"{time.strftime('%H:%M:%S')} {part.name}: {_tell(counts)} in {time.monotonic() - began:.0f} s", flush=True)
    if code == 0:
        return None
    return f"{part.name} failed (seed {seed}, exit code {code}):\n" + "\n".join(said.splitlines()[-SHOWN_LINES:])


def _wait(process: "subprocess.Popen[bytes]") -> int:
    """Its exit code. Whatever happens it is ended, with the chance to tidy up first."""
    try:
        return process.wait(STUCK_S)
    except (subprocess.TimeoutExpired, KeyboardInterrupt) as reason:
        process.send_signal(signal.SIGINT)
        try:
            process.wait(60)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        if isinstance(reason, KeyboardInterrupt):
            raise
        return -1


def _tell(counts: Counter[str]) -> str:
    return ", ".join(f"{counts[name]} {name}" for name in TALLY if counts[name]) or "nothing"


def soak(minutes: float, first: int, processes: int) -> int:
    """Round after round; the exit code."""
    end = time.monotonic() + minutes * 60
    slice_s = min(max(minutes * 60 / 12, 5.0), 120.0)
    everything = parts()
    seed = first
    print(f"soaking for {minutes:g} minutes, from seed {first} on", flush=True)
    failure = None
    while failure is None and time.monotonic() < end:
        for part in everything:
            if time.monotonic() + part.least_s >= end:
                continue
            failure = run(part, seed, slice_s, processes)
            seed += 10_000
            if failure is not None:
                break
    print()
    total = Counter[str]()
    for part in everything:
        total.update(part.counts)
        print(f"{part.name}: {part.runs} runs, {_tell(part.counts)}, {part.seconds:.0f} s")
    print(f"total: {_tell(total)}; {'FAILED' if failure else 'no failure'}", flush=True)
    if failure is not None:
        print(f"\n{failure}", file=sys.stderr)
    return 0 if failure is None else 1


def main(argv: Sequence[str] | None = None) -> int:
    """The command `make soak`."""
    parser = argparse.ArgumentParser(description="Run the tests of crash recovery for as long as asked.")
    parser.add_argument("--minutes", type=float, default=60.0, help="for how long (default 60)")
    parser.add_argument("--first", type=int, help="the first seed (default: random, printed)")
    parser.add_argument("--processes", type=int, default=2, help="of pytest (default 2)")
    arguments = parser.parse_args(argv)
    first = arguments.first if arguments.first is not None else random.SystemRandom().randrange(10**6, 10**9)
    return soak(arguments.minutes, first, arguments.processes)


if __name__ == "__main__":
    sys.exit(main())
