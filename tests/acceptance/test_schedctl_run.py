"""`schedctl run`: the engine in the foreground, without a daemon."""

import json
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.real

GOOD = """\
name: ci
tasks:
  build: {run: pwd > out}
  test: {deps: [build], run: "[ $SCHEDD_ATTEMPT = 2 ]", retry: {max_attempts: 2, base_delay: 10ms}}
  ship: {deps: [test], command: [cat, out]}
"""


@pytest.fixture
def scratch(ctl: Any) -> Path:
    """Where temporary directories are made, to see what is left of them."""
    made = Path(ctl.home).parent / "tmp"
    made.mkdir()
    ctl.environment["TMPDIR"] = str(made)
    return made


def test_a_graph_that_succeeds(ctl: Any, scratch: Path) -> None:
    """A line for each end, in order; exit code 0; nothing is left but what the tasks made."""
    ran = ctl("run", ctl.file("ci.yaml", GOOD))
    assert (ran.code, ran.err) == (0, "")
    told = [line.split(" after ")[0] for line in ran.out.splitlines() if line]
    assert told == [
        "build succeeded",
        "test is tried again in 0.01s: exited with code 1",
        "test succeeded",
        "ship succeeded",
        "3 succeeded",
    ]
    assert (Path(ctl.home) / "out").read_text() == f"{ctl.home}\n"
    assert [*scratch.iterdir()] == []


def test_a_graph_that_fails(ctl: Any, scratch: Path) -> None:
    """Exit code 1, and the last words of what failed."""
    text = "tasks:\n  a: {run: 'seq 100; echo the reason; exit 3'}\n  b: {deps: [a], run: x}\n  c: {run: 'true'}\n"
    ran = ctl("run", "--workers", "1", ctl.file("bad.yaml", text))
    assert (ran.code, ran.err) == (1, "")
    assert "\na, the end of its log:\n" in ran.out
    assert "  100\n  the reason\n" in ran.out
    assert "  80\n" not in ran.out
    assert ran.out.endswith("\n1 succeeded, 1 failed, 1 skipped\n")


def test_a_bad_file_runs_nothing(ctl: Any, scratch: Path) -> None:
    """It is wrong use, with the line; no state is made."""
    ran = ctl("run", ctl.file("bad.yaml", "tasks:\n  a: {run: touch made}\n  b: {rum: x}\n"))
    assert (ran.code, ran.out) == (2, "")
    assert ran.err.startswith("bad.yaml:3: tasks.b")
    assert not (Path(ctl.home) / "made").exists()
    assert [*scratch.iterdir()] == []


def test_a_dependency_outside_of_the_file_is_refused(ctl: Any, scratch: Path) -> None:
    """There is nothing else that it could mean."""
    ran = ctl("run", ctl.file("bad.yaml", "tasks:\n  a: {run: x, deps: [other]}\n"))
    assert (ran.code, ran.out) == (2, "")
    assert "'other'" in ran.err
    assert [*scratch.iterdir()] == []


def test_the_state_is_kept_where_it_is_asked_for(ctl: Any, scratch: Path) -> None:
    """A second run goes on counting."""
    ctl.file("ci.yaml", "name: ci\ntasks: {a: {run: 'true'}}\n")
    assert ctl("run", "--state-dir", "state", "ci.yaml").code == 0
    assert ctl("run", "--state-dir", "state", "ci.yaml").code == 0
    assert (Path(ctl.home) / "state" / "schedd.db").exists()
    ran = ctl("run", "--keep", "ci.yaml")
    kept = ran.err.removeprefix("schedctl: the state is kept in ").strip()
    assert (ran.code, os.path.isdir(kept), Path(kept).parent) == (0, True, scratch)


def test_a_directory_in_use_is_refused(daemon: Any, ctl: Any) -> None:
    """By a daemon, or by another run."""
    ran = ctl("run", "--state-dir", str(daemon.state_dir), ctl.file("ci.yaml", "tasks: {a: {run: 'true'}}\n"))
    assert (ran.code, ran.out) == (2, "")
    assert str(daemon.state_dir) in ran.err


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_cancels_what_runs(
    ctl: Any, scratch: Path, eventually: Callable[..., None], number: signal.Signals, code: int
) -> None:
    """The processes get their chance to end, what waits never starts, and no state is left."""
    begun, cleaned, started = (Path(ctl.home) / name for name in ("begun", "cleaned", "started"))
    spec = {
        "tasks": {
            "a": {"run": f"trap 'touch {cleaned}; exit' TERM; touch {begun}; while :; do sleep 0.05; done"},
            "b": {"deps": [{"task": "a", "when": "finished"}], "run": f"touch {started}"},
        }
    }
    process = ctl.start("run", ctl.file("long.json", json.dumps(spec)))
    eventually(begun.exists, 20)
    process.send_signal(number)
    out, err = process.communicate(timeout=30)
    assert (process.returncode, err) == (code, "schedctl: stopping what runs; once more kills it\n")
    assert cleaned.exists()
    assert not started.exists()
    assert out.endswith("\n2 cancelled\n")
    assert [*scratch.iterdir()] == []


def test_a_second_signal_kills(ctl: Any, scratch: Path, eventually: Callable[..., None]) -> None:
    """Whatever the task does about the first one, and however long its grace is."""
    begun = Path(ctl.home) / "begun"
    spec = {"tasks": {"a": {"run": f"trap '' TERM; echo $$ > {begun}; while :; do sleep 0.05; done", "grace": "1h"}}}
    process = ctl.start("run", ctl.file("long.json", json.dumps(spec)))
    eventually(lambda: begun.exists() and begun.read_text().endswith("\n"), 20)
    pid = int(begun.read_text())
    process.send_signal(signal.SIGINT)
    assert "once more kills it" in process.stderr.readline()
    eventually(lambda: _send(process, signal.SIGINT), 30)
    process.communicate(timeout=30)
    assert process.returncode == 130
    eventually(lambda: not Path(f"/proc/{pid}").exists(), 10)
    assert [*scratch.iterdir()] == []


def _send(process: Any, number: signal.Signals) -> bool:
    """Whether the process is gone; if not, it gets a signal."""
    if process.poll() is None:
        process.send_signal(number)
    return process.poll() is not None
