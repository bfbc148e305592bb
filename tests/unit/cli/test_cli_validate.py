"""`validate`, and reading spec files for it."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from schedd.cli.validate import count_levels

Ctl = Callable[..., Any]

CI = """\
name: ci
tasks:
  checkout: {run: git clone}
  build: {deps: [checkout], run: make}
  lint: {deps: [checkout, other-1/x], run: make lint}
  deploy: {deps: [build, lint], command: [./deploy]}
"""


@pytest.fixture
def spec(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], str]:
    """`spec(text)` writes ci.yaml here."""
    monkeypatch.chdir(tmp_path)

    def write(text: str) -> str:
        Path("ci.yaml").write_text(text)
        return "ci.yaml"

    return write


def test_a_good_file_is_summed_up(ctl: Ctl, spec: Callable[[str], str]) -> None:
    """How many tasks in how many levels, and which tasks must exist already."""
    ran = ctl("validate", spec(CI))
    assert (ran.code, ran.err) == (0, "")
    assert ran.out == "ci.yaml: batch ci: 4 tasks in 3 levels\nci.yaml: depends on existing tasks: other-1/x\n"
    ran = ctl("validate", "--json", spec(CI))
    assert json.loads(ran.out) == {"name": "ci", "tasks": 4, "levels": 3, "needs": ["other-1/x"]}


def test_every_mistake_is_told_with_its_line(ctl: Ctl, spec: Callable[[str], str]) -> None:
    """All of them at once, in the order of the file."""
    ran = ctl("validate", spec("tasks:\n  a:\n    comand: [x]\n  b:\n    run: y\n    priority: high\n"))
    assert (ran.code, ran.out) == (2, "")
    first, *more = ran.err.splitlines()
    assert first == "ci.yaml:3: tasks.a.comand: unknown key 'comand'; did you mean 'command'?"
    assert more[-1].startswith("ci.yaml:6: tasks.b.priority: ")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("tasks:\n  a: {run: x, deps: [b]}\n  b: {run: x, deps: [a]}\n", "ci.yaml: dependency cycle: a -> b -> a"),
        ("tasks:\n  a: {run: x, deps: [a]}\n", "ci.yaml: a cannot depend on itself"),
        ("tasks: [\n", "ci.yaml:2:1: not valid YAML"),
        ("", "ci.yaml: the file is empty"),
        ("- run: x\n", "ci.yaml: a spec must be a mapping with the key `tasks`, not a list"),
    ],
)
def test_what_is_wrong_with_the_whole_is_told_too(ctl: Ctl, spec: Callable[[str], str], text: str, said: str) -> None:
    """Cycles, broken text, no spec at all."""
    ran = ctl("validate", spec(text))
    assert (ran.code, ran.out) == (2, "")
    assert said in ran.err


def test_a_missing_file_is_wrong_use(ctl: Ctl, spec: Callable[[str], str]) -> None:
    """With the system's reason."""
    ran = ctl("validate", "./none.yaml")
    assert (ran.code, ran.out, ran.err) == (2, "", "schedctl: ./none.yaml: No such file or directory\n")


@pytest.mark.parametrize(
    ("parents", "levels"), [([[]], 1), ([[], [], []], 1), ([[1], [2], []], 3), ([[], [0], [0], [1, 2], [0, 3]], 4)]
)
def test_levels_are_the_longest_chain(parents: list[list[int]], levels: int) -> None:
    """Counted in tasks."""
    assert count_levels(parents) == levels


def test_a_long_chain_needs_no_recursion() -> None:
    """100,000 tasks in a row."""
    assert count_levels([[], *([index] for index in range(99_999))]) == 100_000
