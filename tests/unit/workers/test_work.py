"""Payloads: what is read from them, and what is refused."""

import json
from typing import Any

import pytest

from schedd.workers.work import BadPayload, Work, decode


def test_decode() -> None:
    """Every key of a payload becomes a field; those left out have their defaults."""
    work = decode(json.dumps({"command": ["a", "b"], "cwd": "/", "env": {"A": "1"}, "timeout": 2, "grace": 0.5}))
    assert (work.command, work.cwd, work.env, work.timeout, work.grace) == (["a", "b"], "/", {"A": "1"}, 2, 0.5)
    assert decode('{"run": "x"}') == Work(run="x")
    assert decode('{"call": "m:f"}').in_thread is False
    assert decode('{"call": "m:f", "isolation": "thread"}').in_thread is True


def test_work_is_its_own_payload() -> None:
    """In memory a payload is a Work."""
    work = Work.of_function(len, ["abc"])
    assert decode(work) is work
    assert work.in_thread


@pytest.mark.parametrize(
    "payload",
    [
        None,
        "",
        "{",
        "[]",
        "{}",
        "[" * 100_000,
        {"run": "x", "command": ["y"]},
        {"run": 1},
        {"run": "x", "shell": True},
        {"run": "x", "function": "y"},
        {"command": []},
        {"command": "x"},
        {"command": ["x", 1]},
        {"call": "m:f", "args": {}},
        {"call": "m:f", "kwargs": []},
        {"call": "m:f", "isolation": "none"},
        {"run": "x", "env": {"A": 1}},
        {"run": "x", "cwd": 1},
        {"run": "x", "timeout": "1"},
        {"run": "x", "timeout": -1},
        {"run": "x", "timeout": float("nan")},
        {"run": "x", "timeout": True},
        {"run": "x", "grace": float("inf")},
        {"run": "x", "grace": None, "timeout": 10**400},
    ],
)
def test_damaged(payload: Any) -> None:
    """A damaged payload is refused with a sentence, never with another error."""
    with pytest.raises(BadPayload, match="the stored task"):
        decode(json.dumps(payload) if isinstance(payload, dict) else payload)
