"""The main job on real input: workflow graphs through a real daemon that is killed three times on the way.

For each graph: start `schedd` on a fresh state directory, submit the graph's spec with `schedctl submit`, kill the
daemon with SIGKILL at random moments and start it again each time, wait until all is done, stop it with SIGTERM, and
let judge.py decide from the record that the tasks wrote. Exits 1 if any promise was broken.

The moments are numbers of ended tasks (so that every run has its kills, however slow the machine) plus a random part
of a second (so that a kill may fall anywhere in the life of a task or of the daemon, its recovery included).

    python bench/real.py --seed 7 --graphs DIR [NAME...]
"""

import argparse
import json
import os
import random
import shutil
import signal
import socket
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from graphs import Graph, load, scaled, to_spec
from judge import Row, Verdict, judge

GRAPHS = Path(__file__).resolve().parents[2] / "shared" / "workloads" / "graphs"
NAMES = (
    "wf_1000genome-chameleon-22ch-250k-001",
    "wf_montage-chameleon-2mass-025d-001",
    "wf_bwa-chameleon-large-001",
)
WORKERS = 4
KILLS = 3
FIRST_KILL, LAST_KILL = 0.03, 0.85
"""The share of ended tasks between which the kills fall: late enough to have begun, early enough to be amid work."""

MAX_KILL_DELAY_S = 0.25
START_PATIENCE_S = 60.0
POLL_S = 0.005
SHOWN_VIOLATIONS = 20


class RunFailed(Exception):
    """The run could not be carried out, so there is nothing to judge."""


class Daemon:
    """A `schedd` child process on a state directory, that can be killed and started again."""

    def __init__(self, home: Path, workers: int) -> None:
        self.state_dir = home / "state"
        self.socket = home / "s"
        self.pid = 0
        self._log = home / "schedd.log"
        self._workers = workers
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it. Does not wait until it listens: see `wait_listening`."""
        command = [script("schedd"), "--state-dir", str(self.state_dir), "--socket", str(self.socket)]
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                [*command, "--workers", str(self._workers)], stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )
        self.pid = self._process.pid

    def kill(self) -> None:
        """SIGKILL, and wait until it is dead."""
        assert self._process is not None
        self._process.kill()
        if self._process.wait() != -signal.SIGKILL:
            raise RunFailed(f"the daemon had ended by itself, with {self._process.returncode}: {self.story()}")

    def stop(self, timeout_s: float = 60.0) -> None:
        """SIGTERM, and wait until it is gone. Raises RunFailed unless it exits with 0."""
        assert self._process is not None
        self._process.terminate()
        code = self._process.wait(timeout_s)
        if code != 0:
            raise RunFailed(f"the daemon exited with {code}: {self.story()}")

    def end(self) -> None:
        """Leave no process behind, whatever happened before."""
        if self._process is not None and self._process.poll() is None:
            self._process.kill()
            self._process.wait()

    def wait_listening(self) -> None:
        """Until something answers on the socket. Raises RunFailed if the daemon dies or takes too long."""
        _until(self._listens, START_PATIENCE_S, "the daemon does not listen", self.check)

    def check(self) -> None:
        """Raises RunFailed if the daemon has ended by itself."""
        if self._process is not None and self._process.poll() is not None:
            raise RunFailed(f"the daemon ended by itself, with {self._process.returncode}: {self.story()}")

    def ctl(self, *arguments: str, timeout_s: float = 60.0) -> str:
        """What `schedctl` prints. Raises RunFailed if it exits with anything but 0."""
        command = [script("schedctl"), *arguments]
        environment = {**os.environ, "SCHEDD_SOCKET": str(self.socket)}
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=timeout_s, check=False)
        if done.returncode != 0:
            raise RunFailed(f"{' '.join(command)} exited with {done.returncode}: {done.stderr.strip()}")
        return done.stdout

    def story(self) -> str:
        """The end of the daemon's log."""
        return self._log.read_text(errors="replace")[-2000:] if self._log.exists() else "(no log)"

    def _listens(self) -> bool:
        with socket.socket(socket.AF_UNIX) as client:
            try:
                client.connect(str(self.socket))
            except OSError:
                return False
        return True


class Record:
    """The file that the tasks append to, as it grows."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.ended = 0
        self._offset = 0
        path.touch()

    def poll(self) -> int:
        """How many ends have been written by now."""
        with self.path.open("rb") as file:
            file.seek(self._offset)
            new = file.read()
        whole = new[: new.rfind(b"\n") + 1]
        self._offset += len(whole)
        self.ended += sum(line.startswith(b"end ") for line in whole.splitlines())
        return self.ended

    def wait_for(self, ended: int, patience_s: float, check: Callable[[], None]) -> None:
        """Until `ended` ends are written. Raises RunFailed, or what `check` raises meanwhile."""
        _until(lambda: self.poll() >= ended, patience_s, f"{ended} tasks have not ended", check)

    def note_kill(self, number: int, pid: int) -> None:
        """Write that the daemon is dead, as the tasks write: one write at the end of the file, synced."""
        descriptor = os.open(self.path, os.O_WRONLY | os.O_APPEND)
        try:
            os.write(descriptor, f"kill daemon {number} {pid} {time.time():.9f}\n".encode())
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def run_graph(graph: Graph, home: Path, rng: random.Random, workers: int = WORKERS, kills: int = KILLS) -> Verdict:
    """Run a graph in the directory `home` (short, empty) and judge it. Raises RunFailed."""
    record = Record(home / "record")
    spec = home / "spec.json"
    spec.write_text(json.dumps(to_spec(graph, record.path)))
    patience_s = 120.0 + 10 * sum(node.seconds for node in graph.nodes) / workers
    daemon = Daemon(home, workers)
    try:
        daemon.start()
        daemon.wait_listening()
        batch = daemon.ctl("submit", str(spec)).strip()
        for number, (ended, delay_s) in enumerate(kill_plan(len(graph.nodes), kills, rng), 1):
            record.wait_for(ended, patience_s, daemon.check)
            time.sleep(delay_s)
            daemon.kill()
            record.note_kill(number, daemon.pid)
            daemon.start()
        daemon.wait_listening()
        daemon.ctl("wait", batch, timeout_s=patience_s)
        daemon.stop()
        left = survivors(record.path)
        verdict = judge(record.path.read_text(), graph.deps, read_rows(daemon.state_dir / "schedd.db"), workers)
        verdict.violations.extend(f"process {pid} of a task outlived the daemon's stop" for pid in left)
        return verdict
    finally:
        daemon.end()
        for pid in survivors(record.path):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


def kill_plan(tasks: int, kills: int, rng: random.Random) -> list[tuple[int, float]]:
    """When to kill: after how many ended tasks, and how many seconds after that. In order."""
    first, last = max(1, int(tasks * FIRST_KILL)), max(1, int(tasks * LAST_KILL))
    return sorted((rng.randint(first, last), rng.uniform(0.0, MAX_KILL_DELAY_S)) for _ in range(kills))


def read_rows(database: Path) -> list[Row]:
    """Every attempt row of a daemon that is down."""
    connection = sqlite3.connect(f"file:{database}?mode=ro", uri=True)
    try:
        rows = connection.execute(
            "SELECT task.id, attempt.number, attempt.outcome, attempt.started_at"
            " FROM attempt JOIN task ON task.seq = attempt.task_seq"
        ).fetchall()
    finally:
        connection.close()
    return [Row(task_id.rpartition("/")[2], number, outcome, at) for task_id, number, outcome, at in rows]


def survivors(record: Path) -> list[int]:
    """The processes of tasks that are still there: those that have the record on their command line."""
    found = []
    needle = os.fsencode(record)
    for entry in Path("/proc").iterdir():
        if not entry.name.isdecimal():
            continue
        try:
            command = (entry / "cmdline").read_bytes().split(b"\0")
        except OSError:  # it is gone, or somebody else's
            continue
        if needle in command:
            found.append(int(entry.name))
    return found


def script(name: str) -> str:
    """The path of a console script: beside this interpreter, else on PATH. Raises RunFailed."""
    beside = Path(sys.executable).parent / name
    found = str(beside) if beside.exists() else shutil.which(name)
    if found is None:
        raise RunFailed(f"{name} is not installed; `make real` installs it into .venv")
    return found


@contextmanager
def short_home(keep_on_error: bool = True) -> Iterator[Path]:
    """A directory with a path short enough for a socket; kept (and said so) if the run failed."""
    home = Path(tempfile.mkdtemp(prefix="schedd-real-"))
    try:
        yield home
    except BaseException:
        if keep_on_error:
            print(f"what is left of the run is in {home}", file=sys.stderr)
        raise
    shutil.rmtree(home, ignore_errors=True)


def report(name: str, verdict: Verdict) -> str:
    """One line on a run, and one for each of the first violations."""
    line = (
        f"{name}: {verdict.tasks} tasks, {verdict.kills} kills, {verdict.attempts} attempts,"
        f" {verdict.crashed} crashed, makespan {verdict.makespan_s:.1f} s, {len(verdict.violations)} violations"
    )
    shown = verdict.violations[:SHOWN_VIOLATIONS]
    left_out = len(verdict.violations) - len(shown)
    more = [f"  ... and {left_out} more"] if left_out else []
    return "\n".join([line, *(f"  {violation}" for violation in shown), *more])


def main(argv: Sequence[str] | None = None) -> int:
    """The command `make real`; 0 if every graph was run as promised."""
    arguments = _parse(argv)
    seed = arguments.seed if arguments.seed is not None else random.SystemRandom().randrange(2**32)
    print(f"seed {seed} (repeat with --seed {seed})", flush=True)
    broken = 0
    for name in arguments.names or NAMES:
        path = arguments.graphs / f"{name}.json.gz"
        if not path.exists():
            print(f"there is no graph {path}; name the directory with --graphs", file=sys.stderr)
            return 2
        graph = scaled(load(path), arguments.seconds, arguments.workers)
        rng = random.Random(f"{seed} {name}")
        try:
            with short_home() as home:
                verdict = run_graph(graph, home, rng, arguments.workers, arguments.kills)
                print(report(name, verdict), flush=True)
                if verdict.violations:
                    raise RunFailed("promises were broken")
        except RunFailed as failure:
            print(f"{name}: {failure}", file=sys.stderr, flush=True)
            broken += 1
    return 1 if broken else 0


def _parse(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Run real graphs through a daemon that is killed on the way.")
    parser.add_argument("names", nargs="*", metavar="NAME", help="graphs, without .json.gz (default: the three)")
    parser.add_argument("--seed", type=int, help="of the moments of the kills (default: random, printed)")
    parser.add_argument("--seconds", type=float, default=25.0, help="of an ideal run of each graph (default 25)")
    parser.add_argument("--workers", type=int, default=WORKERS)
    parser.add_argument("--kills", type=int, default=KILLS)
    parser.add_argument("--graphs", type=Path, default=GRAPHS, metavar="DIR", help="where the graph files are")
    return parser.parse_args(argv)


def _until(truth: Callable[[], bool], patience_s: float, complaint: str, check: Callable[[], None]) -> None:
    """Poll until `truth()`; `check()` may raise meanwhile. Raises RunFailed with the complaint if it takes too long."""
    deadline = time.monotonic() + patience_s
    while not truth():
        check()
        if time.monotonic() > deadline:
            raise RunFailed(f"{complaint} after {patience_s:.0f} seconds")
        time.sleep(POLL_S)


if __name__ == "__main__":
    sys.exit(main())
