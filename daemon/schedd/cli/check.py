"""`check`: whether what schedd keeps is sound. Tests: tests/acceptance/test_admin_tools.py."""

from collections.abc import Iterator
from enum import IntEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from schedd.answers import CheckAnswer
from schedd.cli.errors import ExitCode, WrongUse, complain
from schedd.cli.place import StateDir, state_dir_at, state_dir_of
from schedd.cli.render import plural, printable, write, write_json
from schedd.cli.session import Session


class CheckCode(IntEnum):
    """What the exit code of `check` says, where it differs from other verbs."""

    FAULTS = 1
    UNREADABLE = 3


def check(
    context: typer.Context,
    *,
    state_dir: StateDir = None,
    json: Annotated[bool, typer.Option("--json", help="As JSON.")] = False,
) -> int:
    """Check that the database and the logs are sound.

    Looks at all rows of the database and at the log files, with or without a daemon at work, and writes nothing.
    Exit code 0: sound, notes or not; 1: there are faults; 2: no such directory; 3: it cannot be read.

    \b
    Examples:
      schedctl check
      schedctl check --state-dir /srv/restored --json
    """
    directory = state_dir_of(context, state_dir)
    answer = _look(context.find_object(Session) or Session(), directory)
    if isinstance(answer, str):
        complain([answer])
        return CheckCode.UNREADABLE
    if json:
        write_json(answer)
    else:
        write(map(printable, _lines(answer)))
    if answer["errors"]:
        return CheckCode.FAULTS
    return CheckCode.UNREADABLE if answer["unjudged"] else ExitCode.DONE


def _look(session: Session, directory: Path) -> CheckAnswer | str:
    """What is found, by ourselves or, where we may not read, by the daemon; else why it cannot be read."""
    from schedd.checkup import NotAStateDir, check_state_dir
    from schedd.store.base import StoreBroken, StoreUnavailable

    try:
        return check_state_dir(directory)
    except NotAStateDir as error:
        raise WrongUse(str(error)) from None
    except (StoreBroken, StoreUnavailable) as error:
        return str(error)
    except PermissionError as error:
        if state_dir_at(session) == directory:
            with session.client() as client:
                return client.check()
        return f"{error.filename or directory} may not be read by you; run it as the user of schedd, or as root"


def _lines(answer: CheckAnswer) -> Iterator[str]:
    for found in answer["findings"]:
        for item in found["shown"]:
            yield f"{found['severity']}: {item['message']}"
        if found["count"] > len(found["shown"]):
            yield f"{found['severity']}: and {found['count'] - len(found['shown'])} more of this kind ({found['kind']})"
        yield f"  {found['advice']}"
    if answer["unjudged"]:
        yield f"error: {answer['unjudged']}"
    held = f"{plural(answer['tasks'], 'task')}, {plural(answer['attempts'], 'attempt')}"
    yield f"{answer['database']}: {held}: {_verdict(answer)}"


def _verdict(answer: Any) -> str:
    notes = f", {plural(answer['notes'], 'note')}" if answer["notes"] else ""
    if answer["errors"]:
        return f"{plural(answer['errors'], 'fault')}{notes}"
    return f"not judged{notes}" if answer["unjudged"] else f"sound{notes}"
