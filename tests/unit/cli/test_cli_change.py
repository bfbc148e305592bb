"""Verbs that change what is there."""

from collections.abc import Callable
from typing import Any

import pytest

Ctl = Callable[..., Any]


@pytest.mark.parametrize("verb", ["cancel", "hold", "release"])
def test_ids_go_to_stdout_and_refusals_to_stderr(ctl: Ctl, client: Any, verb: str) -> None:
    """One refusal makes the exit code 4 and keeps no other id from being told."""
    client.answers[verb] = {
        "results": [
            {"id": "a", "ok": True},
            {"id": "b", "ok": False, "error": "already_ended", "message": "b has already ended"},
            {"id": "c", "ok": True},
        ]
    }
    assert ctl(verb, "a", "b", "c") == (4, "a\nc\n", "schedctl: b has already ended\n")
    assert client.calls == [(verb, (["a", "b", "c"],), {})]


@pytest.mark.parametrize("verb", ["cancel", "hold", "release"])
def test_all_done_is_exit_code_0(ctl: Ctl, client: Any, verb: str) -> None:
    """And nothing on stderr."""
    client.answers[verb] = {"results": [{"id": "a", "ok": True}]}
    assert ctl(verb, "a") == (0, "a\n", "")


@pytest.mark.parametrize(
    ("arguments", "when", "added", "said"),
    [
        ((), "succeeded", True, "b now waits until a has succeeded"),
        (("--when", "failed"), "failed", True, "b now waits until a has failed"),
        (("--when", "finished"), "finished", False, "b waited already until a has finished, however it ends"),
    ],
)
def test_depend_says_what_waits_for_what(
    ctl: Ctl, client: Any, arguments: tuple[str, ...], when: str, added: bool, said: str
) -> None:
    """In words, on stderr; an edge that was there is no failure."""
    client.answers["depend"] = {"before": "a", "after": "b", "when": when, "added": added}
    assert ctl("depend", *arguments, "a", "b") == (0, "", f"schedctl: {said}\n")
    assert client.calls == [("depend", ("a", "b", when), {})]


@pytest.mark.parametrize(("verb", "paused", "said"), [("pause", True, "paused"), ("resume", False, "resumed")])
def test_pause_and_resume_say_what_holds_now(ctl: Ctl, client: Any, verb: str, paused: bool, said: str) -> None:
    """Twice is no failure."""
    client.answers[verb] = {"paused": paused}
    ran = ctl(verb)
    assert (ran.code, ran.out) == (0, "")
    assert ran.err.startswith(f"schedctl: {said}: ")
