"""`wait`: until tasks and batches have ended. Tests: tests/unit/cli/test_cli_wait.py, tests/acceptance."""

import time
from collections.abc import Iterator, Sequence
from typing import Annotated, Final

import typer

from schedd.answers import Unsuccessful, WaitAnswer
from schedd.cli.errors import ExitCode, complain, seconds
from schedd.cli.render import ending, plural, span, write_json
from schedd.cli.session import client_of
from schedd.client import Client

IDS_PER_REQUEST: Final = 200
GLANCE_S: Final = 1.0
"""How often `--fail-fast` looks whether something has failed."""

SHOWN: Final = 20


def wait(
    context: typer.Context,
    ids: Annotated[list[str], typer.Argument(metavar="ID|BATCH...", help="Tasks or batches.")],
    timeout: Annotated[
        str | None, typer.Option(metavar="DURATION", help="Give up after this long, such as 90s or 2h.")
    ] = None,
    fail_fast: Annotated[bool, typer.Option("--fail-fast", help="Return as soon as one did not succeed.")] = False,
    json: Annotated[bool, typer.Option("--json", help="Print how it ended as JSON.")] = False,
) -> int:
    """Wait until tasks and batches have ended. Exit code 0 if all succeeded, 1 if not or if time ran out.

    \b
    Examples:
      schedctl wait ci-1 && ./deploy
      schedctl wait --timeout 10m --fail-fast ci-1 nightly-7/backup
    """
    limit_s = seconds("--timeout", timeout)
    answer = wait_for(client_of(context), ids, limit_s, fail_fast)
    if json:
        write_json(answer)
    return judge(answer, limit_s)


def wait_for(client: Client, ids: Sequence[str], limit_s: float | None = None, fail_fast: bool = False) -> WaitAnswer:
    """What became of tasks and batches: all ended, or `done` False at the limit or at the first that did not succeed.

    Many ids are asked for in several requests, one after the other. Raises what the client raises.
    """
    deadline = None if limit_s is None else time.monotonic() + limit_s
    answer: WaitAnswer = {"done": True, "open": 0, "counts": {}, "unsuccessful": []}
    if fail_fast:
        return _glance_until(client, ids, deadline)
    for some in _chunks(ids):
        _add(answer, client.wait(some, _left(deadline)))
    return answer


def judge(answer: WaitAnswer, limit_s: float | None = None) -> ExitCode:
    """The exit code of a wait; what did not succeed is told on stderr."""
    bad = answer["unsuccessful"]
    complain(_sentence(task) for task in bad[:SHOWN])
    in_all = sum(answer["counts"].get(status, 0) for status in ("failed", "cancelled", "skipped"))
    if in_all > SHOWN:
        complain([f"and {in_all - SHOWN} more did not succeed"])
    if not answer["done"] and not bad and limit_s is not None:
        complain([f"{plural(answer['open'], 'task')} had not ended after {span(limit_s)}"])
    return ExitCode.DONE if answer["done"] and not bad else ExitCode.TASKS_FAILED


def _sentence(task: Unsuccessful) -> str:
    return f"{task['id']} {ending(task['status'], task['error'])}"


def _glance_until(client: Client, ids: Sequence[str], deadline: float | None) -> WaitAnswer:
    """As `wait_for`, looking at everything in turn so that the first failure anywhere is seen."""
    while True:
        answer: WaitAnswer = {"done": True, "open": 0, "counts": {}, "unsuccessful": []}
        for index, some in enumerate(_chunks(ids)):
            left = _left(deadline)
            patience_s = GLANCE_S if left is None else min(GLANCE_S, left)
            _add(answer, client.wait(some, 0.0 if index else patience_s))
        if answer["done"] or answer["unsuccessful"] or _left(deadline) == 0.0:
            return answer


def _add(total: WaitAnswer, answer: WaitAnswer) -> None:
    total["done"] = total["done"] and answer["done"]
    total["open"] += answer["open"]
    for status, count in answer["counts"].items():
        total["counts"][status] = total["counts"].get(status, 0) + count
    total["unsuccessful"] += answer["unsuccessful"]


def _chunks(ids: Sequence[str]) -> Iterator[Sequence[str]]:
    for start in range(0, len(ids), IDS_PER_REQUEST):
        yield ids[start : start + IDS_PER_REQUEST]


def _left(deadline: float | None) -> float | None:
    return None if deadline is None else max(deadline - time.monotonic(), 0.0)
