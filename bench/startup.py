"""How long `schedctl status` takes against a running daemon, beside a Python that only imports typer.

The two are run in turn and compared by their medians. The aim is a ratio of 1.8 at most: the command line must not
import the server, nor rich before it needs it.

    python bench/startup.py --runs 20
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path

from real import Daemon, script, short_home


def seconds(command: list[str], environment: dict[str, str]) -> float:
    """How long a command takes. Raises CalledProcessError if it fails."""
    began = time.perf_counter()
    subprocess.run(command, env=environment, stdout=subprocess.DEVNULL, check=True, timeout=60)
    return time.perf_counter() - began


def measure(home: Path, runs: int) -> dict[str, float]:
    """Medians in milliseconds, and their ratio."""
    daemon = Daemon(home, workers=1)
    daemon.start()
    try:
        daemon.wait_listening()
        environment = {**os.environ, "SCHEDD_SOCKET": str(daemon.socket)}
        commands = {"status": [script("schedctl"), "status"], "import_typer": [sys.executable, "-c", "import typer"]}
        taken: dict[str, list[float]] = {name: [] for name in commands}
        for _ in range(runs + 1):
            for name, command in commands.items():
                taken[name].append(seconds(command, environment))
        medians = {name: statistics.median(times[1:]) for name, times in taken.items()}  # the first fills the caches
        daemon.stop()
    finally:
        daemon.end()
    ratio = round(medians["status"] / medians["import_typer"], 2)
    return {**{f"{name}_ms": round(median * 1000, 1) for name, median in medians.items()}, "ratio": ratio}


def main() -> None:
    """The command: one JSON line."""
    parser = argparse.ArgumentParser(description="What starting schedctl costs.")
    parser.add_argument("--runs", type=int, default=20)
    arguments = parser.parse_args()
    with short_home() as home:
        print(json.dumps({"bench": "startup", "runs": arguments.runs, **measure(home, arguments.runs)}))


if __name__ == "__main__":
    main()
