"""`schedctl retry` against a real daemon that is killed right after its answer."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.real


def statuses(ctl: Any) -> dict[str, str]:
    return {task["id"].split("/")[1]: task["status"] for task in json.loads(ctl("list", "--all", "--json").out)}


def test_what_failed_runs_again_with_what_hung_on_it(
    daemon: Any, ctl: Any, tmp_path: Path, eventually: Callable[..., None]
) -> None:
    """The history stays, the handler of the failure runs once, and `kill -9` after the answer loses nothing."""
    mended = tmp_path / "mended"
    ctl.file(
        "ci.yaml",
        "name: ci\ndefaults: {retry: {max_attempts: 3, base_delay: 50ms}}\ntasks:\n"  # the kill may cost one
        f"  build: {{run: 'test -e {mended}'}}\n"
        "  test: {run: 'true', deps: [build]}\n"
        "  deploy: {run: 'true', deps: [test]}\n"
        "  tell: {run: 'true', deps: [{task: build, when: failed}]}\n",
    )
    assert ctl("submit", "--wait", "ci.yaml").code == 1
    assert statuses(ctl) == {"build": "failed", "test": "skipped", "deploy": "skipped", "tell": "succeeded"}
    ran = ctl("retry", "ci-1/test")
    assert (ran.code, ran.out) == (4, "")
    assert "retry ci-1/build" in ran.err
    ran = ctl("retry", "--failed", "--dry-run", "ci-1")
    assert (ran.code, ran.out) == (0, "ci-1/build\nci-1/test\nci-1/deploy\n")
    assert statuses(ctl)["build"] == "failed"
    mended.touch()
    assert ctl("retry", "ci-1/build").out == "ci-1/build\nci-1/test\nci-1/deploy\n"
    daemon.kill()
    daemon.start()
    eventually(lambda: set(statuses(ctl).values()) == {"succeeded"}, 30)
    history = json.loads(ctl("status", "ci-1/build", "--json").out)[0]["history"]
    assert [attempt["outcome"] for attempt in history][:3] == ["failed", "failed", "failed"]
    assert history[-1]["outcome"] == "succeeded"
    assert [attempt["number"] for attempt in history] == list(range(1, len(history) + 1))
    assert ctl("check", "--state-dir", str(daemon.state_dir)).code == 0


def test_a_dependency_is_taken_away(daemon: Any, ctl: Any) -> None:
    """What waited starts."""
    ctl("submit", "--id", "first", "--delay", "1h", "--", "true")
    ctl("submit", "--id", "then", "--after", "first", "--", "true")
    ran = ctl("depend", "--remove", "first", "then")
    assert (ran.code, ran.out, ran.err) == (0, "", "schedctl: then waits no longer for first\n")
    assert ctl("wait", "then").code == 0
    ran = ctl("depend", "--remove", "first", "then")
    assert (ran.code, "already" in ran.err) == (0, False) or ran.code == 4
