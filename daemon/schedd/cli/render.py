"""What people see: aligned columns, ages, colours; and JSON for programs.

It refuses to know tasks and daemons: it gets texts and numbers. Nothing that comes from outside reaches a terminal
with control characters in it (`printable`). Own code because rich takes longer to import than `schedctl status` may
take in all. Tests: tests/unit/cli/test_cli_render.py.
"""

import json
import os
import shutil
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple, TextIO

_RESET: Final = "\x1b[0m"
_COLOURS: Final[Mapping[str, str]] = {
    "bold": "\x1b[1m",
    "dim": "\x1b[2m",
    "succeeded": "\x1b[32m",
    "running": "\x1b[36m",
    "failed": "\x1b[31m",
    "timed_out": "\x1b[31m",
    "crashed": "\x1b[31m",
    "start_failed": "\x1b[31m",
    "cancelled": "\x1b[33m",
    "interrupted": "\x1b[33m",
    "skipped": "\x1b[33m",
}
_GAP: Final = "  "
_ELLIPSIS: Final = "…"
_NARROWEST: Final = 12  # a cut last column keeps at least this much


class Screen(NamedTuple):
    """Where text goes: how wide it is (None: lines are not cut) and whether it shows colours."""

    width: int | None = None
    colour: bool = False

    @classmethod
    def of(cls, stream: TextIO) -> "Screen":
        """What `stream` can show: colours and a width on a terminal only; `NO_COLOR` and `TERM=dumb` are heard."""
        if not stream.isatty():
            return cls()
        colour = not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
        return cls(shutil.get_terminal_size().columns, colour)

    def paint(self, text: str, style: str) -> str:
        """`text` in the colour of `style` (a status, an outcome, `bold` or `dim`), if it has one and is shown."""
        colour = _COLOURS.get(style)
        return f"{colour}{text}{_RESET}" if self.colour and colour and text else text


class Cell(NamedTuple):
    """A text in a table, and the style it is painted in."""

    text: str
    style: str = ""


def stdout_screen() -> Screen:
    """What stdout can show."""
    return Screen.of(sys.stdout)


def write(lines: Iterable[str]) -> None:
    """Print lines to stdout."""
    for line in lines:
        sys.stdout.write(f"{line}\n")


def write_json(value: object) -> None:
    """Print `value` as one JSON document: indented on a terminal, on one line elsewhere."""
    text = json.dumps(value, indent=2 if sys.stdout.isatty() else None)  # not `dump`, which is ten times slower
    sys.stdout.write(f"{text}\n")


def table(
    header: Sequence[str], rows: Iterable[Sequence[str | Cell]], screen: Screen, right: Iterable[str] = ()
) -> Iterator[str]:
    """Lines of aligned columns; those named in `right` are aligned to the right. The last one is cut to the screen."""
    cells = [[cell if isinstance(cell, Cell) else Cell(cell) for cell in row] for row in rows]
    clean = [[cell._replace(text=printable(cell.text)) for cell in row] for row in cells]
    titled = [[Cell(title, "bold") for title in header], *clean]
    widths = [max(width(row[column].text) for row in titled) for column in range(len(header))]
    last = len(header) - 1
    if screen.width is not None:
        room = screen.width - sum(widths[:last]) - len(_GAP) * last
        widths[last] = min(widths[last], max(room, _NARROWEST))
    to_right = {header.index(title) for title in right}
    for row in titled:
        yield _GAP.join(
            _fit(cell, widths[column], column in to_right, column == last, screen) for column, cell in enumerate(row)
        ).rstrip()


def pairs(rows: Iterable[tuple[str, str | Cell]], screen: Screen) -> Iterator[str]:
    """Lines of `name  value`, the values aligned; a value of several lines stays in its column."""
    known = [(name, value if isinstance(value, Cell) else Cell(value)) for name, value in rows]
    left = max((width(name) for name, _ in known), default=0)
    for name, cell in known:
        lines = [printable(line) for line in cell.text.splitlines()] or [""]
        for index, line in enumerate(lines):
            title = screen.paint(name.ljust(left), "dim") if index == 0 else " " * left
            yield f"{title}{_GAP}{screen.paint(line, cell.style)}".rstrip()


def printable(text: str) -> str:
    """`text` on one line without anything that a terminal would obey: such characters are shown as escapes."""
    if text.isprintable():
        return text
    return "".join(
        character if character.isprintable() else character.encode("unicode_escape").decode() for character in text
    )


def cut(text: str, columns: int) -> str:
    """`text` in at most `columns` columns of a terminal; an ellipsis says that there was more."""
    if width(text) <= columns:
        return text
    kept, used = [], 0
    for character in text:
        used += width(character)
        if used > columns - 1:
            break
        kept.append(character)
    return "".join(kept) + _ELLIPSIS


def width(text: str) -> int:
    """How many columns of a terminal `text` takes: wide characters take two, combining ones none."""
    if text.isascii():
        return len(text)
    import unicodedata

    return sum(
        0 if unicodedata.combining(character) else 2 if unicodedata.east_asian_width(character) in "WF" else 1
        for character in text
    )


def span(seconds: float | None) -> str:
    """A length of time as people want to read it: `1h30m`, `12s`, `0.35s`; `-` for None. Never negative."""
    if seconds is None:
        return "-"
    seconds = max(seconds, 0.0)
    step = next((step for limit, step in ((1, 0.01), (10, 0.1), (3_600, 1), (86_400, 60)) if seconds < limit), 3_600)
    rounded = round(seconds / step) * step
    if rounded < 60:
        return f"{rounded:g}s"
    from schedd.durations import format_duration

    return format_duration(rounded)


def plural(count: int, noun: str) -> str:
    """`1 task`, `2 tasks`."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def tally(counts: Mapping[str, int]) -> str:
    """The counts that are not zero: `2 running, 1 failed`; `none` if all are."""
    return ", ".join(f"{count} {name}" for name, count in counts.items() if count) or "none"


def ending(status: str, error: str | None, took: str = "") -> str:
    """How a task ended, and why, without saying it twice: `failed: exit code 2`, `skipped because a failed`."""
    if not error:
        return f"{status}{took}"
    return error if not took and error.startswith(f"{status} ") else f"{status}{took}: {error}"


def size(count: float) -> str:
    """A number of bytes as people want to read it: `12 KiB`."""
    for unit in ("B", "KiB", "MiB"):
        if count < 1_024:
            return f"{count:.0f} {unit}" if count >= 10 or unit == "B" else f"{count:.1f} {unit}"
        count /= 1_024
    return f"{count:.1f} GiB"


def compact(value: Any) -> str:
    """A JSON value on one line."""
    return json.dumps(value, ensure_ascii=False, separators=(", ", ": "))


def _fit(cell: Cell, columns: int, to_right: bool, is_last: bool, screen: Screen) -> str:
    text = cut(cell.text, columns) if is_last else cell.text
    padding = " " * max(columns - width(text), 0)
    painted = screen.paint(text, cell.style)
    return padding + painted if to_right else painted + padding
