"""Columns, ages, colours."""

import io
import json

import pytest

from schedd.cli import render
from schedd.cli.render import Cell, Screen

COLOURED = Screen(None, True)


class Terminal(io.StringIO):
    """A stream that says it is a terminal."""

    def isatty(self) -> bool:
        return True


def test_columns_are_as_wide_as_their_widest_cell() -> None:
    """Every column but the last is padded; the last one leaves no spaces behind."""
    lines = [*render.table(("ID", "WHAT"), [("a", "make"), ("long-id", "x")], Screen())]
    assert lines == ["ID       WHAT", "a        make", "long-id  x"]


def test_numbers_stand_on_the_right() -> None:
    """A column named in `right` is padded on its left."""
    lines = [*render.table(("N", "WHAT"), [("1", "a"), ("100", "b")], Screen(), right=("N",))]
    assert lines == ["  N  WHAT", "  1  a", "100  b"]


def test_only_the_last_column_is_cut_to_the_screen() -> None:
    """Ids are never shortened; what stands last is, with an ellipsis."""
    lines = [*render.table(("ID", "WHAT"), [("an-id", "x" * 50)], Screen(30))]
    assert lines[1] == f"an-id  {'x' * 22}…"
    assert len(lines[1]) == 30


def test_nothing_is_cut_without_a_terminal() -> None:
    """A pipe gets whole lines."""
    assert [*render.table(("WHAT",), [("x" * 500,)], Screen())][1] == "x" * 500


def test_wide_characters_take_two_columns() -> None:
    """Alignment counts columns of the terminal, not characters."""
    lines = [*render.table(("ID", "WHAT"), [("日本", "a"), ("abcd", "b")], Screen())]
    assert lines[1:] == ["日本  a", "abcd  b"]
    assert render.width("e\u0301") == 1
    assert render.cut("日本語", 5) == "日本…"


def test_colours_do_not_move_columns() -> None:
    """Escapes count for nothing in the alignment."""
    lines = [*render.table(("S", "W"), [(Cell("failed", "failed"), "x"), ("ok", "y")], COLOURED)]
    assert lines[1] == "\x1b[31mfailed\x1b[0m  x"
    assert lines[2] == "ok      y"


@pytest.mark.parametrize(
    ("text", "shown"),
    [("plain é 日本", "plain é 日本"), ("a\x1b[2Jb", "a\\x1b[2Jb"), ("a\nb\tc", "a\\nb\\tc"), ("\u202e", "\\u202e")],
)
def test_no_control_character_reaches_the_terminal(text: str, shown: str) -> None:
    """What a terminal would obey is shown as an escape."""
    assert render.printable(text) == shown
    assert [*render.table(("A",), [(text,)], Screen())][1] == shown


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [
        (None, "-"),
        (-3.0, "0s"),
        (0.0, "0s"),
        (0.349, "0.35s"),
        (4.26, "4.3s"),
        (59.4, "59s"),
        (59.9, "1m"),
        (90.2, "1m30s"),
        (3_599.7, "1h"),
        (5_430.0, "1h30m"),
        (90_000.0, "1d1h"),
    ],
)
def test_spans_have_as_many_digits_as_matter(seconds: float | None, shown: str) -> None:
    """The longer it is, the coarser it is told; a clock that was set back gives no negative age."""
    assert render.span(seconds) == shown


@pytest.mark.parametrize(
    ("count", "shown"),
    [(0, "0 B"), (900, "900 B"), (1_536, "1.5 KiB"), (20 * 1024**2, "20 MiB"), (3 * 1024**3, "3.0 GiB")],
)
def test_sizes(count: int, shown: str) -> None:
    """Bytes are told in the unit that fits."""
    assert render.size(count) == shown


def test_pairs_align_values_and_keep_lines_in_their_column() -> None:
    """A value of several lines stays in its column; control characters in it are shown."""
    lines = [*render.pairs([("a", "1"), ("long", "x\n\x07y"), ("none", "")], Screen())]
    assert lines == ["a     1", "long  x", "      \\x07y", "none"]


def test_a_pipe_gets_no_colours_and_no_width() -> None:
    """Only a terminal does."""
    assert Screen.of(io.StringIO()) == Screen(None, False)


def test_a_terminal_gets_colours_unless_told_otherwise(monkeypatch: pytest.MonkeyPatch) -> None:
    """NO_COLOR and a dumb terminal are heard; the width is that of the terminal."""
    monkeypatch.setenv("COLUMNS", "77")
    monkeypatch.setenv("TERM", "xterm")
    assert Screen.of(Terminal()) == Screen(77, True)
    monkeypatch.setenv("NO_COLOR", "1")
    assert Screen.of(Terminal()) == Screen(77, False)
    monkeypatch.delenv("NO_COLOR")
    monkeypatch.setenv("TERM", "dumb")
    assert Screen.of(Terminal()) == Screen(77, False)


def test_json_for_a_pipe_is_one_line_of_ascii(capsys: pytest.CaptureFixture[str]) -> None:
    """So that line tools can work on it and no encoding can break it."""
    render.write_json({"a": ["é", "\udc80"]})
    out = capsys.readouterr().out
    assert out.isascii()
    assert out.count("\n") == 1
    assert json.loads(out) == {"a": ["é", "\udc80"]}


def test_tally_leaves_out_what_is_zero() -> None:
    """An empty daemon has a word too."""
    assert render.tally({"running": 2, "failed": 0, "skipped": 1}) == "2 running, 1 skipped"
    assert render.tally({"running": 0}) == "none"
