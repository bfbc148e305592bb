"""The small requests: a list of ids, an edge, nothing. Tests: tests/unit/test_wire_requests.py."""

from typing import Annotated, Any, Final, Required

from pydantic import ConfigDict, Field, TypeAdapter, ValidationError, with_config
from typing_extensions import TypedDict

from schedd.core import limits
from schedd.core.model import When
from schedd.wire.findings import Findings, describe
from schedd.wire.jsontext import decode_json
from schedd.wire.spec import Duration, TaskName, WhenName, at_most, keys_of

_STRICT = ConfigDict(strict=True, extra="forbid")


@with_config(_STRICT)
class IdsRequest(TypedDict):
    """Tasks or batches to act on."""

    ids: Annotated[
        list[TaskName],
        Field(min_length=1, description="Full ids of tasks, or full names of batches (all their tasks)."),
        at_most(limits.MAX_IDS_PER_REQUEST),
    ]


@with_config(_STRICT)
class DependRequest(TypedDict, total=False):
    """An edge to add: `after` is to wait for `before`."""

    before: Required[Annotated[TaskName, Field(description="Full id of the task that comes first.")]]
    after: Required[Annotated[TaskName, Field(description="Full id of the task that waits.")]]
    when: Annotated[
        WhenName,
        Field(description="Which end of `before` releases `after`.", json_schema_extra={"default": "succeeded"}),
    ]


@with_config(_STRICT)
class RetryRequest(TypedDict, total=False):
    """Tasks to run again."""

    ids: Required[
        Annotated[
            list[TaskName],
            Field(min_length=1, description="Full ids of ended tasks, or full names of batches (what failed in them)."),
            at_most(limits.MAX_IDS_PER_REQUEST),
        ]
    ]
    downstream: Annotated[
        bool, Field(description="Also run again what ran after them.", json_schema_extra={"default": False})
    ]
    only_failed: Annotated[
        bool, Field(description="Leave out what was cancelled or skipped.", json_schema_extra={"default": False})
    ]
    dry_run: Annotated[bool, Field(description="Only tell what would run.", json_schema_extra={"default": False})]


@with_config(_STRICT)
class UndependRequest(TypedDict):
    """An edge to remove: `after` is to wait for `before` no longer."""

    before: Annotated[TaskName, Field(description="Full id of the task that came first.")]
    after: Annotated[TaskName, Field(description="Full id of the task that waits.")]


@with_config(_STRICT)
class PruneRequest(TypedDict, total=False):
    """What may go."""

    older_than: Required[Annotated[Duration, Field(description="Remove what ended longer ago than this.")]]
    keep_last: Annotated[
        int,
        Field(
            ge=0,
            le=limits.MAX_INTEGER,
            description="Keep the newest batches of each name, as many as this, however old.",
            json_schema_extra={"default": 0},
        ),
    ]
    dry_run: Annotated[bool, Field(description="Only count what would go.", json_schema_extra={"default": False})]


@with_config(_STRICT)
class _EmptyRequest(TypedDict):
    """A request that says all by its address."""


_IDS: Final = TypeAdapter(IdsRequest)
_DEPEND: Final = TypeAdapter(DependRequest)
_RETRY: Final = TypeAdapter(RetryRequest)
_UNDEPEND: Final = TypeAdapter(UndependRequest)
_PRUNE: Final = TypeAdapter(PruneRequest)
_EMPTY: Final = TypeAdapter(_EmptyRequest)


def parse_ids(raw: bytes) -> tuple[str, ...]:
    """The ids of an IdsRequest, in the order given. Raises SpecError."""
    request: IdsRequest = _parse(_IDS, IdsRequest, raw)
    return tuple(request["ids"])


def parse_depend(raw: bytes) -> tuple[str, str, When]:
    """`before`, `after` and `when` of a DependRequest. Raises SpecError."""
    request: DependRequest = _parse(_DEPEND, DependRequest, raw)
    return request["before"], request["after"], When(request.get("when", "succeeded"))


def parse_retry(raw: bytes) -> RetryRequest:
    """A RetryRequest. Raises SpecError."""
    request: RetryRequest = _parse(_RETRY, RetryRequest, raw)
    return request


def parse_undepend(raw: bytes) -> tuple[str, str]:
    """`before` and `after` of an UndependRequest. Raises SpecError."""
    request: UndependRequest = _parse(_UNDEPEND, UndependRequest, raw)
    return request["before"], request["after"]


def parse_prune(raw: bytes) -> PruneRequest:
    """A PruneRequest. Raises SpecError."""
    request: PruneRequest = _parse(_PRUNE, PruneRequest, raw)
    return request


def parse_empty(raw: bytes) -> None:
    """A body that says nothing: none at all, or `{}`. Raises SpecError for any other."""
    if raw:
        _parse(_EMPTY, _EmptyRequest, raw)


def _parse(adapter: TypeAdapter[Any], shape: type, raw: bytes) -> Any:
    data = decode_json(raw)
    findings = Findings()
    if not isinstance(data, dict):
        findings.add((), f"the body must be a JSON object, not {describe(data)}")
    elif len(data) > limits.MAX_SPEC_ERRORS:
        findings.add((), f"the body has {len(data)} keys; {len(keys_of(shape))} are known")
    findings.raise_if_any()
    try:
        return adapter.validate_python(data)
    except ValidationError as error:
        findings.add_all(error, (), {"": keys_of(shape)})
    findings.raise_if_any()
    raise AssertionError("a refused body has findings")
