"""`schedctl prune` against a real daemon."""

import json
from typing import Any

import pytest

pytestmark = pytest.mark.real


def test_what_has_ended_goes(daemon: Any, ctl: Any) -> None:
    """Rows and logs, when told to; what is too young stays, and a dry run changes nothing."""
    ctl.file("b.yaml", "name: b\ntasks:\n  x: {run: echo hello}\n  y: {run: echo there, deps: [x]}\n")
    ctl("submit", "--wait", "b.yaml")
    ctl("submit", "--id", "waits", "--delay", "1h", "--", "true")
    assert ctl("prune", "--older-than", "1h").out == "0\n"
    ran = ctl("prune", "--older-than", "0s", "--dry-run")
    assert (ran.code, ran.out) == (0, "2\n")
    assert "would be" in ran.err
    logs = list((daemon.state_dir / "logs").rglob("*.log"))
    assert len(logs) == 2
    ran = ctl("prune", "--older-than", "0s", "--json")
    assert (ran.code, json.loads(ran.out)["tasks"]) == (0, 2)
    assert list((daemon.state_dir / "logs").rglob("*.log")) == []
    assert [task["id"] for task in json.loads(ctl("list", "--json").out)] == ["waits"]
    assert ctl("check", "--state-dir", str(daemon.state_dir)).code == 0


def test_an_age_is_needed(shared_ctl: Any) -> None:
    """History is never removed by a slip."""
    ran = shared_ctl("prune")
    assert (ran.code, ran.out) == (2, "")
    assert "--older-than" in ran.err
    ran = shared_ctl("prune", "--older-than", "yesterday")
    assert (ran.code, ran.out) == (2, "")
