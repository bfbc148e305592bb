"""Looking at a real daemon: status, list, wait, events; and at none."""

import json
import re
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.real

CI = """\
name: ci
tasks:
  build: {run: echo building}
  lint: {run: exit 3, priority: 5}
  test: {deps: [build], run: echo testing}
  deploy: {deps: [test, lint], command: [echo, deploying]}
"""


@pytest.fixture(scope="module")
def ci(shared_ctl: Any) -> Any:
    """`schedctl`, after the batch ci-1 has ended."""
    assert shared_ctl("submit", "--wait", shared_ctl.file("ci.yaml", CI)).code == 1
    return shared_ctl


def without_ages(text: str) -> str:
    """`text` without what differs between two looks at the same: ages, and the columns that they move."""
    return re.sub(r"[ 0-9.ms]+", " ", text)


def test_the_overview(ci: Any) -> None:
    """Counts and what failed last; no verb is the same."""
    ran = ci("status")
    assert (ran.code, ran.err) == (0, "")
    assert "tasks    2 succeeded, 1 failed, 1 skipped" in ran.out
    assert "ci-1/lint" in ran.out
    assert without_ages(ci().out) == without_ages(ran.out)
    answer = json.loads(ci("status", "--json").out)
    assert (answer["workers"], answer["busy"], answer["state_dir"]) == (2, 0, str(ci.home.parent / "state"))


def test_one_task_in_full(ci: Any) -> None:
    """Its attempts and edges, for people and for programs."""
    out = ci("status", "ci-1/lint").out
    assert "exited with code 3" in out
    assert "ci-1/deploy" in out
    (task,) = json.loads(ci("status", "--json", "ci-1/lint").out)
    assert [(attempt["outcome"], attempt["exit_code"]) for attempt in task["history"]] == [("failed", 3)]
    assert task["work"] == {"run": "exit 3", "cwd": str(ci.home)}


def test_a_batch_with_its_tasks(ci: Any) -> None:
    """By its name."""
    lines = ci("status", "ci-1").out.splitlines()
    assert lines[:3] == ["batch      ci-1", "state      done", "tasks      2 succeeded, 1 failed, 1 skipped"]
    assert [line.split()[:2] for line in lines[-4:]] == [
        ["ci-1/build", "succeeded"],
        ["ci-1/lint", "failed"],
        ["ci-1/test", "succeeded"],
        ["ci-1/deploy", "skipped"],
    ]


@pytest.mark.parametrize(
    ("options", "ids"),
    [
        ((), ["ci-1/build", "ci-1/lint", "ci-1/test", "ci-1/deploy"]),
        (("--status", "failed", "--status", "skipped"), ["ci-1/lint", "ci-1/deploy"]),
        (("--batch", "ci-1", "--limit", "1"), ["ci-1/build"]),
        (("--batch", "ci-1", "--all"), ["ci-1/build", "ci-1/lint", "ci-1/test", "ci-1/deploy"]),
        (("--status", "running",), []),
    ],
)  # fmt: skip
def test_lists_by_what_is_asked(ci: Any, options: tuple[str, ...], ids: list[str]) -> None:
    """In the order of submission."""
    assert [task["id"] for task in json.loads(ci("list", "--json", *options).out)] == ids


def test_wait_judges_what_has_ended(ci: Any) -> None:
    """0 if all succeeded, 1 with the reasons if not."""
    assert ci("wait", "ci-1/build", "ci-1/test") == (0, "", "")
    ran = ci("wait", "ci-1")
    assert (ran.code, ran.out) == (1, "")
    assert ran.err.splitlines()[0] == "schedctl: ci-1/lint failed: exited with code 3"
    assert json.loads(ci("wait", "--json", "ci-1").out)["counts"]["failed"] == 1


def test_fail_fast_does_not_wait_for_the_rest(daemon: Any, ctl: Any) -> None:
    """The first failure ends it."""
    ctl("submit", "--id", "long", "--delay", "1h", "--", "true")
    ctl("submit", "--id", "bad", "-c", "exit 1")
    ran = ctl("wait", "--fail-fast", "long", "bad")
    assert (ran.code, ran.err) == (1, "schedctl: bad failed: exited with code 1\n")


def test_events_tell_what_happened_in_order(ci: Any) -> None:
    """From any point on."""
    seen = [json.loads(line) for line in ci("events", "--json").out.splitlines()]
    of_test = [event["kind"] for event in seen if event["task"] == "ci-1/test"]
    assert of_test[-2:] == ["started", "succeeded"]
    assert [event["id"] for event in seen] == sorted(event["id"] for event in seen)
    last = seen[-1]["id"]
    assert ci("events", "--after", str(last)).out.splitlines() == ["EVENT  AGO  TASK  WHAT  DETAIL"]


def test_an_interrupt_is_quiet(daemon: Any, ctl: Any) -> None:
    """130, and no word of it."""
    ctl("pause")
    process = ctl.start("events", "--follow", "--json")
    assert '"paused"' in process.stdout.readline()  # so it is listening
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=20)
    assert (process.returncode, err) == (130, "")


def test_a_closed_pipe_is_quiet(daemon: Any, ctl: Any) -> None:
    """`schedctl list | head -1`."""
    ctl.file("many.json", json.dumps({"tasks": [{"run": "true", "delay": 3600}] * 2_000}))
    assert ctl("submit", "many.json").code == 0
    lister = subprocess.Popen(
        ctl.command("list", "--all"), env=ctl.environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert lister.stdout is not None
    assert lister.stderr is not None
    assert lister.stdout.readline().startswith(b"ID")
    lister.stdout.close()
    said = lister.stderr.read()
    lister.stderr.close()
    assert (lister.wait(20), said) == (141, b"")


@pytest.mark.parametrize(
    "arguments",
    [(), ("status",), ("list",), ("submit", "--", "true"), ("cancel", "a"), ("wait", "a"), ("logs", "a"), ("pause",)],
)
def test_without_a_daemon_the_message_says_how_to_start_it(ctl: Any, arguments: tuple[str, ...]) -> None:
    """Exit code 3."""
    ran = ctl(*arguments)
    assert (ran.code, ran.out) == (3, "")
    assert "schedd is not running" in ran.err
    assert "start it with `schedd`" in ran.err


def test_a_socket_path_that_is_too_long_is_told_as_such(ctl: Any) -> None:
    """And not as a daemon that does not run."""
    ran = ctl("--socket", f"/tmp/{'x' * 200}", "status")
    assert (ran.code, ran.out) == (3, "")
    assert "107" in ran.err


def test_a_file_that_is_no_socket_is_told_as_such(ctl: Any) -> None:
    """It may be a typing error."""
    ctl.file("plain", "")
    ran = ctl("--socket", str(Path(ctl.home) / "plain"), "status")
    assert (ran.code, ran.out) == (3, "")
    assert "is not a socket" in ran.err
