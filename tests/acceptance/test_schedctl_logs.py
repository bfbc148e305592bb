"""The output of tasks of a real daemon."""

import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.real


def test_bytes_come_back_as_they_were_written(daemon: Any, ctl: Any) -> None:
    """Whatever they are; both streams in one log."""
    ctl("submit", "--id", "a", "--wait", "-c", r"printf '\377\000\r\n'; printf 'no end' >&2")
    done = subprocess.run(ctl.command("logs", "a"), env=ctl.environment, capture_output=True, timeout=20, check=True)
    assert (done.stdout, done.stderr) == (b"\xff\x00\r\nno end", b"")


def test_each_attempt_has_its_log(daemon: Any, ctl: Any) -> None:
    """The last one unless told which; one that there is not is refused."""
    ctl(
        "submit",
        "--id",
        "a",
        "--max-attempts",
        "2",
        "--base-delay",
        "10ms",
        "--wait",
        "-c",
        "echo try $SCHEDD_ATTEMPT; exit 1",
    )
    assert ctl("logs", "a").out == "try 2\n"
    assert ctl("logs", "--attempt", "1", "a").out == "try 1\n"
    ran = ctl("logs", "--attempt", "9", "a")
    assert (ran.code, ran.out) == (4, "")
    assert ran.err.startswith("schedctl: ")


def test_the_last_lines(daemon: Any, ctl: Any) -> None:
    """As many as asked for."""
    ctl("submit", "--id", "a", "--wait", "--", "seq", "1000")
    assert ctl("logs", "-n", "2", "a").out == "999\n1000\n"


def test_follow_ends_with_the_attempt(daemon: Any, ctl: Any, eventually: Callable[..., None]) -> None:
    """What comes is shown as it comes, from before the start of the task on."""
    go = Path(ctl.home) / "go"
    ctl("submit", "--id", "a", "-c", f"echo one; until [ -e {go} ]; do sleep 0.05; done; echo two")
    process = ctl.start("logs", "-f", "a")
    assert process.stdout.readline() == "one\n"
    go.touch()
    out, err = process.communicate(timeout=20)
    assert (process.returncode, out) == (0, "two\n")
    assert err in ("", "schedctl: a has not been started; waiting for it\n")


def test_a_task_without_an_attempt_has_no_log(daemon: Any, ctl: Any) -> None:
    """Said on stderr."""
    ctl("submit", "--id", "a", "--delay", "1h", "--", "true")
    ran = ctl("logs", "a")
    assert (ran.code, ran.out) == (0, "")
    assert ran.err == "schedctl: a has not been started and has no log: it is pending\n"
    assert json.loads(ctl("status", "a", "--json").out)[0]["number"] == 0
