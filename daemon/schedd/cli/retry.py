"""`retry`: ended tasks again. Tests: tests/acceptance/test_schedctl_retry.py."""

from typing import Annotated

import typer

from schedd.cli.errors import ExitCode, complain
from schedd.cli.render import plural, printable, write, write_json
from schedd.cli.session import client_of


def retry(
    context: typer.Context,
    ids: Annotated[list[str], typer.Argument(metavar="ID...", help="Ended tasks, or batches for what failed in them.")],
    *,
    downstream: Annotated[bool, typer.Option("--downstream", help="Also run again what ran after them.")] = False,
    failed: Annotated[bool, typer.Option("--failed", help="Only what failed, not what was cancelled.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only tell what would run.")] = False,
    json: Annotated[bool, typer.Option("--json", help="As JSON.")] = False,
) -> int:
    """Run ended tasks again; prints the ids of all that run.

    What was skipped only because of them comes back with them. Their attempts count anew, their history stays. The exit
    code is 4 if any was refused.

    \b
    Examples:
      schedctl retry ci-1/build
      schedctl retry --failed ci-1
      schedctl retry --downstream --dry-run ci-1/checkout
    """
    answer = client_of(context).retry(ids, downstream=downstream, only_failed=failed, dry_run=dry_run)
    refused = [result.get("message") or result["id"] for result in answer["results"] if not result["ok"]]
    if json:
        write_json(answer)
    else:
        write(map(printable, answer["retried"]))
    complain(refused)
    if dry_run:
        complain([f"{plural(len(answer['retried']), 'task')} would run again"])
    elif not answer["results"]:
        complain(["nothing there failed, was cancelled or skipped; nothing was changed"])
        return ExitCode.REFUSED
    return ExitCode.REFUSED if refused else ExitCode.DONE
