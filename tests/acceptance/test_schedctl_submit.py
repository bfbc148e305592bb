"""Submitting to a real daemon: files in every format, commands, and everything that may be wrong with them."""

import json
from collections.abc import Callable
from typing import Any

import pytest

Ctl = Callable[..., Any]

pytestmark = pytest.mark.real

YAML = "name: ci\ntasks:\n  build: {run: 'pwd > out'}\n  test: {deps: [build], command: [cat, out]}\n"
TOML = 'name = "ci"\n[tasks.build]\nrun = "pwd > out"\n[tasks.test]\ndeps = ["build"]\ncommand = ["cat", "out"]\n'
JSON = json.dumps(
    {"name": "ci", "tasks": {"build": {"run": "pwd > out"}, "test": {"deps": ["build"], "command": ["cat", "out"]}}}
)


@pytest.mark.parametrize(("name", "text"), [("ci.yaml", YAML), ("ci.toml", TOML), ("ci.json", JSON), ("-", YAML)])
def test_a_file_of_every_format_runs_where_the_caller_is(daemon: Any, ctl: Any, name: str, text: str) -> None:
    """It prints the name of the batch, and `--wait` returns when all has succeeded."""
    if name != "-":
        ctl.file(name, text)
    assert ctl("submit", "--wait", name, stdin=text) == (0, "ci-1\n", "")
    assert ctl("logs", "ci-1/test").out == f"{ctl.home}\n"


def test_json_lines_are_tasks_with_their_own_ids(daemon: Any, ctl: Any) -> None:
    """Without a name of the batch, each id is printed."""
    ctl.file("tasks.jsonl", '{"id": "a", "run": "true"}\n{"run": "true", "deps": ["a"]}\n')
    assert ctl("submit", "--wait", "tasks.jsonl") == (0, "a\n2\n", "")


def test_a_command_is_handed_on_word_by_word(daemon: Any, ctl: Any) -> None:
    """No shell is between; its environment and directory are those asked for."""
    words = ("sh", "-c", 'echo "$1|$NAME|$PWD"', "sh", "a  b*")
    assert ctl("submit", "--id", "x", "--env", "NAME=v w", "--cwd", "/", "--wait", "--", *words) == (0, "x\n", "")
    assert ctl("logs", "x").out == "a  b*|v w|/\n"


def test_wait_tells_what_failed(daemon: Any, ctl: Any) -> None:
    """With exit code 1."""
    ran = ctl("submit", "--id", "x", "--wait", "-c", "exit 3")
    assert (ran.code, ran.out) == (1, "x\n")
    assert ran.err.startswith("schedctl: x failed: ")


def test_one_key_submits_once(daemon: Any, ctl: Any) -> None:
    """The repetition gets the first answer; another command under the key is refused."""
    first = ctl("submit", "--key", "k", "--", "true")
    assert first.code == 0
    assert ctl("submit", "--key", "k", "--", "true") == first
    ran = ctl("submit", "--key", "k", "--", "false")
    assert (ran.code, ran.out) == (4, "")
    assert "key" in ran.err


def test_a_command_after_a_task_waits_for_it(daemon: Any, ctl: Any) -> None:
    """Also for its failure, where it says so."""
    ctl("submit", "--id", "a", "-c", "exit 1")
    ctl("submit", "--id", "on-failure", "--after", "a:failed", "--", "true")
    assert ctl("submit", "--id", "on-success", "--after", "a", "--wait", "--", "true").code == 1
    assert ctl("wait", "on-failure").code == 0


@pytest.mark.parametrize(
    ("text", "code", "said"),
    [
        ("tasks:\n  build:\n    comand: [make]\n", 4, "ci.yaml:3: tasks.build.comand: unknown key 'comand'"),
        ("tasks:\n  a:\n    run: [make]\n", 4, "ci.yaml:3: tasks.a.run: must be text"),
        ("tasks:\n  a:\n    run: x\n    delay: -5\n", 4, "ci.yaml:4: tasks.a.delay: "),
        ("tasks:\n  a:\n    run: x\n    times: 5\n", 4, "ci.yaml:4: tasks.a.times: `times` needs `every`"),
        ("tasks:\n  a:\n    run: x\n    every: 5\n", 4, "schedule"),
        ("tasks:\n  a:\n    command: []\n", 4, "ci.yaml:3: tasks.a.command: must not be empty"),
        ("tasks:\n  a:\n    command: [x, \"a\\0b\"]\n", 4, "NUL"),
        ("tasks:\n  a: {run: x\n", 2, "ci.yaml:3:1: not valid YAML"),
        ("tasks:\n  a/b: {run: x}\n", 4, "'/'"),
        ('tasks:\n  "a\\u0007": {run: x}\n', 4, "printable"),
        ("tasks:\n  a: {run: x, deps: [nowhere]}\n", 4, "a depends on 'nowhere'"),
        ("tasks:\n  a: {run: x, priority: 9223372036854775808}\n", 4, "ci.yaml:2: tasks.a.priority: "),
        ("tasks:\n  a: {run: x, deps: [b]}\n  b: {run: x, deps: [a]}\n", 4, "dependency cycle: a -> b -> a"),
        ("tasks:\n  a: {run: x, deps: [a]}\n", 4, "cannot depend on itself"),
        ("tasks: {}\n", 4, "at least one task"),
        ("", 2, "the file is empty"),
    ],
)  # fmt: skip
def test_a_bad_file_is_refused_whole_and_says_where(shared_ctl: Any, text: str, code: int, said: str) -> None:
    """What is not even a document is wrong use; what the daemon does not take is refused by it. Nothing is left."""
    ran = shared_ctl("submit", shared_ctl.file("ci.yaml", text))
    assert (ran.code, ran.out) == (code, "")
    assert said in ran.err
    assert all(line.startswith(("ci.yaml:", "schedctl: ci.yaml: ")) for line in ran.err.splitlines())
    assert shared_ctl("list", "--json").out == "[]\n"


@pytest.mark.parametrize(
    ("options", "code", "said"),
    [
        (("--every", "5s"), 4, "--every: "),
        (("--times", "5"), 4, "--times: "),
        (("--delay", "-5"), 2, "--delay: "),
        (("--priority", str(2**63)), 4, "--priority: "),
        (("--priority", "high"), 2, "--priority"),
        (("--max-attempts", "0"), 4, "--max-attempts: "),
        (("--after", "nowhere"), 4, "nowhere"),
        (("--id", "a/b"), 4, "--id: "),
        (("--id", "a\x07"), 4, "--id: "),
        (("--id", "7"), 4, "--id: "),
        (("--name", "a/b"), 4, "--name: "),
    ],
)
def test_a_bad_option_is_refused_by_its_name(shared_ctl: Any, options: tuple[str, ...], code: int, said: str) -> None:
    """Not by a place in a spec that nobody wrote."""
    ran = shared_ctl("submit", *options, "--", "true")
    assert (ran.code, ran.out) == (code, "")
    assert said in ran.err
    assert "tasks" not in ran.err.replace("those name tasks", "").replace("from its tasks", "").replace(
        "these tasks", ""
    )


def test_an_id_that_exists_is_refused(daemon: Any, ctl: Any) -> None:
    """Also after its end."""
    assert ctl("submit", "--id", "a", "--wait", "--", "true").code == 0
    ran = ctl("submit", "--id", "a", "--", "true")
    assert (ran.code, ran.out) == (4, "")
    assert "'a'" in ran.err


def test_what_cannot_be_started_says_the_systems_reason(daemon: Any, ctl: Any) -> None:
    """The task fails; the daemon does not."""
    ran = ctl("submit", "--id", "a", "--wait", "--", "/nowhere/program")
    assert ran.code == 1
    assert "No such file or directory" in ran.err


def test_a_file_beyond_the_limit_is_refused_before_it_is_sent(shared_ctl: Any) -> None:
    """200 MB: the message has the limit."""
    with (shared_ctl.home / "big.json").open("wb") as file:
        file.truncate(200_000_000)
    ran = shared_ctl("submit", "big.json")
    assert (ran.code, ran.out) == (2, "")
    assert "67108864 bytes" in ran.err


def test_what_was_answered_survives_kill_9(daemon: Any, ctl: Any) -> None:
    """The id was printed, so the task is there afterwards, and runs."""
    ctl("pause")
    assert ctl("submit", "--id", "kept", "--", "echo", "still here").out == "kept\n"
    daemon.kill()
    assert ctl("status").code == 3
    daemon.start()
    assert json.loads(ctl("status", "kept", "--json").out)[0]["status"] == "ready"
    ctl("resume")
    assert ctl("wait", "kept").code == 0
    assert ctl("logs", "kept").out == "still here\n"


def test_an_unreadable_file_is_wrong_use(shared_ctl: Any) -> None:
    """A directory, say."""
    assert shared_ctl("submit", "/") == (2, "", "schedctl: /: Is a directory\n")
