"""YAML, as far as all its readers agree on it. Tests: tests/unit/test_specfile_yaml.py.

The document is built here from the parser's events, and not by a PyYAML loader, for three reasons: a key that is
there twice must be refused and not overwritten, aliases must not write a small file out into a huge one, and plain
words that YAML 1.1 and 1.2 read differently (`on`, `0755`, `12:30`, `2024-01-01`) must be refused and not guessed:
as an id, a time or an argument, either guess would be wrong for somebody. Quotes always settle it.

Supported beyond that: anchors, aliases, merge keys (`<<`), `!!str`, one document. The walk has no recursion.
"""

import math
import re
from typing import Any, Final

import yaml

from schedd.core import limits
from schedd.specfile.failure import Loc, Misread, Places, position, too_deep

_Loader: Final = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_STR_TAGS: Final = ("!", "tag:yaml.org,2002:str")
_COLLECTION_TAGS: Final = (None, "!", "tag:yaml.org,2002:map", "tag:yaml.org,2002:seq")
_FORBIDDEN: Final = re.compile("[^\t\n\r\x20-\x7e\x85\xa0-\ufffd\U00010000-\U0010ffff]")

_WORDS: Final[dict[str, bool | None]] = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL"), None),
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
}
_INTEGER: Final = re.compile(r"[-+]?(?:0|[1-9][0-9]*)")
_HEXADECIMAL: Final = re.compile(r"0x[0-9a-fA-F]+")
_FLOAT: Final = re.compile(r"[-+]?(?:[0-9]+\.[0-9]*|\.[0-9]+|[0-9]+(?=[eE]))(?:[eE][-+]?[0-9]+)?")
_DISPUTED: Final = (
    (re.compile(r"[-+]?0[0-9_]+"), "an octal number or a decimal one"),
    (re.compile(r"[-+]?0(?:o[0-7_]+|b[01_]+)|[-+]?0x[0-9a-fA-F_]+"), "a number or text"),
    (re.compile(r"[-+]?[0-9][0-9]*_[0-9_]*(?:\.[0-9_]*)?(?:[eE][-+]?[0-9]+)?"), "a number or text"),
    (re.compile(r"[-+]?[0-9][0-9_]*(?::[0-5]?[0-9])+(?:\.[0-9_]*)?"), "a number to base 60 or text"),
    (re.compile(r"[0-9]{4}-[0-9]{1,2}-[0-9]{1,2}(?:[Tt \t].*)?"), "a date or text"),
    (re.compile(r"[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)"), "a number that is not finite, which JSON has not"),
)
_DISPUTED_WORDS: Final = frozenset(
    form for word in ("yes", "no", "on", "off") for form in (word, word.capitalize(), word.upper())
)
_TRUE_WORDS: Final = frozenset({"yes", "on"})
_NUMERIC_START: Final = frozenset("0123456789+-.")
_MAX_DIGITS: Final = 400
_NO_KEY: Final = object()  # in place of a key: the next event is one
_MERGE: Final = object()  # in place of a key: it was `<<`


def parse(text: str) -> Any:
    """The one document that `text` is, of plain dicts, lists, strings, numbers, booleans and None. Raises Misread.

    Parts that aliases repeat are one object in several places.
    """
    return _Builder(None).build(text)


def places(text: str) -> Places:
    """The line of each key and list item. What an alias repeats has the line of the alias."""
    found: Places = {}
    _Builder(found).build(text)
    return found


class _Frame:
    """A collection that is being read.

    `size` and `height` are those of its text and its levels with all aliases written out.
    """

    __slots__ = ("anchor", "height", "items", "key", "key_lines", "loc", "mark", "merged", "size")

    def __init__(self, items: "dict[str, Any] | list[Any]", anchor: str | None, loc: Loc, mark: Any) -> None:
        self.items = items
        self.anchor = anchor
        self.loc = loc
        self.mark = mark
        self.key: Any = _NO_KEY
        self.key_lines: dict[Any, int] = {}
        self.merged: list[dict[str, Any]] = []
        self.size = 2
        self.height = 1


class _Builder:
    """Events in, one document out."""

    def __init__(self, found: Places | None) -> None:
        self._found = found
        self._stack: list[_Frame] = []
        self._anchors: dict[str, tuple[Any, int, int]] = {}  # value, size, height
        self._documents = 0
        self._root: Any = None

    def build(self, text: str) -> Any:
        forbidden = _FORBIDDEN.search(text)
        if forbidden:
            raise Misread(f"the character {forbidden[0]!r} is not allowed in YAML", *position(text, forbidden.start()))
        try:
            for event in yaml.parse(text, Loader=_Loader):
                self._take(event)
        except yaml.MarkedYAMLError as error:
            raise _from_yaml(error, text) from None
        except yaml.YAMLError as error:
            raise Misread(f"not valid YAML: {error}") from None
        return self._root

    def _take(self, event: Any) -> None:
        kind = type(event)
        if kind is yaml.ScalarEvent:
            self._take_scalar(event)
        elif kind is yaml.MappingStartEvent or kind is yaml.SequenceStartEvent:
            self._open({} if kind is yaml.MappingStartEvent else [], event)
        elif kind is yaml.MappingEndEvent or kind is yaml.SequenceEndEvent:
            self._close()
        elif kind is yaml.AliasEvent:
            self._take_alias(event)
        elif kind is yaml.DocumentStartEvent:
            self._documents += 1
            if self._documents > 1:
                raise _at(event.start_mark, "a second document begins here; a spec is one document")

    def _take_scalar(self, event: Any) -> None:
        frame = self._stack[-1] if self._stack else None
        is_plain = not event.style and event.tag is None
        if frame is not None and frame.key is _NO_KEY and isinstance(frame.items, dict):
            if event.anchor:
                self._anchors[event.anchor] = (event.value, len(event.value) + 3, 0)
            self._take_key(frame, event, is_plain)
            return
        if is_plain:
            value = _resolve(event.value, event.start_mark)
        elif event.tag is None or event.tag in _STR_TAGS:
            value = event.value
        else:
            raise _at(event.start_mark, f"the tag {event.tag} is not supported; leave it out")
        size = len(event.value) + 3
        if event.anchor:
            self._anchors[event.anchor] = (value, size, 0)
        self._put(value, size, 0, event.start_mark)

    def _take_key(self, frame: _Frame, event: Any, is_plain: bool) -> None:
        mark = event.start_mark
        if is_plain and event.value == "<<":
            key: Any = _MERGE
        else:
            key = _resolve(event.value, mark, is_key=True) if is_plain else event.value
            if not isinstance(key, str):
                raise _at(mark, f"the key `{event.value}` is read as {_named(key)}, not as text; put it in quotes")
        if key in frame.key_lines:
            raise _at(mark, f"the key {event.value!r} is here twice; the first is in line {frame.key_lines[key]}")
        frame.key_lines[key] = mark.line + 1
        frame.key = key
        frame.size += len(event.value) + 3
        if self._found is not None and key is not _MERGE:
            self._found[(*frame.loc, key)] = mark.line + 1

    def _take_alias(self, event: Any) -> None:
        name, mark = event.anchor, event.start_mark
        if name not in self._anchors:
            if any(frame.anchor == name for frame in self._stack):
                raise _at(mark, f"the alias *{name} stands within what it repeats, which would never end")
            raise _at(mark, f"there is no anchor &{name} before the alias *{name}")
        frame = self._stack[-1]
        if frame.key is _NO_KEY and isinstance(frame.items, dict):
            raise _at(mark, "an alias cannot be a key; write the key out")
        value, size, height = self._anchors[name]
        if len(self._stack) + height > limits.MAX_JSON_DEPTH:
            raise _at(mark, too_deep())
        self._put(value, size, height, mark)

    def _open(self, items: "dict[str, Any] | list[Any]", event: Any) -> None:
        mark = event.start_mark
        if event.tag not in _COLLECTION_TAGS:
            raise _at(mark, f"the tag {event.tag} is not supported; leave it out")
        if len(self._stack) >= limits.MAX_JSON_DEPTH:
            raise _at(mark, too_deep())
        loc: Loc = ()
        if self._stack:
            holder = self._stack[-1]
            if isinstance(holder.items, list):
                loc = (*holder.loc, len(holder.items))
                if self._found is not None:
                    self._found[loc] = mark.line + 1
            elif holder.key is _NO_KEY:
                raise _at(mark, "a key must be text, not a list or a mapping")
            else:
                loc = holder.loc if holder.key is _MERGE else (*holder.loc, holder.key)
        if event.anchor:
            self._anchors.pop(event.anchor, None)
        self._stack.append(_Frame(items, event.anchor, loc, mark))

    def _close(self) -> None:
        frame = self._stack.pop()
        items = frame.items
        if frame.merged and isinstance(items, dict):
            items = {key: value for source in reversed([items, *frame.merged]) for key, value in source.items()}
        if frame.anchor:
            self._anchors[frame.anchor] = (items, frame.size, frame.height)
        self._put(items, frame.size, frame.height, frame.mark)

    def _put(self, value: Any, size: int, height: int, mark: Any) -> None:
        """Hand a finished value to the collection that it belongs to."""
        if not self._stack:
            self._root = value
            return
        frame = self._stack[-1]
        frame.size += size
        if frame.size > limits.MAX_BODY_BYTES:
            raise _at(mark, f"with its aliases written out, the document is over {limits.MAX_BODY_BYTES} bytes")
        frame.height = max(frame.height, height + 1)
        items = frame.items
        if isinstance(items, list):
            if self._found is not None:
                self._found.setdefault((*frame.loc, len(items)), mark.line + 1)
            items.append(value)
            return
        if frame.key is _MERGE:
            frame.merged = _sources(value, mark)
        else:
            items[frame.key] = value
        frame.key = _NO_KEY


def _sources(value: Any, mark: Any) -> list[dict[str, Any]]:
    """What a merge key takes keys from, the strongest first."""
    sources = value if isinstance(value, list) else [value]
    if not all(isinstance(source, dict) for source in sources):
        raise _at(mark, "`<<` takes a mapping or a list of mappings")
    return list(sources)


def _resolve(text: str, mark: Any, *, is_key: bool = False) -> Any:
    """What a plain scalar stands for. Raises Misread where the readers of YAML disagree."""
    if text in _WORDS:
        return _WORDS[text]
    if text in _DISPUTED_WORDS:
        meaning = "true" if text.lower() in _TRUE_WORDS else "false"
        remedy = "put it in quotes" if is_key else f"write {meaning}, or put it in quotes"
        raise _at(mark, f"`{text}` is {meaning} to some readers of YAML and text to others; {remedy}")
    if text[0] not in _NUMERIC_START:
        return text
    if _INTEGER.fullmatch(text):
        if len(text) > _MAX_DIGITS:
            raise _at(mark, "a number has too many digits")
        return int(text)
    for pattern, readings in _DISPUTED:
        if pattern.fullmatch(text) and not _HEXADECIMAL.fullmatch(text):
            raise _at(mark, f"`{text[:60]}` may be {readings}; put it in quotes, or write it in another way")
    if _HEXADECIMAL.fullmatch(text):
        return int(text, 16)
    if _FLOAT.fullmatch(text):
        number = float(text)
        if not math.isfinite(number):
            raise _at(mark, f"the number {text[:60]} is too large")
        return number
    return text


def _named(value: object) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    return "a number"


def _at(mark: Any, message: str) -> Misread:
    return Misread(message, mark.line + 1, mark.column + 1)


def _from_yaml(error: yaml.MarkedYAMLError, text: str) -> Misread:
    mark = error.problem_mark or error.context_mark
    message = ", ".join(part for part in (error.context, error.problem) if part)
    if mark is None:
        return Misread(f"not valid YAML: {message}")
    lines = text.split("\n", mark.line + 1)  # the mark may lie behind the last one
    if mark.line < len(lines) and lines[mark.line][mark.column : mark.column + 1] == "\t":
        message += " (a tab; YAML is indented with spaces)"
    return Misread(f"not valid YAML: {message}", mark.line + 1, mark.column + 1)
