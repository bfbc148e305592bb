"""The shapes of a spec: each key takes what it should and refuses what it should, where it stands."""

from typing import Any

import pytest

from schedd import durations, wire
from schedd.core import limits
from schedd.wire import spec


def errors_of(task: Any) -> list[tuple[list[str | int], str]]:
    """What is wrong with one task, as (place within the task, message); empty if it is accepted."""
    try:
        wire.parse_batch({"tasks": {"it": task}})
    except wire.SpecError as error:
        found = error.errors
    else:
        found = []
    assert all(item["loc"][:2] == ["tasks", "it"] for item in found)
    return [(item["loc"][2:], item["message"]) for item in found]


@pytest.mark.parametrize(
    "task",
    [
        {"run": "make"},
        {"command": ["make", ""]},
        {"call": "module:function"},
        {
            "call": "package.module:Class.method",
            "args": [1, [None]],
            "kwargs": {"a": {"b": 1.5}},
            "isolation": "thread",
        },
        {"run": "x", "deps": ["a1", {"task": "a2"}, {"task": "ci-1/a", "when": "finished"}]},
        {"run": "x", "priority": -limits.MAX_PRIORITY, "delay": 0, "timeout": 1, "grace": 0},
        {"run": "x", "priority": limits.MAX_PRIORITY, "delay": "2d", "timeout": "1ms", "grace": "1h30m"},
        {"run": "x", "timeout": None},
        {"run": "x", "every": limits.MIN_EVERY_S, "times": limits.MAX_TIMES},
        {"run": "x", "retry": {}},
        {"run": "x", "retry": {"max_attempts": limits.MAX_ATTEMPTS, "base_delay": 0.5, "max_delay": "10s"}},
        {"run": "x", "cwd": "/", "env": {"A": "", "b.c": "ü"}},
    ],
)
def test_right_tasks_are_accepted(task: dict[str, Any]) -> None:
    """Each key takes its type in every form, up to its bounds."""
    deps = {"a1": {"run": "x"}, "a2": {"run": "x"}}
    batch = wire.parse_batch({"tasks": {**deps, "it": task}})
    assert batch.tasks[-1].name == "it"


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("run", 5, "must be text, not the number 5; put it in quotes"),
        ("run", True, "must be text, not true; put it in quotes"),
        ("run", None, "must be text, not null; leave the key out if it has no value"),
        ("run", "", "must not be empty"),
        ("run", "a\0b", "must not hold a NUL character: no program can be given one"),
        ("run", "\ud800", "holds a lone surrogate, which is not a character"),
        ("command", "make all", "must be a list, not the text 'make all'"),
        ("command", [], "must not be empty"),
        ("call", "reports.send", "must name a function as `package.module:function`, not 'reports.send'"),
        ("call", "re-ports:send", "must name a function as `package.module:function`, not 're-ports:send'"),
        ("call", "a:b:c", "must name a function as `package.module:function`, not 'a:b:c'"),
        ("call", ":f", "must name a function as `package.module:function`, not ':f'"),
        ("priority", "5", "must be a whole number, not the text '5'; write it without quotes"),
        ("priority", 1.5, "must be a whole number, not the number 1.5"),
        ("priority", True, "must be a whole number, not true"),
        ("priority", 2**63, "must be at most 2147483647, not the number 9223372036854775808"),
        ("priority", -(2**31), "must be at least -2147483647, not the number -2147483648"),
        ("delay", -1, "must be at least 0, not the number -1"),
        ("delay", float("nan"), "must be from 0 to 3200000000 seconds, not the number nan"),
        ("delay", float("inf"), "must be from 0 to 3200000000 seconds, not the number inf"),
        ("delay", 2**70, "must be from 0 to 3200000000 seconds, not the number 1180591620717411303424"),
        ("timeout", 0, "must be more than 0, not the number 0"),
        ("grace", [], f"must be a duration, not a list; {durations.EXAMPLES}"),
        ("grace", True, f"must be a duration, not true; {durations.EXAMPLES}"),
        ("isolation", "docker", "must be `process` or `thread`, not the text 'docker'"),
        ("env", ["A=1"], "must be a mapping, not a list"),
        ("cwd", "src", "must be an absolute path, not 'src'; the daemon has a directory of its own"),
        ("cwd", "", "must not be empty"),
        ("cwd", "/a\0", "must not hold a NUL character: no program can be given one"),
        ("deps", "build", "must be a list, not the text 'build'"),
        ("deps", {"build": "succeeded"}, "must be a list, not a mapping"),
        ("retry", 3, "must be a mapping, not the number 3"),
        ("times", 0, "must be at least 1, not the number 0"),
        ("every", 0.0001, "must be at least 0.001, not the number 0.0001"),
    ],
)  # fmt: skip
def test_wrong_values_are_refused(key: str, value: object, message: str) -> None:
    """A wrong value is refused at its key, with what was expected and what was found."""
    assert ([key], message) in errors_of({key: value})


def test_values_over_a_bound_are_refused() -> None:
    """What is too long or too many is refused with the bound, and its entries are not looked at."""
    over: list[tuple[str, object, str]] = [
        ("run", "x" * (limits.MAX_PAYLOAD_CHARS + 1), "has more than 4194304 characters"),
        ("command", ["x"] * (limits.MAX_COMMAND_ARGS + 1), "has 100001 entries; at most 100000 are allowed"),
        ("priority", 10**5000, "must be at most 2147483647, not the number with more than 38 digits"),
        ("env", dict.fromkeys(map(str, range(10_001)), ""), "has 10001 entries; at most 10000 are allowed"),
        ("cwd", "/" * 4_097, "has more than 4096 characters"),
        ("deps", ["x"] * (limits.MAX_DEPS_PER_TASK + 1), "has 100001 entries; at most 100000 are allowed"),
    ]
    for key, value, message in over:
        assert ([key], message) in errors_of({key: value})


@pytest.mark.parametrize(
    ("task", "loc", "message"),
    [
        ({"command": ["make", 5]}, ["command", 1], "must be text, not the number 5; put it in quotes"),
        ({"command": ["make", "a\0"]}, ["command", 1], "must not hold a NUL character: no program can be given one"),
        ({"command": ["", "x"]}, ["command", 0], "the program must not be empty"),
        ({"deps": [5]}, ["deps", 0], "must be text, not the number 5; put it in quotes"),
        ({"deps": [""]}, ["deps", 0], "must not be empty"),
        ({"deps": ["a\n"]}, ["deps", 0], r"'a\n' is not the id of a task: it holds characters that cannot be printed"),
        ({"deps": ["x" * 400]}, ["deps", 0], "has more than 322 characters"),
        ({"deps": [{"when": "failed"}]}, ["deps", 0, "task"], "is needed here and is not given"),
        (
            {"deps": [{"task": "a", "when": "done"}]},
            ["deps", 0, "when"],
            "must be `succeeded`, `failed` or `finished`, not the text 'done'",
        ),
        ({"deps": [{"task": "a", "wen": 1}]}, ["deps", 0, "wen"], "unknown key 'wen'; did you mean 'when'?"),
        ({"retry": {"max_attempts": 0}}, ["retry", "max_attempts"], "must be at least 1, not the number 0"),
        ({"retry": {"max_atempts": 1}}, ["retry", "max_atempts"],
         "unknown key 'max_atempts'; did you mean 'max_attempts'?"),
        ({"retry": {"base_delay": "1fortnight"}}, ["retry", "base_delay"],
         "'1fortnight' has the unit 'fortnight'; units are d, h, m, s, ms"),
        ({"env": {"A": 5}}, ["env", "A"], "must be text, not the number 5; put it in quotes"),
        ({"env": {"A=B": ""}}, ["env", "A=B"],
         "'A=B' cannot name an environment variable: it holds '=' or a NUL character"),
        ({"env": {"": ""}}, ["env", ""], "the name of an environment variable must not be empty"),
        ({"env": {"A": "\0"}}, ["env", "A"], "must not hold a NUL character: no program can be given one"),
    ],
)  # fmt: skip
def test_wrong_parts_are_refused_at_their_place(task: dict[str, Any], loc: list[str | int], message: str) -> None:
    """The place of a mistake within a list or mapping is the user's own path to it."""
    assert (loc, message) in errors_of({"run": "x", **task} if "command" not in task else task)


def test_schema_describes_every_key() -> None:
    """The JSON Schema has each key of each shape, with a description, and allows no other."""
    schema = wire.json_schema()
    shapes = {"BatchSpec": schema, **schema["$defs"]}
    for name, keys in (
        ("BatchSpec", spec.BATCH_KEYS),
        ("TaskSpec", spec.TASK_KEYS),
        ("TaskDefaults", spec.DEFAULTS_KEYS),
        ("RetrySpec", spec.RETRY_KEYS),
        ("DependencySpec", spec.DEPENDENCY_KEYS),
    ):
        properties = shapes[name]["properties"]
        assert properties.keys() == keys
        assert all(len(properties[key]["description"]) > 10 for key in keys)
        assert shapes[name]["additionalProperties"] is False


def test_schema_knows_the_rules_between_keys() -> None:
    """One kind of work per task and what goes with what are in the schema too, for editors."""
    task = wire.json_schema()["$defs"]["TaskSpec"]
    assert task["oneOf"] == [{"required": ["run"]}, {"required": ["command"]}, {"required": ["call"]}]
    assert task["dependentRequired"]["every"] == ["times"]


def test_schema_defaults_are_those_of_the_parser() -> None:
    """A default in the schema is what a task gets that leaves the key out."""
    schema = wire.json_schema()["$defs"]
    (task,) = wire.parse_batch({"tasks": {"it": {"run": "x"}}}).tasks
    assert schema["TaskSpec"]["properties"]["priority"]["default"] == task.priority
    assert schema["TaskSpec"]["properties"]["delay"]["default"] == task.delay
    lists = {"on_exit_codes": None, "never_on_exit_codes": (), "on_exceptions": None}
    for key in spec.RETRY_KEYS - lists.keys():
        assert schema["RetrySpec"]["properties"][key]["default"] == getattr(task.retry, key)
    assert {key: getattr(task.retry, key) for key in lists} == lists, "as their descriptions say"
