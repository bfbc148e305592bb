"""A spec becomes a batch: names, order, defaults, payloads, rules between keys, and what is passed on from the core."""

import gc
import json
from typing import Any

import pytest

from schedd import wire
from schedd.core import limits
from schedd.core.errors import CycleError, DuplicateId, InvalidRequest, SelfDependency
from schedd.core.model import (
    DEFAULT_RETRY,
    CatchUp,
    Dependency,
    Jitter,
    Moment,
    NewTask,
    Recurrence,
    RetryPolicy,
    When,
)


def refusal(data: object) -> list[tuple[list[str | int], str]]:
    """The errors of a spec that must be refused, as (place, message)."""
    with pytest.raises(wire.SpecError) as caught:
        wire.parse_batch(data)
    return [(item["loc"], item["message"]) for item in caught.value.errors]


def only(task: dict[str, Any], **head: Any) -> NewTask:
    """The task of a spec with one task."""
    (parsed,) = wire.parse_batch({**head, "tasks": {"it": task}}).tasks
    return parsed


def payload(task: dict[str, Any], **head: Any) -> Any:
    """The decoded payload of a spec with one task."""
    return json.loads(only(task, **head).payload)


def test_the_whole_example_is_read() -> None:
    """The pipeline of the reference comes out as the core's values, in the order of the file."""
    batch = wire.parse_batch(
        {
            "name": "ci",
            "defaults": {"retry": {"max_attempts": 2}},
            "tasks": {
                "checkout": {"run": "git clone"},
                "test": {
                    "deps": ["checkout"],
                    "run": "make test",
                    "timeout": "20m",
                    "priority": 5,
                    "retry": {"max_attempts": 3, "base_delay": "50ms", "max_delay": "30s"},
                },
                "deploy": {"deps": ["test", {"task": "lint-7", "when": "finished"}], "command": ["./deploy", "--prod"]},
                "beat": {"call": "reports:send", "kwargs": {"to": "team"}, "every": "1m", "times": 3, "delay": 2},
            },
        }
    )
    twice = RetryPolicy(max_attempts=2)
    assert batch.name == "ci"
    assert batch.tasks == (
        NewTask('{"run":"git clone"}', "checkout", retry=twice),
        NewTask(
            '{"run":"make test","timeout":1200.0}',
            "test",
            (Dependency("checkout"),),
            priority=5,
            retry=RetryPolicy(3, 0.05, 30.0),
        ),
        NewTask(
            '{"command":["./deploy","--prod"]}',
            "deploy",
            (Dependency("test"), Dependency("lint-7", When.FINISHED)),
            retry=twice,
        ),
        NewTask(
            '{"call":"reports:send","kwargs":{"to":"team"}}',
            "beat",
            retry=twice,
            recurrence=Recurrence(60.0, 3),
            delay=2.0,
        ),
    )
    assert batch.external == {2: [Dependency("lint-7", When.FINISHED)]}


def test_a_list_keeps_its_order_and_ids_are_optional() -> None:
    """In a list, `id` names a task and a task without one has no name."""
    batch = wire.parse_batch({"tasks": [{"run": "b", "id": "b"}, {"run": "x"}, {"run": "a", "id": "a"}]})
    assert [task.name for task in batch.tasks] == ["b", None, "a"]


def test_payload_leaves_defaults_out() -> None:
    """A key with its default value is not in the payload, given or not."""
    assert payload({"call": "m:f", "args": [], "kwargs": {}, "isolation": "process", "env": {}, "grace": 10}) == {
        "call": "m:f"
    }
    assert payload({"run": "x", "timeout": None, "grace": "10s"}) == {"run": "x"}


def test_payload_holds_what_is_not_the_default() -> None:
    """Everything that a worker must know is in the payload, durations in seconds."""
    assert payload(
        {
            "call": "m:f",
            "args": [1, "ü"],
            "kwargs": {"a": None},
            "cwd": "/srv",
            "env": {"A": "1"},
            "timeout": "1m",
            "grace": 0,
        }
    ) == {
        "call": "m:f",
        "args": [1, "ü"],
        "kwargs": {"a": None},
        "cwd": "/srv",
        "env": {"A": "1"},
        "timeout": 60.0,
        "grace": 0.0,
    }


def test_defaults_hold_where_a_task_says_nothing() -> None:
    """Each default reaches a task that does not have the key."""
    defaults = {
        "priority": 7,
        "retry": {"max_attempts": 4},
        "timeout": 9,
        "grace": 1,
        "cwd": "/d",
        "env": {"A": "1"},
    }
    task = only({"call": "m:f"}, defaults=defaults)
    assert (task.priority, task.retry) == (7, RetryPolicy(4))
    assert json.loads(task.payload) == {
        "call": "m:f",
        "cwd": "/d",
        "env": {"A": "1"},
        "timeout": 9.0,
        "grace": 1.0,
    }


def test_a_task_wins_over_defaults() -> None:
    """What a task says itself counts, down to the keys of `env` and `retry`."""
    defaults = {
        "priority": 7,
        "retry": {"max_attempts": 4, "base_delay": 9},
        "timeout": 9,
        "grace": 1,
        "cwd": "/d",
        "env": {"A": "1", "B": "2"},
    }
    own = {
        "run": "x",
        "priority": 0,
        "retry": {"base_delay": 5},
        "timeout": 3,
        "grace": 10,
        "cwd": "/t",
        "env": {"B": "3"},
    }
    task = only(own, defaults=defaults)
    assert (task.priority, task.retry) == (0, RetryPolicy(4, 5.0))
    assert json.loads(task.payload) == {"run": "x", "cwd": "/t", "env": {"A": "1", "B": "3"}, "timeout": 3.0}


def test_a_null_timeout_lifts_the_default() -> None:
    """`timeout: null` means no limit even where `defaults` has one."""
    assert payload({"run": "x", "timeout": None}, defaults={"timeout": 9}) == {"run": "x"}


def test_an_empty_env_does_not_drop_the_default_one() -> None:
    """`env` is merged key by key, also when the task's own has no key."""
    assert payload({"run": "x", "env": {}}, defaults={"env": {"A": "1"}}) == {"run": "x", "env": {"A": "1"}}


def test_a_default_isolation_is_for_calls_only() -> None:
    """A command next to calls is not refused for a default that cannot concern it."""
    assert payload({"run": "x"}, defaults={"isolation": "thread"}) == {"run": "x"}


def test_a_call_in_a_thread_has_no_directory_or_environment_of_its_own() -> None:
    """Defaults that a thread cannot have are left out; where the task itself asks for them, it is refused."""
    defaults = {"isolation": "thread", "cwd": "/d", "env": {"A": "1"}}
    assert payload({"call": "m:f"}, defaults=defaults) == {"call": "m:f", "isolation": "thread"}
    assert payload({"call": "m:f", "isolation": "process"}, defaults=defaults) == {
        "call": "m:f",
        "cwd": "/d",
        "env": {"A": "1"},
    }
    found = refusal({"defaults": defaults, "tasks": {"it": {"call": "m:f", "cwd": "/t", "env": {}}}})
    assert [loc for loc, _ in found] == [["tasks", "it", "cwd"], ["tasks", "it", "env"]]
    assert "a call in a thread has the daemon's `cwd`" in found[0][1]


def test_equal_policies_are_one_object() -> None:
    """A hundred thousand tasks with the defaults' policy do not hold as many policies."""
    batch = wire.parse_batch({"defaults": {"retry": {"max_attempts": 9}}, "tasks": [{"run": "x"}, {"run": "y"}]})
    assert batch.tasks[0].retry is batch.tasks[1].retry
    assert only({"run": "x"}).retry is DEFAULT_RETRY


@pytest.mark.parametrize(
    ("task", "loc", "message"),
    [
        ({}, [], "needs one of `run`, `command` and `call`, and has none"),
        ({"run": "x", "call": "m:f"}, [], "has `run` and `call`; give exactly one of them"),
        (
            {"run": "x", "command": ["x"], "call": "m:f"},
            [],
            "has `run` and `command` and `call`; give exactly one of them",
        ),
        ({"run": "x", "args": []}, ["args"], "`args` goes with `call` only"),
        ({"run": "x", "kwargs": {}}, ["kwargs"], "`kwargs` goes with `call` only"),
        ({"command": ["x"], "isolation": "thread"}, ["isolation"], "`isolation` goes with `call` only"),
        (
            {"run": "x", "times": 3},
            ["times"],
            "`times` needs `every`: how long after the start of one run the next is planned",
        ),
        ({"run": "x", "id": "it"}, ["id"], "the key of the task is its id; leave `id` out"),
        ({"call": "m:f", "args": [[2**63]]}, ["args", 0, 0], "must be within 9223372036854775807 of zero"),
        (
            {"call": "m:f", "kwargs": {"a": "\ud800"}},
            ["kwargs", "a"],
            "holds a lone surrogate, which is not a character",
        ),
        ({"call": "m:f", "kwargs": {"a": float("inf")}}, ["kwargs", "a"], "must be a finite number, not inf"),
    ],
)
def test_rules_between_keys(task: dict[str, Any], loc: list[str | int], message: str) -> None:
    """What no key shows by itself is refused at the key to blame."""
    assert refusal({"tasks": {"it": task}}) == [(["tasks", "it", *loc], message)]


def test_endless_every_names_schedules() -> None:
    """`every` without `times` is refused, and the message says where recurrence without end belongs."""
    ((loc, message),) = refusal({"tasks": {"it": {"run": "x", "every": 5}}})
    assert loc == ["tasks", "it", "every"]
    assert "an endless `every` belongs to a schedule" in message
    assert "give `times`" in message


@pytest.mark.parametrize(
    ("data", "loc", "message"),
    [
        (None, [], "a spec must be a mapping with the key `tasks`, not null"),
        ([], [], "a spec must be a mapping with the key `tasks`, not a list"),
        ({}, [], "a spec needs the key `tasks`"),
        ({"run": "x"}, ["run"], "unknown key 'run'; the keys here are defaults, name, tasks"),
        ({"tasks": {}}, ["tasks"], "a batch needs at least one task"),
        ({"tasks": []}, ["tasks"], "a batch needs at least one task"),
        ({"tasks": "x"}, ["tasks"], "must be a mapping from id to task, or a list of tasks, not the text 'x'"),
        ({"tasks": {"a": "make"}}, ["tasks", "a"], "a task must be a mapping such as {run: make}, not the text 'make'"),
        ({"tasks": [None]}, ["tasks", 0], "a task must be a mapping such as {run: make}, not null"),
        ({"tasks": {"a/b": {"run": "x"}}}, ["tasks", "a/b"],
         "id 'a/b' must not hold '/': it separates a batch from its tasks"),
        ({"tasks": {"12": {"run": "x"}}}, ["tasks", "12"],
         "id '12' must not be a number: those name tasks without an id"),
        ({"tasks": [{"run": "x", "id": "a\x07"}]}, ["tasks", 0, "id"],
         r"id 'a\x07' must be printable, without spaces at its ends"),
        ({"tasks": [{"run": "x"}], "name": "a/b"}, ["name"],
         "batch name 'a/b' must not hold '/': it separates a batch from its tasks"),
        ({"tasks": [{"run": "x"}], "name": 5}, ["name"], "must be text, not the number 5; put it in quotes"),
        ({"tasks": [{"run": "x"}], "defaults": {"cwd": "src"}}, ["defaults", "cwd"],
         "must be an absolute path, not 'src'; the daemon has a directory of its own"),
        ({"tasks": [{"run": "x"}], "defaults": {"retry": {"max_atempts": 1}}}, ["defaults", "retry", "max_atempts"],
         "unknown key 'max_atempts'; did you mean 'max_attempts'?"),
        ({"tasks": [{"run": "x"}], "defaults": {"command": 1}}, ["defaults", "command"],
         "unknown key 'command'; the keys here are cwd, env, grace, isolation, priority, retry, timeout"),
    ],
)  # fmt: skip
def test_wrong_documents_are_refused(data: object, loc: list[str | int], message: str) -> None:
    """A document of the wrong shape is refused at the place that is wrong."""
    assert (loc, message) in refusal(data)


def test_a_task_in_place_of_a_batch_is_recognized() -> None:
    """A lone task gets the message that helps."""
    assert ([], "this is a task and not a batch; put it under `tasks`") in refusal({"run": "make"})


def test_mistakes_are_reported_together() -> None:
    """All tasks are looked at, and so is what stands beside them."""
    found = refusal(
        {"nam": "ci", "tasks": {"a": {"comand": ["x"], "priority": "1"}, "b": {"run": "x"}, "c": {"run": ""}}}
    )
    assert sorted(tuple(loc) for loc, _ in found) == [
        ("nam",),
        ("tasks", "a", "comand"),
        ("tasks", "a", "priority"),
        ("tasks", "c", "run"),
    ]


def test_no_more_errors_than_the_bound() -> None:
    """A document with countless mistakes is given up after the first twenty."""
    assert len(refusal({"tasks": [{"rn": 1}] * 1_000})) == limits.MAX_SPEC_ERRORS
    assert len(refusal({"tasks": [{"run": "x", "command": [1] * 1_000}]})) == limits.MAX_SPEC_ERRORS


def test_a_task_with_countless_keys_is_not_looked_into() -> None:
    """Unknown keys by the million cost one message."""
    keys = dict.fromkeys(map(str, range(1_000)), 1)
    assert refusal({"tasks": [keys]}) == [(["tasks", 0], "a task with 1000 keys; there are 20")]
    assert refusal({"tasks": [{"run": "x"}], **keys})[0] == ([], "a spec with 1001 keys; it has at most 3")
    assert refusal({"tasks": [{"run": "x", "retry": keys}]}) == [
        (["tasks", 0, "retry"], "has 1000 entries; at most 64 are allowed")
    ]


def test_too_many_tasks_are_refused_unseen() -> None:
    """A batch over the bound is refused by its size, before any task is looked at."""
    ((loc, message),) = refusal({"tasks": [None] * (limits.MAX_TASKS_PER_BATCH + 1)})
    assert loc == ["tasks"]
    assert message == "a batch may hold at most 250000 tasks, not 250001; submit it in parts"


def test_a_payload_over_the_bound_is_refused() -> None:
    """The parts may each be within their bounds and the whole is not."""
    half = "x" * (limits.MAX_PAYLOAD_CHARS // 2)
    ((loc, message),) = refusal({"tasks": {"it": {"command": [half, half]}}})
    assert loc == ["tasks", "it"]
    assert "its work takes 4194323 characters as JSON; 4194304 are allowed" in message


def test_what_the_core_refuses_passes_through() -> None:
    """Cycles, duplicates and self-dependencies are the core's to refuse, in its own classes."""
    with pytest.raises(CycleError) as cycle:
        wire.parse_batch({"tasks": {"a": {"run": "x", "deps": ["b"]}, "b": {"run": "x", "deps": ["a"]}}})
    assert cycle.value.path == ["a", "b", "a"]
    with pytest.raises(DuplicateId):
        wire.parse_batch({"tasks": [{"run": "x", "id": "a"}, {"run": "y", "id": "a"}]})
    with pytest.raises(SelfDependency):
        wire.parse_batch({"tasks": {"a": {"run": "x", "deps": ["a"]}}})
    with pytest.raises(InvalidRequest, match="lists a twice"):
        wire.parse_batch(
            {"tasks": {"a": {"run": "x"}, "b": {"run": "x", "deps": ["a", {"task": "a", "when": "failed"}]}}}
        )


def test_a_chain_of_any_length_is_read_without_recursion() -> None:
    """Depth of the graph costs no stack."""
    tasks = [{"id": f"n{i}", "run": "x", "deps": [f"n{i - 1}"] if i else []} for i in range(20_000)]
    assert len(wire.parse_batch({"tasks": tasks}).tasks) == 20_000


def test_json_text_is_read_the_same_way() -> None:
    """Bytes and decoded objects give the same batch."""
    data = {"name": "ci", "tasks": {"ä": {"run": "ö"}, "b": {"run": "x", "deps": ["ä"]}}}
    from_text = wire.parse_batch_json(json.dumps(data).encode())
    assert (from_text.name, from_text.tasks) == ("ci", wire.parse_batch(data).tasks)


def test_json_text_leaves_the_collector_as_it_was() -> None:
    """Reading pauses the cycle collector and turns it on again, also after a refusal; off stays off."""
    assert gc.isenabled()
    with pytest.raises(wire.SpecError):
        wire.parse_batch_json(b"{}")
    assert gc.isenabled()
    gc.disable()
    try:
        wire.parse_batch_json(b'{"tasks": [{"run": "x"}]}')
        assert not gc.isenabled()
    finally:
        gc.enable()


def test_rules_of_retry_reach_the_policy() -> None:
    """Each with its meaning; of the defaults what fits the kind of task."""
    batch = wire.parse_batch(
        {
            "defaults": {"retry": {"max_attempts": 3, "on_exit_codes": [75], "on_exceptions": ["OSError"]}},
            "tasks": {
                "command": {"run": "x", "retry": {"never_on_exit_codes": [2], "jitter": "full", "on_timeout": False}},
                "call": {"call": "m:f"},
            },
        }
    )
    assert [task.retry for task in batch.tasks] == [
        RetryPolicy(3, jitter=Jitter.FULL, on_exit_codes=(75,), never_on_exit_codes=(2,), on_timeout=False),
        RetryPolicy(3, on_exceptions=("OSError",)),
    ]


def test_limits_in_time_reach_the_task() -> None:
    """As durations after the submission."""
    spec_ = {"run": "x", "deadline": "2h", "start_before": 30, "every": 60, "times": 2, "catch_up": "latest"}
    (task,) = wire.parse_batch({"tasks": {"a": spec_}}).tasks
    assert (task.deadline, task.start_before) == (Moment(7_200), Moment(30))
    assert task.recurrence == Recurrence(60, 2, CatchUp.LATEST)


@pytest.mark.parametrize(
    ("task", "loc", "words"),
    [
        ({"run": "x", "retry": {"on_exceptions": ["OSError"]}}, ["retry", "on_exceptions"], "for `call`"),
        ({"call": "m:f", "retry": {"on_exit_codes": [1]}}, ["retry", "on_exit_codes"], "for `run` and `command`"),
        ({"call": "m:f", "retry": {"never_on_exit_codes": [1]}}, ["retry", "never_on_exit_codes"], "for `run`"),
        ({"run": "x", "retry": {"on_exit_codes": [0]}}, ["retry", "on_exit_codes", 0], "at least 1"),
        ({"run": "x", "retry": {"on_exit_codes": [256]}}, ["retry", "on_exit_codes", 0], "at most 255"),
        ({"run": "x", "retry": {"on_exit_codes": [True]}}, ["retry", "on_exit_codes", 0], "must be"),
        ({"call": "m:f", "retry": {"on_exceptions": ["a b"]}}, ["retry", "on_exceptions", 0], "name an exception"),
        ({"run": "x", "retry": {"jitter": "half"}}, ["retry", "jitter"], "must be"),
        ({"run": "x", "retry": {"on_timeout": 1}}, ["retry", "on_timeout"], "must be"),
        ({"run": "x", "catch_up": "all"}, ["catch_up"], "goes with `every`"),
        ({"run": "x", "deadline": 0}, ["deadline"], "more than 0"),
        ({"run": "x", "start_before": "soon"}, ["start_before"], "duration"),
    ],
)
def test_mistakes_in_the_finer_keys_are_told_with_their_place(task: Any, loc: list[str | int], words: str) -> None:
    """And what to do instead."""
    ((place, message),) = refusal({"tasks": {"a": task}})
    assert place == ["tasks", "a", *loc]
    assert words in message
