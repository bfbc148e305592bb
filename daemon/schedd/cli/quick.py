"""Typer parameters without their cost: no conversion where there is nothing to convert.

Typer converts values with pydantic since it holds its own click, and builds the converter of every parameter of a
verb, the ones that were not given too. Importing pydantic takes longer than all the rest of `schedctl status`. Here a
value that is text, absent, or its own default stays what it is, which is what the conversion would come to; any other
is left to Typer. Where a version of Typer has no such converters, nothing is changed.
Tests: tests/unit/cli/test_cli_quick.py.
"""

from collections.abc import Callable
from typing import Any, Final

from typer.core import TyperCommand, TyperGroup

_TEXT: Final = (str, list[str])


class QuickParam:
    """What stands in for Typer's converter of one parameter."""

    def __init__(self, build: Callable[[], Any]) -> None:
        self._build = build

    def coerce(self, value: Any, param: Any, ctx: Any) -> Any:
        """`value` as the verb gets it. Raises what Typer raises for one that does not fit."""
        if value is None:
            return () if param.multiple or param.nargs == -1 else None
        if value is param.default or param.type_descriptor.annotation in _TEXT:
            return value
        return self._build().coerce(value, param=param, ctx=ctx)


class QuickMixin:
    """For commands of Typer: their parameters are converted only where they must be."""

    def get_params(self, ctx: Any) -> list[Any]:
        """The parameters, `--help` among them."""
        params: list[Any] = super().get_params(ctx)  # type: ignore[misc]
        for param in params:
            if hasattr(param, "type_descriptor") and "get_runtime_param" not in vars(param):
                stand_in = QuickParam(param.get_runtime_param)
                param.get_runtime_param = lambda stand_in=stand_in: stand_in
        return params


class QuickCommand(QuickMixin, TyperCommand):
    """A verb."""


class QuickGroup(QuickMixin, TyperGroup):
    """What verbs belong to."""
