"""How `schedctl` ends: the exit codes, and the one place where exceptions become lines on stderr.

A line begins with `schedctl: `, or with the place in a file, and says what to do next; nobody ever sees a traceback.
Verbs raise, or return their exit code; `guarded` is around all of them. Tests: tests/unit/cli/test_cli_errors.py.
"""

import os
import sys
from collections.abc import Callable, Iterable
from enum import IntEnum
from typing import Final

import typer

from schedd.answers import dotted
from schedd.cli.render import printable
from schedd.client import ClientError, OutcomeUnknown, ProblemError


class ExitCode(IntEnum):
    """What the exit code of `schedctl` says; from 70 on they are what other programs use."""

    DONE = 0
    TASKS_FAILED = 1
    """A task did not succeed, or not in the time given."""
    WRONG_USE = 2
    NO_DAEMON = 3
    """No daemon answers, or it stopped answering."""
    REFUSED = 4
    BUG = 70
    INTERRUPTED = 130
    PIPE_CLOSED = 141


class WrongUse(Exception):
    """The command line or a file named on it is not right; each argument is one line to show."""

    def __init__(self, *lines: str) -> None:
        super().__init__(*lines)
        self.lines = lines


class Cut(Exception):
    """A verb was cut off from outside: by an interrupt, or by the end of who read its output."""


class BadFile(WrongUse):
    """What a file holds is not right; each line begins with the file and, where it is known, the line."""


# Typer holds a copy of click since 0.2x and used the package before; this is the class in either.
UsageError: Final[type[Exception]] = typer.BadParameter.__mro__[1]


def seconds(option: str, text: str | None) -> float | None:
    """The duration given as `option`, in seconds. Raises WrongUse."""
    if text is None:
        return None
    from schedd.durations import parse_duration

    try:
        return parse_duration(text)
    except ValueError as error:
        raise WrongUse(f"{option}: {error}") from None


def complain(lines: Iterable[str]) -> None:
    """Write messages to stderr."""
    for line in lines:
        print(f"schedctl: {printable(line)}", file=sys.stderr)


def complain_of_file(lines: Iterable[str]) -> None:
    """Write messages to stderr that begin with a place in a file, as compilers do, so that editors find it."""
    for line in lines:
        print(printable(line), file=sys.stderr)


def guarded(action: Callable[[], object]) -> int:
    """The exit code of `action`: the integer it returns, 0 if it returns none, else what its exception stands for.

    Known exceptions are told on stderr. Whatever else is raised is a bug in schedctl and says so.
    """
    try:
        result = action()
        sys.stdout.flush()
    except Cut as cut:
        return _end(cut.__cause__)
    except (BrokenPipeError, KeyboardInterrupt, typer.Abort) as error:
        return _end(error)
    except BadFile as error:
        complain_of_file(error.lines)
        return ExitCode.WRONG_USE
    except Exception as error:  # noqa: BLE001  # this is the top: a traceback helps nobody at a terminal
        code, lines = explain(error)
        complain(lines)
        return code
    return result if isinstance(result, int) else ExitCode.DONE


def explain(error: Exception) -> tuple[ExitCode, list[str]]:
    """The exit code that `error` stands for, and the lines to show."""
    if isinstance(error, WrongUse):
        return ExitCode.WRONG_USE, [*error.lines]
    if isinstance(error, UsageError):
        return ExitCode.WRONG_USE, _usage(error)
    if isinstance(error, ProblemError):
        return ExitCode.REFUSED, problem_lines(error)
    if isinstance(error, OutcomeUnknown):
        return ExitCode.NO_DAEMON, [str(error), f"`schedctl submit --key {error.key} ...` repeats a submission"]
    if isinstance(error, ClientError):
        return ExitCode.NO_DAEMON, [str(error)]
    if isinstance(error, OSError):
        where = f"{os.fsdecode(error.filename)}: " if isinstance(error.filename, str | bytes) else ""
        return ExitCode.WRONG_USE, [f"{where}{error.strerror or error}"]
    return ExitCode.BUG, [f"a bug in schedctl: {type(error).__name__}: {error} ({_place(error)}); please report it"]


def _usage(error: Exception) -> list[str]:
    """What Typer found wrong with the command line, in the style of all other messages."""
    message = str(getattr(error, "format_message", error.__str__)()).strip().rstrip(".").replace("Value error, ", "")
    message = message[:1].lower() + message[1:]
    context = getattr(error, "ctx", None)
    path = context.command_path if context is not None else "schedctl"
    if "--socket" in message and path != "schedctl":
        return [f"{message}; --socket goes before the verb: `schedctl --socket PATH {path.split()[-1]} ...`"]
    return [message, f"`{path} --help` shows how it is used"]


def problem_lines(error: ProblemError) -> list[str]:
    """The daemon's refusal: each thing that it found wrong, else its one sentence."""
    if error.errors:
        return [f"{dotted(item['loc'])}: {item['message']}".removeprefix(": ") for item in error.errors]
    return [error.detail]


def _place(error: Exception) -> str:
    """Where `error` was raised, as `file:line`."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    return f"{os.path.basename(trace.tb_frame.f_code.co_filename)}:{trace.tb_lineno}" if trace else "nowhere"


def _end(cause: BaseException | None) -> ExitCode:
    """The quiet end of a verb that was cut off."""
    if not isinstance(cause, BrokenPipeError):
        return ExitCode.INTERRUPTED
    with open(os.devnull, "w") as nowhere:
        os.dup2(nowhere.fileno(), 1)  # for what is still to be flushed
    return ExitCode.PIPE_CLOSED
