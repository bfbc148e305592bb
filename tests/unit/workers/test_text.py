"""Text from tasks, made fit for a row."""

from typing import Any

import pytest

from schedd.core import limits
from schedd.workers import text


@pytest.mark.parametrize(
    ("raw", "clean"),
    [("plain", "plain"), ("é", "é"), ("a\0b", "a\N{REPLACEMENT CHARACTER}b"), ("a\ud800b", "a?b"), ("", "")],
)
def test_clean(raw: str, clean: str) -> None:
    """NULs and lone surrogates are replaced, all else is left."""
    assert text.clean(raw) == clean


def test_clean_bounds() -> None:
    """A text is cut to the bound, and one can see it."""
    assert text.clean("x" * limits.MAX_ERROR_CHARS) == "x" * limits.MAX_ERROR_CHARS
    cut = text.clean("x" * (limits.MAX_ERROR_CHARS + 1))
    assert len(cut) == limits.MAX_ERROR_CHARS
    assert cut.endswith("…")


def looping() -> list[Any]:
    items: list[Any] = []
    items.append(items)
    return items


@pytest.mark.parametrize("value", [object(), {1, 2}, float("nan"), looping(), {(1,): 2}, "x" * limits.MAX_RESULT_CHARS])
def test_no_result(value: Any) -> None:
    """What JSON cannot hold, and what is too long, is no result."""
    assert text.of_result(value) is None


class Odd(ConnectionError):
    """An exception of one's own."""


def test_the_classes_of_an_exception_are_named_bare_and_in_full() -> None:
    """Itself and all that it is derived from, the nearest first."""
    names = text.of_class(Odd())
    assert names[:4] == ("Odd", f"{__name__}.Odd", "ConnectionError", "builtins.ConnectionError")
    assert {"OSError", "Exception", "BaseException"} <= set(names)
    assert "object" not in names
