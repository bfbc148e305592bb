"""From the command line, or a file, to a submission."""

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from schedd.client import ProblemError

Ctl = Callable[..., Any]

FILE = "tasks:\n  build:\n    run: make\n"


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty directory to be in."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture(autouse=True)
def _accepting(client: Any) -> None:
    client.answers["submit"] = {"batch": None, "ids": ["7"]}


def submitted(client: Any) -> Any:
    """The one spec that was submitted."""
    assert [name for name, _, _ in client.calls] == ["submit"]
    return client.calls[0][1][0]


def test_words_after_the_dashes_are_a_command(ctl: Ctl, client: Any, here: Path) -> None:
    """They are handed on one by one, options of the command among them; it runs where the caller is."""
    assert ctl("submit", "--", "make", "-j", "4", "--", "a b") == (0, "7\n", "")
    assert submitted(client) == {"tasks": [{"command": ["make", "-j", "4", "--", "a b"], "cwd": str(here)}]}


def test_shell_text_is_a_run(ctl: Ctl, client: Any, here: Path) -> None:
    """`-c` takes the text as it is."""
    ctl("submit", "-c", "make | tee log")
    assert submitted(client) == {"tasks": [{"run": "make | tee log", "cwd": str(here)}]}


def test_every_option_becomes_its_key(ctl: Ctl, client: Any, here: Path) -> None:
    """Durations as seconds, a relative directory made absolute, retry keys under `retry`."""
    options = (
        "--id nightly --name batch --after a --after b:finished --after c:d --priority -5 --max-attempts 3 "
        "--base-delay 50ms --max-delay 1h --delay 10s --every 1m --times 2 --timeout 1h30m --grace 0 --cwd sub "
        "--env A=1 --env B=x=y --env C= --jitter --retry-on-exit 75 --retry-on-exit 1 --no-retry-on-exit 2 "
        "--no-retry-on-timeout --start-before 10m --deadline 2h"
    )
    assert ctl("submit", *options.split(), "--", "true").err == ""
    assert submitted(client) == {
        "name": "batch",
        "tasks": [
            {
                "command": ["true"],
                "cwd": os.path.join(here, "sub"),
                "id": "nightly",
                "priority": -5,
                "retry": {
                    "max_attempts": 3,
                    "base_delay": 0.05,
                    "max_delay": 3600.0,
                    "jitter": "full",
                    "on_exit_codes": [75, 1],
                    "never_on_exit_codes": [2],
                    "on_timeout": False,
                },
                "start_before": 600.0,
                "deadline": 7200.0,
                "deps": ["a", {"task": "b", "when": "finished"}, "c:d"],
                "times": 2,
                "env": {"A": "1", "B": "x=y", "C": ""},
                "delay": 10.0,
                "every": 60.0,
                "timeout": 5400.0,
                "grace": 0.0,
            }
        ],
    }


def test_a_named_batch_is_printed_by_its_name(ctl: Ctl, client: Any, here: Path) -> None:
    """And one without a name by the ids of its tasks."""
    (here / "ci.yaml").write_text(FILE)
    client.answers["submit"] = {"batch": "ci-1", "ids": ["ci-1/build", "ci-1/test"]}
    assert ctl("submit", "ci.yaml").out == "ci-1\n"
    client.answers["submit"] = {"batch": None, "ids": ["build", "test"]}
    assert ctl("submit", "ci.yaml").out == "build\ntest\n"
    assert json.loads(ctl("submit", "ci.yaml", "--json").out) == {"batch": None, "ids": ["build", "test"]}


def test_tasks_of_a_file_run_where_the_caller_is(ctl: Ctl, client: Any, here: Path) -> None:
    """Not where the file is."""
    (here / "sub").mkdir()
    (here / "sub" / "ci.yaml").write_text(FILE)
    assert ctl("submit", "sub/ci.yaml").code == 0
    assert submitted(client) == {"defaults": {"cwd": str(here)}, "tasks": {"build": {"run": "make"}}}


def test_the_key_is_handed_on(ctl: Ctl, client: Any, here: Path) -> None:
    """With a file and with a command."""
    (here / "ci.yaml").write_text(FILE)
    ctl("submit", "--key", "k", "ci.yaml")
    ctl("submit", "--key", "k", "--", "true")
    assert [arguments[1] for _, arguments, _ in client.calls] == ["k", "k"]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((), "name a file, or give a command after `--`"),
        (("--",), "there is no command after `--`"),
        (("--id", "a", "--"), "there is no command after `--`"),
        (("ci.yaml", "--", "make"), "'ci.yaml' before `--` is a file and what follows is a command; give one of them"),
        (("-c", "make", "--", "make"), "--shell has the whole command"),
        (("--id", "a", "--env", "A=1", "ci.yaml"), "--id, --env: for a command only; in a file"),
        (("-c", "make", "ci.yaml"), "--shell: for a command only"),
        (("--env", "A", "--", "make"), "--env A: write NAME=VALUE"),
        (("--env", "=1", "--", "make"), "--env =1: write NAME=VALUE"),
        (("--delay", "-1", "--", "make"), "--delay: a duration must not be negative"),
        (("--timeout", "1x", "--", "make"), "--timeout: "),
        (("--", "a\udc80"), "not UTF-8 text"),
        (("make",), "make: No such file or directory"),
    ],
)
def test_what_cannot_be_meant_is_wrong_use(
    ctl: Ctl, client: Any, here: Path, arguments: tuple[str, ...], said: str
) -> None:
    """Nothing is submitted, and the message says what would be right."""
    ran = ctl("submit", *arguments)
    assert (ran.code, ran.out) == (2, "")
    assert ran.err.startswith("schedctl: ")
    assert said in ran.err
    assert client.calls == []


def test_a_file_that_is_not_there_may_have_been_a_command(ctl: Ctl, here: Path) -> None:
    """The message shows how that is written."""
    assert ctl("submit", "make").err.splitlines()[1] == "schedctl: for a command: `schedctl submit -- make`"


def test_a_refused_file_is_told_with_its_lines(ctl: Ctl, client: Any, here: Path) -> None:
    """The daemon knows places in the data; the lines of the file are found here."""
    (here / "ci.yaml").write_text("name: ci\ntasks:\n  build:\n    comand: [make]\n")
    unknown = {"loc": ["tasks", "build", "comand"], "message": "unknown key 'comand'; did you mean 'command'?"}
    client.answers["submit"] = ProblemError(422, "invalid", "one", [unknown])  # type: ignore[list-item]
    ran = ctl("submit", "ci.yaml")
    assert (ran.code, ran.out) == (4, "")
    assert ran.err == "ci.yaml:4: tasks.build.comand: unknown key 'comand'; did you mean 'command'?\n"


def test_a_refusal_without_a_place_names_the_file(ctl: Ctl, client: Any, here: Path) -> None:
    """A cycle is nobody's line."""
    (here / "ci.yaml").write_text(FILE)
    client.answers["submit"] = ProblemError(422, "cycle", "dependency cycle: a -> b -> a")
    assert ctl("submit", "ci.yaml").err == "ci.yaml: dependency cycle: a -> b -> a\n"


@pytest.mark.parametrize(
    ("loc", "option"),
    [
        (["tasks", 0, "every"], "--every"),
        (["tasks", 0, "retry", "max_attempts"], "--max-attempts"),
        (["tasks", 0, "command", 1], "COMMAND"),
        (["tasks", 0, "run"], "--shell"),
        (["tasks", 0, "deps", 0, "task"], "--after"),
        (["tasks", 0], "COMMAND"),
        (["name"], "--name"),
    ],
)
def test_a_refused_command_is_told_by_its_options(
    ctl: Ctl, client: Any, here: Path, loc: list[str | int], option: str
) -> None:
    """Who typed `--every` knows nothing of `tasks[0].every`."""
    client.answers["submit"] = ProblemError(422, "invalid", "no", [{"loc": loc, "message": "is wrong"}])
    ran = ctl("submit", "--", "true")
    assert (ran.code, ran.err) == (4, f"schedctl: {option}: is wrong\n")


@pytest.mark.parametrize(("batch", "waited"), [("ci-1", ["ci-1"]), (None, ["a", "b"])])
def test_wait_waits_for_what_was_submitted(
    ctl: Ctl, client: Any, here: Path, batch: str | None, waited: list[str]
) -> None:
    """The ids are printed first; a failure is exit code 1."""
    failed = {"id": "b", "status": "failed", "error": "exit code 2"}
    client.answers["submit"] = {"batch": batch, "ids": ["a", "b"]}
    client.answers["wait"] = {
        "done": True,
        "open": 0,
        "counts": {"succeeded": 1, "failed": 1},
        "unsuccessful": [failed],
    }
    ran = ctl("submit", "--wait", "--", "true")
    assert (ran.code, ran.out) == (1, "".join(f"{name}\n" for name in waited))
    assert ran.err == "schedctl: b failed: exit code 2\n"
    assert [arguments[0] for name, arguments, _ in client.calls if name == "wait"] == [waited]
