"""Submitting a batch, and looking at one."""

import json
import threading
from collections.abc import Callable
from typing import Any

import pytest

from schedd.answers import BatchView, Problem, SubmitAnswer
from schedd.client import Client, ProblemError
from schedd.core.model import Outcome
from support.api_daemon import ApiDaemon
from support.shapes import mismatch

Ask = Callable[..., Any]

CI = {"name": "ci", "tasks": {"build": {"run": "make"}, "test": {"run": "make test", "deps": ["build"]}}}


def test_a_submitted_batch_is_answered_with_its_name_and_ids(schedd: Client) -> None:
    """A named batch gets the next number of its name, its tasks their full ids in the order of the spec."""
    assert schedd.submit(CI) == {"batch": "ci-1", "ids": ["ci-1/build", "ci-1/test"]}
    assert schedd.submit(CI)["batch"] == "ci-2"


def test_a_batch_without_a_name_keeps_ids_and_gives_numbers(schedd: Client) -> None:
    """Tasks outside a named batch keep the id they were given, else they get a number."""
    answer = schedd.submit({"tasks": [{"id": "a", "run": "x"}, {"run": "y"}]})
    assert answer == {"batch": None, "ids": ["a", "2"]}
    assert mismatch(answer, SubmitAnswer) is None


def test_a_submission_is_created_with_201_whatever_its_content_type(ask: Ask) -> None:
    """A client that does not say that it sends JSON is taken at its body."""
    for content_type in ("application/json", "text/plain", "application/x-www-form-urlencoded", ""):
        assert ask("POST", "/v1/batches", CI, {"Content-Type": content_type}).status == 201


@pytest.mark.parametrize(
    ("tasks", "status", "code", "said"),
    [
        ({"a": {"run": "x", "dep": []}}, 422, "invalid", "unknown key 'dep'; did you mean 'deps'?"),
        ({"a": {"run": "x", "deps": ["b"]}, "b": {"run": "x", "deps": ["a"]}}, 422, "cycle", "a -> b -> a"),
        ({"a": {"run": "x", "deps": ["zz"]}}, 422, "unknown_dependency", "a depends on 'zz'"),
        ({"a": {"run": "x", "deps": ["a"]}}, 422, "self_dependency", "a cannot depend on itself"),
        ({}, 422, "invalid", "at least one task"),
        ([{"id": "taken", "run": "x"}], 409, "duplicate_id", "there is a task 'taken' already"),
        ({"a": {"run": "x", "priority": 2**63}}, 422, "invalid", "priority"),
        ({"a": {"command": []}}, 422, "invalid", "must not be empty"),
        ({"a": {"run": "x", "delay": -1}}, 422, "invalid", "delay"),
    ],
)
def test_a_refused_batch_says_why_and_leaves_nothing(
    schedd: Client, ask: Ask, tasks: Any, status: int, code: str, said: str
) -> None:
    """Each kind of refusal has its code, its status and a sentence, and nothing of the batch is kept."""
    schedd.submit({"tasks": [{"id": "taken", "run": "x"}]})
    before = len(list(schedd.iter_tasks()))
    answer = ask("POST", "/v1/batches", {"tasks": tasks})
    assert (answer.status, answer.body["code"]) == (status, code)
    assert said in answer.body["detail"]
    assert answer.headers["content-type"] == "application/problem+json"
    assert mismatch(answer.body, Problem) is None
    assert len(list(schedd.iter_tasks())) == before


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (b'{"tasks": [}', "line 1, column 12"),
        (b"", "not JSON"),
        (b"\xff\xfe", "not UTF-8"),
        (b'{"tasks": [], "tasks": []}', "there twice"),
        (b"[" * 100_000, "nested too deeply"),
        (b'{"tasks": [{"run": "\\ud800"}]}', "surrogate"),
        (b"[]", "must be a mapping"),
        (b'{"tasks": [{"run": "x", "priority": ' + b"9" * 5_000 + b"}]}", "too large"),
    ],
)
def test_a_body_that_is_no_spec_is_refused_with_the_place(ask: Ask, body: bytes, said: str) -> None:
    """Broken JSON of any kind is the caller's to mend, and the message says where."""
    answer = ask("POST", "/v1/batches", body)
    assert (answer.status, answer.body["code"]) == (422, "invalid")
    assert said in answer.body["detail"]


def test_every_mistake_of_a_spec_comes_with_its_place(schedd: Client) -> None:
    """The errors lead to the places in the document."""
    with pytest.raises(ProblemError) as caught:
        schedd.submit({"tasks": {"a": {"run": "x", "dep": 1}, "b": {"run": 2}}})
    assert [item["loc"] for item in caught.value.errors] == [["tasks", "a", "dep"], ["tasks", "b", "run"]]


def test_a_key_repeated_with_the_same_body_gets_the_first_answer(schedd: Client) -> None:
    """The batch is there once, and both are told its name."""
    first = schedd.submit(CI, key="once")
    assert schedd.submit(CI, key="once") == first
    assert schedd.status()["counts"]["pending"] + schedd.status()["busy"] == 2


def test_a_key_repeated_with_another_body_or_path_is_refused(schedd: Client) -> None:
    """A key belongs to one request."""
    schedd.submit(CI, key="once")
    with pytest.raises(ProblemError) as other_body:
        schedd.submit({"tasks": [{"run": "x"}]}, key="once")
    with pytest.raises(ProblemError) as other_path:
        schedd.pause(key="once")
    for caught in (other_body, other_path):
        assert (caught.value.status, caught.value.code) == (409, "key_reused")


def test_a_key_used_by_many_at_once_is_carried_out_once(daemon: ApiDaemon) -> None:
    """Repetitions that overtake one another make one batch."""
    answers: list[Any] = []

    def submit() -> None:
        with daemon.client() as client:
            answers.append(client.submit(CI, key="once"))

    threads = [threading.Thread(target=submit) for _ in range(10)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(answers) == 10
    assert all(answer == {"batch": "ci-1", "ids": ["ci-1/build", "ci-1/test"]} for answer in answers)


@pytest.mark.parametrize("key", ["", "x" * 201, "caf\xe9", "tab\there"])
def test_a_key_out_of_bounds_is_refused(ask: Ask, key: str) -> None:
    """A key is 1 to 200 printable ASCII characters."""
    answer = ask("POST", "/v1/batches", CI, {"Idempotency-Key": key})
    assert (answer.status, answer.body["code"]) == (422, "invalid")
    assert answer.body["errors"][0]["loc"] == ["Idempotency-Key"]


def test_fifty_clients_at_once_lose_nothing(daemon: ApiDaemon) -> None:
    """Each of many clients gets its own answer, and every batch is there."""
    answers: list[str | None] = []
    failures: list[BaseException] = []

    def submit(number: int) -> None:
        try:
            with daemon.client() as client:
                answers.extend(
                    client.submit({"name": f"b{number}", "tasks": [{"run": "x"}]})["batch"] for _ in range(4)
                )
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=submit, args=(number,)) for number in range(50)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
    assert sorted(map(str, answers)) == sorted(f"b{number}-{turn}" for number in range(50) for turn in range(1, 5))
    with daemon.client() as client:
        assert len(list(client.iter_tasks())) == 200


def test_a_large_batch_is_parsed_beside_the_loop_and_accepted(schedd: Client) -> None:
    """A body of some megabytes is taken whole."""
    tasks = [{"id": f"t{number}", "run": "x" * 500} for number in range(5_000)]
    assert len(schedd.submit(json.dumps({"tasks": tasks}).encode())["ids"]) == 5_000


def test_a_batch_shows_its_counts_and_whether_it_is_done(
    daemon: ApiDaemon, schedd: Client, started: Callable[[str], None]
) -> None:
    """What is open, ready and ended of a batch is counted apart."""
    schedd.submit({"name": "ci", "tasks": {name: {"run": "x"} for name in "abcd"} | {"e": {"run": "x", "deps": ["a"]}}})
    started("ci-1/b")
    view = schedd.batch("ci-1")
    assert mismatch(view, BatchView) is None
    zero = dict.fromkeys(["succeeded", "failed", "cancelled", "skipped"], 0)
    assert view["counts"] == {"pending": 1, "ready": 2, "running": 2, **zero}
    assert not view["done"]
    daemon.end("ci-1/a", Outcome.FAILED, error="no")
    for name in "bcd":
        daemon.end(f"ci-1/{name}")
    schedd.wait(["ci-1"], 30.0)
    view = schedd.batch("ci-1")
    assert view["done"]
    assert (view["counts"]["succeeded"], view["counts"]["failed"], view["counts"]["skipped"]) == (3, 1, 1)


def test_an_unknown_batch_is_not_found(schedd: Client) -> None:
    """A name that no batch has is an error and not an empty batch."""
    schedd.submit(CI)
    for name in ("ci", "ci-2"):
        with pytest.raises(ProblemError, match=f"there is no batch '{name}'") as caught:
            schedd.batch(name)
        assert (caught.value.status, caught.value.code) == (404, "unknown_batch")
