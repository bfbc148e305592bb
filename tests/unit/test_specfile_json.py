"""JSON and JSON Lines: strictness, places, and that places agree with the data."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schedd.specfile import json_text
from schedd.specfile.failure import Misread

TWICE = "the key '{}' is here for the second time; the first would be lost"


@pytest.mark.parametrize(
    ("text", "message", "line", "column"),
    [
        ('{"a": 1,\n "b": }', "not valid JSON: Expecting value", 2, 7),
        ('{"a": 1}\n{"a": 2}', "not valid JSON: Extra data (a file with one task on each line is named .jsonl)", 2, 1),
        ('{"a": {"b": 1},\n  "a": 2}', TWICE.format("a"), 2, 3),
        ('{"a": [{"b": 1, "c": 2,\n "b": 3}]}', TWICE.format("b"), 2, 2),
        ('{"a":\n NaN}', "NaN is not JSON; numbers must be finite", 2, 2),
        ('{"a": "NaN",\n "b": -Infinity}', "-Infinity is not JSON; numbers must be finite", 2, 7),
        ('{"\\u0061": 1, "a": 2}', TWICE.format("a"), 1, 15),
    ],
)  # fmt: skip
def test_what_is_not_strict_json_is_refused_with_its_place(text: str, message: str, line: int, column: int) -> None:
    """Broken text, a repeated key and an infinite number are refused where they stand."""
    with pytest.raises(Misread) as caught:
        json_text.parse(text)
    assert (caught.value.message, caught.value.line, caught.value.column) == (message, line, column)


def test_lines_are_tasks() -> None:
    """Each line that is not blank is one task, whatever separators its text holds."""
    text = '{"run": "a\u2028b"}\r\n\n{"run": "c"}\n'
    assert json_text.parse_lines(text) == {"tasks": [{"run": "a\u2028b"}, {"run": "c"}]}
    assert json_text.places_of_lines(text) == {("tasks", 0): 1, ("tasks", 1): 3}


@pytest.mark.parametrize(
    ("text", "message", "column"),
    [
        ('{"run": "a"}\n[1]', "each line must be a JSON object: one task", 1),
        ('{"run": "a"}\n{"run": }', "not valid JSON: Expecting value", 9),
        ('{"run": "a"}\n{"run": 1, "run": 2}', TWICE.format("run"), 12),
    ],
)  # fmt: skip
def test_a_wrong_line_is_named(text: str, message: str, column: int) -> None:
    """An error in a line has the number of the line and the column within it."""
    with pytest.raises(Misread) as caught:
        json_text.parse_lines(text)
    assert (caught.value.message, caught.value.line, caught.value.column) == (message, 2, column)


def places_in(value: Any, loc: tuple[str | int, ...] = ()) -> set[tuple[str | int, ...]]:
    """Every place of a value, found by walking the value."""
    children = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    found = {loc} if loc else set()
    for key, child in children:
        found |= places_in(child, (*loc, key))
    return found


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
        lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
        max_leaves=20,
    ),
    st.sampled_from([None, 0, 2]),
    st.booleans(),
)
def test_the_walk_finds_every_place_and_no_other(value: Any, indent: int | None, ensure_ascii: bool) -> None:
    """The walk over tokens agrees with the data, whatever strings and nesting hold."""
    text = json.dumps(value, indent=indent, ensure_ascii=ensure_ascii)
    assert json_text.places(text).keys() == places_in(value)
    assert json_text.parse(text) == value
