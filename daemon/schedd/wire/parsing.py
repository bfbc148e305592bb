"""A spec becomes a batch that the core accepts: each task checked, defaults merged, its work written as JSON text.

The order of the file is the order of the tasks. Tasks are checked one by one, so that a document with a million
mistakes costs no more than the first `limits.MAX_SPEC_ERRORS`. What a payload means is read by `workers.work`, the
twin of `_payload`. Tests: tests/unit/test_wire_parsing.py, tests/unit/test_wire_fuzz.py.
"""

import gc
import json
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import lru_cache
from typing import Any, Final, cast

from pydantic import TypeAdapter, ValidationError

from schedd.core import limits
from schedd.core.batch import NewBatch
from schedd.core.errors import InvalidRequest
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
    check_id,
)
from schedd.wire.findings import Findings, describe
from schedd.wire.jsontext import decode_json, find_unfit
from schedd.wire.spec import (
    BATCH_KEYS,
    DEFAULTS_KEYS,
    DEPENDENCY_KEYS,
    RETRY_KEYS,
    TASK_KEYS,
    BatchHead,
    RetrySpec,
    TaskDefaults,
    TaskSpec,
)

Loc = tuple[str | int, ...]

_HEAD: Final = TypeAdapter(BatchHead).validator
_TASK: Final = TypeAdapter(TaskSpec).validator
_HEAD_KEYS: Final = {"": BATCH_KEYS, "defaults": DEFAULTS_KEYS, "retry": RETRY_KEYS}
_INNER_KEYS: Final = {"": TASK_KEYS, "retry": RETRY_KEYS, "deps": DEPENDENCY_KEYS}
_WORK_KEYS: Final = ("run", "command", "call")
_CALL_KEYS: Final = ("args", "kwargs", "isolation")
_CODE_KEYS: Final = ("on_exit_codes", "never_on_exit_codes")
_LIST_KEYS: Final = (*_CODE_KEYS, "on_exceptions")
_PROCESS_KEYS: Final = ("cwd", "env")
_MAX_TASK_KEYS: Final = len(TASK_KEYS) + limits.MAX_SPEC_ERRORS
_NO_EVERY: Final = "`times` needs `every`: how long after the start of one run the next is planned"
_ENDLESS: Final = (
    "an endless `every` belongs to a schedule, which submits a fresh batch each time; give `times` to run this task a "
    "number of times"
)
_SHARED: Final = "a call in a thread has the daemon's `{0}`; leave `{0}` out, or give the call `isolation: process`"
_encode: Final = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode

assert limits.MAX_JSON_DEPTH < 500  # so that `_encode`, which is recursive, stays within Python's limit


def parse_batch_json(raw: bytes) -> NewBatch:
    """The batch of a spec as JSON text. Raises as `parse_batch` does, and SpecError where it is not strict JSON."""
    with _without_collector():
        return parse_batch(decode_json(raw))


def parse_batch(data: object) -> NewBatch:
    """The batch of a decoded spec; the payload of each task is JSON text.

    Raises SpecError with every mistake found, at most `limits.MAX_SPEC_ERRORS`; where the shape is right but the
    graph is not, what the core says: CycleError, SelfDependency, DuplicateId, or InvalidRequest.
    """
    findings = Findings()
    if not isinstance(data, dict):
        findings.add((), f"a spec must be a mapping with the key `tasks`, not {describe(data)}")
        findings.raise_if_any()
        raise AssertionError("a finding was added")
    head = _head(data, findings)
    defaults = head.get("defaults", TaskDefaults())
    tasks = [*_tasks(data["tasks"], defaults, findings)] if "tasks" in data else _no_tasks(data, findings)
    findings.raise_if_any()
    return NewBatch(tasks, head.get("name"))


@contextmanager
def _without_collector() -> Iterator[None]:
    """Keep Python's cycle collector from walking a growing document again and again: that doubles the time.

    Nothing here makes cycles. Overlapping uses are safe: only who found it on turns it on again.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def _head(data: dict[str, Any], findings: Findings) -> BatchHead:
    """All but the tasks; empty where it has mistakes."""
    rest = {key: value for key, value in data.items() if key != "tasks"}
    if len(rest) > _MAX_TASK_KEYS:
        findings.add((), f"a spec with {len(rest) + 1} keys; it has at most {len(BATCH_KEYS)}")
        return BatchHead()
    try:
        head = cast("BatchHead", _HEAD.validate_python(rest))
    except ValidationError as error:
        findings.add_all(error, (), _HEAD_KEYS)
        return BatchHead()
    if "name" in head:
        try:
            check_id(head["name"], "batch name", limits.MAX_BATCH_NAME_CHARS)
        except InvalidRequest as refusal:
            findings.add(("name",), str(refusal))
    return head


def _no_tasks(data: dict[str, Any], findings: Findings) -> list[NewTask]:
    if any(key in data for key in _WORK_KEYS):
        findings.add((), "this is a task and not a batch; put it under `tasks`")
    else:
        findings.add((), "a spec needs the key `tasks`")
    return []


def _tasks(tasks: object, defaults: TaskDefaults, findings: Findings) -> Iterator[NewTask]:
    """Each task that has no mistake, in the order of the document; the others leave their findings."""
    entries: Iterable[tuple[str | int, Any]]
    if isinstance(tasks, dict):
        entries = tasks.items()
    elif isinstance(tasks, list):
        entries = enumerate(tasks)
    else:
        findings.add(("tasks",), f"must be a mapping from id to task, or a list of tasks, not {describe(tasks)}")
        return
    if not tasks:
        findings.add(("tasks",), "a batch needs at least one task")
    if len(tasks) > limits.MAX_TASKS_PER_BATCH:
        findings.add(
            ("tasks",),
            f"a batch may hold at most {limits.MAX_TASKS_PER_BATCH} tasks, not {len(tasks)}; submit it in parts",
        )
        return
    for key, item in entries:
        if findings.is_full:
            return
        task = _task(key, item, defaults, findings)
        if task is not None:
            yield task


def _task(key: str | int, item: object, defaults: TaskDefaults, findings: Findings) -> NewTask | None:
    """One task, or None and at least one finding. `key` is its id in a mapping, its position in a list."""
    loc: Loc = ("tasks", key)
    if not isinstance(item, dict):
        findings.add(loc, f"a task must be a mapping such as {{run: make}}, not {describe(item)}")
        return None
    if len(item) > _MAX_TASK_KEYS:
        findings.add(loc, f"a task with {len(item)} keys; there are {len(TASK_KEYS)}")
        return None
    try:
        spec: TaskSpec = _TASK.validate_python(item)
    except ValidationError as error:
        findings.add_all(error, loc, _INNER_KEYS)
        return None
    mistakes = _mistakes_between_keys(spec, defaults, in_mapping=isinstance(key, str))
    if mistakes:
        for where, message in mistakes:
            findings.add((*loc, *where), message)
        return None
    payload = _payload(spec, defaults)
    if len(payload) > limits.MAX_PAYLOAD_CHARS:
        findings.add(loc, f"its work takes {len(payload)} characters as JSON; {limits.MAX_PAYLOAD_CHARS} are allowed")
        return None
    try:
        return _new_task(key if isinstance(key, str) else spec.get("id"), spec, defaults, payload)
    except InvalidRequest as refusal:  # pydantic has judged all but the characters of the id
        findings.add(loc if isinstance(key, str) else (*loc, "id"), str(refusal))
        return None


def _mistakes_between_keys(spec: TaskSpec, defaults: TaskDefaults, *, in_mapping: bool) -> list[tuple[Loc, str]]:
    """What no key shows by itself, as (place within the task, message)."""
    mistakes: list[tuple[Loc, str]] = []
    given = spec.keys()
    work = [key for key in _WORK_KEYS if key in given]
    if not work:
        mistakes.append(((), "needs one of `run`, `command` and `call`, and has none"))
    elif len(work) > 1:
        mistakes.append(((), f"has {' and '.join(f'`{key}`' for key in work)}; give exactly one of them"))
    if "call" not in given and not given.isdisjoint(_CALL_KEYS):
        mistakes.extend(((key,), f"`{key}` goes with `call` only") for key in _CALL_KEYS if key in given)
    if "command" in spec and not spec["command"][0]:
        mistakes.append((("command", 0), "the program must not be empty"))
    if in_mapping and "id" in spec:
        mistakes.append((("id",), "the key of the task is its id; leave `id` out"))
    if "catch_up" in spec and "every" not in spec:
        mistakes.append((("catch_up",), "`catch_up` goes with `every` only"))
    retry = spec.get("retry", {})
    if "call" in given:
        mistakes.extend((("retry", key), f"`{key}` is for `run` and `command`") for key in _CODE_KEYS if key in retry)
    elif "on_exceptions" in retry:
        mistakes.append((("retry", "on_exceptions"), "`on_exceptions` is for `call`; a command has exit codes"))
    if ("times" in spec) != ("every" in spec):
        mistakes.append((("times",), _NO_EVERY) if "times" in spec else (("every",), _ENDLESS))
    if _runs_in_thread(spec, defaults):
        mistakes.extend(((key,), _SHARED.format(key)) for key in _PROCESS_KEYS if key in given)
    for key in ("args", "kwargs"):
        unfit = find_unfit(spec[key]) if key in spec else None
        if unfit is not None:
            mistakes.append(((key, *unfit[0]), unfit[1]))
    return mistakes


def _runs_in_thread(spec: TaskSpec, defaults: TaskDefaults) -> bool:
    return "call" in spec and spec.get("isolation", defaults.get("isolation")) == "thread"


def _payload(spec: TaskSpec, defaults: TaskDefaults) -> str:
    """What the task does as JSON text, without what is the default; read by `workers.work`."""
    merged: dict[str, Any] = {**defaults, **spec}
    payload: dict[str, Any] = {key: merged[key] for key in _WORK_KEYS if key in merged}
    if "call" in payload:
        payload.update((key, merged[key]) for key in ("args", "kwargs") if merged.get(key))
    if _runs_in_thread(spec, defaults):
        payload["isolation"] = "thread"  # and without the defaults' cwd and env, which it cannot have
    else:
        if "cwd" in merged:
            payload["cwd"] = merged["cwd"]
        if env := {**defaults.get("env", {}), **spec.get("env", {})}:
            payload["env"] = env
    if merged.get("timeout") is not None:
        payload["timeout"] = merged["timeout"]
    if merged.get("grace", limits.DEFAULT_GRACE_S) != limits.DEFAULT_GRACE_S:
        payload["grace"] = merged["grace"]
    return _encode(payload)


def _new_task(name: str | None, spec: TaskSpec, defaults: TaskDefaults, payload: str) -> NewTask:
    return NewTask(
        payload=payload,
        name=name,
        deps=tuple([_dependency(given) for given in spec["deps"]]) if "deps" in spec else (),
        priority=spec["priority"] if "priority" in spec else defaults.get("priority", 0),
        retry=_retry(spec.get("retry"), defaults.get("retry"), is_call="call" in spec),
        recurrence=_recurrence(spec) if "every" in spec else None,
        delay=spec.get("delay", 0.0),
        start_before=Moment(spec["start_before"]) if "start_before" in spec else None,
        deadline=Moment(spec["deadline"]) if "deadline" in spec else None,
    )


def _recurrence(spec: TaskSpec) -> Recurrence:
    return Recurrence(spec["every"], spec["times"], CatchUp(spec.get("catch_up", CatchUp.ALL)))


def _dependency(given: Any) -> Dependency:
    if isinstance(given, str):
        return Dependency(given)
    return Dependency(given["task"], When(given.get("when", "succeeded")))


def _retry(own: RetrySpec | None, default: RetrySpec | None, *, is_call: bool) -> RetryPolicy:
    """Of the defaults only what fits the kind of task: they may hold rules for both."""
    if not own and not default:
        return DEFAULT_RETRY
    unfit = _CODE_KEYS if is_call else ("on_exceptions",)
    merged: dict[str, Any] = {key: value for key, value in (default or {}).items() if key not in unfit}
    merged.update(own or {})
    for key in _LIST_KEYS:
        if key in merged:
            merged[key] = tuple(merged[key])
    if "jitter" in merged:
        merged["jitter"] = Jitter(merged["jitter"])
    return _policy(**merged)


@lru_cache(maxsize=256)
def _policy(**values: Any) -> RetryPolicy:
    """One object for equal policies: a batch of many tasks has few of them."""
    return RetryPolicy(**values)
