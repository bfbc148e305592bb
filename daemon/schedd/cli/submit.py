"""`submit`: a spec file, or one command.

Words after `--` are a command, a word before it is a file. The daemon judges what is submitted; only what it could not
understand at all (a file that is not YAML, a duration that is none) is refused here.
Tests: tests/unit/cli/test_cli_submit.py, tests/acceptance/test_schedctl_submit.py.
"""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Annotated, Any, Final

import typer

from schedd.answers import SubmitAnswer, dotted
from schedd.cli.errors import ExitCode, WrongUse, complain, complain_of_file, seconds
from schedd.cli.quick import QuickCommand
from schedd.cli.render import compact, printable, write, write_json
from schedd.cli.session import client_of
from schedd.client import Client, ProblemError

_WORDS: Final = "schedd.command"
_DURATIONS: Final = ("delay", "start_before", "deadline", "every", "timeout", "grace")
_CALLED: Final = {
    "on_exit_codes": "--retry-on-exit",
    "never_on_exit_codes": "--no-retry-on-exit",
    "on_timeout": "--no-retry-on-timeout",
}
"""Keys of `retry` whose options have other names."""

_WHENS: Final = ("succeeded", "failed", "finished")


class SubmitCommand(QuickCommand):
    """`submit` with what stands after `--` kept apart: to Typer it would be one positional argument like another."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """As the base class does, for what stands before `--`."""
        if "--" in args:
            split = args.index("--")
            ctx.meta[_WORDS] = args[split + 1 :]
            args = args[:split]
        return super().parse_args(ctx, args)

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        """The two forms, for the line of usage."""
        return ["[OPTIONS] (FILE | - | -- COMMAND...)"]


COMMANDS: Final = {"submit": SubmitCommand}


@dataclass(frozen=True, slots=True)
class TaskOptions:
    """The options that describe a task, as they were given; they go with a command and not with a file."""

    shell: str | None
    id: str | None
    name: str | None
    after: list[str] | None
    priority: int | None
    max_attempts: int | None
    base_delay: str | None
    max_delay: str | None
    jitter: bool
    retry_on_exit: list[int] | None
    no_retry_on_exit: list[int] | None
    no_retry_on_timeout: bool
    delay: str | None
    start_before: str | None
    deadline: str | None
    every: str | None
    times: int | None
    timeout: str | None
    grace: str | None
    cwd: str | None
    env: list[str] | None

    def given(self) -> list[str]:
        """The options that were given, as they are written."""
        return [_option(field.name) for field in fields(self) if getattr(self, field.name) not in (None, [], False)]


def submit(
    context: typer.Context,
    file: Annotated[
        str | None, typer.Argument(metavar="[FILE|-]", help="A spec: YAML, TOML, JSON or JSON Lines; - is stdin.")
    ] = None,
    *,
    shell: Annotated[
        str | None, typer.Option("--shell", "-c", metavar="TEXT", help="Shell text to run instead of a COMMAND.")
    ] = None,
    task_id: Annotated[
        str | None, typer.Option("--id", metavar="ID", help="The task's id; else it gets a number.")
    ] = None,
    name: Annotated[str | None, typer.Option(metavar="NAME", help="Make it a batch of this name.")] = None,
    after: Annotated[
        list[str] | None,
        typer.Option(
            metavar="ID[:WHEN]",
            help="A task that must come first; WHEN is succeeded (default), failed or finished. May be repeated.",
        ),
    ] = None,
    priority: Annotated[int | None, typer.Option(metavar="N", help="Lower runs first; 0 without this.")] = None,
    max_attempts: Annotated[int | None, typer.Option(metavar="N", help="Try it this often; once without this.")] = None,
    base_delay: Annotated[
        str | None, typer.Option(metavar="DURATION", help="The wait after the first failure; it doubles each time.")
    ] = None,
    max_delay: Annotated[
        str | None, typer.Option(metavar="DURATION", help="The longest wait between attempts.")
    ] = None,
    jitter: Annotated[bool, typer.Option("--jitter", help="Wait for a random part of the delay only.")] = False,
    retry_on_exit: Annotated[
        list[int] | None,
        typer.Option(metavar="CODE", help="Try again only after this exit code. May be repeated."),
    ] = None,
    no_retry_on_exit: Annotated[
        list[int] | None, typer.Option(metavar="CODE", help="Do not try again after this exit code. May be repeated.")
    ] = None,
    no_retry_on_timeout: Annotated[
        bool, typer.Option("--no-retry-on-timeout", help="Do not try again what took longer than --timeout.")
    ] = False,
    delay: Annotated[
        str | None, typer.Option(metavar="DURATION", help="Start it this much later at the earliest.")
    ] = None,
    start_before: Annotated[
        str | None, typer.Option(metavar="DURATION", help="Skip it if it cannot start within this time.")
    ] = None,
    deadline: Annotated[
        str | None, typer.Option(metavar="DURATION", help="Fail it unless it has ended within this time.")
    ] = None,
    every: Annotated[
        str | None, typer.Option(metavar="DURATION", help="Run it again this often; with --times.")
    ] = None,
    times: Annotated[int | None, typer.Option(metavar="N", help="How many runs; with --every.")] = None,
    timeout: Annotated[str | None, typer.Option(metavar="DURATION", help="Stop an attempt that takes longer.")] = None,
    grace: Annotated[
        str | None, typer.Option(metavar="DURATION", help="From TERM to KILL when it is stopped; 10s without this.")
    ] = None,
    cwd: Annotated[str | None, typer.Option(metavar="DIR", help="Where it runs; here, without this.")] = None,
    env: Annotated[
        list[str] | None, typer.Option(metavar="NAME=VALUE", help="A variable for its environment. May be repeated.")
    ] = None,
    key: Annotated[
        str | None, typer.Option(metavar="KEY", help="Submitted twice with one key, it is accepted once.")
    ] = None,
    wait: Annotated[bool, typer.Option("--wait", help="Wait for the end; exit code 1 if any did not succeed.")] = False,
    json: Annotated[bool, typer.Option("--json", help="Print the answer as JSON.")] = False,
) -> int:
    """Submit a batch of tasks from a file, or one command.

    Prints the name of the batch (ci-1), or the ids of tasks without one. A batch is accepted whole or not at all, and
    once the id is printed no crash loses it. Tasks run in the directory where you are, unless they say otherwise.

    \b
    Examples:
      schedctl submit ci.yaml
      schedctl submit --id nightly --after ci-1/deploy --timeout 2h -- ./backup --full
      schedctl submit --max-attempts 3 --base-delay 30s -c 'curl -fsS example.org | wc -c'
      generate-tasks | schedctl submit -
    """
    options = TaskOptions(
        shell=shell,
        id=task_id,
        name=name,
        after=after,
        priority=priority,
        max_attempts=max_attempts,
        base_delay=base_delay,
        max_delay=max_delay,
        jitter=jitter,
        retry_on_exit=retry_on_exit,
        no_retry_on_exit=no_retry_on_exit,
        no_retry_on_timeout=no_retry_on_timeout,
        delay=delay,
        start_before=start_before,
        deadline=deadline,
        every=every,
        times=times,
        timeout=timeout,
        grace=grace,
        cwd=cwd,
        env=env,
    )
    words: list[str] | None = context.meta.get(_WORDS)
    client = client_of(context)
    if file is None:
        answer = _submit_command(client, words, options, key)
    else:
        _refuse_mixture(file, words, options)
        answer = _submit_file(client, file, key)
    if json:
        write_json(answer)
    else:
        write(map(printable, [answer["batch"]] if answer["batch"] else answer["ids"]))
    return _wait(client, answer) if wait else ExitCode.DONE


def _submit_file(client: Client, path: str, key: str | None) -> SubmitAnswer:
    from schedd.cli import specs

    spec = specs.read(path)
    try:
        return client.submit(specs.from_here(spec), key)
    except ProblemError as error:
        complain_of_file(specs.complaints(spec, error.errors, error.detail))
        raise typer.Exit(ExitCode.REFUSED) from None


def _submit_command(client: Client, words: list[str] | None, options: TaskOptions, key: str | None) -> SubmitAnswer:
    spec: dict[str, Any] = {"tasks": [task_of(words, options)]}
    if options.name is not None:
        spec["name"] = options.name
    try:
        return client.submit(spec, key)
    except ProblemError as error:
        complain([f"{_option_at(item['loc'])}: {item['message']}" for item in error.errors] or [error.detail])
        raise typer.Exit(ExitCode.REFUSED) from None


def _wait(client: Client, answer: SubmitAnswer) -> int:
    import sys

    from schedd.cli.wait import judge, wait_for

    sys.stdout.flush()  # who reads our output wants the ids before the tasks have ended
    return judge(wait_for(client, [answer["batch"]] if answer["batch"] else answer["ids"]))


# --- the command line as a task -------------------------------------------------------------------------------------


def task_of(words: Sequence[str] | None, options: TaskOptions) -> dict[str, Any]:
    """The task, as in a spec, that a command line describes. Raises WrongUse."""
    from schedd.cli.specs import here

    task: dict[str, Any] = _work(words, options.shell)
    base = here()
    task["cwd"] = os.path.join(base, os.path.expanduser(options.cwd)) if options.cwd else base
    retry = {
        "max_attempts": options.max_attempts,
        "base_delay": seconds("--base-delay", options.base_delay),
        "max_delay": seconds("--max-delay", options.max_delay),
        "jitter": "full" if options.jitter else None,
        "on_exit_codes": options.retry_on_exit or None,
        "never_on_exit_codes": options.no_retry_on_exit or None,
        "on_timeout": False if options.no_retry_on_timeout else None,
    }
    more: Mapping[str, Any] = {
        "id": options.id,
        "priority": options.priority,
        "retry": {name: value for name, value in retry.items() if value is not None} or None,
        "deps": [_dependency(text) for text in options.after or ()] or None,
        "times": options.times,
        "env": _environment(options.env or ()) or None,
        **{name: seconds(_option(name), getattr(options, name)) for name in _DURATIONS},
    }
    task.update((name, value) for name, value in more.items() if value is not None)
    _refuse_broken_text(task)
    return task


def _work(words: Sequence[str] | None, shell: str | None) -> dict[str, Any]:
    if shell is not None:
        if words:
            raise WrongUse("--shell has the whole command; leave out what stands after `--`")
        return {"run": shell}
    if words is None:
        raise WrongUse("name a file, or give a command after `--`", "`schedctl submit --help` has examples")
    if not words:
        raise WrongUse("there is no command after `--`")
    return {"command": [*words]}


def _dependency(text: str) -> str | dict[str, str]:
    """`ID` or `ID:WHEN`. A colon before any other word belongs to the id."""
    task_id, colon, when = text.rpartition(":")
    return {"task": task_id, "when": when} if colon and task_id and when in _WHENS else text


def _environment(given: Sequence[str]) -> dict[str, str]:
    variables: dict[str, str] = {}
    for text in given:
        name, equals, value = text.partition("=")
        if not equals or not name:
            raise WrongUse(f"--env {text}: write NAME=VALUE")
        variables[name] = value
    return variables


def _refuse_mixture(file: str, words: list[str] | None, options: TaskOptions) -> None:
    if words is not None:
        raise WrongUse(
            f"{file!r} before `--` is a file and what follows is a command; give one of them",
            "for a command, put all its words after `--`: `schedctl submit -- COMMAND...`",
        )
    given = options.given()
    if given:
        raise WrongUse(f"{', '.join(given)}: for a command only; in a file, write it into the task or into `defaults`")


def _refuse_broken_text(task: Any) -> None:
    """Raises WrongUse for an argument that is not UTF-8: JSON cannot carry it, so it would not arrive as it is."""
    try:
        compact(task).encode()
    except UnicodeEncodeError as error:
        near = error.object[max(error.start - 20, 0) : error.start + 20]
        raise WrongUse(f"near {near.encode('utf-8', 'backslashreplace').decode()}: not UTF-8 text") from None


def _option_at(loc: Sequence[str | int]) -> str:
    """What on the command line is meant by a place in the spec that was made of it."""
    inner = [part for part in loc if part != "tasks"]
    keys = [part for part in inner if isinstance(part, str)]
    if not keys:
        return "COMMAND"
    if keys[0] == "retry" and len(keys) > 1:
        return _CALLED.get(keys[1]) or _option(keys[1])
    named = {"command": "COMMAND", "run": "--shell", "deps": "--after"}
    return named.get(keys[0]) or (_option(keys[0]) if keys[0] in TaskOptions.__slots__ else dotted(loc))


def _option(name: str) -> str:
    return f"--{name.replace('_', '-')}"
