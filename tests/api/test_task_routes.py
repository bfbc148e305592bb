"""Pages of tasks, one task, and what may be done to them."""

from collections.abc import Callable
from typing import Any

import pytest

from schedd.answers import DependAnswer, ResultsAnswer, TaskDetail, TasksAnswer
from schedd.api import routes_tasks
from schedd.client import Client, ProblemError
from schedd.core.model import Outcome
from support.api_daemon import ApiDaemon
from support.shapes import mismatch

Ask = Callable[..., Any]


@pytest.fixture
def mixed(daemon: ApiDaemon, schedd: Client, started: Callable[[str], None]) -> None:
    """Two that run, two that are ready, one blocked, one held, one that has failed and one skipped for it."""
    schedd.submit({"tasks": [{"id": "bad", "run": "false"}, {"id": "after-bad", "run": "x", "deps": ["bad"]}]})
    daemon.end("bad", Outcome.FAILED, error="exit code 1", exit_code=1)
    schedd.wait(["bad"], 30.0)
    schedd.pause()
    tasks: list[dict[str, Any]] = [
        {"id": name, "run": f"echo {name}"} for name in ("run1", "run2", "rdy1", "rdy2", "held")
    ]
    schedd.submit({"tasks": [*tasks, {"id": "blocked", "run": "x", "deps": ["run1"]}]})
    schedd.hold(["held"])
    schedd.resume()
    started("run1")
    started("run2")


def ids(answer: TasksAnswer) -> list[str]:
    return [task["id"] for task in answer["tasks"]]


@pytest.mark.usefixtures("mixed")
@pytest.mark.parametrize(
    ("status", "expected"),
    [
        ([], ["bad", "after-bad", "run1", "run2", "rdy1", "rdy2", "held", "blocked"]),
        (["ready"], ["rdy1", "rdy2"]),
        (["pending"], ["held", "blocked"]),
        (["running"], ["run1", "run2"]),
        (["failed", "skipped"], ["bad", "after-bad"]),
        (["ready", "running"], ["run1", "run2", "rdy1", "rdy2"]),
        (["ready", "pending"], ["rdy1", "rdy2", "held", "blocked"]),
        (["cancelled"], []),
    ],
)
def test_tasks_are_listed_by_the_states_that_people_see(schedd: Client, status: list[str], expected: list[str]) -> None:
    """`ready` is told from `pending` in every filter, whole or page by page, in the order of submission."""
    answer = schedd.tasks(status)
    assert ids(answer) == expected
    assert answer["next"] is None
    assert mismatch(answer, TasksAnswer) is None
    assert all(task["status"] in status for task in answer["tasks"]) or not status
    for page in (1, 2, 3):
        assert [task["id"] for task in schedd.iter_tasks(status, page=page)] == expected


@pytest.mark.usefixtures("mixed")
def test_tasks_are_listed_by_batch_and_by_id(schedd: Client) -> None:
    """Filters hold together; what does not exist is left out."""
    schedd.pause()
    schedd.submit({"name": "ci", "tasks": {"a": {"run": "x"}, "b": {"run": "x", "deps": ["a"]}}})
    assert ids(schedd.tasks(batch="ci-1")) == ["ci-1/a", "ci-1/b"]
    assert ids(schedd.tasks(batch="ci-1", status=["ready"])) == ["ci-1/a"]
    assert ids(schedd.tasks(batch="ci-9")) == []
    assert ids(schedd.tasks(ids=["held", "nobody", "run1"])) == ["run1", "held"]
    assert ids(schedd.tasks(ids=["rdy1", "held"], status=["ready"])) == ["rdy1"]


@pytest.mark.usefixtures("mixed")
def test_a_limit_over_several_pages_is_kept(schedd: Client) -> None:
    """The client's iteration ends at its limit, in the middle of a page or at its end."""
    for limit in (0, 1, 2, 3, 5, 100):
        assert len(list(schedd.iter_tasks(limit=limit, page=2))) == min(limit, 8)


def test_a_page_that_finds_little_comes_short_and_the_next_goes_on(
    schedd: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where most rows are not asked for, one request stays bounded and the whole is still complete."""
    monkeypatch.setattr(routes_tasks, "MAX_READINGS", 2)
    schedd.pause()
    schedd.submit({"tasks": [{"id": f"t{number}", "run": "x"} for number in range(20)]})
    schedd.hold(["t19"])
    assert schedd.tasks(["pending"], limit=3) == {"tasks": [], "next": 6}
    assert [task["id"] for task in schedd.iter_tasks(["pending"], page=3)] == ["t19"]


@pytest.mark.parametrize(
    ("query", "loc", "said"),
    [
        ("limit=0", "limit", "must be greater than or equal to 1, not the text '0'"),
        ("limit=1001", "limit", "less than or equal to 1000"),
        ("limit=many", "limit", "must be a valid integer"),
        ("limit=1&limit=2", "limit", "is given 2 times"),
        ("after=-1", "after", "greater than or equal to 0"),
        ("after=" + "9" * 30, "after", "less than or equal to"),
        ("status=done", "status", "'pending'"),
        ("limt=5", "limt", "unknown key 'limt'; did you mean 'limit'?"),
    ],
)
def test_a_wrong_parameter_is_named(ask: Ask, query: str, loc: str, said: str) -> None:
    """Parameters are as strict as bodies: wrong ones are refused with their name and what they must be."""
    answer = ask("GET", f"/v1/tasks?{query}")
    assert (answer.status, answer.body["code"]) == (422, "invalid")
    assert answer.body["errors"][0]["loc"][0] == loc
    assert said in answer.body["detail"]


def test_one_task_is_shown_whole(daemon: ApiDaemon, schedd: Client, started: Callable[[str], None]) -> None:
    """Work, policies, both sides of its edges and every attempt, in exactly the promised shape."""
    schedd.submit(
        {
            "name": "ci",
            "tasks": {
                "a": {"command": ["echo", "it's"]},
                "b": {"call": "m:f", "kwargs": {"x": 1}, "deps": ["a"], "retry": {"max_attempts": 2, "base_delay": 0}},
                "c": {"run": "x", "deps": [{"task": "b", "when": "finished"}]},
                "d": {"run": "x", "every": 60, "times": 3},
            },
        }
    )
    daemon.end("ci-1/a", exit_code=0, result="null", max_rss=1, cpu_time=0.5)
    daemon.end("ci-1/b", Outcome.FAILED, error="ValueError: no", exit_code=1)
    started("ci-1/b")
    detail = schedd.task("ci-1/b")
    assert mismatch(detail, TaskDetail) is None
    assert detail["what"] == "m:f(x=1)"
    assert detail["work"] == {"call": "m:f", "kwargs": {"x": 1}}
    assert detail["retry"] == {"max_attempts": 2, "base_delay": 0, "max_delay": 3600}
    assert detail["deps"] == [{"id": "ci-1/a", "when": "succeeded", "status": "succeeded"}]
    assert detail["dependents"] == [{"id": "ci-1/c", "when": "finished", "status": "pending"}]
    assert [(attempt["number"], attempt["outcome"], attempt["error"]) for attempt in detail["history"]] == [
        (1, "failed", "ValueError: no"),
        (2, None, None),
    ]
    assert (detail["status"], detail["attempts"], detail["number"]) == ("running", 1, 2)
    assert schedd.task("ci-1/a")["what"] == "echo 'it'\"'\"'s'"
    recurring = schedd.task("ci-1/d")
    assert (recurring["every"], recurring["times"], recurring["runs"]) == (60, 3, 0)
    for task_id in ("ci-1/a", "ci-1/c", "ci-1/d"):
        assert mismatch(schedd.task(task_id), TaskDetail) is None


def test_ready_is_laid_over_a_task_and_its_edges(schedd: Client) -> None:
    """A dependency that may start now is shown as ready, and so is the task itself."""
    schedd.pause()
    schedd.submit({"tasks": {"a": {"run": "x"}, "b": {"run": "x", "deps": ["a"]}}})
    assert schedd.task("a")["status"] == "ready"
    assert schedd.task("b")["deps"] == [{"id": "a", "when": "succeeded", "status": "ready"}]


def test_an_unknown_task_is_not_found(schedd: Client) -> None:
    """An id that nobody has says so and how to see those there are, whatever characters it is made of."""
    for task_id in ("nobody", "ci-1/x", "a b&c=d%/é\n"):
        with pytest.raises(ProblemError) as caught:
            schedd.task(task_id)
        assert (caught.value.status, caught.value.code) == (404, "unknown_task")
        assert "schedctl list" in caught.value.detail


@pytest.mark.usefixtures("mixed")
def test_cancel_judges_each_id_and_takes_batches(daemon: ApiDaemon, schedd: Client) -> None:
    """Those that can be cancelled are, the others are told why not, and a batch stands for its tasks."""
    schedd.pause()
    schedd.submit({"name": "ci", "tasks": {"a": {"run": "x"}}})
    answer = schedd.cancel(["bad", "run1", "ci-1"])
    assert mismatch(answer, ResultsAnswer) is None
    assert [(item["id"], item["ok"], item.get("error")) for item in answer["results"]] == [
        ("bad", False, "already_ended"),
        ("run1", True, None),
        ("ci-1/a", True, None),
    ]
    assert schedd.task("ci-1/a")["status"] == "cancelled"
    assert schedd.task("run1")["cancel_requested"]
    assert schedd.cancel(["run1"])["results"][0]["error"] == "already_cancelled"
    daemon.end("run1")
    assert schedd.wait(["run1"], 30.0)["unsuccessful"][0]["status"] == "cancelled"


@pytest.mark.parametrize("verb", ["cancel", "hold", "release"])
@pytest.mark.parametrize(
    ("body", "status", "code", "said"),
    [
        ({"ids": ["nobody"]}, 404, "unknown_task", "no task or batch 'nobody'"),
        ({"ids": []}, 422, "invalid", "must not be empty"),
        ({"ids": "x"}, 422, "invalid", "must be a list"),
        ({}, 422, "invalid", "ids: is needed"),
        ({"ids": ["x"], "id": 1}, 422, "invalid", "did you mean 'ids'?"),
        ({"ids": ["x"] * 10_001}, 422, "invalid", "at most 10000"),
    ],
)
def test_a_wrong_list_of_ids_is_refused(ask: Ask, verb: str, body: Any, status: int, code: str, said: str) -> None:
    """The three verbs on tasks take the same body and refuse the same mistakes."""
    answer = ask("POST", f"/v1/{verb}", body)
    assert (answer.status, answer.body["code"]) == (status, code)
    assert said in answer.body["detail"]


def test_a_hold_keeps_a_task_until_it_is_released(
    daemon: ApiDaemon, schedd: Client, started: Callable[[str], None]
) -> None:
    """A held task is shown as held and pending; released, it starts."""
    schedd.pause()
    schedd.submit({"tasks": [{"id": "a", "run": "x"}]})
    assert schedd.hold(["a"]) == {"results": [{"id": "a", "ok": True}]}
    schedd.resume()
    assert (schedd.task("a")["held"], schedd.task("a")["status"]) == (True, "pending")
    assert daemon.order_of("a") is None
    schedd.release(["a"])
    started("a")


def test_an_edge_is_added_once_and_seen_on_both_sides(schedd: Client) -> None:
    """`added` tells a new edge from one that was there."""
    schedd.pause()
    schedd.submit({"tasks": {"a": {"run": "x"}, "b": {"run": "x"}, "c": {"run": "x"}}})
    answer = schedd.depend("a", "b", "finished")
    assert mismatch(answer, DependAnswer) is None
    assert answer == {"before": "a", "after": "b", "when": "finished", "added": True}
    assert not schedd.depend("a", "b", "finished")["added"]
    assert schedd.depend("b", "c")["when"] == "succeeded"
    assert [edge["id"] for edge in schedd.task("b")["dependents"]] == ["c"]


@pytest.mark.usefixtures("mixed")
@pytest.mark.parametrize(
    ("body", "status", "code"),
    [
        ({"before": "blocked", "after": "run1"}, 409, "already_started"),
        ({"before": "run1", "after": "bad"}, 409, "already_ended"),
        ({"before": "blocked", "after": "blocked"}, 422, "self_dependency"),
        ({"before": "nobody", "after": "blocked"}, 404, "unknown_task"),
        ({"before": "rdy1"}, 422, "invalid"),
        ({"before": "rdy1", "after": "rdy2", "when": "never"}, 422, "invalid"),
        ({"before": "run1", "after": "blocked", "when": "failed"}, 422, "invalid"),
    ],
)
def test_an_edge_that_cannot_be_is_refused(ask: Ask, body: Any, status: int, code: str) -> None:
    """Each reason has its code."""
    answer = ask("POST", "/v1/depend", body)
    assert (answer.status, answer.body["code"]) == (status, code)


def test_an_edge_that_would_close_a_cycle_is_refused_with_the_path(schedd: Client) -> None:
    """The path is in the message."""
    schedd.pause()
    schedd.submit({"tasks": {"a": {"run": "x"}, "b": {"run": "x", "deps": ["a"]}}})
    with pytest.raises(ProblemError, match=r"a -> b -> a|b -> a -> b") as caught:
        schedd.depend("b", "a")
    assert (caught.value.status, caught.value.code) == (422, "cycle")
