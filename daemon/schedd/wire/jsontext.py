"""JSON as schedd accepts it: UTF-8, no key twice in one object, no NaN, integers within 63 bits, bounded depth.

Python's own reader takes more than that (the last of two equal keys wins, `NaN`, `\\ud800`), and each of these would
lose something or break later, in SQLite or in an answer. Tests: tests/unit/test_wire_jsontext.py.
"""

import json
import math
from typing import Any

from schedd.core import limits
from schedd.wire.findings import SpecError

Loc = tuple[str | int, ...]


class _NotStrict(ValueError):
    """JSON that Python would read and schedd refuses."""


def decode_json(raw: bytes) -> object:
    """The object that `raw` stands for. Raises SpecError with the place of the mistake in its message."""
    try:
        text = raw.decode("utf-8")
    except UnicodeDecodeError as error:
        raise SpecError.at((), f"the body is not UTF-8 text: {error.reason} at byte {error.start}") from None
    try:
        return json.loads(
            text.removeprefix("\ufeff"), object_pairs_hook=_unique_object, parse_constant=_refuse_constant
        )
    except json.JSONDecodeError as error:
        where = f"line {error.lineno}, column {error.colno}"
        raise SpecError.at((), f"the body is not JSON: {error.msg} at {where}") from None
    except _NotStrict as error:
        raise SpecError.at((), str(error)) from None
    except RecursionError:
        raise SpecError.at((), f"the body is nested too deeply; {limits.MAX_JSON_DEPTH} levels are allowed") from None
    except ValueError:  # Python's own bound on the digits of an integer
        raise SpecError.at((), f"a number in the body is too large; integers go up to {limits.MAX_INTEGER}") from None


def find_unfit(value: object) -> tuple[Loc, str] | None:
    """The place of the first thing in `value` that is not strict JSON, and what is wrong with it; None if all is well.

    Bounds: integers within 63 bits, finite numbers, text without lone surrogates, `limits.MAX_JSON_DEPTH` levels.
    """
    stack: list[tuple[Loc, object]] = [((), value)]
    while stack:
        loc, item = stack.pop()
        if isinstance(item, dict):
            children: list[tuple[str | int, object]] = list(item.items())
            for key, _ in children:
                wrong = "keys must be text" if not isinstance(key, str) else _wrong_with(key)
                if wrong:
                    return loc, f"has an unfit key: {wrong}"
        elif isinstance(item, list):
            children = list(enumerate(item))
        else:
            wrong = _wrong_with(item)
            if wrong:
                return loc, wrong
            continue
        if len(loc) >= limits.MAX_JSON_DEPTH:
            return loc, f"is nested too deeply; {limits.MAX_JSON_DEPTH} levels are allowed"
        stack.extend((((*loc, key), child)) for key, child in reversed(children))
    return None


def _wrong_with(scalar: object) -> str | None:
    if scalar is None or isinstance(scalar, bool):
        return None
    if isinstance(scalar, str):
        return "holds a lone surrogate, which is not a character" if has_lone_surrogate(scalar) else None
    if isinstance(scalar, int):
        return None if abs(scalar) <= limits.MAX_INTEGER else f"must be within {limits.MAX_INTEGER} of zero"
    if isinstance(scalar, float):
        return None if math.isfinite(scalar) else f"must be a finite number, not {scalar}"
    return f"must be a JSON value, not a {type(scalar).__name__}"


def has_lone_surrogate(text: str) -> bool:
    """Whether `text` holds half of a surrogate pair, which no encoding can carry."""
    if text.isascii():
        return False
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return True
    return False


def _unique_object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) != len(pairs):
        seen: set[str] = set()
        twice = next(key for key, _ in pairs if key in seen or seen.add(key))  # type: ignore[func-returns-value]
        raise _NotStrict(f"the key {twice[:100]!r} is there twice in one object; the first would be lost")
    return made


def _refuse_constant(name: str) -> object:
    raise _NotStrict(f"{name} is not JSON; numbers must be finite")
