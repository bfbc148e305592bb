"""The shapes of a spec: every key with its type, its bounds and the words that describe it.

These are typed dicts that pydantic checks, not model classes: a checked task holds the keys that were given and no
others, so that defaults can be merged and a `null` is not taken for an absent key. Types are strict. Rules between
keys are in `parsing.py`. The descriptions are the source of the JSON Schema; docs/spec.md tells the same to people.
Tests: tests/unit/test_wire_spec.py.
"""

from typing import Annotated, Any, Final, Literal, Required

from pydantic import (
    AfterValidator,
    BeforeValidator,
    ConfigDict,
    Discriminator,
    Field,
    Tag,
    TypeAdapter,
    WithJsonSchema,
    with_config,
)
from typing_extensions import TypedDict

from schedd import durations
from schedd.core import limits
from schedd.core.model import DEFAULT_RETRY
from schedd.wire.findings import EDGE_TAG, NAME_TAG, describe, shorten

_STRICT = ConfigDict(strict=True, extra="forbid")
_MAX_KEYS: Final = 64
"""No mapping with fixed keys that has more entries than this is looked into: every further one is unknown anyway."""


def _without_nul(text: str) -> str:
    if "\0" in text:
        raise ValueError("must not hold a NUL character: no program can be given one")
    return text


def _env_name(name: str) -> str:
    if not name:
        raise ValueError("the name of an environment variable must not be empty")
    if "=" in name or "\0" in name:
        raise ValueError(f"{shorten(name)!r} cannot name an environment variable: it holds '=' or a NUL character")
    return name


def _absolute_path(path: str) -> str:
    if not path.startswith("/"):
        raise ValueError(f"must be an absolute path, not {shorten(path)!r}; the daemon has a directory of its own")
    return path


def _callable_name(text: str) -> str:
    module, colon, function = text.partition(":")
    if not colon or not all(part.isidentifier() for part in [*module.split("."), *function.split(".")]):
        raise ValueError(f"must name a function as `package.module:function`, not {shorten(text)!r}")
    return text


def _class_name(text: str) -> str:
    if not all(part.isidentifier() for part in text.split(".")):
        raise ValueError(f"must name an exception as `Name` or `package.module.Name`, not {shorten(text)!r}")
    return text


def _task_name(name: str) -> str:
    if not name.isprintable():
        raise ValueError(f"{shorten(name)!r} is not the id of a task: it holds characters that cannot be printed")
    return name


def _seconds(value: object) -> object:
    """A duration in either form as a number; pydantic judges what comes back."""
    if isinstance(value, str):
        return durations.parse_duration(value)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError(f"must be a duration, not {describe(value)}; {durations.EXAMPLES}")
    if not -limits.MAX_INTEGER <= value <= limits.MAX_INTEGER:  # also NaN, and integers that no float can hold
        raise ValueError(f"must be from 0 to {limits.MAX_DURATION_S:.15g} seconds, not {describe(value)}")
    return value


def at_most(entries: int) -> BeforeValidator:
    """Refuse a collection by its size before its entries are looked at, so that findings stay few."""

    def check(value: object) -> object:
        if isinstance(value, list | dict) and len(value) > entries:
            raise ValueError(f"has {len(value)} entries; at most {entries} are allowed")
        return value

    return BeforeValidator(check)


def _edge_kind(value: object) -> str:
    return EDGE_TAG if isinstance(value, dict) else NAME_TAG


def _as_duration(minimum: float) -> WithJsonSchema:
    """Both forms of a duration, for the JSON Schema."""
    number = {"type": "number", "minimum": minimum, "maximum": limits.MAX_DURATION_S}
    text = {"type": "string", "examples": ["50ms", "10s", "20m", "1h30m", "2d"]}
    return WithJsonSchema({"anyOf": [number, text]})


def _described(description: str, default: Any = None) -> Any:
    """What the JSON Schema says of a key; typed dicts hold no defaults, so the parser has them (`parsing.py`)."""
    return Field(description=description, json_schema_extra=None if default is None else {"default": default})


Text = Annotated[str, Field(max_length=limits.MAX_PAYLOAD_CHARS), AfterValidator(_without_nul)]
EnvName = Annotated[str, AfterValidator(_env_name)]
TaskName = Annotated[str, Field(min_length=1, max_length=limits.MAX_FULL_ID_CHARS), AfterValidator(_task_name)]
ExitCode = Annotated[int, Field(ge=1, le=255)]
ClassName = Annotated[str, Field(max_length=limits.MAX_PATH_CHARS), AfterValidator(_class_name)]
WhenName = Literal["succeeded", "failed", "finished"]
Duration = Annotated[float, Field(ge=0, le=limits.MAX_DURATION_S), BeforeValidator(_seconds), _as_duration(0)]
Timeout = Annotated[
    float, Field(gt=0, le=limits.MAX_DURATION_S), BeforeValidator(_seconds), _as_duration(limits.MIN_EVERY_S)
]
Every = Annotated[
    float,
    Field(ge=limits.MIN_EVERY_S, le=limits.MAX_DURATION_S),
    BeforeValidator(_seconds),
    _as_duration(limits.MIN_EVERY_S),
]


@with_config(_STRICT)
class RetrySpec(TypedDict, total=False):
    """How often a task may be tried in one run, and how long it waits in between."""

    max_attempts: Annotated[
        int,
        Field(ge=1, le=limits.MAX_ATTEMPTS),
        _described("How many attempts a run may take; 1 means no second try.", DEFAULT_RETRY.max_attempts),
    ]
    base_delay: Annotated[
        Duration,
        _described("The wait after the first failure; it doubles with each further one.", DEFAULT_RETRY.base_delay),
    ]
    max_delay: Annotated[Duration, _described("The longest wait between attempts.", DEFAULT_RETRY.max_delay)]
    jitter: Annotated[
        Literal["none", "full"],
        _described(
            "`full` waits for a random part of the delay, so that tasks that failed together are not tried together.",
            "none",
        ),
    ]
    on_exit_codes: Annotated[
        list[ExitCode],
        at_most(255),
        _described("Try a command again only after one of these exit codes. Without the key, after any."),
    ]
    never_on_exit_codes: Annotated[
        list[ExitCode], at_most(255), _described("Never try a command again after one of these exit codes.")
    ]
    on_exceptions: Annotated[
        list[ClassName],
        at_most(100),
        _described(
            "Try a call again only after an exception of one of these classes or of a class derived from it: `OSError` "
            "or `package.module.Name`. Without the key, after any."
        ),
    ]
    on_timeout: Annotated[bool, _described("Whether an attempt that took too long is tried again.", True)]


@with_config(_STRICT)
class DependencySpec(TypedDict, total=False):
    """A dependency that says which end of the other task it waits for."""

    task: Required[Annotated[TaskName, _described("A task of this spec, else the full id of an existing one.")]]
    when: Annotated[
        WhenName,
        _described(
            "Which end releases this task: `succeeded`, `failed` only, or `finished` (any end). With any other end "
            "this task is skipped.",
            "succeeded",
        ),
    ]


Dependency = Annotated[
    Annotated[TaskName, Tag(NAME_TAG)] | Annotated[DependencySpec, Tag(EDGE_TAG)],
    Discriminator(_edge_kind),
]


@with_config(_STRICT)
class TaskDefaults(TypedDict, total=False):
    """What holds for every task that does not say otherwise. `retry` and `env` are merged key by key."""

    priority: Annotated[
        int,
        Field(ge=-limits.MAX_PRIORITY, le=limits.MAX_PRIORITY),
        _described("Lower runs first among tasks that are ready; ties go by the order of submission.", 0),
    ]
    retry: Annotated[RetrySpec, at_most(_MAX_KEYS), _described("How a failed attempt is tried again.")]
    timeout: Annotated[
        Timeout | None,
        _described(
            "How long one attempt may take; then it is stopped and counts as failed (`timed_out`). `null`: no limit, "
            "even where `defaults` set one. Without the key there is none."
        ),
    ]
    grace: Annotated[
        Duration,
        _described(
            "How long an attempt has to end by itself after TERM (cancel or timeout) before it is killed.",
            limits.DEFAULT_GRACE_S,
        ),
    ]
    cwd: Annotated[
        str,
        Field(min_length=1, max_length=limits.MAX_PATH_CHARS),
        AfterValidator(_without_nul),
        AfterValidator(_absolute_path),
        _described(
            "The directory it runs in, as an absolute path. In a file read by `schedctl` it may be relative to the "
            "directory that `schedctl` was called from, which is also its default. Not for a call in a thread."
        ),
    ]
    env: Annotated[
        dict[EnvName, Text],
        at_most(limits.MAX_ENV_VARS),
        _described("Environment variables, on top of the clean base that every process gets."),
    ]
    isolation: Annotated[
        Literal["process", "thread"],
        _described(
            "Where a `call` runs: in a `process` of its own, or in a `thread` of the daemon, which starts faster but "
            "shares its fate: a crash of the function is a crash of the daemon.",
            "process",
        ),
    ]


@with_config(
    ConfigDict(
        **_STRICT,
        json_schema_extra={
            "oneOf": [{"required": ["run"]}, {"required": ["command"]}, {"required": ["call"]}],
            "dependentRequired": {
                "args": ["call"],
                "catch_up": ["every"],
                "every": ["times"],
                "isolation": ["call"],
                "kwargs": ["call"],
                "times": ["every"],
            },
        },
    )
)
class TaskSpec(TaskDefaults, total=False):
    """One task: exactly one of `run`, `command` and `call`, and how, when and after what it runs."""

    id: Annotated[
        str,
        Field(min_length=1, max_length=limits.MAX_ID_CHARS),
        _described(
            "Its id, where `tasks` is a list; where it is a mapping, the key is the id. Without one, the daemon "
            "gives it a number."
        ),
    ]
    run: Annotated[Text, Field(min_length=1), _described("Shell text, run by `/bin/sh -c`.")]
    command: Annotated[
        list[Text],
        Field(min_length=1),
        at_most(limits.MAX_COMMAND_ARGS),
        _described("A program and its arguments, started without a shell."),
    ]
    call: Annotated[
        str,
        Field(max_length=limits.MAX_PATH_CHARS),
        AfterValidator(_callable_name),
        _described("A Python function, `package.module:function`."),
    ]
    args: Annotated[list[Any], _described("Positional arguments of the function: JSON values.")]
    kwargs: Annotated[dict[str, Any], _described("Keyword arguments of the function: JSON values.")]
    deps: Annotated[
        list[Dependency],
        at_most(limits.MAX_DEPS_PER_TASK),
        _described("The tasks that must come first: ids, or mappings with `task` and `when`."),
    ]
    delay: Annotated[Duration, _described("How long after its submission it may start at the earliest.", 0)]
    every: Annotated[Every, _described("Run again this long after the planned start of the run before; needs `times`.")]
    times: Annotated[
        int, Field(ge=1, le=limits.MAX_TIMES), _described("How many runs there are in all; needs `every`.")
    ]
    catch_up: Annotated[
        Literal["all", "latest", "none"],
        _described(
            "Which planned starts are made up for that were missed: `all` of them, one after the other, the `latest` "
            "alone, or `none`; needs `every`.",
            "all",
        ),
    ]
    start_before: Annotated[
        Timeout,
        _described("It is skipped if it could not start within this time after its submission. Retries are not bound."),
    ]
    deadline: Annotated[
        Timeout,
        _described(
            "It fails unless it has ended within this time after its submission: it is stopped if it runs, and not "
            "tried again."
        ),
    ]


@with_config(_STRICT)
class BatchHead(TypedDict, total=False):
    """What a spec says besides its tasks."""

    name: Annotated[
        str,
        Field(min_length=1, max_length=limits.MAX_BATCH_NAME_CHARS),
        _described(
            "The batch's name. The daemon numbers the batches of one name: `ci` becomes `ci-1`, its task `build` "
            "has the full id `ci-1/build`. Without a name, tasks keep the ids they have here."
        ),
    ]
    defaults: Annotated[TaskDefaults, at_most(_MAX_KEYS), _described("What holds for tasks that say nothing else.")]


@with_config(_STRICT)
class BatchSpec(BatchHead, total=False):
    """A batch of tasks, accepted whole or refused whole."""

    tasks: Required[
        Annotated[
            dict[str, TaskSpec] | list[TaskSpec],
            _described(
                f"The tasks: a mapping from id to task, or a list of tasks; 1 to {limits.MAX_TASKS_PER_BATCH} of them. "
                "Their order here breaks ties of priority."
            ),
        ]
    ]


def keys_of(shape: type) -> frozenset[str]:
    """The keys that a shape of this module allows."""
    return frozenset(shape.__annotations__)


BATCH_KEYS: Final = keys_of(BatchSpec)
TASK_KEYS: Final = keys_of(TaskSpec)
DEFAULTS_KEYS: Final = keys_of(TaskDefaults)
RETRY_KEYS: Final = keys_of(RetrySpec)
DEPENDENCY_KEYS: Final = keys_of(DependencySpec)

assert len(TASK_KEYS) + limits.MAX_SPEC_ERRORS <= _MAX_KEYS


def json_schema() -> dict[str, Any]:
    """The JSON Schema (2020-12) of a spec, with a description of every key; for editors and other tools."""
    schema = TypeAdapter(BatchSpec).json_schema()
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema, "title": "schedd batch"}
