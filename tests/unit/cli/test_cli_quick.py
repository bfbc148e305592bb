"""Typer's conversions are left out where there is nothing to convert, and nowhere else."""

from enum import StrEnum
from typing import Annotated, Any

import pytest
import typer
from typer.main import get_command

from schedd.cli.quick import QuickCommand


class Colour(StrEnum):
    RED = "red"
    BLUE = "blue"


def call(*arguments: str) -> dict[str, Any]:
    """What a verb with one parameter of each kind gets from `arguments`."""
    app = typer.Typer(add_completion=False, rich_markup_mode=None)
    got: dict[str, Any] = {}

    @app.command(cls=QuickCommand)
    def verb(
        words: Annotated[list[str] | None, typer.Argument()] = None,
        text: Annotated[str | None, typer.Option()] = None,
        number: Annotated[int, typer.Option(min=1)] = 5,
        colour: Annotated[Colour, typer.Option()] = Colour.RED,
        many: Annotated[list[Colour] | None, typer.Option()] = None,
        flag: Annotated[bool, typer.Option("--flag")] = False,
    ) -> None:
        got.update(words=words, text=text, number=number, colour=colour, many=many, flag=flag)

    get_command(app).main(args=[*arguments], prog_name="verb", standalone_mode=False)
    return got


def test_defaults_are_what_the_verb_says() -> None:
    """None stays None, for lists too."""
    assert call() == {"words": None, "text": None, "number": 5, "colour": Colour.RED, "many": None, "flag": False}


def test_values_are_converted_as_by_typer() -> None:
    """Text stays text; numbers and choices become what they are."""
    got = call(
        "a", "b", "--text", "7", "--number", "7", "--colour", "blue", "--many", "red", "--many", "blue", "--flag"
    )
    assert got == {
        "words": ["a", "b"],
        "text": "7",
        "number": 7,
        "colour": Colour.BLUE,
        "many": [Colour.RED, Colour.BLUE],
        "flag": True,
    }
    assert isinstance(got["colour"], Colour)


@pytest.mark.parametrize("arguments", [("--number", "0"), ("--number", "x"), ("--colour", "green")])
def test_values_that_do_not_fit_are_refused(arguments: tuple[str, str]) -> None:
    """By Typer, as ever."""
    with pytest.raises(typer.BadParameter):
        call(*arguments)
