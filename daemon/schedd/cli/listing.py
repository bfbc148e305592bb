"""`list` and `events`: one line for each task, one line for each thing that happened.

Tests: tests/unit/cli/test_cli_listing.py, tests/acceptance/test_schedctl_read.py.
"""

import sys
import time
from collections.abc import Iterator
from itertools import islice
from json import dumps
from typing import Annotated, Any

import typer

from schedd.answers import EventView
from schedd.cli.errors import ExitCode, complain
from schedd.cli.render import Cell, Screen, compact, span, stdout_screen, table, write, write_json
from schedd.cli.session import client_of
from schedd.cli.status import task_table
from schedd.core.model import Status

DEFAULT_LIMIT = 100


def list_(
    context: typer.Context,
    *,
    status: Annotated[
        list[Status] | None, typer.Option("--status", "-s", help="Only tasks in this state; may be repeated.")
    ] = None,
    batch: Annotated[
        str | None, typer.Option("--batch", "-b", metavar="NAME", help="Only tasks of this batch.")
    ] = None,
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, help="How many to show.")] = DEFAULT_LIMIT,
    everything: Annotated[bool, typer.Option("--all", "-a", help="Show all, however many there are.")] = False,
    json: Annotated[bool, typer.Option("--json", help="As a JSON list.")] = False,
) -> int:
    """List tasks.

    \b
    Examples:
      schedctl list --status running --status ready
      schedctl list --batch ci-1 --all --json
    """
    wanted = [item.value for item in status or ()]
    cap = None if everything else limit
    found = client_of(context).iter_tasks(status=wanted, batch=batch, limit=None if cap is None else cap + 1)
    tasks = [*found]
    shown = tasks[:cap]
    if json:
        write_json(shown)
    elif shown:
        write(task_table(shown, time.time(), stdout_screen()))
    else:
        complain(["there are no such tasks" if status or batch else "there are no tasks"])
    if len(tasks) > len(shown):
        complain([f"there are more than these {len(shown)}; --all shows them, --limit another number"])
    return ExitCode.DONE


def events(
    context: typer.Context,
    *,
    after: Annotated[int, typer.Option(metavar="EVENT", min=0, help="Only what came after this event.")] = 0,
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, max=1_000, help="How many to show.")] = DEFAULT_LIMIT,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="All that follow, and those to come.")] = False,
    json: Annotated[bool, typer.Option("--json", help="As JSON, one event to a line.")] = False,
) -> int:
    """Show what happened, oldest first.

    Every change of every task is there, in the order in which it was made durable.

    \b
    Examples:
      schedctl events
      schedctl events --after 1200 --follow --json
    """
    client = client_of(context)
    if follow:
        for event in client.iter_events(after, follow=True):
            _show([event], json, with_header=False)
            sys.stdout.flush()
    answer = client.events(after, limit)
    _show(answer["events"], json)
    if len(answer["events"]) == limit:
        complain([f"there may be more; `schedctl events --after {answer['next']}` goes on"])
    return ExitCode.DONE


def _show(seen: list[EventView], as_json: bool, with_header: bool = True) -> None:
    if as_json:
        write(dumps(event) for event in seen)
        return
    lines = event_table(seen, time.time(), stdout_screen())
    write(lines if with_header else islice(lines, 1, None))


def event_table(seen: list[EventView], now: float, screen: Screen) -> Iterator[str]:
    """One line for each event."""
    return table(
        ("EVENT", "AGO", "TASK", "WHAT", "DETAIL"),
        (
            (
                str(event["id"]),
                span(now - event["at"]),
                event["task"] or "-",
                Cell(event["kind"], event["kind"]),
                _detail(event["detail"]),
            )
            for event in seen
        ),
        screen,
        right=("EVENT", "AGO"),
    )


def _detail(detail: dict[str, Any] | None) -> str:
    """`key=value` for each thing of the detail."""
    return " ".join(
        f"{key}={value if isinstance(value, str) else compact(value)}" for key, value in (detail or {}).items()
    )
