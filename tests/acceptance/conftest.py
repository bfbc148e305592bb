"""A real daemon, and `schedctl` as people use it: processes, a socket, a state directory."""

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO, NamedTuple

import pytest

from schedd.client import Client, ClientError

PATIENCE_S = 30.0
POLL_S = 0.02


class Ran(NamedTuple):
    """How a use of `schedctl` ended."""

    code: int
    out: str
    err: str


class Ctl:
    """Runs `schedctl` in a directory of its own: `ctl("status", "a")`."""

    def __init__(self, home: Path, environment: Mapping[str, str]) -> None:
        self.home = home
        self.environment = {
            name: value for name, value in os.environ.items() if not name.startswith(("SCHEDD_", "XDG_"))
        } | dict(environment)

    def __call__(self, *arguments: str, stdin: str | None = None, **environment: str) -> Ran:
        """Run it to its end."""
        done = subprocess.run(
            self.command(*arguments),
            cwd=self.home,
            env=self.environment | environment,
            input=stdin if stdin is not None else "",
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
            check=False,
        )
        return Ran(done.returncode, done.stdout, done.stderr)

    def start(self, *arguments: str) -> "subprocess.Popen[str]":
        """Start it and go on."""
        return subprocess.Popen(
            self.command(*arguments),
            cwd=self.home,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def file(self, name: str, text: str) -> str:
        """Write a file where `schedctl` runs; its name."""
        (self.home / name).write_text(text)
        return name

    @staticmethod
    def command(*arguments: str) -> list[str]:
        """The command line."""
        return [sys.executable, "-c", "from schedd.cli.app import main; main()", *arguments]


class Daemon:
    """A `schedd` on a state directory, that can be stopped and started again."""

    def __init__(self, home: Path, workers: int = 2) -> None:
        self.home = home
        self.state_dir = home / "state"
        self.socket = home / "s"
        self.client = Client(self.socket)
        self._workers = workers
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it, and wait until it answers."""
        self._process = self.spawn(self.home / "schedd.log")
        deadline = time.monotonic() + PATIENCE_S
        while not self._answers():
            if self._process.poll() is not None or time.monotonic() >= deadline:
                pytest.fail(f"the daemon does not answer: {self.story()}")
            time.sleep(POLL_S)

    def spawn(self, log: Path) -> "subprocess.Popen[bytes]":
        """A `schedd` process on this state directory and socket."""
        arguments = ["--state-dir", str(self.state_dir), "--socket", str(self.socket), "--workers", str(self._workers)]
        file: IO[bytes]
        with log.open("ab") as file:
            return subprocess.Popen(
                [sys.executable, "-m", "schedd.service", *arguments],
                cwd="/",
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=file,
            )

    def kill(self) -> None:
        """SIGKILL, as by a power cut."""
        self._end(signal.SIGKILL)

    def stop(self) -> None:
        """SIGTERM, and wait until it is gone."""
        self._end(signal.SIGTERM)

    def story(self) -> str:
        """The end of its log."""
        return (self.home / "schedd.log").read_text(errors="replace")[-3000:]

    def close(self) -> None:
        """Leave nothing behind."""
        self.client.close()
        if self._process is not None and self._process.poll() is None:
            self._process.terminate()
            try:
                self._process.wait(5)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()

    def _end(self, number: signal.Signals) -> None:
        assert self._process is not None
        self.client.close()
        self._process.send_signal(number)
        self._process.wait(PATIENCE_S)

    def _answers(self) -> bool:
        try:
            return self.client.health()["ready"]
        except ClientError:
            return False


@contextmanager
def new_home() -> Iterator[Path]:
    """A directory with a path short enough for a socket in it."""
    made = Path(tempfile.mkdtemp(prefix="schedd-", dir="/tmp"))
    try:
        yield made
    finally:
        shutil.rmtree(made, ignore_errors=True)


@contextmanager
def running(home: Path) -> Iterator[Daemon]:
    """A daemon that answers, with two workers."""
    made = Daemon(home)
    try:
        made.start()
        yield made
    finally:
        made.close()


def ctl_of(home: Path) -> Ctl:
    """`schedctl` for the daemon in `home`, if there is one."""
    work = home / "work"
    work.mkdir()
    return Ctl(work, {"SCHEDD_SOCKET": str(home / "s"), "LC_ALL": "C.UTF-8"})


@pytest.fixture
def home() -> Iterator[Path]:
    """A directory of this test."""
    with new_home() as made:
        yield made


@pytest.fixture
def daemon(home: Path) -> Iterator[Daemon]:
    """The daemon of this test."""
    with running(home) as made:
        yield made


@pytest.fixture
def ctl(home: Path) -> Ctl:
    """`schedctl` for the daemon of this test, if it has one."""
    return ctl_of(home)


@pytest.fixture(scope="module")
def shared_ctl() -> Iterator[Ctl]:
    """`schedctl` for a daemon that the tests of a module share: they leave it as they found it."""
    with new_home() as home, running(home):
        yield ctl_of(home)
