"""`logs`: what an attempt wrote to its output, byte for byte.

Tests: tests/unit/cli/test_cli_logs.py, tests/acceptance/test_schedctl_logs.py.
"""

import sys
from collections import deque
from collections.abc import Iterable, Iterator
from typing import Annotated, BinaryIO

import typer

from schedd.answers import TaskDetail
from schedd.cli.errors import ExitCode, complain
from schedd.cli.session import client_of
from schedd.cli.wait import GLANCE_S
from schedd.client import Client

ENDED = frozenset({"succeeded", "failed", "cancelled", "skipped"})


def logs(
    context: typer.Context,
    task_id: Annotated[str, typer.Argument(metavar="ID", help="The task.")],
    *,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on while the attempt runs.")] = False,
    attempt: Annotated[
        int | None, typer.Option(metavar="N", min=1, help="The number of the attempt; the last one without this.")
    ] = None,
    lines: Annotated[
        int | None, typer.Option("--lines", "-n", metavar="N", min=0, help="The last N lines only.")
    ] = None,
) -> int:
    """Print what a task wrote to stdout and stderr.

    It comes in order and byte for byte, as it was written.

    \b
    Examples:
      schedctl logs ci-1/test
      schedctl logs -n 20 -f ci-1/test
      schedctl logs --attempt 1 ci-1/test
    """
    client = client_of(context)
    number = attempt or _last_attempt(client, task_id, follow)
    if number is None:
        return ExitCode.DONE
    out = sys.stdout.buffer
    offset = 0
    if lines is not None:
        offset = write_tail(out, client.log(task_id, number), lines)
    if lines is None or follow:
        for chunk in client.log(task_id, number, offset, follow):
            out.write(chunk)
            out.flush()
    return ExitCode.DONE


def write_tail(out: BinaryIO, chunks: Iterable[bytes], lines: int) -> int:
    """Write the last `lines` lines of `chunks` to `out`; how many bytes there were in all."""
    count = 0
    last: deque[bytes] = deque(maxlen=lines)
    for line in _split(chunks):
        count += len(line)
        last.append(line)
    out.writelines(last)
    out.flush()
    return count


def _split(chunks: Iterable[bytes]) -> Iterator[bytes]:
    """The lines in `chunks`, each with its newline; the last one may have none."""
    begun: list[bytes] = []  # the parts of a line whose end has not come yet: joined once, however many they are
    for chunk in chunks:
        first, newline, rest = chunk.partition(b"\n")
        begun.append(first + newline)
        if not newline:
            continue
        yield b"".join(begun)
        *whole, last = rest.split(b"\n")
        yield from (line + b"\n" for line in whole)
        begun = [last]
    if any(begun):
        yield b"".join(begun)


def _last_attempt(client: Client, task_id: str, follow: bool) -> int | None:
    """The number of the last attempt; None, with a message, if there is none and none is waited for."""
    task = client.task(task_id)
    if task["number"]:
        return task["number"]
    if not follow or task["status"] in ENDED:
        complain([_no_log(task)])
        return None
    complain([f"{task['id']} has not been started; waiting for it"])
    while not task["number"]:
        client.wait([task_id], GLANCE_S)
        task = client.task(task_id)
        if not task["number"] and task["status"] in ENDED:
            complain([_no_log(task)])
            return None
    return task["number"]


def _no_log(task: TaskDetail) -> str:
    state = f"{task['status']} ({task['error']})" if task["error"] else task["status"]
    return f"{task['id']} has not been started and has no log: it is {state}"
