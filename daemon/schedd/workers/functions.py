"""Functions that tasks call: found by name, and looked at for a parameter named `cancel`.

The fork server's children use this too, so it imports the standard library and constants only.
Tests: tests/unit/workers/test_functions.py.
"""

import importlib
import inspect
from collections.abc import Callable, Mapping
from types import FunctionType
from typing import Any

CANCEL = "cancel"


class CannotImport(Exception):
    """The function of this task cannot be found; check its name and what the task's directory and PYTHONPATH hold."""


def resolve(name: str) -> Callable[..., Any]:
    """The callable that "package.module:function" names (the function may be dotted: `Class.method`).

    Raises CannotImport with the reason, and lets KeyboardInterrupt and the like pass.
    """
    module_name, separator, path = name.partition(":")
    if not (separator and module_name and path):
        raise CannotImport(f"{name!r} does not name a function; write it as package.module:function")
    try:
        found: Any = importlib.import_module(module_name)
    except SystemExit as error:
        raise CannotImport(f"cannot import {module_name}: it called sys.exit({error.code!r})") from error
    except Exception as error:
        raise CannotImport(f"cannot import {module_name}: {type(error).__name__}: {error}") from error
    for part in path.split("."):
        try:
            found = getattr(found, part)
        except AttributeError:
            raise CannotImport(f"{module_name} has no {path!r}") from None
    if not callable(found):
        raise CannotImport(f"{name} is not a function but {type(found).__name__}")
    checked: Callable[..., Any] = found
    return checked


def takes_cancel(function: Callable[..., Any], given: int, kwargs: Mapping[str, Any]) -> bool:
    """Whether `function` has a parameter named `cancel` that `given` positional arguments and `kwargs` leave free."""
    if CANCEL in kwargs:
        return False
    if type(function) is FunctionType and not function.__dict__:  # the common case, without `inspect`: no decorator
        code = function.__code__
        named = code.co_argcount + code.co_kwonlyargcount
        if CANCEL not in code.co_varnames[:named]:
            return False
        index = code.co_varnames.index(CANCEL)
        return index >= code.co_argcount or index >= max(given, code.co_posonlyargcount)
    try:
        parameters = list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):  # a builtin may tell nothing of itself
        return False
    for index, parameter in enumerate(parameters):
        if parameter.name == CANCEL:
            return parameter.kind is parameter.KEYWORD_ONLY or (
                parameter.kind is parameter.POSITIONAL_OR_KEYWORD and index >= given
            )
    return False


def exit_code(error: SystemExit) -> int:
    """The exit code that Python gives a process which ends by this SystemExit."""
    if error.code is None:
        return 0
    return error.code & 0xFF if isinstance(error.code, int) else 1
