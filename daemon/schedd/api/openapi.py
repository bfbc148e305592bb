"""The OpenAPI description of the routes: made from the typed dicts that the answers are, at no cost to the answers.

`documented` gives what a route decorator needs. Tests: tests/api/test_openapi.py.
"""

import json
import types
import typing
from collections.abc import Sequence
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints, is_typeddict

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from pydantic import TypeAdapter

from schedd import answers
from schedd.api.body import MAX_KEY_CHARS, Query
from schedd.api.problems import STATUS_OF
from schedd.wire import DependRequest, IdsRequest, PruneRequest, RetryRequest, UndependRequest, json_schema

_REF = "#/components/schemas/"
_SCALARS: dict[Any, dict[str, Any]] = {
    str: {"type": "string"},
    int: {"type": "integer"},
    float: {"type": "number"},
    bool: {"type": "boolean"},
    type(None): {"type": "null"},
    Any: {},
}

_COMPONENTS: dict[str, Any] = {}
"""Schemas of what comes in, filled while the routes are made."""


def _placed(schema: dict[str, Any]) -> dict[str, Any]:
    """A JSON Schema with its definitions moved among the components, where OpenAPI looks for them."""
    made: dict[str, Any] = json.loads(json.dumps(schema).replace('"#/$defs/', f'"{_REF}'))
    made.pop("$schema", None)
    _COMPONENTS.update(made.pop("$defs", {}))
    return made


def _component(name: str, schema: dict[str, Any]) -> dict[str, Any]:
    """A reference to a schema that is put among the components itself."""
    _COMPONENTS[name] = _placed(schema)
    return {"$ref": _REF + name}


SPEC_BODY = _component("BatchSpec", json_schema())
IDS_BODY = _component("IdsRequest", TypeAdapter(IdsRequest).json_schema())
DEPEND_BODY = _component("DependRequest", TypeAdapter(DependRequest).json_schema())
RETRY_BODY = _component("RetryRequest", TypeAdapter(RetryRequest).json_schema())
UNDEPEND_BODY = _component("UndependRequest", TypeAdapter(UndependRequest).json_schema())
PRUNE_BODY = _component("PruneRequest", TypeAdapter(PruneRequest).json_schema())
EMPTY_BODY: dict[str, Any] = {"type": "object", "additionalProperties": False}
"""The body of a request that says all by its address; it may be left out."""


def documented(
    answer: type | str,
    *,
    status: int = 200,
    query: type[Query] | None = None,
    body: dict[str, Any] | None = None,
    codes: Sequence[str] = (),
) -> dict[str, Any]:
    """Arguments for a route decorator.

    `answer` is a typed dict of `schedd.answers`, or a media type; `codes` are the problem codes it may answer, besides
    those that any may.
    """
    if isinstance(answer, str):
        content: dict[str, Any] = {answer: {"schema": {"type": "string", "format": "binary"}}}
    else:
        content = {"application/json": {"schema": _schema(answer)}}
    responses: dict[str, Any] = {str(status): {"description": "Done.", "content": content}}
    for code in [*codes, *(["invalid"] if query or body else []), "internal", "unavailable"]:
        told = responses.setdefault(str(STATUS_OF[code]), _problem_response())
        told["description"] += f" `{code}`"
    extra: dict[str, Any] = {"responses": responses}
    if query is not None:
        extra["parameters"] = _parameters(query)
    if body is not None:
        extra["requestBody"] = {"required": body is not EMPTY_BODY, "content": {"application/json": {"schema": body}}}
        extra["parameters"] = [_KEY_PARAMETER]
    return {"status_code": status, "response_model": None, "openapi_extra": extra, "responses": {}}


def describe(app: FastAPI) -> dict[str, Any]:
    """The whole description, for GET /v1/openapi.json."""
    made = get_openapi(title=app.title, version=app.version, description=app.description, routes=app.routes)
    shapes = [shape for shape in vars(answers).values() if is_typeddict(shape)]
    made["components"] = {"schemas": _COMPONENTS | {shape.__name__: _object(shape) for shape in shapes}}
    return made


def _problem_response() -> dict[str, Any]:
    return {
        "description": "Refused:",
        "content": {"application/problem+json": {"schema": {"$ref": f"{_REF}Problem"}}},
    }


_KEY_PARAMETER = {
    "name": "Idempotency-Key",
    "in": "header",
    "required": False,
    "description": "Repeated with the same key and body, the request is carried out once and answered the same.",
    "schema": {"type": "string", "minLength": 1, "maxLength": MAX_KEY_CHARS},
}


def _parameters(query: type[Query]) -> list[dict[str, Any]]:
    schema = _placed(query.model_json_schema())
    needed = schema.get("required", [])
    return [
        {
            "name": name,
            "in": "query",
            "required": name in needed,
            "description": field.get("description", ""),
            "schema": {key: value for key, value in field.items() if key not in ("title", "description")},
        }
        for name, field in schema.get("properties", {}).items()
    ]


def _object(shape: Any) -> dict[str, Any]:
    hints = get_type_hints(shape)
    return {
        "type": "object",
        "description": (shape.__doc__ or "").strip(),
        "properties": {name: _schema(hint) for name, hint in hints.items()},
        "required": sorted(shape.__required_keys__),
    }


def _schema(hint: Any) -> dict[str, Any]:
    """The schema of a type hint, as far as `schedd.answers` goes."""
    if hint in _SCALARS:
        return dict(_SCALARS[hint])
    if is_typeddict(hint):
        return {"$ref": _REF + hint.__name__}
    origin, arguments = get_origin(hint), get_args(hint)
    if origin in (Union, types.UnionType):
        return {"anyOf": [_schema(argument) for argument in arguments]}
    if origin is list:
        return {"type": "array", "items": _schema(arguments[0])}
    if origin is dict:
        return {"type": "object", "additionalProperties": _schema(arguments[1])}
    if origin is Literal:
        return {"enum": list(arguments)}
    if origin is typing.Required:
        return _schema(arguments[0])
    raise TypeError(f"no schema for {hint!r}")
