"""TOML, as far as it is JSON: no dates, no infinities. Tests: tests/unit/test_specfile_toml.py.

`tomllib` knows no places, so headers and keys are found once more by their tokens when a place is asked for. What
stands within an inline value has the line of its key.
"""

import math
import re
import tomllib
from collections.abc import Iterator
from datetime import date, datetime, time
from typing import Any, Final

from schedd.specfile.failure import Loc, Misread, Places, check_depth, position, too_deep

_WHERE: Final = re.compile(r" \(at (?:line (\d+), column (\d+)|end of document)\)$")
_TOKEN: Final = re.compile(
    r'''(?P<text>"""(?:\\[\s\S]|[^\\])*?"""(?!")|\'\'\'[\s\S]*?\'\'\'(?!')|"(?:\\.|[^"\\\n])*"|'[^'\n]*')'''
    r"""|(?P<comment>#[^\n]*)|(?P<newline>\n)|(?P<mark>[\[\]{}=])|(?P<bare>[A-Za-z0-9_-]+)"""
)


def parse(text: str) -> Any:
    """The document that `text` is. Raises Misread."""
    try:
        data = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        message = str(error)
        where = _WHERE.search(message)
        place = (int(where[1]), int(where[2])) if where and where[1] else position(text, len(text))
        raise Misread(f"not valid TOML: {_WHERE.sub('', message)}", *place) from None
    except RecursionError:
        raise Misread(too_deep()) from None
    except ValueError:  # Python's own bound on the digits of an integer
        raise Misread("a number has too many digits") from None
    check_depth(data)
    unfit = next(_unfit(data, ()), None)
    if unfit is not None:
        loc, message = unfit
        known = places(text)
        line = next((known[loc[:end]] for end in range(len(loc), 0, -1) if loc[:end] in known), None)
        raise Misread(message, line)
    return data


def places(text: str) -> Places:
    """The line of each table and key of a document that `tomllib` has read."""
    return _Places().find(text)


def _unfit(value: object, loc: Loc) -> Iterator[tuple[Loc, str]]:
    """What JSON has no word for, with its place."""
    if isinstance(value, dict):
        for key, child in value.items():
            yield from _unfit(child, (*loc, key))
    elif isinstance(value, list):
        for index, child in enumerate(value):
            yield from _unfit(child, (*loc, index))
    elif isinstance(value, datetime | date | time):
        yield loc, f"TOML reads {value} as a date or time, which JSON has not; put it in quotes"
    elif isinstance(value, float) and not math.isfinite(value):
        yield loc, f"numbers must be finite, not {value}"


class _Places:
    """One walk over the tokens: a statement is a header or `key = value` and ends at a newline outside of brackets."""

    def __init__(self) -> None:
        self._found: Places = {}
        self._array_ends: dict[Loc, int] = {}  # arrays of tables, with the index of their last table
        self._table: Loc = ()
        self._line = 1
        self._begin()

    def find(self, text: str) -> Places:
        for match in _TOKEN.finditer(text):
            kind, piece = match.lastgroup, match[0]
            if kind == "newline":
                self._line += 1
                if not self._depth:
                    self._begin()
            elif kind != "comment":
                self._take(piece)
                self._line += piece.count("\n")
        return self._found

    def _begin(self) -> None:
        self._parts: list[str] = []
        self._brackets = 0  # of a header
        self._depth = 0  # of a value
        self._in_value = False

    def _take(self, piece: str) -> None:
        if self._in_value:
            self._depth += (piece in ("[", "{")) - (piece in ("]", "}"))
        elif piece == "[":
            self._brackets += 1
        elif piece == "]":
            self._end_header()
        elif piece == "=":
            self._note(self._table, self._parts)
            self._in_value = True
        else:
            self._parts.append(tomllib.loads(f"key = {piece}")["key"] if piece[0] in "\"'" else piece)

    def _end_header(self) -> None:
        """The first closing bracket of a header: its table becomes the current one."""
        if not self._parts:
            return
        parts, self._parts = self._parts, []
        holder: Loc = ()
        for part in parts[:-1]:
            holder = self._last_of((*holder, part))
        table = (*holder, parts[-1])
        if self._brackets == 2:
            index = self._array_ends[table] = self._array_ends.get(table, -1) + 1
            self._found.setdefault(table, self._line)
            self._table = (*table, index)
        else:
            self._table = self._last_of(table)
        self._note((), self._table)

    def _last_of(self, table: Loc) -> Loc:
        """The table that a name in a header means: of an array of tables, the last one."""
        return (*table, self._array_ends[table]) if table in self._array_ends else table

    def _note(self, holder: Loc, parts: "list[str] | Loc") -> None:
        loc = holder
        for part in parts:
            loc = (*loc, part)
            self._found.setdefault(loc, self._line)
