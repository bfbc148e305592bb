"""Steering a real daemon: cancel, hold, release, depend, pause, resume."""

import json
from collections.abc import Callable
from typing import Any

import pytest

pytestmark = pytest.mark.real


def status_of(ctl: Any, task_id: str) -> str:
    """The state of a task."""
    task: dict[str, str] = json.loads(ctl("status", task_id, "--json").out)[0]
    return task["status"]


def test_cancel_ends_what_runs_and_what_waits(daemon: Any, ctl: Any, eventually: Callable[..., None]) -> None:
    """What depends on it is skipped; cancelling again is refused and changes nothing."""
    ctl("submit", "--id", "runs", "--", "sleep", "60")
    ctl("submit", "--id", "waits", "--delay", "1h", "--", "true")
    ctl("submit", "--id", "after", "--after", "waits", "--", "true")
    eventually(lambda: status_of(ctl, "runs") == "running")
    assert ctl("cancel", "runs", "waits") == (0, "runs\nwaits\n", "")
    ran = ctl("wait", "--timeout", "20s", "runs", "waits", "after")
    assert (ran.code, ran.out) == (1, "")
    assert [status_of(ctl, name) for name in ("runs", "waits", "after")] == ["cancelled", "cancelled", "skipped"]
    ran = ctl("cancel", "runs")
    assert (ran.code, ran.out) == (4, "")
    assert "already" in ran.err


def test_cancel_takes_a_whole_batch(daemon: Any, ctl: Any) -> None:
    """Every task of it that has not ended."""
    ctl.file(
        "b.yaml",
        "name: b\ndefaults: {priority: 1}\ntasks:\n  x: {run: 'true', delay: 1h}\n  y: {run: 'true', delay: 1h}\n",
    )
    ctl("submit", "b.yaml")
    assert ctl("cancel", "b-1") == (0, "b-1/x\nb-1/y\n", "")


@pytest.mark.parametrize("verb", ["cancel", "hold", "release", "status", "wait", "logs"])
def test_an_unknown_id_is_refused(shared_ctl: Any, verb: str) -> None:
    """With what to do about it."""
    ran = shared_ctl(verb, "nobody")
    assert (ran.code, ran.out) == (4, "")
    assert "'nobody'" in ran.err


def test_a_held_task_does_not_start_until_it_is_released(daemon: Any, ctl: Any) -> None:
    """The daemon is idle and leaves it alone."""
    ctl("pause")
    ctl("submit", "--id", "a", "--", "true")
    assert ctl("hold", "a") == (0, "a\n", "")
    ctl("resume")
    assert ctl("submit", "--id", "b", "--wait", "--", "true").code == 0
    assert status_of(ctl, "a") == "pending"
    assert "pending (held)" in ctl("status", "a").out
    assert ctl("release", "a") == (0, "a\n", "")
    assert ctl("wait", "a").code == 0


def test_pause_stops_the_starting_and_is_shown(daemon: Any, ctl: Any) -> None:
    """It outlives a restart."""
    assert ctl("pause").code == 0
    ctl("submit", "--id", "a", "--", "true")
    daemon.stop()
    daemon.start()
    assert "nothing starts until `schedctl resume`" in ctl("status").out
    ran = ctl("wait", "--timeout", "100ms", "a")
    assert (ran.code, ran.err) == (1, "schedctl: 1 task had not ended after 0.1s\n")
    assert ctl("resume").code == 0
    assert ctl("wait", "a").code == 0


def test_depend_lets_one_task_wait_for_another(daemon: Any, ctl: Any) -> None:
    """Twice is no change; closing a cycle is refused with its path."""
    ctl("pause")
    for name in ("a", "b", "c"):
        ctl("submit", "--id", name, "--", "true")
    assert ctl("depend", "a", "b") == (0, "", "schedctl: b now waits until a has succeeded\n")
    assert ctl("depend", "a", "b").err == "schedctl: b waited already until a has succeeded\n"
    assert ctl("depend", "--when", "finished", "b", "c").code == 0
    ran = ctl("depend", "c", "a")
    assert (ran.code, ran.out) == (4, "")
    assert "a -> c -> b -> a" in ran.err
    ctl("resume")
    assert ctl("wait", "c").code == 0
    ran = ctl("depend", "a", "c")
    assert ran.code == 4
    assert ran.err.startswith("schedctl: ")
