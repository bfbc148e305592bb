"""`prune`: remove what ended long ago. Tests: tests/acceptance/test_prune.py."""

from typing import Annotated

import typer

from schedd.answers import PruneAnswer
from schedd.cli.errors import ExitCode, complain, seconds
from schedd.cli.render import plural, write, write_json
from schedd.cli.session import client_of


def prune(
    context: typer.Context,
    *,
    older_than: Annotated[
        str, typer.Option(metavar="DURATION", help="Remove what ended longer ago than this: 30d, 12h, 0s.")
    ],
    keep_last: Annotated[
        int, typer.Option(metavar="N", min=0, help="Keep the last N batches of each name, however old.")
    ] = 0,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only count what would go.")] = False,
    json: Annotated[bool, typer.Option("--json", help="As JSON.")] = False,
) -> int:
    """Remove tasks that ended long ago, with their logs.

    Their attempts and events go too.
    A batch goes as a whole: when all of it has ended long enough ago, and nothing that is still open depends on it.
    Prints how many tasks went. Stopped half-way, it goes on where it was when it is called again.

    \b
    Examples:
      schedctl prune --older-than 30d
      schedctl prune --older-than 0s --keep-last 3 --dry-run
    """
    age_s = seconds("--older-than", older_than)
    assert age_s is not None, "it is required"
    client = client_of(context)
    total: PruneAnswer = {"tasks": 0, "lines": 0, "more": True}
    while total["more"]:
        answer = client.prune(age_s, keep_last, dry_run=dry_run)
        total = {
            "tasks": total["tasks"] + answer["tasks"],
            "lines": total["lines"] + answer["lines"],
            "more": answer["more"],
        }
    if json:
        write_json(total)
        return ExitCode.DONE
    write([str(total["tasks"])])
    complain([f"{plural(total['tasks'], 'task')} {'would be' if dry_run else 'were'} removed"])
    return ExitCode.DONE
