"""docs/reliability.md names the tests that prove its promises: they exist, under these names."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "reliability.md"
NAMED = re.compile(r"\b((?:tests|bench|docs)/[\w./*-]*\w)(?:::(\w+))?")


def named() -> list[tuple[str, str | None]]:
    """Every path that the page names, with the test in it, if it names one."""
    return sorted({(path, test or None) for path, test in NAMED.findall(PAGE.read_text())}, key=str)


@pytest.mark.parametrize(("path", "test"), named(), ids=str)
def test_what_the_page_names_exists(path: str, test: str | None):
    """Each file, and each function or class in it."""
    file = ROOT / path
    assert file.exists(), f"{path} is named in docs/reliability.md and does not exist"
    if test is None:
        return
    names = {
        node.name
        for node in ast.walk(ast.parse(file.read_text()))
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef))
    }
    assert test in names, f"{path}::{test} is named in docs/reliability.md and does not exist"


def test_the_page_names_many_tests():
    """The pattern above finds them: one that finds nothing would prove nothing."""
    assert sum(test is not None for _, test in named()) > 30


def test_each_promise_has_a_test():
    """A promise without one is advertising."""
    promises = re.split(r"\n(?=\*\*\d+\. )", PAGE.read_text().partition("\n## What is not promised")[0])[1:]
    assert len(promises) == 14
    for number, promise in enumerate(promises, 1):
        assert promise.startswith(f"**{number}. ")
        assert any(test for _, test in NAMED.findall(promise)), promise.splitlines()[0]
