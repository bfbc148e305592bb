"""Whatever text comes in, what comes out is data that can be sent or an error of the file."""

import io
import json
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from schedd import specfile, wire
from schedd.core.errors import Refused
from schedd.specfile import yaml_text

FRAGMENTS = [
    "tasks:", "  a:", "    run: x", "- ", "&a ", "*a", "<<: ", "{", "}", "[", "]", ", ", ": ", "\n", "'", '"', "#",
    "? ", "!!str ", "| ", "---", "...", "on", "0755", "12:30", "2024-01-01", "1e9", "[tasks.a]", "[[tasks]]", "run = ",
    '"x"', "'''", '"""', "\\", "=", ".", "\t", '{"run": "x"}', "null", "NaN", "\ufeff", "\x00", "\u2028", "é",
]  # fmt: skip


def check(text: str) -> None:
    """Read a text as standard input, and if it is data, send it through what follows."""
    try:
        read = specfile.load("-", io.BytesIO(text.encode()))
    except specfile.SpecFileError as error:
        message = str(error)
    else:
        json.dumps(read.data, allow_nan=False)
        read.locate(["tasks", "a", "run"])
        try:
            wire.parse_batch(specfile.with_base_dir(read.data, "/base"))
        except Refused as refusal:
            message = str(refusal)
            lines = specfile.render_errors(read.path, getattr(refusal, "errors", []), read.locate)
            assert all(line.startswith("<stdin>") for line in lines)
        else:
            message = "accepted"
    assert message


@given(st.text(st.characters(codec="utf-8"), max_size=60))
def test_any_text_is_data_or_an_error(text: str) -> None:
    """Arbitrary text never fails in any other way than with an error of the file or of the spec."""
    check(text)


@settings(max_examples=400)
@given(st.lists(st.sampled_from(FRAGMENTS), max_size=16))
def test_anything_made_of_the_formats_parts_is_data_or_an_error(parts: list[str]) -> None:
    """Nor does text made of what the formats are made of."""
    check("".join(parts))


words = st.text(st.characters(codec="utf-8", exclude_categories=["Cc"], exclude_characters="\ufffe\uffff"), max_size=20)
documents = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | words,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(words, inner, max_size=4),
    max_leaves=12,
)


def places_in(value: Any, loc: tuple[str | int, ...] = ()) -> set[tuple[str | int, ...]]:
    """Every place of a value, found by walking the value."""
    children = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    found = {loc} if loc else set()
    for key, child in children:
        found |= places_in(child, (*loc, key))
    return found


@given(documents, st.sampled_from([None, 2]))
def test_json_read_as_yaml_is_the_same_document(value: Any, indent: int | None) -> None:
    """JSON is YAML: the two readers agree on the data, and every place in it has a line."""
    text = json.dumps(value, indent=indent, ensure_ascii=False)
    assert yaml_text.parse(text) == value
    assert yaml_text.places(text).keys() == places_in(value)
