"""Holds a value against a type hint: whether an answer has exactly the shape that is promised."""

import types
from typing import Any, Literal, Required, Union, get_args, get_origin, get_type_hints, is_typeddict


def mismatch(value: Any, hint: Any, where: str = "answer") -> str | None:
    """The first place where `value` is not what `hint` says (typed dicts, lists, dicts, unions, scalars), or None."""
    origin, arguments = get_origin(hint), get_args(hint)
    if hint is Any:
        return None
    if is_typeddict(hint):
        return _typed_dict(value, hint, where)
    if origin is Required:
        return mismatch(value, arguments[0], where)
    if origin in (Union, types.UnionType):
        found = [mismatch(value, argument, where) for argument in arguments]
        return None if None in found else f"{where}: {value!r} is no {hint}"
    if origin is list:
        if not isinstance(value, list):
            return f"{where}: {value!r} is no list"
        return _first(mismatch(item, arguments[0], f"{where}[{index}]") for index, item in enumerate(value))
    if origin is dict:
        if not isinstance(value, dict):
            return f"{where}: {value!r} is no mapping"
        return _first(mismatch(item, arguments[1], f"{where}.{key}") for key, item in value.items())
    if origin is Literal:
        return None if value in arguments else f"{where}: {value!r} is none of {arguments}"
    if hint is float:
        fits = isinstance(value, int | float) and not isinstance(value, bool)
    elif hint is int:
        fits = isinstance(value, int) and not isinstance(value, bool)
    else:
        fits = isinstance(value, type(None) if hint is None else hint)
    return None if fits else f"{where}: {value!r} is no {hint}"


def _typed_dict(value: Any, hint: Any, where: str) -> str | None:
    if not isinstance(value, dict):
        return f"{where}: {value!r} is no mapping"
    hints = get_type_hints(hint)
    unknown, missing = value.keys() - hints.keys(), hint.__required_keys__ - value.keys()
    if unknown or missing:
        return f"{where}: unknown keys {sorted(unknown)}, missing keys {sorted(missing)}"
    return _first(mismatch(item, hints[key], f"{where}.{key}") for key, item in value.items())


def _first(found: Any) -> str | None:
    return next((item for item in found if item is not None), None)
