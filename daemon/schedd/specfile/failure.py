"""How reading a spec file fails: with the file, the line and the column where they are known.

Tests: tests/unit/test_specfile.py.
"""

from typing import Any

from schedd.core import limits

Loc = tuple[str | int, ...]
Places = dict[Loc, int]
"""The line of each key and list item of a document."""


class SpecFileError(ValueError):
    """The spec file cannot be read; its text says where it is wrong and why. Lines and columns count from 1."""

    def __init__(self, path: str, message: str, line: int | None = None, column: int | None = None) -> None:
        self.path = path
        self.message = message
        self.line = line
        self.column = column
        super().__init__(":".join([path, *(str(number) for number in (line, column) if number)]) + f": {message}")


class Misread(Exception):
    """What is wrong with a text, from a reader that does not know the file's name."""

    def __init__(self, message: str, line: int | None = None, column: int | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.line = line
        self.column = column


def position(text: str, offset: int) -> tuple[int, int]:
    """Line and column of the character at `offset`."""
    return text.count("\n", 0, offset) + 1, offset - text.rfind("\n", 0, offset)


def check_depth(data: Any) -> None:
    """Raises Misread if `data` is nested deeper than `limits.MAX_JSON_DEPTH`. For data that shares no parts."""
    level = [data]
    for _ in range(limits.MAX_JSON_DEPTH + 1):
        level = [
            child
            for item in level
            for child in (item.values() if isinstance(item, dict) else item if isinstance(item, list) else ())
        ]
        if not level:
            return
    raise Misread(too_deep())


def too_deep() -> str:
    """The message for a document with too many levels."""
    return f"is nested too deeply; {limits.MAX_JSON_DEPTH} levels are allowed"
