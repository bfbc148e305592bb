"""Whatever comes in, what comes out is a batch or a refusal that can be sent."""

import json
from collections.abc import Callable
from functools import partial
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from schedd import wire
from schedd.core.batch import NewBatch
from schedd.core.errors import Refused
from schedd.wire.spec import BATCH_KEYS, DEFAULTS_KEYS, DEPENDENCY_KEYS, RETRY_KEYS, TASK_KEYS
from schedd.workers.work import decode

texts = st.text(st.characters(codec=None), max_size=8) | st.sampled_from(
    ["a", "b", "a/b", "m:f", "/tmp", "10s", "-1s", "succeeded", "thread", "\ud800", "\0", ""]
)
scalars = st.none() | st.booleans() | st.integers() | st.integers(2**62, 2**70) | st.floats() | texts
values: st.SearchStrategy[Any] = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(texts, inner, max_size=4), max_leaves=12
)


def mapping_with(keys: frozenset[str], **right: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    """Mappings of known keys to right or arbitrary values, now and then with an unknown key."""
    known = {key: right.get(key, values) | values for key in sorted(keys)}
    return st.builds(
        lambda some, extra: {**some, **extra},
        st.fixed_dictionaries({}, optional=known),
        st.just({}) | st.dictionaries(texts, values, max_size=1),
    )


retries = mapping_with(RETRY_KEYS, max_attempts=st.integers(1, 5), base_delay=st.floats(0, 10))
edges = texts | mapping_with(DEPENDENCY_KEYS, task=texts, when=st.sampled_from(["failed", "finished"]))
tasks = mapping_with(
    TASK_KEYS, run=texts, command=st.lists(texts), deps=st.lists(edges, max_size=4), retry=retries, env=st.just({})
) | st.fixed_dictionaries({"run": st.just("x")}, optional={"deps": st.lists(edges, max_size=3)})
defaults = mapping_with(DEFAULTS_KEYS, retry=retries)
specs = mapping_with(
    BATCH_KEYS,
    tasks=st.dictionaries(texts, tasks, max_size=4) | st.lists(tasks, max_size=4),
    defaults=defaults,
    name=st.sampled_from(["ci", "1", ""]),
)


def outcome(parse: Callable[[], NewBatch]) -> list[Any]:
    """The payloads of a batch, or why it was refused."""
    try:
        return [task.payload for task in parse().tasks]
    except Refused as refusal:
        return [str(refusal)]


def judge(data: object) -> None:
    """Parse and check that the outcome is one of the two."""
    try:
        batch = wire.parse_batch(data)
    except Refused as refusal:
        str(refusal).encode("utf-8")
        if isinstance(refusal, wire.SpecError):
            json.dumps(refusal.errors, ensure_ascii=False).encode("utf-8")
        return
    assert isinstance(batch, NewBatch)
    for task in batch.tasks:
        task.payload.encode("utf-8")
        assert decode(task.payload) == decode(wire.parse_batch({"tasks": [json.loads(task.payload)]}).tasks[0].payload)


@given(values)
def test_any_value_is_a_batch_or_refused(data: object) -> None:
    """No JSON value makes the parser fail in any other way than by a refusal that can be sent."""
    judge(data)


@settings(max_examples=300)
@given(specs)
def test_anything_like_a_spec_is_a_batch_or_refused(data: object) -> None:
    """Nor does anything that looks like a spec."""
    judge(data)


@given(st.binary(max_size=40) | st.text(st.sampled_from('{}[]":,0123456789.eE+-\\utnrfalse '), max_size=40))
def test_any_bytes_are_a_batch_or_refused(raw: bytes | str) -> None:
    """Nor do arbitrary bytes."""
    try:
        wire.parse_batch_json(raw if isinstance(raw, bytes) else raw.encode())
    except Refused:
        return


@given(specs)
def test_text_and_objects_are_judged_alike(data: object) -> None:
    """A spec is refused as JSON text exactly if it is refused as objects, but for what JSON text cannot hold."""
    try:
        text = json.dumps(data, allow_nan=False)
    except ValueError:
        return
    assert outcome(partial(wire.parse_batch_json, text.encode())) == outcome(partial(wire.parse_batch, data))
