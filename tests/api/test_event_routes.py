"""The ordered log of events."""

import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from schedd.answers import EventsAnswer
from schedd.client import Client
from support.api_daemon import ApiDaemon
from support.shapes import mismatch

Ask = Callable[..., Any]


def test_events_come_in_order_and_page_by_page(daemon: ApiDaemon, schedd: Client) -> None:
    """Reading on from the last id tells the whole story, once."""
    schedd.submit({"tasks": [{"id": "a", "run": "x"}]})
    daemon.end("a")
    schedd.wait(["a"])
    answer = schedd.events()
    assert mismatch(answer, EventsAnswer) is None
    assert [(event["task"], event["kind"]) for event in answer["events"]] == [
        (None, "submitted"),
        ("a", "started"),
        ("a", "succeeded"),
    ]
    assert answer["events"][0]["detail"] == {"first": "a", "tasks": 1}
    assert answer["next"] == answer["events"][-1]["id"]
    first = schedd.events(limit=1)
    assert first["events"] == answer["events"][:1]
    assert schedd.events(after=first["next"])["events"] == answer["events"][1:]
    assert schedd.events(after=answer["next"]) == {"events": [], "next": answer["next"]}
    assert list(schedd.iter_events()) == answer["events"]


def test_a_long_poll_ends_with_the_first_event(daemon: ApiDaemon, schedd: Client) -> None:
    """Who waits for events is woken by the next one."""

    def submit() -> None:
        while not daemon.feed._waiting:
            threading.Event().wait(0.002)
        with daemon.client() as other:
            other.submit({"tasks": [{"id": "a", "run": "x"}]})

    thread = threading.Thread(target=submit)
    thread.start()
    began = time.monotonic()
    answer = schedd.events(timeout=30.0)
    assert time.monotonic() - began < 10.0
    thread.join()
    assert answer["events"][0]["detail"]["first"] == "a"


def test_a_long_poll_without_events_ends_at_its_timeout(schedd: Client) -> None:
    """Nothing happened: that is an answer."""
    assert schedd.events(after=7, timeout=0.05) == {"events": [], "next": 7}


def test_following_events_goes_on_from_each_to_the_next(daemon: ApiDaemon, schedd: Client) -> None:
    """A follower sees what was and what comes."""
    schedd.submit({"tasks": [{"id": "a", "run": "x"}]})
    follower = schedd.iter_events(follow=True)
    assert next(follower)["kind"] == "submitted"
    assert next(follower)["kind"] == "started"
    daemon.end("a")
    assert next(follower)["kind"] == "succeeded"


@pytest.mark.parametrize("query", ["after=x", "after=-1", "limit=0", "limit=1001", "timeout=61", "since=1"])
def test_a_wrong_question_for_events_is_refused(ask: Ask, query: str) -> None:
    """Parameters are within bounds and known."""
    answer = ask("GET", f"/v1/events?{query}")
    assert (answer.status, answer.body["code"]) == (422, "invalid")
