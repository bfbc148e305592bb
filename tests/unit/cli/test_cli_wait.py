"""`wait`."""

import json
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from schedd.cli import wait

Ctl = Callable[..., Any]


def waited(done: bool = True, unsuccessful: Sequence[str] = (), **counts: int) -> dict[str, Any]:
    """A WaitAnswer; `unsuccessful` are ids of failed tasks."""
    return {
        "done": done,
        "open": counts.get("running", 0),
        "counts": counts,
        "unsuccessful": [{"id": name, "status": "failed", "error": "exit code 1"} for name in unsuccessful],
    }


def test_success_is_quiet(ctl: Ctl, client: Any) -> None:
    """Exit code 0 says all."""
    client.answers["wait"] = waited(succeeded=2)
    assert ctl("wait", "a", "b") == (0, "", "")
    assert client.calls == [("wait", (["a", "b"], None), {})]


def test_what_did_not_succeed_is_told(ctl: Ctl, client: Any) -> None:
    """On stderr, with the reason, and exit code 1."""
    client.answers["wait"] = waited(unsuccessful=["a"], failed=1)
    assert ctl("wait", "a") == (1, "", "schedctl: a failed: exit code 1\n")


def test_many_failures_are_counted(ctl: Ctl, client: Any) -> None:
    """Twenty lines are enough; the rest is a number."""
    client.answers["wait"] = waited(unsuccessful=[f"t{index}" for index in range(100)], failed=500, skipped=3)
    lines = ctl("wait", "ci-1").err.splitlines()
    assert len(lines) == wait.SHOWN + 1
    assert lines[-1] == "schedctl: and 483 more did not succeed"


def test_a_timeout_is_exit_code_1_with_a_message(ctl: Ctl, client: Any) -> None:
    """Nothing failed, but not all is done."""
    client.answers["wait"] = waited(done=False, running=2)
    assert ctl("wait", "--timeout", "50ms", "a") == (1, "", "schedctl: 2 tasks had not ended after 0.05s\n")
    ((_, (ids, timeout), _),) = client.calls
    assert ids == ["a"]
    assert 0 <= timeout <= 0.05


def test_json_is_printed_whatever_the_end(ctl: Ctl, client: Any) -> None:
    """With the counts of all that was waited for."""
    client.answers["wait"] = waited(unsuccessful=["a"], failed=1)
    ran = ctl("wait", "--json", "a")
    assert (ran.code, json.loads(ran.out)) == (1, waited(unsuccessful=["a"], failed=1))


def test_many_ids_are_asked_for_in_turn(client: Any) -> None:
    """No request grows without bound, and the answer is the sum."""
    client.answers["wait"] = lambda ids, timeout: waited(succeeded=len(ids))
    ids = [str(index) for index in range(2 * wait.IDS_PER_REQUEST + 1)]
    answer = wait.wait_for(client, ids)
    assert answer == waited(succeeded=len(ids))
    assert [len(arguments[0]) for _, arguments, _ in client.calls] == [wait.IDS_PER_REQUEST] * 2 + [1]


def test_fail_fast_returns_at_the_first_failure(ctl: Ctl, client: Any) -> None:
    """Although others still run."""
    answers = iter([waited(done=False, running=2), waited(done=False, unsuccessful=["a"], failed=1, running=1)])
    client.answers["wait"] = lambda ids, timeout: next(answers)
    assert ctl("wait", "--fail-fast", "a", "b") == (1, "", "schedctl: a failed: exit code 1\n")
    assert [arguments[1] for _, arguments, _ in client.calls] == [wait.GLANCE_S] * 2


@pytest.mark.parametrize("options", [(), ("--fail-fast",)])
def test_a_bad_timeout_asks_nobody(ctl: Ctl, client: Any, options: tuple[str, ...]) -> None:
    """It is wrong use."""
    ran = ctl("wait", *options, "--timeout", "soon", "a")
    assert (ran.code, client.calls) == (2, [])
    assert ran.err.startswith("schedctl: --timeout: ")
