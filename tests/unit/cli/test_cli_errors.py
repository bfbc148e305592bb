"""Exit codes, and the lines on stderr."""

import os
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest
import typer

from schedd.cli import errors
from schedd.cli.errors import ExitCode, WrongUse, guarded
from schedd.client import NoAnswer, NoDaemon, OutcomeUnknown, ProblemError


def raiser(error: BaseException) -> Callable[[], object]:
    def action() -> object:
        raise error

    return action


@pytest.mark.parametrize(("result", "code"), [(None, 0), (0, 0), (ExitCode.TASKS_FAILED, 1), ("text", 0)])
def test_a_verb_ends_with_the_code_that_it_returns(result: object, code: int) -> None:
    """None, and anything that is no number, is success."""
    assert guarded(lambda: result) == code


@pytest.mark.parametrize(
    ("error", "code", "said"),
    [
        (WrongUse("one", "two"), 2, "schedctl: one\nschedctl: two\n"),
        (NoDaemon("schedd is not running"), 3, "schedctl: schedd is not running\n"),
        (NoAnswer("no answer"), 3, "schedctl: no answer\n"),
        (ProblemError(404, "unknown_task", "there is no task 'x'"), 4, "schedctl: there is no task 'x'\n"),
        (KeyboardInterrupt(), 130, ""),
        (typer.Abort(), 130, ""),
        (
            FileNotFoundError(2, "No such file or directory", "x.yaml"),
            2,
            "schedctl: x.yaml: No such file or directory\n",
        ),
        (OSError(28, "No space left on device"), 2, "schedctl: No space left on device\n"),
    ],
)
def test_each_exception_has_its_code_and_its_lines(
    error: BaseException, code: int, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Whose fault it was decides the code; nothing goes to stdout."""
    assert guarded(raiser(error)) == code
    assert capsys.readouterr() == ("", said)


def test_a_refusal_with_errors_shows_each_with_its_place() -> None:
    """The one sentence is for refusals without a place."""
    problem = ProblemError(
        422, "invalid", "2 errors", [{"loc": ["ids", 0], "message": "must be text"}, {"loc": [], "message": "b"}]
    )
    assert errors.explain(problem) == (4, ["ids[0]: must be text", "b"])


def test_an_unknown_outcome_says_how_to_repeat() -> None:
    """The key is what makes the repetition safe."""
    code, lines = errors.explain(OutcomeUnknown("schedd did not answer", "k1"))
    assert code == ExitCode.NO_DAEMON
    assert "--key k1" in lines[1]


def test_a_bug_is_called_one_with_its_place(capsys: pytest.CaptureFixture[str]) -> None:
    """No traceback, but enough to report it, and a code of its own."""
    empty: dict[str, Any] = {}
    assert guarded(lambda: empty["x"]) == ExitCode.BUG
    said = capsys.readouterr().err
    assert said.startswith("schedctl: a bug in schedctl: KeyError: 'x' (test_cli_errors.py:")
    assert said.count("\n") == 1


def test_messages_cannot_command_the_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    """What a daemon or a file says is shown and not obeyed."""
    errors.complain(["a\x1b[2Jb"])
    assert capsys.readouterr().err == "schedctl: a\\x1b[2Jb\n"


def test_a_duration_that_is_none_names_its_option() -> None:
    """`--delay soon` is wrong use, and says what would be right."""
    assert errors.seconds("--delay", None) is None
    assert errors.seconds("--delay", "1h30m") == 5_400
    with pytest.raises(WrongUse, match=r"--delay: .*1h30m"):
        errors.seconds("--delay", "soon")


def test_a_closed_pipe_is_quiet() -> None:
    """`schedctl ... | head` ends as other programs do, without a word."""
    script = (
        "import sys\nfrom schedd.cli.errors import guarded\n"
        "def talk():\n    while True: print('x' * 1000)\n"
        "sys.exit(guarded(talk))"
    )
    read, write = os.pipe()
    os.close(read)
    done = subprocess.run([sys.executable, "-c", script], stdout=write, stderr=subprocess.PIPE, timeout=30, check=False)
    os.close(write)
    assert (done.returncode, done.stderr) == (141, b"")
