"""The overview, and one task or batch in full."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from schedd.cli import status
from schedd.cli.render import Screen
from schedd.client import ProblemError

Ctl = Callable[..., Any]
Make = Callable[..., Any]

NOW = 1_000.0
UNKNOWN = ProblemError(404, "unknown_task", "there is no task 'x'")


def answer(**changes: Any) -> Any:
    """A StatusAnswer of an idle daemon, with what is changed."""
    idle: dict[str, Any] = {
        "version": "0.1.0",
        "pid": 7,
        "started_at": NOW - 60,
        "workers": 4,
        "busy": 0,
        "paused": False,
        "draining": False,
        "counts": {"pending": 0, "succeeded": 3},
        "running": [],
        "failed": [],
        "health": {"live": True, "ready": True, "degraded": None},
        "state_dir": "/state",
    }
    return idle | changes


def test_an_idle_daemon_takes_four_lines() -> None:
    """What runs and what failed is shown only if there is any."""
    assert [*status.overview(answer(), NOW, Screen())] == [
        "daemon   schedd 0.1.0, pid 7, up 1m, state in /state",
        "health   ok",
        "workers  0 of 4 busy",
        "tasks    3 succeeded",
    ]


def test_what_runs_and_what_failed_last_are_listed(view: Make) -> None:
    """With how long, how often and why."""
    running = view(id="ci-1/test", status="running", attempts=2, max_attempts=3, started_at=NOW - 5, what="make test")
    failed = view(id="ci-1/lint", status="failed", settled_at=NOW - 120, error="exit code 2")
    lines = [*status.overview(answer(busy=1, running=[running], failed=[failed]), NOW, Screen())]
    assert lines[4:] == [
        "",
        "RUNNING    ATTEMPT  FOR  WHAT",
        "ci-1/test      2/3   5s  make test",
        "",
        "FAILED LAST  AGO  WHY",
        "ci-1/lint     2m  exit code 2",
    ]


@pytest.mark.parametrize(
    ("changes", "line"),
    [
        ({"paused": True}, "paused   nothing starts until `schedctl resume`"),
        ({"draining": True}, "stopping  it starts nothing more and ends when what runs has ended"),
        (
            {"health": {"live": True, "ready": True, "degraded": {"since": NOW - 30, "message": "the disk is full"}}},
            "health   degraded for 30s: the disk is full",
        ),
        ({"health": {"live": True, "ready": False, "degraded": None}}, "health   not ready"),
    ],
)
def test_what_is_unusual_has_a_line(changes: dict[str, Any], line: str) -> None:
    """Nobody has to know where to look for it."""
    assert line in [*status.overview(answer(**changes), NOW, Screen())]


def test_a_task_is_shown_with_all_that_is_known(detail: Make) -> None:
    """Its work, its times, its edges and every attempt."""
    task = detail(
        id="ci-1/test",
        status="failed",
        error="exit code 2",
        attempts=2,
        max_attempts=3,
        started_at=NOW - 5,
        settled_at=NOW - 2,
        created_at=NOW - 90,
        work={"command": ["make", "a b"], "cwd": "/src", "env": {"A": "1", "B": "2"}, "timeout": 60},
        retry={"max_attempts": 3, "base_delay": 0.05, "max_delay": 30.0},
        deps=[{"id": "ci-1/build", "when": "succeeded", "status": "succeeded"}],
        dependents=[{"id": "ci-1/report", "when": "finished", "status": "ready"}],
        history=[
            {
                "number": 1, "run": 1, "outcome": "timed_out", "started_at": NOW - 80, "ended_at": NOW - 20,
                "exit_code": None, "signal": 9, "error": "timed out after 1m", "result": None, "max_rss": 2_097_152,
                "cpu_time": 0.5, "pid": 11, "units": None,
            },
            {
                "number": 2, "run": 1, "outcome": "failed", "started_at": NOW - 5, "ended_at": NOW - 2,
                "exit_code": 2, "signal": None, "error": "exit code 2", "result": None, "max_rss": None,
                "cpu_time": None, "pid": 12, "units": None,
            },
        ],
    )  # fmt: skip
    assert [*status.detail(task, NOW, Screen())] == [
        "task       ci-1/test",
        "status     failed",
        "error      exit code 2",
        "command    make 'a b'",
        "cwd        /src",
        "env        A=1",
        "           B=2",
        "timeout    1m",
        "submitted  1m30s ago",
        "started    5s ago",
        "ended      2s ago",
        "priority   0",
        "attempts   2 of 3, waiting 0.05s after the first failure, 30s at most",
        "",
        "AFTER       WHEN       STATUS",
        "ci-1/build  succeeded  succeeded",
        "",
        "BEFORE       WHEN      STATUS",
        "ci-1/report  finished  ready",
        "",
        "ATTEMPT  OUTCOME      AGO  TOOK   CPU   MEMORY  HOW IT ENDED",
        "1        timed_out  1m20s    1m  0.5s  2.0 MiB  timed out after 1m; killed by SIGKILL",
        "2        failed        5s    3s     -        -  exit code 2",
    ]


def test_a_waiting_task_says_when_and_why(detail: Make) -> None:
    """Its earliest start, its marks, its runs; an attempt that runs has a pid and no end."""
    running = {
        "number": 1, "run": 2, "outcome": None, "started_at": NOW - 3, "ended_at": None, "exit_code": None,
        "signal": None, "error": None, "result": None, "max_rss": None, "cpu_time": None, "pid": 11, "units": None,
    }  # fmt: skip
    waiting = detail(held=True, run_at=NOW + 90, every=60.0, times=5, runs=1, history=[running])
    lines = [*status.detail(waiting, NOW, Screen())]
    assert "status     pending (held)" in lines
    assert "earliest   in 1m30s" in lines
    assert "runs       1 of 5, every 1m" in lines
    assert lines[-1] == "1 (run 2)  running   3s    3s    -       -  pid 11"
    cancelled = detail(status="running", cancel_requested=True)
    assert "status     running (being cancelled)" in [*status.detail(cancelled, NOW, Screen())]


def test_a_call_is_shown_as_one(detail: Make) -> None:
    """With its arguments as JSON."""
    task = detail(work={"call": "reports:send", "args": [1, "x"], "kwargs": {"to": ["a"]}, "isolation": "thread"})
    lines = [*status.detail(task, NOW, Screen())]
    assert 'call       reports:send(1, "x", to=["a"])' in lines
    assert "isolation  thread" in lines


def test_many_edges_are_not_all_shown(detail: Make) -> None:
    """The rest is counted."""
    edges = [{"id": f"task-{index}", "when": "succeeded", "status": "pending"} for index in range(25)]
    lines = [*status.detail(detail(deps=edges), NOW, Screen())]
    assert lines[-1] == "and 5 more, in --json"


def test_an_id_that_is_no_task_may_be_a_batch(ctl: Ctl, client: Any, view: Make) -> None:
    """Then its tasks are listed."""
    client.answers["task"] = UNKNOWN
    client.answers["batch"] = {"name": "ci-1", "created_at": NOW, "counts": {"pending": 2}, "done": False}
    client.answers["iter_tasks"] = lambda **options: iter([view(id="ci-1/a")])
    ran = ctl("status", "ci-1")
    assert ran.code == 0
    assert ran.out.splitlines()[0] == "batch      ci-1"
    assert ran.out.splitlines()[-1].startswith("ci-1/a  pending")
    assert ran.err == "schedctl: and 1 more task; `schedctl list --all --batch ci-1` shows them\n"


def test_one_unknown_id_does_not_hide_the_others(ctl: Ctl, client: Any, detail: Make) -> None:
    """It is told on stderr and makes the exit code 4."""
    client.answers["task"] = lambda name: detail(id=name) if name == "a" else UNKNOWN
    client.answers["batch"] = ProblemError(404, "not_found", "no batch")
    ran = ctl("status", "x", "a")
    assert (ran.code, ran.err) == (4, "schedctl: there is no task 'x'\n")
    assert ran.out.startswith("task       a\n")


def test_json_is_what_the_daemon_says(ctl: Ctl, client: Any, detail: Make) -> None:
    """The overview as an object; with ids, a list."""
    client.answers["status"] = answer()
    assert json.loads(ctl("status", "--json").out) == answer()
    client.answers["task"] = lambda name: detail(id=name)
    assert json.loads(ctl("status", "a", "b", "--json").out) == [detail(id="a"), detail(id="b")]


def test_a_list_of_tasks_says_how_long_each_took(view: Make) -> None:
    """One that runs so far, one that ended in all, one that waits not at all."""
    tasks = [
        view(id="a", created_at=NOW - 60),
        view(id="b", status="running", created_at=NOW - 60, started_at=NOW - 3, attempts=1),
        view(id="c", status="succeeded", created_at=NOW - 60, started_at=NOW - 50, settled_at=NOW - 10, attempts=1),
        view(id="d", held=True, created_at=NOW - 60),
    ]
    assert [*status.task_table(tasks, NOW, Screen())] == [
        "ID  STATUS          AGE  TOOK  ATTEMPT  WHAT",
        "a   pending          1m     -      0/1  make",
        "b   running          1m    3s      1/1  make",
        "c   succeeded        1m   40s      1/1  make",
        "d   pending (held)   1m     -      0/1  make",
    ]
