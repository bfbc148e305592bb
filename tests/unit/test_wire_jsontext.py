"""Strict JSON: what Python's reader would let through is refused, with the place."""

import pytest

from schedd import wire
from schedd.core import limits
from schedd.wire.jsontext import decode_json, find_unfit, has_lone_surrogate


def test_plain_json_is_read() -> None:
    """Every kind of JSON value comes out as Python's, a byte order mark is no trouble."""
    assert decode_json(b'\xef\xbb\xbf{"a": [1, 1.5, "\\u00fc", true, null]}') == {"a": [1, 1.5, "ü", True, None]}


@pytest.mark.parametrize(
    ("raw", "message"),
    [
        (b"", "the body is not JSON: Expecting value at line 1, column 1"),
        (b'{"a": 1,\n"b" 2}', "the body is not JSON: Expecting ':' delimiter at line 2, column 5"),
        (b'{"a": "\xff"}', "the body is not UTF-8 text: invalid start byte at byte 7"),
        ('{"a": 1}'.encode("utf-16"), "the body is not UTF-8 text"),
        (b'{"a": 1, "b": {"c": 1, "c": 2}}', "the key 'c' is there twice in one object"),
        (b"[NaN]", "NaN is not JSON"),
        (b"[-Infinity]", "-Infinity is not JSON"),
        (b"[" * 100_000, "nested too deeply"),
        (b'{"a":' * 100_000, "nested too deeply"),
        (b"9" * 10_000, "a number in the body is too large"),
        (b'{"a": 1} {"b": 2}', "Extra data at line 1, column 10"),
    ],
)  # fmt: skip
def test_what_is_not_strict_json_is_refused(raw: bytes, message: str) -> None:
    """The refusal is a SpecError about the whole document and says where and why."""
    with pytest.raises(wire.SpecError, match=message) as caught:
        decode_json(raw)
    assert caught.value.errors[0]["loc"] == []


@pytest.mark.parametrize(
    ("value", "loc", "message"),
    [
        ([0, {"a": [2**63]}], (1, "a", 0), "must be within"),
        ({"a": -(2**63)}, ("a",), "must be within"),
        ([float("nan")], (0,), "finite"),
        ({"a": "x\udc00"}, ("a",), "lone surrogate"),
        ({"a": {"\ud800": 1}}, ("a",), "unfit key"),
        ({1: 2}, (), "keys must be text"),
        ([object()], (0,), "must be a JSON value, not a object"),
        ((1,), (), "must be a JSON value, not a tuple"),
    ],
)
def test_unfit_values_are_found_with_their_place(value: object, loc: tuple[str | int, ...], message: str) -> None:
    """What SQLite, an answer or a worker could not carry is found wherever it is."""
    found = find_unfit(value)
    assert found is not None
    assert found[0] == loc
    assert message in found[1]


@pytest.mark.parametrize("value", [None, True, 2**63 - 1, -(2**63) + 1, 1.5, "ü\0", [], {}, {"a": [{"b": []}]}])
def test_fit_values_pass(value: object) -> None:
    """JSON values within the bounds are not touched."""
    assert find_unfit(value) is None


def test_depth_is_bounded() -> None:
    """The last allowed level passes and one more does not."""
    value: object = "leaf"
    for _ in range(limits.MAX_JSON_DEPTH):
        value = [value]
    assert find_unfit(value) is None
    found = find_unfit([value])
    assert found is not None
    assert "nested too deeply" in found[1]


def test_lone_surrogates_are_told_from_pairs() -> None:
    """A character outside of the basic plane is not mistaken for half of one."""
    assert has_lone_surrogate("\ud83d")
    assert not has_lone_surrogate("\U0001f600")
