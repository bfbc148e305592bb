"""What comes in over the socket: the spec of a batch and the other requests, checked, with every mistake named.

Between JSON and the core: text or objects in, core values out, or one `SpecError` that lists what is wrong and
where. It refuses to know files and their formats (`specfile`), HTTP (`api`) and what a task does when it runs
(`workers`). Answers are `schedd.answers`. The reference for people is docs/spec.md.

    spec.py      the shapes, their bounds and their descriptions
    parsing.py   a spec becomes a NewBatch
    jsontext.py  bytes become objects, strictly
    requests.py  the small requests
    findings.py  what is wrong, collected and put into words

Tests: tests/unit/test_wire*.py.
"""

from schedd.wire.findings import SpecError
from schedd.wire.jsontext import decode_json
from schedd.wire.parsing import parse_batch, parse_batch_json
from schedd.wire.requests import (
    DependRequest,
    IdsRequest,
    PruneRequest,
    RetryRequest,
    UndependRequest,
    parse_depend,
    parse_empty,
    parse_ids,
    parse_prune,
    parse_retry,
    parse_undepend,
)
from schedd.wire.spec import BatchSpec, DependencySpec, RetrySpec, TaskDefaults, TaskSpec, json_schema

__all__ = [
    "BatchSpec",
    "DependRequest",
    "DependencySpec",
    "IdsRequest",
    "PruneRequest",
    "RetryRequest",
    "RetrySpec",
    "SpecError",
    "TaskDefaults",
    "TaskSpec",
    "UndependRequest",
    "decode_json",
    "json_schema",
    "parse_batch",
    "parse_batch_json",
    "parse_depend",
    "parse_empty",
    "parse_ids",
    "parse_prune",
    "parse_retry",
    "parse_undepend",
]
