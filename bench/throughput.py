"""How many tasks a second schedd brings from ready to settled, against what one durable row a transaction costs.

Both are measured in turn, in the same directory and minute, because machines like these are shared and noisy: quote the
ratio. The work is a no-op `call` with `isolation: thread` on an SQLite file with WAL and synchronous=FULL, so every
task costs two durable writes (it runs, it has ended) and nothing else.

    wide    tasks without dependencies: the workers share commits
    chain   each task depends on the one before: nothing can be shared
    commit_limit   one small row a transaction, the same settings: what a durable step costs without group commit

Prints one JSON line a measurement and, last, the ratios of the medians.

    python bench/throughput.py --tasks 4000 --rounds 3
"""

import argparse
import json
import shutil
import sqlite3
import statistics
import tempfile
import threading
import time
from pathlib import Path

from schedd.core.batch import NewBatch
from schedd.core.model import Dependency, NewTask
from schedd.engine.inbox import Call
from schedd.engine.loop import Committed
from schedd.engine.requests import PauseStarting, SubmitBatch
from schedd.runtime import Runtime

WORKERS = 4
PAYLOAD = json.dumps({"call": "noop:noop", "isolation": "thread"})
PATIENCE_S = 300.0


class Countdown:
    """An engine observer that says when a number of attempts have ended, all of them committed."""

    def __init__(self, count: int) -> None:
        self._left = count
        self.done = threading.Event()

    def __call__(self, committed: Committed) -> None:
        self._left -= len(committed.ended)
        if self._left <= 0:
            self.done.set()


def wide(tasks: int) -> NewBatch:
    """Tasks that wait for nothing but a worker."""
    return NewBatch([NewTask(PAYLOAD) for _ in range(tasks)])


def chain(tasks: int) -> NewBatch:
    """Tasks that wait for one another."""
    return NewBatch(
        [
            NewTask(PAYLOAD, name=f"link-{index}", deps=(Dependency(f"link-{index - 1}"),) if index else ())
            for index in range(tasks)
        ]
    )


def schedd(batch: NewBatch, home: Path) -> dict[str, float]:
    """Tasks a second: submitted (one request), and brought to their end. They are all submitted before any starts."""
    tasks = len(batch.tasks)
    countdown = Countdown(tasks)
    with Runtime.open(home / "state", WORKERS, observers=[countdown]) as runtime:
        engine = runtime.engine
        engine.call(Call(PauseStarting(True))).result(PATIENCE_S)
        began = time.perf_counter()
        engine.call(Call(SubmitBatch(batch))).result(PATIENCE_S)
        submitted = time.perf_counter()
        engine.call(Call(PauseStarting(False)))
        if not countdown.done.wait(PATIENCE_S):
            raise TimeoutError(f"{tasks} tasks did not end in {PATIENCE_S} seconds")
        ended = time.perf_counter()
    return {"submit_per_s": round(tasks / (submitted - began), 1), "per_s": round(tasks / (ended - submitted), 1)}


def commit_limit(rows: int, home: Path) -> dict[str, float]:
    """Transactions a second of one small row each."""
    database = sqlite3.connect(home / "limit.db", isolation_level=None)
    try:
        database.execute("PRAGMA journal_mode=WAL")
        database.execute("PRAGMA synchronous=FULL")
        database.execute("CREATE TABLE step (id INTEGER PRIMARY KEY, status TEXT, at REAL)")
        began = time.perf_counter()
        for number in range(rows):
            database.execute("BEGIN IMMEDIATE")
            database.execute("INSERT INTO step VALUES (?, ?, ?)", (number, "running", 1.0))
            database.execute("COMMIT")
        return {"per_s": round(rows / (time.perf_counter() - began), 1)}
    finally:
        database.close()


def main() -> None:
    """The command."""
    arguments = _parse()
    rates: dict[str, list[float]] = {}
    for number in range(1, arguments.rounds + 1):
        for name in ("commit_limit", "wide", "chain"):
            home = Path(tempfile.mkdtemp(prefix="schedd-bench-", dir=arguments.dir))
            try:
                tasks = arguments.tasks
                if name == "commit_limit":
                    figures = commit_limit(tasks, home)
                else:
                    figures = schedd(wide(tasks) if name == "wide" else chain(tasks), home)
            finally:
                shutil.rmtree(home)
            rates.setdefault(name, []).append(figures["per_s"])
            print(json.dumps({"bench": name, "round": number, "tasks": tasks, **figures}), flush=True)
    medians = {name: statistics.median(of_rounds) for name, of_rounds in rates.items()}
    limit = medians.pop("commit_limit")
    ratios = {f"{name}_to_commit_limit": round(rate / limit, 2) for name, rate in medians.items()}
    print(json.dumps({"bench": "throughput", "workers": WORKERS, **ratios}))


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Tasks a second, beside durable transactions a second.")
    parser.add_argument("--tasks", type=int, default=4000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--dir", type=Path, help="where to put the database (default: the temporary directory)")
    return parser.parse_args()


if __name__ == "__main__":
    main()
