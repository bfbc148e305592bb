"""Waiting by long poll."""

import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from schedd import client as client_module
from schedd.answers import WaitAnswer
from schedd.client import Client, ProblemError
from schedd.core.model import Outcome
from support.api_daemon import ApiDaemon
from support.shapes import mismatch
from support.unixhttp import connected

Ask = Callable[..., Any]


def test_a_wait_ends_promptly_when_all_has_ended(
    daemon: ApiDaemon, schedd: Client, started: Callable[[str], None]
) -> None:
    """The last end wakes the one who waits: no poll interval passes."""
    schedd.submit({"tasks": [{"id": "a", "run": "x"}, {"id": "b", "run": "x"}]})
    daemon.end("a")
    started("b")
    ended: list[float] = []

    def end_b() -> None:
        while not daemon.feed._waiting:
            threading.Event().wait(0.002)
        ended.append(time.monotonic())
        daemon.end("b")

    thread = threading.Thread(target=end_b)
    thread.start()
    answer = schedd.wait(["a", "b"])
    took = time.monotonic() - ended[0]
    thread.join()
    assert took < 1.0
    assert mismatch(answer, WaitAnswer) is None
    assert (answer["done"], answer["open"], answer["counts"]["succeeded"]) == (True, 0, 2)
    assert answer["unsuccessful"] == []


def test_a_wait_for_what_has_ended_answers_at_once(daemon: ApiDaemon, schedd: Client) -> None:
    """Nothing is open: there is nothing to wait for, and failures are named."""
    schedd.submit({"name": "ci", "tasks": {"a": {"run": "x"}, "b": {"run": "x", "deps": ["a"]}}})
    daemon.end("ci-1/a", Outcome.FAILED, error="exit code 2", exit_code=2)
    schedd.wait(["ci-1"])
    answer = schedd.wait(["ci-1"])
    assert answer["unsuccessful"] == [
        {"id": "ci-1/a", "status": "failed", "error": "exit code 2"},
        {"id": "ci-1/b", "status": "skipped", "error": "skipped because ci-1/a failed"},
    ]


def test_a_wait_ends_at_its_timeout_undone(schedd: Client) -> None:
    """At the timeout the answer tells how far it has come; that is no error."""
    schedd.pause()
    schedd.submit({"tasks": {"a": {"run": "x"}, "b": {"run": "x", "deps": ["a"]}}})
    for timeout in (0.0, 0.1):
        answer = schedd.wait(["a", "b"], timeout)
        assert (answer["done"], answer["open"]) == (False, 2)
        assert (answer["counts"]["ready"], answer["counts"]["pending"]) == (1, 1)


def test_a_wait_goes_on_over_many_long_polls(
    daemon: ApiDaemon, schedd: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The client asks again until all has ended, however short the daemon's own patience."""
    monkeypatch.setattr(client_module, "LONG_POLL_S", 0.05)
    schedd.submit({"tasks": [{"id": "a", "run": "x"}]})
    timer = threading.Timer(0.3, daemon.end, args=("a",))
    timer.start()
    assert schedd.wait(["a"])["done"]
    timer.join()


def test_one_task_named_twice_is_counted_once(schedd: Client) -> None:
    """By its id and by its batch it is the same task."""
    schedd.pause()
    schedd.submit({"name": "ci", "tasks": {"a": {"run": "x"}}})
    assert schedd.wait(["ci-1", "ci-1/a", "ci-1/a"], 0.0)["open"] == 1


def test_a_wait_for_something_unknown_is_refused(schedd: Client) -> None:
    """Nobody waits for ever for a misspelt id."""
    schedd.submit({"tasks": [{"id": "a", "run": "x"}]})
    with pytest.raises(ProblemError, match="no task or batch 'b'") as caught:
        schedd.wait(["a", "b"])
    assert (caught.value.status, caught.value.code) == (404, "unknown_task")


@pytest.mark.parametrize("query", ["", "timeout=1", "id=a&timeout=61", "id=a&timeout=-1", "id=a&timeout=nan"])
def test_a_wrong_wait_is_refused(ask: Ask, query: str) -> None:
    """At least one id, and a timeout within bounds."""
    answer = ask("GET", f"/v1/wait?{query}")
    assert (answer.status, answer.body["code"]) == (422, "invalid")


def test_thousands_of_ids_fit_into_one_wait(schedd: Client) -> None:
    """A long list of ids is within the bounds of a request."""
    schedd.pause()
    answer = schedd.submit({"tasks": [{"id": f"task-number-{number}", "run": "x"} for number in range(5_000)]})
    assert schedd.wait(answer["ids"], 0.0)["open"] == 5_000


def test_who_hangs_up_is_waited_for_no_longer_than_the_next_commit(
    daemon: ApiDaemon, schedd: Client, eventually: Callable[..., None]
) -> None:
    """A client that went away in the middle of a wait costs nothing for long."""
    schedd.pause()
    schedd.submit({"tasks": [{"id": "a", "run": "x"}]})
    with connected(daemon.socket) as client:
        client.sendall(b"GET /v1/wait?id=a HTTP/1.1\r\nHost: x\r\n\r\n")
        eventually(lambda: daemon.feed._waiting)

    def commit_and_look() -> bool:
        schedd.hold(["a"])
        return not daemon.feed._waiting

    eventually(commit_and_look)


def test_a_stop_ends_a_wait_with_what_there_is(daemon: ApiDaemon, eventually: Callable[..., None]) -> None:
    """A daemon that stops does not wait for those who wait: they get their answer, undone."""
    answers: list[Any] = []

    def wait() -> None:
        with daemon.client() as client:
            answers.append(client._ask("/v1/wait", [("id", "a")]))

    with daemon.client() as client:
        client.pause()
        client.submit({"tasks": [{"id": "a", "run": "x"}]})
    thread = threading.Thread(target=wait)
    thread.start()
    eventually(lambda: daemon.feed._waiting)
    began = time.monotonic()
    daemon.server.stop(10.0)
    assert time.monotonic() - began < 5.0
    thread.join()
    assert answers[0]["done"] is False
