"""The verbs that change what is there: cancel, hold, release, depend, pause, resume.

Tests: tests/unit/cli/test_cli_change.py, tests/acceptance/test_schedctl_change.py.
"""

from collections.abc import Sequence
from typing import Annotated

import typer

from schedd.answers import PausedAnswer, ResultsAnswer
from schedd.cli.errors import ExitCode, complain
from schedd.cli.render import printable, write
from schedd.cli.session import client_of
from schedd.core.model import When

Ids = Annotated[list[str], typer.Argument(metavar="ID...", help="Tasks, or batches for all their open tasks.")]


def cancel(context: typer.Context, ids: Ids) -> int:
    """Cancel tasks, running or not; prints the ids of those cancelled.

    A running task gets TERM, and KILL after its grace. What depends on a cancelled task is skipped, unless its
    dependency says `when: finished`. Each id is judged by itself; the exit code is 4 if any was refused.

    \b
    Examples:
      schedctl cancel ci-1/test
      schedctl cancel ci-1
    """
    return _report(client_of(context).cancel(ids))


def hold(context: typer.Context, ids: Ids) -> int:
    """Keep tasks from starting until they are released.

    Prints the ids of those held. A task that runs goes on; the hold applies to its next attempt.

    \b
    Example:
      schedctl hold ci-1/deploy
    """
    return _report(client_of(context).hold(ids))


def release(context: typer.Context, ids: Ids) -> int:
    """Let held tasks start again; prints the ids of those released.

    \b
    Example:
      schedctl release ci-1/deploy
    """
    return _report(client_of(context).release(ids))


def depend(
    context: typer.Context,
    before: Annotated[str, typer.Argument(metavar="BEFORE", help="The task that comes first.")],
    after: Annotated[
        str, typer.Argument(metavar="AFTER", help="The task that waits for it; it must not have started.")
    ],
    when: Annotated[When, typer.Option(help="Which end of BEFORE releases AFTER.")] = When.SUCCEEDED,
    *,
    remove: Annotated[bool, typer.Option("--remove", help="Let AFTER wait for BEFORE no longer.")] = False,
) -> int:
    """Let one task wait for another. Refused with the path if that would close a cycle.

    \b
    Examples:
      schedctl depend ci-1/build nightly-4/report
      schedctl depend --when finished ci-1/deploy cleanup
      schedctl depend --remove ci-1/build nightly-4/report
    """
    if remove:
        undone = client_of(context).undepend(before, after)
        story = "waits no longer for" if undone["removed"] else "did not wait for"
        complain([f"{undone['after']} {story} {undone['before']}"])
        return ExitCode.DONE
    answer = client_of(context).depend(before, after, when.value)
    done = "now waits" if answer["added"] else "waited already"
    complain([f"{answer['after']} {done} until {answer['before']} has {_ending(answer['when'])}"])
    return ExitCode.DONE


def pause(context: typer.Context) -> int:
    """Start no more tasks until `resume`. What runs goes on; the pause outlives a restart of the daemon.

    \b
    Example:
      schedctl pause
    """
    return _tell(client_of(context).pause())


def resume(context: typer.Context) -> int:
    """Start tasks again after `pause`.

    \b
    Example:
      schedctl resume
    """
    return _tell(client_of(context).resume())


def _report(answer: ResultsAnswer) -> int:
    """Ids that were changed to stdout, refusals to stderr."""
    results = answer["results"]
    write(printable(result["id"]) for result in results if result["ok"])
    refused: Sequence[str] = [result.get("message") or result["id"] for result in results if not result["ok"]]
    complain(refused)
    return ExitCode.REFUSED if refused else ExitCode.DONE


def _tell(answer: PausedAnswer) -> int:
    complain(["paused: nothing starts until `schedctl resume`" if answer["paused"] else "resumed: tasks start again"])
    return ExitCode.DONE


def _ending(when: str) -> str:
    return "finished, however it ends" if when == When.FINISHED else when
