"""Reading what a request says: its body, within bounds, and its query, with every mistake named.

The bound on a body is kept while it is read, so that a client cannot make the daemon hold more than that, whatever it
announces. Tests: tests/api/test_app.py, test_task_routes.py.
"""

import asyncio
import re
from collections.abc import Mapping
from typing import Any, TypeVar

from fastapi import Request
from pydantic import BaseModel, ConfigDict, ValidationError
from pydantic_core import ErrorDetails

from schedd.api.problems import ApiError
from schedd.core import limits
from schedd.wire import SpecError
from schedd.wire.findings import describe, unknown_key

CHUNK_DEADLINE_S = 30.0
"""How long a client may pause in the middle of a body."""

MAX_KEY_CHARS = 200

_CLOSE = {"Connection": "close"}
_SHOULD = re.compile(r"^\w+ should\b")


class Query(BaseModel):
    """The parameters of a route. Every field with a list type may be repeated, every other may not."""

    model_config = ConfigDict(extra="forbid", frozen=True)


Q = TypeVar("Q", bound=Query)


def read_query(shape: type[Q], request: Request) -> Q:
    """The parameters of a request. Raises SpecError with every mistake, at most `limits.MAX_SPEC_ERRORS`."""
    given: dict[str, Any] = {}
    for name in request.query_params:
        values = request.query_params.getlist(name)
        field = shape.model_fields.get(name)
        if field is not None and _is_list(field.annotation):
            given[name] = values
        elif len(values) == 1:
            given[name] = values[0]
        else:
            raise SpecError.at((name,), f"is given {len(values)} times; once is enough")
    try:
        return shape.model_validate(given)
    except ValidationError as error:
        found = error.errors(include_url=False)[: limits.MAX_SPEC_ERRORS]
        raise SpecError([{"loc": list(item["loc"]), "message": _explain(item, shape)} for item in found]) from None


async def read_body(request: Request) -> bytes:
    """The body. Raises ApiError for one that is too large or does not come to its end, ClientDisconnect."""
    announced = request.headers.get("content-length", "")
    if announced.isascii() and announced.isdecimal() and int(announced) > limits.MAX_BODY_BYTES:
        raise _too_large()
    body = bytearray()
    chunks = request.stream()
    try:
        while True:
            async with asyncio.timeout(CHUNK_DEADLINE_S):
                chunk = await anext(chunks, None)
            if chunk is None:
                return bytes(body)
            if len(body) + len(chunk) > limits.MAX_BODY_BYTES:
                raise _too_large()
            body += chunk
    except TimeoutError:
        raise ApiError("timed_out", f"no more of the body came for {CHUNK_DEADLINE_S:g} s", _CLOSE) from None
    finally:
        await chunks.aclose()


def read_key(headers: Mapping[str, str]) -> str | None:
    """The Idempotency-Key of a request, None without one. Raises SpecError."""
    key = headers.get("idempotency-key")
    if key is None:
        return None
    if not 1 <= len(key) <= MAX_KEY_CHARS or not (key.isascii() and key.isprintable()):
        raise SpecError.at(
            ("Idempotency-Key",), f"must have 1 to {MAX_KEY_CHARS} printable ASCII characters, not {len(key)} of any"
        )
    return key


def _too_large() -> ApiError:
    mib = limits.MAX_BODY_BYTES // 2**20
    return ApiError(
        "too_large",
        f"the body is larger than {limits.MAX_BODY_BYTES} bytes ({mib} MiB); submit the batch in parts",
        _CLOSE,  # what is left of it will not be read
    )


def _is_list(annotation: Any) -> bool:
    return getattr(annotation, "__origin__", None) in (list, tuple)


def _explain(item: ErrorDetails, shape: type[Query]) -> str:
    if item["type"] == "extra_forbidden":
        return unknown_key(str(item["loc"][-1]), shape.model_fields.keys())
    if item["type"] == "missing":
        return "is needed here and is not given"
    if item["type"] == "value_error":
        return str(item["ctx"]["error"])
    return f"{_SHOULD.sub('must', item['msg'])}, not {describe(item['input'])}"
