"""Durations as people write them: `50ms`, `20m`, `1h30m`, or a number of seconds; and back.

It refuses to know calendars: a day is 24 hours, months and years do not exist. Exact integers inside, so that
`50ms` is the same float as `0.05`. Standard library only: the command line uses it.
Tests: tests/unit/test_durations.py.
"""

import math
import re
from itertools import pairwise
from typing import Final

from schedd.core import limits

EXAMPLES: Final = "write a number of seconds, or a text such as 50ms, 10s, 20m, 1h30m or 2d"

_PICOSECONDS: Final = 10**12
_DECIMALS: Final = 9
_UNITS: Final = {  # from big to small, in picoseconds: nine decimals of the smallest unit are a whole number of them
    "d": 86_400 * _PICOSECONDS,
    "h": 3_600 * _PICOSECONDS,
    "m": 60 * _PICOSECONDS,
    "s": _PICOSECONDS,
    "ms": _PICOSECONDS // 1_000,
}
_ORDER: Final = {unit: position for position, unit in enumerate(_UNITS)}
_MAX_CHARS: Final = 64
_PART: Final = re.compile(rf"([0-9]+)(?:\.([0-9]{{1,{_DECIMALS}}}))?([a-zµμ]*)", re.ASCII)


def parse_duration(text: str) -> float:
    """Seconds that `text` stands for, from 0 to `limits.MAX_DURATION_S`; a number without a unit counts seconds.

    Parts go from the biggest unit to the smallest, each unit once, with spaces between them or not. Raises ValueError
    with what is wrong and examples of what is right.
    """
    parts = _split(text)
    total = sum(_picoseconds(whole, decimals, unit or "s") for whole, decimals, unit in parts)
    if total > limits.MAX_DURATION_S * _PICOSECONDS:
        raise ValueError(f"{text.strip()} is too long: a duration is at most {format_duration(limits.MAX_DURATION_S)}")
    return total / _PICOSECONDS


def format_duration(seconds: float) -> str:
    """`seconds` as `parse_duration` reads it, to the microsecond: `1h30m`, `1m0.5s`, `50ms`, `0s`.

    Raises ValueError if it is negative or not finite.
    """
    if not math.isfinite(seconds) or seconds < 0:
        raise ValueError(f"a duration is a finite number from 0, not {seconds:g}")
    numerator, denominator = seconds.as_integer_ratio()
    microseconds = (2 * 1_000_000 * numerator + denominator) // (2 * denominator)
    if microseconds < 1_000_000:
        return f"{_decimal(microseconds, 1_000)}ms" if microseconds else "0s"
    minutes, rest = divmod(microseconds, 60_000_000)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    parts = [f"{count}{unit}" for count, unit in ((days, "d"), (hours, "h"), (minutes, "m")) if count]
    if rest:
        parts.append(f"{_decimal(rest, 1_000_000)}s")
    return "".join(parts)


def _split(text: str) -> list[tuple[str, str, str]]:
    """The parts of a duration as (whole digits, decimals, unit); the unit is empty in a lone number only."""
    words = text.strip()
    if not words:
        raise ValueError(f"a duration must not be empty; {EXAMPLES}")
    if len(words) > _MAX_CHARS:
        raise ValueError(f"a duration has at most {_MAX_CHARS} characters, not {len(words)}; {EXAMPLES}")
    if words[0] == "-":
        raise ValueError(f"a duration must not be negative, as {words} is; {EXAMPLES}")
    parts: list[tuple[str, str, str]] = []
    position = 0
    while position < len(words):
        match = _PART.match(words, position)
        if match is None:
            raise ValueError(f"{words!r} is not a duration; {EXAMPLES}")
        parts.append((match[1], match[2] or "", match[3]))
        position = match.end()
        while position < len(words) and words[position] == " ":
            position += 1
    _check_units(words, [unit for _, _, unit in parts])
    return parts


def _check_units(words: str, units: list[str]) -> None:
    if units == [""]:
        return
    for unit in units:
        if not unit:
            raise ValueError(f"a number in {words!r} has no unit; {EXAMPLES}")
        if unit not in _UNITS:
            raise ValueError(f"{words!r} has the unit {unit!r}; units are {', '.join(_UNITS)}")
    if any(_ORDER[left] >= _ORDER[right] for left, right in pairwise(units)):
        raise ValueError(f"the units of {words!r} must go from big to small, each once, as in 1h30m")


def _picoseconds(whole: str, decimals: str, unit: str) -> int:
    size = _UNITS[unit]
    return int(whole) * size + int(decimals.ljust(_DECIMALS, "0")) * (size // 10**_DECIMALS)


def _decimal(count: int, per_unit: int) -> str:
    """`count / per_unit` (a power of ten) in decimal digits, without zeros at the end."""
    whole, rest = divmod(count, per_unit)
    if not rest:
        return str(whole)
    digits = len(str(per_unit)) - 1
    return f"{whole}.{rest:0{digits}d}".rstrip("0")


assert all(size % 10**_DECIMALS == 0 for size in _UNITS.values())
