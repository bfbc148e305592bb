"""The entry point of `schedctl`: which verbs there are, and where each of them lives.

A verb's module is imported when the verb is used or help is asked for, which keeps the start short. Everything that
can go wrong is turned into an exit code in `errors`. Tests: tests/unit/cli/test_cli_app.py.
"""

import difflib
import os
import sys
from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any, Final

import typer
from typer.main import get_command

from schedd import __version__
from schedd.cli.errors import Cut, WrongUse, guarded
from schedd.cli.quick import QuickCommand, QuickGroup
from schedd.cli.session import Session

VERBS: Final[Mapping[str, str]] = {  # in the order of the help: verb -> module of schedd.cli that has the function
    "submit": "submit",
    "status": "status",
    "list": "listing",
    "wait": "wait",
    "logs": "logs",
    "cancel": "change",
    "hold": "change",
    "release": "change",
    "retry": "retry",
    "depend": "change",
    "pause": "change",
    "resume": "change",
    "events": "listing",
    "validate": "validate",
    "run": "run",
    "check": "check",
    "backup": "backup",
    "prune": "prune",
}
_SYNONYMS: Final[Mapping[str, str]] = {
    "add": "submit",
    "dump": "backup",
    "fsck": "check",
    "kill": "cancel",
    "log": "logs",
    "ls": "list",
    "ps": "status",
    "queue": "list",
    "rm": "cancel",
    "show": "status",
    "start": "submit",
    "stop": "cancel",
    "tail": "logs",
}
_CONTEXT: Final = {"help_option_names": ["-h", "--help"], "max_content_width": 100}


class Verbs(QuickGroup):
    """The verbs as a group that imports each one on demand."""

    def list_commands(self, ctx: Any) -> list[str]:
        """All verbs, in the order of the table."""
        return [*VERBS]

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """The command of a verb, None if there is no such verb."""
        return load(cmd_name) if cmd_name in VERBS else None

    def invoke(self, ctx: Any) -> Any:
        """As the base class does, with our own end for a closed pipe or an interrupt instead of Typer's. Raises Cut."""
        try:
            return super().invoke(ctx)
        except (BrokenPipeError, KeyboardInterrupt) as error:
            raise Cut from error

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """As the base class does, with a better word about a verb that there is not. Raises WrongUse."""
        if args and args[0] not in VERBS and not ctx.resilient_parsing:
            raise WrongUse(f"there is no verb {args[0]!r}{_hint(args[0])}", "`schedctl --help` lists the verbs")
        return super().resolve_command(ctx, args)


def load(verb: str) -> Any:
    """The command of a verb, made from the function in its module: `list_` for `list`, `submit` for `submit`."""
    module = import_module(f"schedd.cli.{VERBS[verb]}")
    function = getattr(module, f"{verb}_", None) or getattr(module, verb)
    app = typer.Typer(add_completion=False, rich_markup_mode=None)
    app.command(verb, cls=getattr(module, "COMMANDS", {}).get(verb, QuickCommand), context_settings=_CONTEXT)(function)
    return get_command(app)


def _hint(word: str) -> str:
    near = difflib.get_close_matches(word, VERBS, n=1)
    verb = _SYNONYMS.get(word) or (near[0] if near else None)
    return f"; did you mean {verb!r}?" if verb else ""


def _show_version(value: bool) -> None:
    if value:
        print(f"schedctl {__version__}")
        raise typer.Exit


app = typer.Typer(
    cls=Verbs,
    invoke_without_command=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings=_CONTEXT,
)


@app.callback()
def schedctl(
    context: typer.Context,
    socket: Annotated[
        str | None, typer.Option(metavar="PATH", envvar="SCHEDD_SOCKET", help="The unix socket of the daemon.")
    ] = None,
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> int | None:
    """Submit tasks to schedd, watch them, and steer them. Without a verb: status.

    Ids go to stdout, messages to stderr; whatever reads takes --json. Exit codes: 0 done, 1 a task did not succeed,
    2 wrong use, 3 no daemon, 4 refused by the daemon.

    \b
    Examples:
      schedctl submit ci.yaml
      schedctl submit --id backup --timeout 2h -- rsync -a /srv /backup
      schedctl wait ci-1 && echo all succeeded
    """
    context.obj = Session(Path(socket) if socket else None)
    if context.invoked_subcommand is None:
        from schedd.cli.status import show_overview

        show_overview(context.obj.client())
    return None


def run(arguments: Sequence[str]) -> int:
    """The exit code of `schedctl` with these arguments."""
    command = get_command(app)
    return guarded(lambda: command.main(args=[*arguments], prog_name="schedctl", standalone_mode=False))


def main() -> None:
    """The command `schedctl`. Ends the process."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:  # it was closed by who started us
            setattr(sys, name, open(os.devnull, "w"))  # noqa: SIM115  # for the life of the process
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]  # a name in another encoding
    code = run(sys.argv[1:])
    sys.stderr.flush()
    os._exit(code)  # taking the interpreter apart would be a tenth of the time that a verb takes
