"""`schedctl validate` as a process: no daemon is needed, and it agrees with the one that there is."""

from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.real

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.yaml")), ids=lambda path: path.name)
def test_the_examples_are_valid(ctl: Any, path: Path) -> None:
    """No daemon runs here."""
    ran = ctl("validate", str(path))
    assert (ran.code, ran.err) == (0, "")
    assert "tasks in" in ran.out


def test_it_reads_the_standard_input(ctl: Any) -> None:
    """With `-`."""
    assert ctl("validate", "-", stdin="tasks: {a: {run: x}}\n") == (0, "<stdin>: 1 task in 1 level\n", "")


def test_a_mistake_is_exit_code_2_with_its_line(ctl: Any) -> None:
    """In the words of the daemon."""
    text = "tasks:\n  a:\n    run: x\n    timout: 5\n"
    ran = ctl("validate", ctl.file("ci.yaml", text))
    assert (ran.code, ran.out) == (2, "")
    assert ran.err == "ci.yaml:4: tasks.a.timout: unknown key 'timout'; did you mean 'timeout'?\n"


def test_it_says_what_the_daemon_says(daemon: Any, ctl: Any) -> None:
    """Line for line; only the exit code tells who said it."""
    text = "name: a/b\ntasks:\n  a: {run: x, prio: 1}\n  b: {command: []}\n  c: {call: nothing, times: 3}\n"
    ctl.file("ci.yaml", text)
    validated, submitted = ctl("validate", "ci.yaml"), ctl("submit", "ci.yaml")
    assert (validated.code, submitted.code) == (2, 4)
    assert validated.err == submitted.err
    assert validated.err.count("\n") >= 4
