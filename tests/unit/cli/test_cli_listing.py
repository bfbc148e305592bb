"""`list` and `events`."""

import json
from collections.abc import Callable, Iterator
from typing import Any

Ctl = Callable[..., Any]
Make = Callable[..., Any]


def pages(client: Any, view: Make, count: int) -> None:
    """Let the client have `count` tasks."""

    def tasks(**options: Any) -> Iterator[Any]:
        limit = options["limit"]
        yield from (view(id=f"task-{index}") for index in range(count if limit is None else min(count, limit)))

    client.answers["iter_tasks"] = tasks


def test_filters_are_the_daemons_work(ctl: Ctl, client: Any, view: Make) -> None:
    """Statuses, batch and limit are handed on; one more is asked for, to know whether there are more."""
    pages(client, view, 1)
    ran = ctl("list", "-s", "running", "--status", "ready", "--batch", "ci-1", "-n", "5")
    assert (ran.code, ran.err) == (0, "")
    assert client.calls == [("iter_tasks", (), {"status": ["running", "ready"], "batch": "ci-1", "limit": 6})]


def test_more_than_the_limit_is_said(ctl: Ctl, client: Any, view: Make) -> None:
    """And exactly the limit is shown."""
    pages(client, view, 10)
    ran = ctl("list", "-n", "2")
    assert [line.split()[0] for line in ran.out.splitlines()] == ["ID", "task-0", "task-1"]
    assert ran.err == "schedctl: there are more than these 2; --all shows them, --limit another number\n"
    assert ctl("list", "-n", "10").err == ""


def test_all_has_no_limit(ctl: Ctl, client: Any, view: Make) -> None:
    """However many there are; JSON is a list."""
    pages(client, view, 250)
    ran = ctl("list", "--all", "--json")
    assert (len(json.loads(ran.out)), ran.err) == (250, "")


def test_no_tasks_is_no_failure(ctl: Ctl, client: Any, view: Make) -> None:
    """The message is on stderr, and JSON is an empty list."""
    pages(client, view, 0)
    assert ctl("list") == (0, "", "schedctl: there are no tasks\n")
    assert ctl("list", "-s", "failed") == (0, "", "schedctl: there are no such tasks\n")
    assert ctl("list", "--json") == (0, "[]\n", "")


EVENTS = [
    {"id": 1, "at": 0.0, "task": "a", "kind": "retry", "detail": {"delay": 0.5, "error": "exit code 1"}},
    {"id": 2, "at": 0.0, "task": None, "kind": "paused", "detail": None},
]


def test_events_are_shown_with_their_details(ctl: Ctl, client: Any) -> None:
    """One line each."""
    client.answers["events"] = {"events": EVENTS, "next": 2}
    ran = ctl("events", "--after", "0", "-n", "50")
    lines = [line.split() for line in ran.out.splitlines()]
    assert [[line[0], *line[2:]] for line in lines] == [
        ["EVENT", "TASK", "WHAT", "DETAIL"],
        ["1", "a", "retry", "delay=0.5", "error=exit", "code", "1"],
        ["2", "-", "paused"],
    ]
    assert client.calls == [("events", (0, 50), {})]
    assert ran.err == ""


def test_a_full_page_of_events_says_how_to_go_on(ctl: Ctl, client: Any) -> None:
    """With the id to go on from."""
    client.answers["events"] = {"events": EVENTS, "next": 2}
    assert ctl("events", "-n", "2").err == "schedctl: there may be more; `schedctl events --after 2` goes on\n"


def test_events_as_json_are_one_to_a_line(ctl: Ctl, client: Any) -> None:
    """So that a stream of them can be read."""
    client.answers["events"] = {"events": EVENTS, "next": 2}
    assert [json.loads(line) for line in ctl("events", "--json").out.splitlines()] == EVENTS


def test_following_ends_with_an_interrupt(ctl: Ctl, client: Any) -> None:
    """Quietly, with 130, after what had come."""

    def follow(after: int, follow: bool) -> Iterator[Any]:
        assert (after, follow) == (7, True)
        yield EVENTS[0]
        raise KeyboardInterrupt

    client.answers["iter_events"] = follow
    ran = ctl("events", "-f", "--after", "7", "--json")
    assert (ran.code, json.loads(ran.out), ran.err) == (130, EVENTS[0], "")
