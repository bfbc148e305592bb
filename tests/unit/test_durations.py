"""Durations in words: what is read, what is written, what is refused."""

import math

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from schedd.core import limits
from schedd.durations import format_duration, parse_duration


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("0", 0.0),
        ("90", 90.0),
        ("0.5", 0.5),
        ("50ms", 0.05),
        ("10s", 10.0),
        ("20m", 1_200.0),
        ("1h30m", 5_400.0),
        ("2d", 172_800.0),
        ("1.5h", 5_400.0),
        ("1d2h3m4s5ms", 93_784.005),
        ("1h 30m", 5_400.0),
        ("  7s ", 7.0),
        ("0.1s", 0.1),
        ("1.000000001ms", 0.001000000001),
    ],
)
def test_reads_every_form(text: str, seconds: float) -> None:
    """Numbers count seconds, units add up, and the float is the nearest one to the exact value."""
    assert parse_duration(text) == seconds


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "must not be empty"),
        ("   ", "must not be empty"),
        ("soon", "is not a duration"),
        ("-5s", "must not be negative"),
        ("1h30", "has no unit"),
        ("10 20", "has no unit"),
        ("5min", "units are d, h, m, s, ms"),
        ("5µs", "units are d, h, m, s, ms"),
        ("30m1h", "from big to small"),
        ("1m1m", "from big to small"),
        ("1.s", "is not a duration"),
        (".5s", "is not a duration"),
        ("1e3", "units are d, h, m, s, ms"),
        ("5S", "is not a duration"),
        ("٣s", "is not a duration"),
        ("inf", "is not a duration"),
        ("9" * 65, "at most 64 characters"),
        ("9" * 60, "is too long"),
        ("40000d", "is too long"),
        ("5s\0", "is not a duration"),
    ],
)
def test_refuses_with_the_reason(text: str, reason: str) -> None:
    """What is not a duration is refused with what is wrong with it."""
    with pytest.raises(ValueError, match=reason):
        parse_duration(text)


def test_refusal_shows_examples() -> None:
    """The message for a text that makes no sense says what would."""
    with pytest.raises(ValueError, match="50ms, 10s, 20m, 1h30m or 2d"):
        parse_duration("a while")


def test_the_longest_duration_is_allowed() -> None:
    """The bound itself is within the bound."""
    assert parse_duration(f"{limits.MAX_DURATION_S:.0f}s") == limits.MAX_DURATION_S


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0s"),
        (0.05, "50ms"),
        (0.0015, "1.5ms"),
        (1e-9, "0s"),
        (0.9999999, "1s"),
        (1, "1s"),
        (1.5, "1.5s"),
        (60, "1m"),
        (5_400, "1h30m"),
        (90.25, "1m30.25s"),
        (86_400, "1d"),
        (93_784.005, "1d2h3m4.005s"),
    ],
)
def test_writes_the_shortest_form(seconds: float, text: str) -> None:
    """Units that count nothing are left out, and so are zeros at the end."""
    assert format_duration(seconds) == text


@pytest.mark.parametrize("seconds", [-1.0, math.inf, -math.inf, math.nan])
def test_writes_no_impossible_duration(seconds: float) -> None:
    """A negative number, an infinity and NaN are no durations."""
    with pytest.raises(ValueError, match="finite number from 0"):
        format_duration(seconds)


@given(st.integers(0, int(limits.MAX_DURATION_S) * 1_000))
@example(int(limits.MAX_DURATION_S) * 1_000)
def test_whole_milliseconds_come_back_exactly(milliseconds: int) -> None:
    """A duration of whole milliseconds is the same float after being written and read."""
    seconds = milliseconds / 1_000
    assert parse_duration(format_duration(seconds)) == seconds


@given(st.floats(0, limits.MAX_DURATION_S))
def test_every_duration_comes_back_to_the_microsecond(seconds: float) -> None:
    """What is written can be read, and is off by half a microsecond at most (and a float's own step)."""
    assert abs(parse_duration(format_duration(seconds)) - seconds) <= 0.5e-6 + math.ulp(seconds)


@given(st.text(alphabet="0123456789.dhms -µx", max_size=20) | st.text(max_size=20))
def test_any_text_is_read_or_refused(text: str) -> None:
    """Nothing but a number within the bounds or a ValueError comes out."""
    try:
        seconds = parse_duration(text)
    except ValueError:
        return
    assert 0 <= seconds <= limits.MAX_DURATION_S
