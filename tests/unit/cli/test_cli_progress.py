"""What `run` shows."""

from pathlib import Path
from typing import Any

import pytest

from schedd.cli import progress
from schedd.cli.progress import Board
from schedd.cli.render import Screen
from schedd.core.events import AttemptEnded, Logged
from schedd.core.model import Outcome


def event(kind: str, task_id: str | None = "ci-1/a", at: float = 0.0, **detail: Any) -> Logged:
    return Logged(at, 1, task_id, kind, detail or None)


def ended(task_id: str = "ci-1/a", number: int = 1, duration: float = 1.5) -> AttemptEnded:
    return AttemptEnded(1, number, Outcome.FAILED, 0.0, duration=duration, task_id=task_id)


def test_each_end_has_a_line_and_starts_have_none() -> None:
    """With how long the attempt took and why it ended; ids without the batch that they share."""
    board = Board(["ci-1/a"], "ci-1")
    assert [*board.take([event("started")], [])] == []
    assert [*board.take([event("retry", delay=0.05, error="exit code 1")], [ended()])] == [
        ("retry", "a is tried again in 0.05s: exit code 1")
    ]
    assert [*board.take([event("failed", error="exit code 1")], [ended(number=2)])] == [
        ("failed", "a failed after 1.5s: exit code 1")
    ]
    assert board.failures == {"ci-1/a": ended(number=2)}


def test_the_counts_follow_the_events() -> None:
    """Waiting, running and every end; all succeeded only when all have ended so."""
    board = Board(["a", "b", "c"])
    assert (board.counts()["waiting"], board.counts()["running"]) == (3, 0)
    assert not board.all_succeeded
    [*board.take([event("started", "a"), event("started", "b"), event("succeeded", "a")], [])]
    assert board.counts() == {"succeeded": 1, "failed": 0, "cancelled": 0, "skipped": 0, "running": 1, "waiting": 1}
    [*board.take([event("succeeded", "b"), event("skipped", "c", error="b failed")], [])]
    assert board.open == set()
    assert not board.all_succeeded


def test_other_tasks_are_not_looked_at() -> None:
    """A state directory may hold the rest of an earlier run."""
    board = Board(["a"])
    assert [*board.take([event("started", "other"), event("failed", "other"), event("paused", None)], [])] == []
    assert board.counts()["waiting"] == 1


@pytest.mark.parametrize(
    ("kind", "detail", "line"),
    [
        ("run", {"run": 2}, "a has done run 2 after 1.5s"),
        ("interrupted", {"attempt": 1}, "a interrupted after 1.5s"),
        ("cancelled", {}, "a cancelled after 1.5s"),
        ("cancel_requested", {}, None),
        ("held", {}, None),
    ],
)
def test_what_people_want_to_be_told(kind: str, detail: dict[str, Any], line: str | None) -> None:
    """Ends of attempts and of runs; not what they asked for themselves."""
    board = Board(["a"])
    [*board.take([event("started", "a")], [])]
    told = [*board.take([event(kind, "a", **detail)], [ended("a")])]
    assert told == ([(kind, line)] if line else [])
    assert ("a" in board.running) == (line is None)


def test_the_live_lines_show_what_runs_and_how_far_it_is() -> None:
    """The longest running first, no more than there is room for."""
    board = Board([f"t{index}" for index in range(30)])
    [*board.take([event("started", f"t{index}", at=float(-index)) for index in range(14)], [])]
    [*board.take([event("succeeded", f"t{index}") for index in range(2)], [])]
    lines = [*progress.live_lines(board, 10.0, Screen(120))]
    assert lines[0] == "  running  t13  23s"
    assert lines[progress.SHOWN_RUNNING] == "  and 2 more"
    assert lines[-1].endswith("2 of 30 tasks  2 succeeded, 12 running, 16 waiting")
    assert lines[-1].startswith("██░")


def test_the_tail_of_a_log_is_fit_to_be_shown(tmp_path: Path) -> None:
    """The last lines, without colours, with control characters and broken text made visible."""
    log = tmp_path / "log"
    log.write_bytes(b"one\ntwo\x1b[31m red\x1b[0m\r\n\xff\x07\tend\n")
    assert progress.tail_of(log, 2) == ["two red", "\ufffd\\x07      end"]
    log.write_bytes(b"")
    assert progress.tail_of(log, 2) == []
    assert progress.tail_of(tmp_path / "none", 2) == []


def test_only_the_end_of_a_large_log_is_read(tmp_path: Path) -> None:
    """However large it is."""
    log = tmp_path / "log"
    log.write_bytes(b"x" * 1_000_000 + b"\nlast\n")
    assert progress.tail_of(log, 1) == ["last"]
