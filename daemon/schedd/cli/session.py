"""The options that stand before the verb, and the client made from them. Tests: tests/unit/cli/test_cli_app.py."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from schedd.client import Client
from schedd.paths import default_socket


@dataclass(frozen=True, slots=True)
class Session:
    """One use of the command line."""

    socket: Path | None = None

    def client(self) -> Client:
        """A client of the daemon behind `--socket`, else behind the default socket."""
        return Client(self.socket or default_socket())


def client_of(context: Any) -> Client:
    """The client for the verb that runs in this Typer context."""
    session = context.find_object(Session) or Session()
    return session.client()
