"""JSON and JSON Lines, strictly: no key twice in one object, no NaN. Tests: tests/unit/test_specfile_json.py.

Python's reader knows no places. When one is asked for, the text (which has been read by then, or refused for a
reason that leaves its tokens intact) is walked once more by its tokens.
"""

import json
import re
from collections.abc import Iterator
from typing import Any, Final

from schedd.specfile.failure import Loc, Misread, Places, check_depth, position, too_deep

_TOKEN: Final = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*"|[{}\[\],:]|[^\s{}\[\],:"]+')
_CONSTANTS: Final = ("NaN", "Infinity", "-Infinity")


class _NotStrict(Exception):
    """Something that Python's reader takes and schedd refuses; the walk finds its place."""


def parse(text: str) -> Any:
    """The one JSON document that `text` is. Raises Misread."""
    try:
        data = json.loads(text, object_pairs_hook=_unique_object, parse_constant=_refuse_constant)
    except json.JSONDecodeError as error:
        hint = " (a file with one task on each line is named .jsonl)" if error.msg == "Extra data" else ""
        raise Misread(f"not valid JSON: {error.msg}{hint}", error.lineno, error.colno) from None
    except _NotStrict:
        raise _find_not_strict(text) from None
    except RecursionError:
        raise Misread(too_deep()) from None
    except ValueError:  # Python's own bound on the digits of an integer
        raise Misread("a number has too many digits") from None
    check_depth(data)
    return data


def places(text: str) -> Places:
    """The line of each key and list item of a document that `parse` has read."""
    found: Places = {}
    line, counted_to = 1, 0
    for loc, offset in _walk(text):
        line += text.count("\n", counted_to, offset)
        counted_to = offset
        found[loc] = line
    return found


def parse_lines(text: str) -> Any:
    """The spec that a text with one task on each line stands for; blank lines are skipped. Raises Misread."""
    tasks = []
    for number, line in _lines(text):
        try:
            task = parse(line)
        except Misread as error:
            raise Misread(error.message, number, error.column) from None
        if not isinstance(task, dict):
            raise Misread("each line must be a JSON object: one task", number, 1)
        tasks.append(task)
    return {"tasks": tasks}


def places_of_lines(text: str) -> Places:
    """The line of each task."""
    return {("tasks", index): number for index, (number, _) in enumerate(_lines(text))}


def _lines(text: str) -> Iterator[tuple[int, str]]:
    for number, line in enumerate(text.split("\n"), start=1):  # not splitlines: JSON text may hold U+2028
        if line.strip():
            yield number, line


def _walk(text: str) -> Iterator[tuple[Loc, int]]:
    """Each key and list item of well-formed JSON with its offset, in order."""
    path: list[str | int] = []  # the key or index that each open container is at
    at_key: list[bool] = []  # for each open container: whether the next string is a key
    for match in _TOKEN.finditer(text):
        piece = match[0]
        if piece in ("}", "]"):
            path.pop()
            at_key.pop()
        elif piece == ",":
            key = path[-1]
            if isinstance(key, int):
                path[-1] = key + 1
            else:
                at_key[-1] = True
        elif piece == ":":
            at_key[-1] = False
        elif at_key and at_key[-1]:
            path[-1] = json.loads(piece)
            yield tuple(path), match.start()
        else:
            if path and isinstance(path[-1], int):
                yield tuple(path), match.start()
            if piece in ("{", "["):
                path.append("" if piece == "{" else 0)
                at_key.append(piece == "{")


def _find_not_strict(text: str) -> Misread:
    """The first thing that makes well-formed JSON not strict, with its place."""
    suspects: list[tuple[int, str]] = []
    seen: set[Loc] = set()
    for loc, offset in _walk(text):
        if loc in seen:
            suspects.append((offset, f"the key {loc[-1]!r} is here for the second time; the first would be lost"))
            break
        seen.add(loc)
    for match in _TOKEN.finditer(text):
        if match[0] in _CONSTANTS:
            suspects.append((match.start(), f"{match[0]} is not JSON; numbers must be finite"))
            break
    offset, message = min(suspects)
    return Misread(message, *position(text, offset))


def _unique_object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) != len(pairs):
        raise _NotStrict
    return made


def _refuse_constant(name: str) -> object:
    raise _NotStrict(name)
