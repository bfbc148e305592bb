"""Finer retries and limits in time, on a real daemon."""

import json
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.real

MODULE = """
class Gone(ConnectionError):
    pass

def gone():
    raise Gone("no route")

def wrong():
    raise ValueError("no such column")
"""


def history_of(ctl: Any, task_id: str) -> list[str]:
    task = json.loads(ctl("status", task_id, "--json").out)[0]
    return [attempt["outcome"] for attempt in task["history"]]


def task_of(ctl: Any, task_id: str) -> dict[str, Any]:
    task: dict[str, Any] = json.loads(ctl("status", task_id, "--json").out)[0]
    return task


def test_exit_codes_decide_what_is_tried_again(daemon: Any, ctl: Any) -> None:
    """Those that are, those that are not, and a signal."""
    retry = ("--max-attempts", "3", "--base-delay", "10ms")
    ctl("submit", "--id", "again", *retry, "--retry-on-exit", "75", "-c", "exit 75")
    ctl("submit", "--id", "other", *retry, "--retry-on-exit", "75", "-c", "exit 1")
    ctl("submit", "--id", "never", *retry, "--no-retry-on-exit", "2", "-c", "exit 2")
    ctl("submit", "--id", "signal", *retry, "--no-retry-on-exit", "2", "-c", "kill -9 $$")
    ctl("wait", "again", "other", "never", "signal")
    assert {name: len(history_of(ctl, name)) for name in ("again", "other", "never", "signal")} == {
        "again": 3, "other": 1, "never": 1, "signal": 3,
    }  # fmt: skip


@pytest.mark.parametrize("isolation", ["process", "thread"])
def test_exceptions_decide_what_is_tried_again(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, ctl: Any, tmp_path: Path, isolation: str
) -> None:
    """By their classes and those that they are derived from, wherever the function runs."""
    (tmp_path / "shop.py").write_text(MODULE)
    retry = {"max_attempts": 2, "base_delay": 0, "on_exceptions": ["OSError", "shop.Nothing"]}
    where = {"isolation": isolation} if isolation == "thread" else {"env": {"PYTHONPATH": str(tmp_path)}}
    spec = {"tasks": {name: {"call": f"shop:{name}", "retry": retry, **where} for name in ("gone", "wrong")}}
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    request.getfixturevalue("daemon")  # with that in its environment
    ctl.file("spec.json", json.dumps(spec))
    assert ctl("submit", "--wait", "spec.json").code == 1
    assert (len(history_of(ctl, "gone")), len(history_of(ctl, "wrong"))) == (2, 1)
    assert "no route" in task_of(ctl, "gone")["error"]


def test_a_deadline_ends_what_runs(daemon: Any, ctl: Any) -> None:
    """It is stopped as by a timeout, and not tried again."""
    ctl(
        "submit", "--id", "slow", "--deadline", "500ms", "--max-attempts", "5", "--base-delay", "0", "--", "sleep", "60"
    )
    assert ctl("wait", "slow").code == 1
    assert history_of(ctl, "slow") == ["timed_out"]
    assert task_of(ctl, "slow")["error"].startswith("its deadline has passed")


def test_what_waits_too_long_is_skipped_or_fails(daemon: Any, ctl: Any) -> None:
    """Each with its reason."""
    ctl("submit", "--id", "late", "--delay", "1h", "--start-before", "200ms", "--", "true")
    ctl("submit", "--id", "due", "--delay", "1h", "--deadline", "200ms", "--", "true")
    ctl("wait", "late", "due")
    assert (task_of(ctl, "late")["status"], task_of(ctl, "due")["status"]) == ("skipped", "failed")
    assert task_of(ctl, "late")["error"] == "skipped because it could not start in time"


def test_a_deadline_is_kept_over_a_crash(daemon: Any, ctl: Any) -> None:
    """What passed while the daemon was down is noticed at its start."""
    ctl("submit", "--id", "due", "--delay", "1h", "--deadline", "300ms", "--", "true")
    daemon.kill()
    daemon.start()
    assert ctl("wait", "due").code == 1
    assert task_of(ctl, "due")["error"] == "its deadline has passed"
