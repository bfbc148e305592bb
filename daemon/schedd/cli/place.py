"""Which state directory a verb for admins works on. Tests: tests/acceptance/test_admin_tools.py."""

import os
from pathlib import Path
from typing import Annotated, Any

import typer

from schedd.cli.errors import WrongUse
from schedd.cli.session import Session
from schedd.client import ClientError
from schedd.paths import default_state_dir

StateDir = Annotated[
    str | None,
    typer.Option(
        "--state-dir", metavar="DIR", help="The state directory, if it is not that of the daemon that answers."
    ),
]


def state_dir_of(context: Any, given: str | None) -> Path:
    """The directory given, else that of the daemon behind `--socket`, else `SCHEDD_STATE_DIR`, else that of the daemon
    that answers at the default socket, else the default one. Raises WrongUse if `--socket` leads to nobody.
    """
    if given is not None:
        return Path(given)
    session = context.find_object(Session) or Session()
    in_environment = os.environ.get("SCHEDD_STATE_DIR")
    if session.socket is None and in_environment:
        return Path(in_environment)
    told = state_dir_at(session)
    if told is not None:
        return told
    if session.socket is not None and not in_environment:
        raise WrongUse(f"no daemon answers at {session.socket}; name its state directory with --state-dir")
    return default_state_dir()


def state_dir_at(session: Session) -> Path | None:
    """The state directory of the daemon that answers, if one does."""
    try:
        with session.client() as client:
            return Path(client.status()["state_dir"])
    except ClientError:
        return None
