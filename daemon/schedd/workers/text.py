"""Text that comes from tasks, made fit for a row: bounded, without lone surrogates and NULs. Standard library only.

Tests: tests/unit/workers/test_text.py.
"""

import json
from typing import Any

from schedd.core import limits

MAX_BASES = 50
"""How many classes of an exception's ancestry are told."""


def clean(text: str, max_chars: int = limits.MAX_ERROR_CHARS) -> str:
    """The text, at most `max_chars` long (a cut is shown by an ellipsis), in characters that any row can hold."""
    if len(text) > max_chars:
        text = text[: max_chars - 1] + "…"
    if "\0" in text:
        text = text.replace("\0", "\N{REPLACEMENT CHARACTER}")
    if not text.isascii():
        text = text.encode("utf-8", "replace").decode("utf-8")
    return text


def of_error(error: BaseException) -> str:
    """`Type: message` of an exception, whatever its own `__str__` does."""
    name = type(error).__name__
    try:
        message = str(error)
    except Exception as broken:  # noqa: BLE001  # a task's own code, and there is still an error to tell
        message = f"(its message cannot be read: {type(broken).__name__})"
    return clean(f"{name}: {message}" if message else name)


def of_class(error: BaseException) -> tuple[str, ...]:
    """The names of an exception's class and of its bases, bare and with their modules: what a retry rule may name."""
    names: dict[str, None] = {}
    for each in type(error).__mro__[:MAX_BASES]:
        if each is not object:
            names |= dict.fromkeys((clean(each.__name__), clean(f"{each.__module__}.{each.__qualname__}")))
    return tuple(names)


def of_result(value: Any) -> str | None:
    """A function's result as JSON text; None for None, for what JSON cannot hold and for what is too long."""
    if value is None:
        return None
    try:
        text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    except Exception:  # noqa: BLE001  # a task's own object decides what is raised here; a result is optional
        return None
    return clean(text, limits.MAX_RESULT_CHARS) if len(text) <= limits.MAX_RESULT_CHARS else None
