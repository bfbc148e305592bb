"""What makes life hard for a daemon's database: another process that locks it or reads from it, a small full disk.

Beside it: one raw request at a time, since the client repeats what a daemon under stress turns away.
"""

import contextlib
import http.client
import json
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest

PATIENCE_S = 60.0

LOCKING = """
import sqlite3, sys
connection = sqlite3.connect(sys.argv[1], isolation_level=None, timeout=30)
connection.execute("BEGIN IMMEDIATE")
print("locked", flush=True)
sys.stdin.read()
connection.execute("ROLLBACK")
"""
READING = """
import sqlite3, sys
connection = sqlite3.connect(sys.argv[1], isolation_level=None, timeout=30)
connection.execute("BEGIN")
connection.execute("SELECT count(*) FROM task").fetchone()
print("reading", flush=True)
sys.stdin.read()
connection.execute("ROLLBACK")
"""


class Answer(NamedTuple):
    """What a request got: `status` is 0 if the connection broke."""

    status: int
    body: Any
    took_s: float


def post(path: Path, target: str, body: object, key: str | None = None) -> Answer:
    """One POST, tried once."""
    began = time.monotonic()
    connection = http.client.HTTPConnection("localhost", timeout=PATIENCE_S)
    headers = {"Content-Type": "application/json"} | ({"Idempotency-Key": key} if key else {})
    try:
        with socket.socket(socket.AF_UNIX) as connection.sock:  # type: ignore[assignment]
            connection.sock.settimeout(PATIENCE_S)
            connection.sock.connect(str(path))
            connection.request("POST", target, json.dumps(body), headers)
            response = connection.getresponse()
            answer = Answer(response.status, json.loads(response.read()), time.monotonic() - began)
    except TimeoutError:
        pytest.fail(f"POST {target} was not answered within {PATIENCE_S:g} s")
    except (OSError, http.client.HTTPException) as error:
        answer = Answer(0, {"detail": str(error)}, time.monotonic() - began)
    return answer


def post_all(path: Path, requests: list[tuple[str, object, str | None]]) -> list[Answer]:
    """Several POSTs at once; their answers in order."""
    answers: dict[int, Answer] = {}

    def ask(index: int) -> None:
        answers[index] = post(path, *requests[index])

    threads = [threading.Thread(target=ask, args=(index,)) for index in range(len(requests))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE_S)
    assert len(answers) == len(requests), "a request was never answered"
    return [answers[index] for index in range(len(requests))]


@contextmanager
def _in_another_process(script: str, database: Path) -> Iterator[None]:
    command = [sys.executable, "-c", script, str(database)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline(), "it could not"
            yield
        finally:
            assert process.stdin is not None
            process.stdin.close()
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()


def locked(database: Path) -> contextlib.AbstractContextManager[None]:
    """Another process holds the write lock."""
    return _in_another_process(LOCKING, database)


def read_from(database: Path) -> contextlib.AbstractContextManager[None]:
    """Another process holds a snapshot."""
    return _in_another_process(READING, database)


def cpu_s(pid: int) -> float:
    """The CPU time that a process has used."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def assert_idles(pid: int, for_s: float = 2.0) -> None:
    """It uses hardly any CPU over a while."""
    before = cpu_s(pid)
    time.sleep(for_s)
    used = cpu_s(pid) - before
    assert used < for_s / 4, f"{used:.2f} s of CPU in {for_s:g} s"


class SmallDisk:
    """A tmpfs of a few megabytes and files, to fill and to empty."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._ballast = path / "ballast"
        self._ballast.touch()

    def fill(self) -> None:
        """Leave no block."""
        with self._ballast.open("ab", buffering=0) as file, contextlib.suppress(OSError):
            while True:
                file.write(b"x" * 4096)

    def fill_inodes(self) -> None:
        """Leave no room for another file."""
        with contextlib.suppress(OSError):
            for number in range(10_000):
                (self.path / f"file-{number}").touch()

    def empty(self) -> None:
        """Have room again."""
        os.truncate(self._ballast, 0)
        for path in self.path.glob("file-*"):
            path.unlink()


@contextmanager
def small_disk(path: Path, size: str = "6m", inodes: int = 64) -> Iterator[SmallDisk]:
    """Mount one at `path`; the test is skipped where that is not allowed."""
    path.mkdir(parents=True, exist_ok=True)
    if os.geteuid() != 0:
        pytest.skip("only root may mount a small disk")
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={size},nr_inodes={inodes},mode=0750", "tmpfs", str(path)],
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    if mounted.returncode != 0:
        pytest.skip(f"cannot mount a small disk here: {mounted.stderr.strip()}")
    try:
        yield SmallDisk(path)
    finally:
        subprocess.run(["umount", "-l", str(path)], timeout=PATIENCE_S, check=False)
