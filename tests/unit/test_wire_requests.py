"""The small requests: ids, an edge, nothing."""

import json

import pytest

from schedd import wire
from schedd.core import limits
from schedd.core.model import When


def test_ids_are_read_in_order() -> None:
    """The ids come back as given, full ids and numbers alike."""
    assert wire.parse_ids(b'{"ids": ["ci-1/build", "7", "a"]}') == ("ci-1/build", "7", "a")


def test_an_edge_has_a_default_end() -> None:
    """`when` is `succeeded` unless the request says otherwise."""
    assert wire.parse_depend(b'{"before": "a", "after": "b"}') == ("a", "b", When.SUCCEEDED)
    assert wire.parse_depend(b'{"before": "a", "after": "b", "when": "finished"}') == ("a", "b", When.FINISHED)


@pytest.mark.parametrize("raw", [b"", b"{}", b" {} "])
def test_an_empty_request_is_empty(raw: bytes) -> None:
    """No body and an empty object both say nothing."""
    wire.parse_empty(raw)


@pytest.mark.parametrize(
    ("raw", "loc", "message"),
    [
        (b"{}", ["ids"], "is needed here"),
        (b"[]", [], "the body must be a JSON object, not a list"),
        (b'{"ids": []}', ["ids"], "must not be empty"),
        (b'{"ids": "a"}', ["ids"], "must be a list"),
        (b'{"ids": [7]}', ["ids", 0], "must be text, not the number 7"),
        (b'{"ids": ["a", ""]}', ["ids", 1], "must not be empty"),
        (rb'{"ids": ["\ud800"]}', ["ids", 0], "lone surrogate"),
        (rb'{"ids": ["\u0000"]}', ["ids", 0], "cannot be printed"),
        (b'{"ids": ["a"], "id": 1}', ["id"], "unknown key 'id'; did you mean 'ids'?"),
        (json.dumps(dict.fromkeys(map(str, range(50)))).encode(), [], "the body has 50 keys"),
        (json.dumps({"ids": ["a"] * (limits.MAX_IDS_PER_REQUEST + 1)}).encode(), ["ids"], "has 10001 entries"),
    ],
)
def test_wrong_lists_of_ids_are_refused(raw: bytes, loc: list[str | int], message: str) -> None:
    """The refusal names the place and what is wrong there."""
    with pytest.raises(wire.SpecError) as caught:
        wire.parse_ids(raw)
    assert caught.value.errors[0]["loc"] == loc
    assert message in caught.value.errors[0]["message"]


@pytest.mark.parametrize(
    ("raw", "loc"),
    [
        (b'{"before": "a"}', ["after"]),
        (b'{"before": "a", "after": "b", "when": "ready"}', ["when"]),
        (b'{"before": "a", "after": "b", "wen": "failed"}', ["wen"]),
    ],
)
def test_wrong_edges_are_refused(raw: bytes, loc: list[str | int]) -> None:
    """Both ends are needed, and `when` is one of three words."""
    with pytest.raises(wire.SpecError) as caught:
        wire.parse_depend(raw)
    assert caught.value.errors[0]["loc"] == loc


def test_a_request_that_should_be_empty_may_not_say_anything() -> None:
    """A key in a request that has none is a misunderstanding and is refused."""
    with pytest.raises(wire.SpecError, match="unknown key"):
        wire.parse_empty(b'{"ids": []}')
