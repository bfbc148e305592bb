"""One line on what a task does."""

import json
from typing import Any

import pytest

from schedd.api.what import MAX_CHARS, what


@pytest.mark.parametrize(
    ("work", "line"),
    [
        ({"run": "make all"}, "make all"),
        ({"run": "  cd x\n\tmake\r\n"}, "cd x make"),
        ({"command": ["echo", "a b", "$HOME"]}, "echo 'a b' '$HOME'"),
        ({"call": "m.n:f"}, "m.n:f()"),
        ({"call": "m:f", "args": [1, "é"], "kwargs": {"x": None}}, 'm:f(1, "é", x=null)'),
    ],
)
def test_the_work_is_put_into_one_line(work: dict[str, Any], line: str) -> None:
    """Each kind of work as people would write it."""
    assert what(json.dumps(work)) == line


def test_a_long_line_is_cut() -> None:
    """However long the work is, the line is bounded and says that it was cut."""
    line = what(json.dumps({"run": "x" * 5_000_000}))
    assert len(line) == MAX_CHARS
    assert line.endswith("…")


@pytest.mark.parametrize("payload", ["{broken", "[1]", "null", "", '{"x": 1}'])
def test_a_damaged_payload_is_no_error(payload: str) -> None:
    """What cannot be read is shown as it is, or as unknown work."""
    assert isinstance(what(payload), str)
