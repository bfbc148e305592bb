"""The way to the verbs."""

import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from schedd import __version__
from schedd.cli import app
from schedd.cli.errors import ExitCode
from schedd.cli.session import Session

Ctl = Callable[..., Any]

STATUS: dict[str, Any] = {
    "version": "0.1.0",
    "pid": 7,
    "started_at": 0.0,
    "workers": 4,
    "busy": 0,
    "paused": False,
    "draining": False,
    "counts": {},
    "running": [],
    "failed": [],
    "health": {"live": True, "ready": True, "degraded": None},
    "state_dir": "/state",
}


def test_no_verb_is_status(ctl: Ctl, client: Any) -> None:
    """`schedctl` alone shows the overview."""
    client.answers["status"] = STATUS
    alone, named = ctl(), ctl("status")
    assert alone == named
    assert alone.code == 0
    assert "0 of 4 busy" in alone.out


@pytest.mark.parametrize(
    ("word", "meant"),
    [("statsu", "status"), ("cancle", "cancel"), ("kill", "cancel"), ("ls", "list"), ("ps", "status")],
)
def test_an_unknown_verb_gets_the_nearest_one(ctl: Ctl, word: str, meant: str) -> None:
    """By its letters, or by what other tools call it."""
    ran = ctl(word, "x")
    assert (ran.code, ran.out) == (2, "")
    assert ran.err.startswith(f"schedctl: there is no verb {word!r}; did you mean {meant!r}?\n")


def test_a_verb_like_no_other_gets_the_list(ctl: Ctl) -> None:
    """Without a guess, the help is named."""
    assert ctl("xyzzy").err == "schedctl: there is no verb 'xyzzy'\nschedctl: `schedctl --help` lists the verbs\n"


def test_help_lists_every_verb(ctl: Ctl) -> None:
    """Also those whose modules were not imported before."""
    ran = ctl("--help")
    assert (ran.code, ran.err) == (0, "")
    commands = ran.out.split("Commands:")[1]
    assert [line.split()[0] for line in commands.strip().splitlines()] == [*app.VERBS]
    assert "..." not in commands, "a summary is too long"


@pytest.mark.parametrize("verb", app.VERBS)
def test_the_help_of_every_verb_has_an_example(ctl: Ctl, verb: str) -> None:
    """And takes -h as well."""
    ran = ctl(verb, "--help")
    assert (ran.code, ran.err) == (0, "")
    assert f"schedctl {verb}" in ran.out.partition("Example")[2]
    assert ctl(verb, "-h").out == ran.out


def test_version(ctl: Ctl) -> None:
    """The version goes to stdout."""
    assert ctl("--version") == (0, f"schedctl {__version__}\n", "")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("cancel",), "missing argument 'ID...'"),
        (("cancel", "--forse", "x"), "no such option: --forse"),
        (("list", "--status", "runing"), "'runing' is not one of"),
        (("list", "--limit", "0"), "'--limit'"),
        (("list", "--limit", "many"), "'--limit'"),
        (("--nope",), "no such option: --nope"),
        (("depend", "a"), "missing argument 'AFTER'"),
        (("logs", "a", "b"), "unexpected extra argument"),
    ],
)
def test_wrong_use_is_told_on_stderr_with_the_way_to_the_help(
    ctl: Ctl, client: Any, arguments: tuple[str, ...], said: str
) -> None:
    """The daemon is not asked."""
    ran = ctl(*arguments)
    assert (ran.code, ran.out) == (2, "")
    assert said in ran.err
    assert "--help` shows how it is used" in ran.err
    assert all(line.startswith("schedctl: ") for line in ran.err.splitlines())
    assert client.calls == []


def test_socket_after_the_verb_is_shown_where_it_belongs(ctl: Ctl) -> None:
    """It is an option of the whole command line."""
    assert "`schedctl --socket PATH list ...`" in ctl("list", "--socket", "x").err


@pytest.mark.parametrize("given", ["option", "environment"])
def test_the_socket_comes_from_the_option_or_the_environment(
    ctl: Ctl, monkeypatch: pytest.MonkeyPatch, given: str
) -> None:
    """Where nobody listens, the message names the path."""
    if given == "environment":
        monkeypatch.setenv("SCHEDD_SOCKET", "/nowhere/x.sock")
        ran = ctl("status")
    else:
        monkeypatch.setenv("SCHEDD_SOCKET", "/nowhere/other.sock")
        ran = ctl("--socket", "/nowhere/x.sock", "status")
    assert (ran.code, ran.out) == (3, "")
    assert "/nowhere/x.sock" in ran.err
    assert "schedd" in ran.err


def test_a_session_without_a_socket_uses_the_default(monkeypatch: pytest.MonkeyPatch) -> None:
    """The one that the daemon would use."""
    monkeypatch.setenv("SCHEDD_SOCKET", "/run/here.sock")
    assert str(Session().client().socket_path) == "/run/here.sock"


def test_status_starts_without_what_it_does_not_need() -> None:
    """Nothing that takes longer to import than the verb may take in all."""
    heavy = "{'rich', 'pydantic', 'yaml', 'sqlalchemy', 'asyncio', 'fastapi', 'structlog', 'schedd.engine'}"
    script = (
        "import sys\nfrom schedd.cli.app import run\ncode = run(['status'])\n"
        f"print(code, sorted(sys.modules.keys() & {heavy}))"
    )
    environment = {"SCHEDD_SOCKET": "/nowhere/x.sock"}
    done = subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout == "3 []\n"


def test_the_reference_has_every_verb_and_option(ctl: Ctl) -> None:
    """docs/schedctl.md is complete: a new verb or exit code without a word there fails here."""
    page = (Path(__file__).resolve().parents[3] / "docs" / "schedctl.md").read_text()
    headings = {word for line in page.splitlines() if line.startswith("## ") for word in line[3:].split(", ")}
    assert headings >= {*app.VERBS}
    assert all(f"| {code}" in page or f", {code} |" in page for code in map(int, ExitCode))
    options = set(re.findall(r"^ +(?:-\w, )?(--[\w-]+)", ctl("submit", "--help").out, re.MULTILINE))
    assert {option for option in options if f"`{option}" not in page and f" {option} " not in page} <= {
        "--help",
        "--shell",
    }
