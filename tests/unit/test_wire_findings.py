"""Mistakes in words: nearest keys, what was found instead, and answers that can be sent whatever the input was."""

import json

import pytest

from schedd.core import limits
from schedd.core.errors import InvalidRequest
from schedd.wire.findings import Findings, SpecError, describe, unknown_key
from schedd.wire.spec import TASK_KEYS


@pytest.mark.parametrize(
    ("key", "suggestion"),
    [
        ("comand", "did you mean 'command'?"),
        ("timeot", "did you mean 'timeout'?"),
        ("Deps", "did you mean 'deps'?"),
        ("needs", "did you mean `deps`?"),
        ("depends-on", "did you mean `deps`?"),
        ("cmd", "did you mean `run` (shell text) or `command` (a list)`?"),
        ("retries", "did you mean `retry: {max_attempts: ...}`?"),
        ("max_attempts", "did you mean `retry: {max_attempts: ...}`?"),
        ("environment", "did you mean `env`?"),
        ("frobnicate", "the keys here are args, call, catch_up, command,"),
    ],
)
def test_unknown_keys_name_the_nearest_known_one(key: str, suggestion: str) -> None:
    """By likeness, or by the word that other tools have for it; else all keys are named."""
    message = unknown_key(key, TASK_KEYS)
    assert message.startswith(f"unknown key {key!r}; ")
    assert suggestion in message


def test_a_word_of_other_tools_is_suggested_only_where_its_key_is_known() -> None:
    """`needs` is no hint in a mapping that has no `deps`."""
    assert "deps" not in unknown_key("needs", {"name", "tasks"})


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (None, "null"),
        (True, "true"),
        (5, "the number 5"),
        (1.25, "the number 1.25"),
        (10**50, "the number with more than 38 digits"),
        ("x" * 100, f"the text {'x' * 57 + '...'!r}"),
        ({}, "a mapping"),
        ([], "a list"),
        (b"", "a bytes"),
    ],
)
def test_values_are_described_by_kind(value: object, words: str) -> None:
    """What was found is shown briefly, whatever its size."""
    assert describe(value) == words


def test_the_error_text_shows_the_first_and_counts_the_rest() -> None:
    """A SpecError reads as its first error, with its place, and says how many more there are."""
    findings = Findings()
    findings.add(("tasks", "a", "deps", 0), "is wrong")
    findings.add((), "is wrong too")
    with pytest.raises(SpecError) as caught:
        findings.raise_if_any()
    assert str(caught.value) == "tasks.a.deps[0]: is wrong (and 1 more)"
    assert isinstance(caught.value, InvalidRequest)
    assert caught.value.code == "invalid"
    assert str(SpecError.at((), "is wrong")) == "is wrong"


def test_nothing_is_raised_for_nothing() -> None:
    """Without errors there is no refusal."""
    Findings().raise_if_any()


def test_errors_can_always_be_sent() -> None:
    """Lone surrogates and huge keys from the document do not break the answer about them."""
    error = SpecError.at(("\ud800", "k" * 100_000), "m\udfff" + "x" * 100_000)
    (item,) = error.errors
    json.dumps(item, ensure_ascii=False).encode("utf-8")
    assert item["loc"][0] == "\\ud800"
    assert len(str(item["loc"][1])) == 2 * limits.MAX_ID_CHARS
    assert len(item["message"]) <= limits.MAX_ERROR_CHARS + 5
