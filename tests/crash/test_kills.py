"""A real daemon under load, killed again and again, judged from what its tasks wrote to one file.

The load comes from a thread that submits random graphs and cancels some tasks while the daemon dies under it, as a
client of an unlucky daemon would: it repeats each request with its key until it is answered. `SCHEDD_CRASH_KILLS`
asks for more kills than the 25 of a normal run, `SCHEDD_CRASH_SEED` for the moments of a former one.
"""

import os
import random
import sqlite3
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from schedd.client import Client, ClientError, ProblemError
from schedd.store.check import check_database
from schedd.store.findings import ERROR
from support import benches, tally

graphs: Any = benches.load("graphs")
judging: Any = benches.load("judge")
real: Any = benches.load("real")

KILLS = int(os.environ.get("SCHEDD_CRASH_KILLS", "25"))
WORKERS = 4
MOST_OPEN = 60
"""The load pauses while so many tasks are open: a longer queue would only make the end of the test longer."""

SECONDS = (0.0, 0.02, 0.1, 0.3, 2.0)
"""How long tasks take. The longest outlive a kill and the start after it, unless that start kills them."""

pytestmark = [pytest.mark.real, pytest.mark.slow, pytest.mark.timeout(240 + 10 * KILLS)]


class Load:
    """Submits and cancels until it is told to stop, and writes down what it was answered."""

    def __init__(self, home: Path, socket: Path, seed: int) -> None:
        self.deps: dict[str, tuple[str, ...]] = {}
        self.acknowledged: dict[str, str] = {}  # name of a task -> its id
        self.cancelled: dict[str, float] = {}  # name -> when the cancel was answered
        self.batches: list[str] = []
        self.failure: BaseException | None = None
        self._record = home / "record"
        self._random = random.Random(seed)
        self._socket = socket
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="load")
        self._count = 0

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()
        self._thread.join(60)
        assert not self._thread.is_alive()
        if self.failure is not None:
            raise self.failure

    def _run(self) -> None:
        try:
            while not self._stop.is_set():
                self._submit()
                if self._random.random() < 0.3:
                    self._cancel()
                self._stop.wait(0.05)
                while not self._stop.is_set() and self._open() > MOST_OPEN:
                    self._stop.wait(0.1)
        except BaseException as error:
            self.failure = error

    def _submit(self) -> None:
        self._count += 1
        names = [f"b{self._count}.n{index}" for index in range(self._random.randint(2, 8))]
        tasks: dict[str, Any] = {}
        for index, name in enumerate(names):
            deps = [other for other in names[:index] if self._random.random() < 0.4]
            self.deps[name] = tuple(deps)
            seconds = f"{self._random.choice(SECONDS):.3f}"
            command = ["/bin/sh", str(graphs.STEP), str(self._record), name, seconds]
            tasks[name] = {"command": command, "deps": deps, "priority": self._random.randint(-1, 1)}
        retry = {"max_attempts": 1000, "base_delay": 0.01, "max_delay": 0.1}
        spec = {"name": "load", "defaults": {"retry": retry}, "tasks": tasks}
        answer = self._until_answered(lambda client: client.submit(spec, key=f"submit-{self._count}"))
        assert len(answer["ids"]) == len(names)
        self.acknowledged.update(zip(names, answer["ids"], strict=True))
        self.batches.append(answer["batch"])

    def _cancel(self) -> None:
        name = self._random.choice(list(self.acknowledged)[-12:])
        task_id = self.acknowledged[name]
        answer = self._until_answered(lambda client: client.cancel([task_id], key=f"cancel-{self._count}"))
        if answer["results"][0]["ok"]:
            self.cancelled[name] = time.time()

    def _open(self) -> int:
        counts = self._until_answered(lambda client: client.status())["counts"]
        return int(sum(counts.get(status, 0) for status in ("pending", "ready", "running")))

    def _until_answered(self, ask: Any) -> Any:
        """The answer, however many daemons it takes; the key makes repeating harmless."""
        deadline = time.monotonic() + 90
        while True:
            try:
                with Client(self._socket, timeout=20) as client:
                    return ask(client)
            except ProblemError:
                raise
            except ClientError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.02)


def judge(home: Path, daemon: Any, load: Load) -> None:
    """Compare the record, the rows and the answers. Raises AssertionError with every violation."""
    database = daemon.state_dir / "schedd.db"
    report = check_database(database)
    assert report.count(ERROR) == 0, report
    rows = real.read_rows(database)
    with sqlite3.connect(f"file:{database}?mode=ro", uri=True) as connection:
        tasks = {
            task_id.rpartition("/")[2]: (task_id, status)
            for task_id, status in connection.execute("select id, status from task")
        }
    connection.close()
    missing = [name for name, task_id in load.acknowledged.items() if tasks.get(name, ("",))[0] != task_id]
    assert not missing, f"acknowledged and gone: {missing}"
    half = [name for name in load.deps if (name in tasks) != (name.split(".")[0] + ".n0" in tasks)]
    assert not half, f"batches that are half there: {half}"
    kept = {name for name, (_, status) in tasks.items() if status == "succeeded"}
    doomed = set(load.cancelled)
    for name in load.deps:  # in the order of submission: parents first
        if set(load.deps[name]) & doomed:
            doomed.add(name)
    lost = [(name, tasks[name]) for name in tasks if name not in kept and name not in doomed]
    assert not lost, f"neither succeeded nor cancelled: {lost}"
    for name, at in load.cancelled.items():
        assert tasks[name][1] == "cancelled", f"{name} was cancelled and is {tasks[name]}"
        again = [row for row in rows if row.name == name and row.started_at > at]
        assert not again, f"started again after its cancel was answered: {again}"
    lines = (home / "record").read_text().splitlines(keepends=True)
    text = "".join(line for line in lines if line.startswith("kill ") or line.split(" ")[1] in kept)
    deps = {name: load.deps[name] for name in kept}
    verdict = judging.judge(text, deps, [row for row in rows if row.name in kept], WORKERS)
    assert verdict.violations == []
    started = {(name, int(number)) for word, name, number, *_ in map(str.split, lines) if word == "start"}
    unknown = started - {(row.name, row.number) for row in rows}
    assert not unknown, f"ran without an attempt row: {unknown}"
    early = {name for name, _ in started if not kept.issuperset(load.deps[name])}
    assert not early, f"started although what it depends on was cancelled: {early}"
    assert real.survivors(home / "record") == [], "processes outlived the daemon's stop"


def test_no_kill_loses_or_repeats_anything():
    """No task lost, none half there, none overlapping, no edge broken, no cancelled task started again."""
    seed = int(os.environ.get("SCHEDD_CRASH_SEED", "0")) or random.SystemRandom().randrange(1, 2**32)
    rng = random.Random(seed)
    with real.short_home() as home:
        record = real.Record(home / "record")
        daemon = real.Daemon(home, WORKERS)
        load = Load(home, daemon.socket, seed)
        try:
            daemon.start()
            load.start()
            for number in range(1, KILLS + 1):
                if rng.random() < 0.4:  # amid the start, and the recovery from the kill before
                    time.sleep(rng.uniform(0.0, 0.7))
                else:  # amid work, however long the start takes on a busy machine
                    daemon.wait_listening()
                    time.sleep(rng.uniform(0.1, 1.3))
                daemon.kill()
                record.note_kill(number, daemon.pid)
                daemon.start()
            load.stop()
            daemon.wait_listening()
            with Client(daemon.socket) as client:
                assert client.wait(load.batches, timeout=120)["done"], "not everything ended"
            daemon.stop()
            assert len(load.acknowledged) > KILLS, "the load did hardly anything: the test proves nothing"
            judge(home, daemon, load)
            tally.add(kills=KILLS)
        except BaseException as error:
            error.add_note(f"seed {seed}; the daemon's log ends with:\n{daemon.story()}")
            raise
        finally:
            load._stop.set()
            daemon.end()
            for pid in real.survivors(home / "record"):
                os.kill(pid, 9)
