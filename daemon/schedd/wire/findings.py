"""What is wrong with a document: collected up to a bound, with its place, in words that a person can act on.

pydantic's findings come in as `ValidationError`, schedd's own as a place and a message; `SpecError` goes out.
Tests: tests/unit/test_wire_findings.py.
"""

import difflib
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from schedd.answers import ErrorItem, dotted
from schedd.core import limits
from schedd.core.errors import InvalidRequest

_MAX_SHOWN_CHARS = 60
_MAX_LOC_CHARS = 2 * limits.MAX_ID_CHARS

_SYNONYMS = {
    "after": "deps",
    "argv": "command",
    "backoff": "retry: {base_delay: ...}",
    "base_delay": "retry: {base_delay: ...}",
    "chdir": "cwd",
    "cmd": "run` (shell text) or `command` (a list)",
    "cron": "every` with `times",
    "dependencies": "deps",
    "depends": "deps",
    "depends_on": "deps",
    "directory": "cwd",
    "environment": "env",
    "exec": "command",
    "function": "call",
    "interval": "every",
    "jobs": "tasks",
    "max_attempts": "retry: {max_attempts: ...}",
    "max_delay": "retry: {max_delay: ...}",
    "needs": "deps",
    "python": "call",
    "repeat": "times",
    "requires": "deps",
    "retries": "retry: {max_attempts: ...}",
    "script": "run",
    "shell": "run",
    "steps": "tasks",
    "working_directory": "cwd",
    "workdir": "cwd",
}


class SpecError(InvalidRequest):
    """The document is not valid; each error says where and why."""

    def __init__(self, errors: Sequence[ErrorItem]) -> None:
        self.errors = list(errors)
        first = self.errors[0]
        where = dotted(first["loc"])
        message = f"{where}: {first['message']}" if where else first["message"]
        if len(self.errors) > 1:
            message += f" (and {len(self.errors) - 1} more)"
        super().__init__(message)

    @classmethod
    def at(cls, loc: Iterable[str | int], message: str) -> "SpecError":
        """One error at one place."""
        return cls([_item(loc, message)])


class Findings:
    """The errors of one document, in its order, at most `limits.MAX_SPEC_ERRORS`; the rest is not looked for."""

    __slots__ = ("_errors",)

    def __init__(self) -> None:
        self._errors: list[ErrorItem] = []

    @property
    def is_full(self) -> bool:
        """Whether no more errors are taken."""
        return len(self._errors) >= limits.MAX_SPEC_ERRORS

    def add(self, loc: Iterable[str | int], message: str) -> None:
        """Take one error; forgotten when full."""
        if not self.is_full:
            self._errors.append(_item(loc, message))

    def add_all(self, error: ValidationError, loc: Sequence[str | int], known: Mapping[str, Collection[str]]) -> None:
        """Take pydantic's findings about the part of the document at `loc`.

        `known` maps a key that holds an object to the keys allowed in there; "" stands for the part itself.
        """
        for details in error.errors(include_url=False):
            if self.is_full:
                return
            inner = _as_in_document(details["loc"])
            self.add((*loc, *inner), _explain(details, inner, known))

    def raise_if_any(self) -> None:
        """Raises SpecError if there is any error."""
        if self._errors:
            raise SpecError(self._errors)


EDGE_TAG = "a dependency with `when`"
NAME_TAG = "a name"


def describe(value: object) -> str:
    """What `value` is, for `must be ..., not ...`."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return f"the number {value:.6g}" if isinstance(value, float) else f"the number {_short_int(value)}"
    if isinstance(value, str):
        return f"the text {shorten(value)!r}"
    if isinstance(value, dict):
        return "a mapping"
    if isinstance(value, list | tuple):
        return "a list"
    return f"a {type(value).__name__}"


def shorten(text: str) -> str:
    """The beginning of `text`, for messages."""
    return text if len(text) <= _MAX_SHOWN_CHARS else text[: _MAX_SHOWN_CHARS - 3] + "..."


def unknown_key(key: str, known: Collection[str]) -> str:
    """The message for a key that is not among the `known` ones: the nearest of them, or all."""
    shown = f"unknown key {shorten(key)!r}"
    word = key[:_MAX_SHOWN_CHARS].lower().replace("-", "_")
    if word in known:
        return f"{shown}; did you mean {word!r}?"
    synonym = _SYNONYMS.get(word)
    if synonym and _first_word(synonym) in known:
        return f"{shown}; did you mean `{synonym}`?"
    near = difflib.get_close_matches(word, known, n=1, cutoff=0.6)
    if near:
        return f"{shown}; did you mean {near[0]!r}?"
    return f"{shown}; the keys here are {', '.join(sorted(known))}"


def _first_word(synonym: str) -> str:
    return synonym.replace("`", " ").replace(":", " ").split()[0]


def _short_int(value: int) -> str:
    return str(value) if value.bit_length() <= 128 else "with more than 38 digits"


def _item(loc: Iterable[str | int], message: str) -> ErrorItem:
    return {
        "loc": [part if isinstance(part, int) else _sendable(part, _MAX_LOC_CHARS) for part in loc],
        "message": _sendable(message, limits.MAX_ERROR_CHARS),
    }


def _sendable(text: str, max_chars: int) -> str:
    """`text` as an answer can carry it: bounded, and a lone surrogate as its escape."""
    return str(text)[:max_chars].encode("utf-8", "backslashreplace").decode("utf-8")


def _as_in_document(loc: tuple[int | str, ...]) -> tuple[int | str, ...]:
    """pydantic's place without what it adds: the branch of a union, and `[key]` for a key of a mapping."""
    return tuple(part for part in loc if part not in (EDGE_TAG, NAME_TAG, "[key]"))


def _explain(details: ErrorDetails, loc: Sequence[str | int], known: Mapping[str, Collection[str]]) -> str:
    kind = details["type"]
    if kind == "extra_forbidden":
        holder = next((part for part in reversed(loc[:-1]) if part in known), "")
        return unknown_key(str(loc[-1]), known[str(holder)])
    value = details["input"]
    context: dict[str, Any] = details.get("ctx", {})
    if kind == "value_error":
        return str(context["error"])
    if kind == "literal_error":
        return f"must be {context['expected'].replace(chr(39), '`')}, not {describe(value)}"
    if kind in _BOUNDS:
        return f"must {_BOUNDS[kind].format(**context)}, not {describe(value)}"
    if kind in _TYPES:
        hint = _hint(kind, value)
        return f"must be {_TYPES[kind]}, not {describe(value)}{hint}"
    if kind in _PLAIN:
        return _PLAIN[kind].format(**context)
    message = details["msg"]
    return message[:1].lower() + message[1:]


def _hint(kind: str, value: object) -> str:
    if value is None:
        return "; leave the key out if it has no value"
    if kind == "string_type" and isinstance(value, bool | int | float):
        return "; put it in quotes"
    if kind in ("int_type", "float_type") and isinstance(value, str):
        return "; write it without quotes"
    return ""


_TYPES = {
    "string_type": "text",
    "int_type": "a whole number",
    "int_from_float": "a whole number",
    "float_type": "a number",
    "bool_type": "`true` or `false`",
    "list_type": "a list",
    "dict_type": "a mapping",
}
_BOUNDS = {
    "greater_than": "be more than {gt:.15g}",
    "greater_than_equal": "be at least {ge:.15g}",
    "less_than": "be less than {lt:.15g}",
    "less_than_equal": "be at most {le:.15g}",
}
_PLAIN = {
    "missing": "is needed here and is not given",
    "string_too_short": "must not be empty",
    "string_too_long": "has more than {max_length} characters",
    "too_short": "must not be empty",
    "too_long": "has more than {max_length} entries",
    "string_unicode": "holds a lone surrogate, which is not a character",
    "invalid_key": "keys must be text",
    "finite_number": "must be a finite number",
    "int_parsing_size": f"must be within {limits.MAX_INTEGER} of zero",
}
