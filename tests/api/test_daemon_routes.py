"""The daemon at a glance, its health, pause and resume."""

import http.client
import json
import socket
import sqlite3
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from schedd.answers import Health, PausedAnswer, StatusAnswer
from schedd.api import backend as backend_module
from schedd.client import Client, OutcomeUnknown
from schedd.core.model import Outcome
from schedd.engine import loop
from schedd.store.base import StoreUnavailable
from support.api_daemon import ApiDaemon
from support.fakes import FailingStore
from support.shapes import mismatch

Ask = Callable[..., Any]
FULL = StoreUnavailable("the disk is full")


class Faults:
    """Makes the next commits of a store fail, as long as `on` is set."""

    def __init__(self) -> None:
        self.on = False

    def store(self, inner: Any) -> FailingStore:
        return FailingStore(inner, lambda name, count: FULL if self.on and name == "begin" else None)


def test_the_status_tells_all_of_it_in_the_promised_shape(
    daemon: ApiDaemon, schedd: Client, started: Callable[[str], None]
) -> None:
    """Numbers, what runs, what failed last (the newest first), and who answers."""
    for number in range(7):
        schedd.submit({"tasks": [{"id": f"bad{number}", "run": "x"}]})
        daemon.end(f"bad{number}", Outcome.FAILED, error="no")
    schedd.wait([f"bad{number}" for number in range(7)])
    schedd.submit({"tasks": [{"id": name, "run": "x"} for name in ("a", "b", "c")]})
    started("b")
    status = schedd.status()
    assert mismatch(status, StatusAnswer) is None
    assert status["counts"] == {
        "pending": 0, "ready": 1, "running": 2, "succeeded": 0, "failed": 7, "cancelled": 0, "skipped": 0,
    }  # fmt: skip
    assert (status["workers"], status["busy"], status["version"]) == (2, 2, "1.2.3")
    assert [task["id"] for task in status["running"]] == ["a", "b"]
    assert [task["id"] for task in status["failed"]] == ["bad6", "bad5", "bad4", "bad3", "bad2"]
    assert status["health"] == {"live": True, "ready": True, "degraded": None}
    assert status["state_dir"] == str(daemon.home)


def test_a_pause_keeps_tasks_from_starting_until_the_resume(
    daemon: ApiDaemon, schedd: Client, started: Callable[[str], None]
) -> None:
    """Paused is seen in the status, and nothing is started meanwhile."""
    assert mismatch(schedd.pause(), PausedAnswer) is None
    schedd.submit({"tasks": [{"id": "a", "run": "x"}]})
    assert schedd.status()["paused"] is True
    assert schedd.task("a")["status"] == "ready"
    assert daemon.order_of("a") is None
    assert schedd.resume() == {"paused": False}
    started("a")


@pytest.mark.parametrize("verb", ["pause", "resume"])
def test_a_body_that_says_nothing_may_be_left_out(ask: Ask, verb: str) -> None:
    """No body and an empty object are the same; anything else is a mistake."""
    assert ask("POST", f"/v1/{verb}").status == 200
    assert ask("POST", f"/v1/{verb}", {}).status == 200
    assert ask("POST", f"/v1/{verb}", {"for": "1h"}).body["code"] == "invalid"


def test_a_fault_that_can_pass_is_told_and_answered_with_503(
    new_daemon: Callable[..., ApiDaemon], monkeypatch: pytest.MonkeyPatch, eventually: Callable[..., None]
) -> None:
    """While schedd cannot write it still answers questions, says what is wrong, refuses changes; then it goes on."""
    monkeypatch.setattr(loop, "PATIENCE_S", 0.05)
    monkeypatch.setattr(loop, "LONGEST_BACKOFF_S", 0.05)
    faults = Faults()
    daemon = new_daemon(store_of=faults.store)
    with daemon.client() as schedd:
        schedd.submit({"tasks": [{"id": "before", "run": "x"}]})
        faults.on = True
        with pytest.raises(OutcomeUnknown, match="the disk is full") as caught:
            schedd.submit({"tasks": [{"id": "during", "run": "x"}]}, key="k")
        assert caught.value.key == "k"
        health = schedd.health()
        assert mismatch(health, Health) is None
        assert (health["live"], health["ready"]) == (True, False)
        assert health["degraded"] is not None
        assert "the disk is full" in health["degraded"]["message"]
        assert schedd.status()["health"] == health
        assert [task["id"] for task in schedd.iter_tasks()] == ["before"]
        faults.on = False
        assert schedd.submit({"tasks": [{"id": "during", "run": "x"}]}, key="k")["ids"] == ["during"]
        eventually(lambda: schedd.health()["ready"])


def test_503_says_when_to_come_back(new_daemon: Callable[..., ApiDaemon], monkeypatch: pytest.MonkeyPatch) -> None:
    """The answer itself carries Retry-After and the code `unavailable`."""
    monkeypatch.setattr(loop, "PATIENCE_S", 0.05)
    monkeypatch.setattr(loop, "LONGEST_BACKOFF_S", 0.05)
    faults = Faults()
    daemon = new_daemon(store_of=faults.store)
    faults.on = True
    connection = http.client.HTTPConnection("localhost")
    connection.sock = socket.socket(socket.AF_UNIX)
    connection.sock.connect(str(daemon.socket))
    connection.request("POST", "/v1/pause", b"{}")
    response = connection.getresponse()
    body = json.loads(response.read())
    connection.close()
    assert (response.status, body["code"], response.headers["Retry-After"]) == (503, "unavailable", "1")
    assert "repeat the request with the same key" in body["detail"]


def test_an_engine_that_does_not_answer_is_told_by_health_and_reads_go_on(
    daemon: ApiDaemon, schedd: Client, ask: Ask, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What needs the engine is refused in bounded time; what does not is answered, and health says why."""
    schedd.pause()
    schedd.submit({"tasks": [{"id": "a", "run": "x"}]})
    monkeypatch.setattr(backend_module, "ASK_PATIENCE_S", 0.05)
    stuck, release = threading.Event(), threading.Event()

    def hold_up(machine: Any) -> None:
        stuck.set()
        release.wait(30.0)

    daemon.engine.ask(hold_up)
    assert stuck.wait(10.0)
    try:
        health = schedd.health()
        assert (health["live"], health["ready"]) == (True, False)
        assert health["degraded"] is not None
        assert health["degraded"]["message"] == "the engine does not answer"
        assert 0 <= time.time() - health["degraded"]["since"] < 60
        assert schedd.task("a")["status"] == "pending"
        assert ask("GET", "/v1/status").body["code"] == "unavailable"
        assert ask("GET", "/v1/tasks?status=ready").body["code"] == "unavailable"
        assert ask("GET", "/v1/tasks").status == 200
    finally:
        release.set()
    assert schedd.task("a")["status"] == "ready"


def test_a_damaged_row_is_shown_and_breaks_nothing(daemon: ApiDaemon, schedd: Client) -> None:
    """A payload that cannot be read is shown as its text, in lists and alone."""
    schedd.pause()
    schedd.submit({"tasks": [{"id": "a", "run": "x"}]})
    with sqlite3.connect(daemon.database) as connection:
        connection.execute("UPDATE task SET payload = '{broken'")
    connection.close()
    assert schedd.tasks()["tasks"][0]["what"] == "{broken"
    assert schedd.task("a")["work"] == {"damaged": "{broken"}
