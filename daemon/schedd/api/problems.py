"""What goes wrong as answers: `application/problem+json`, one for each exception that a handler may meet.

The codes and their statuses are in docs/api.md. An exception that nobody expected becomes a 500 with a reference; the
same reference is in the log, with the story. Tests: tests/api/test_app.py.
"""

import json
import uuid
from collections.abc import Mapping, Sequence
from http import HTTPStatus
from typing import Any

import structlog
from fastapi import FastAPI, Request, Response
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from schedd.answers import ErrorItem, Problem
from schedd.core.errors import Refused
from schedd.engine.loop import RequestFailed, Unavailable
from schedd.store.base import StoreBroken, StoreUnavailable
from schedd.wire import SpecError

STATUS_OF = {
    "invalid": 422,
    "cycle": 422,
    "unknown_dependency": 422,
    "self_dependency": 422,
    "unknown_resource": 422,
    "over_capacity": 422,
    "unknown_task": 404,
    "unknown_batch": 404,
    "unknown_attempt": 404,
    "log_missing": 404,
    "not_found": 404,
    "method_not_allowed": 405,
    "timed_out": 408,
    "duplicate_id": 409,
    "already_ended": 409,
    "already_cancelled": 409,
    "already_started": 409,
    "not_ended": 409,
    "key_reused": 409,
    "too_large": 413,
    "internal": 500,
    "unavailable": 503,
}
"""The status of each code."""

RETRY_AFTER_S = 1


class ApiError(Exception):
    """What only the API itself can find wrong: a `code` of `STATUS_OF`, and a sentence."""

    def __init__(self, code: str, detail: str, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(detail)
        self.code = code
        self.headers = headers


def problem(
    code: str, detail: str, errors: Sequence[ErrorItem] = (), headers: Mapping[str, str] | None = None
) -> Response:
    """The answer for a code; its `type` is a name, no address."""
    status = STATUS_OF.get(code, 422)
    body: Problem = {
        "type": f"urn:schedd:problem:{code}",
        "title": HTTPStatus(status).phrase,
        "status": status,
        "detail": detail,
        "code": code,
    }
    if errors:
        body["errors"] = list(errors)
    return Response(encode(body), status, headers, "application/problem+json")


def encode(value: Any) -> bytes:
    """JSON text as it is sent: compact, in UTF-8, a lone surrogate as the escape that JSON has for it."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "backslashreplace")


def answer(value: Any, status: int = 200) -> Response:
    """A JSON answer."""
    return Response(encode(value), status, media_type="application/json")


def install(app: FastAPI) -> None:
    """Let the app answer with problems only."""
    app.add_exception_handler(Refused, _refused)
    app.add_exception_handler(ApiError, _api_error)
    app.add_exception_handler(Unavailable, _unavailable)
    app.add_exception_handler(StoreUnavailable, _unavailable)
    app.add_exception_handler(StoreBroken, _broken)
    app.add_exception_handler(RequestFailed, _request_failed)
    app.add_exception_handler(HTTPException, _http_error)
    app.add_exception_handler(ClientDisconnect, _gone)
    app.add_middleware(UnexpectedErrors)


async def _refused(request: Request, error: Exception) -> Response:
    assert isinstance(error, Refused)
    return problem(error.code, str(error), error.errors if isinstance(error, SpecError) else ())


async def _api_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, ApiError)
    return problem(error.code, str(error), headers=error.headers)


async def _unavailable(request: Request, error: Exception) -> Response:
    return problem("unavailable", str(error), headers={"Retry-After": str(RETRY_AFTER_S)})


async def _request_failed(request: Request, error: Exception) -> Response:
    return problem("internal", f"{error}; reference {_note(request.scope, error)}")


async def _broken(request: Request, error: Exception) -> Response:
    return problem("internal", str(error))


async def _gone(request: Request, error: Exception) -> Response:
    """The client hung up in the middle of its request: nobody reads this, and nothing is to be logged."""
    return problem("timed_out", "the request broke off")


async def _http_error(request: Request, error: Exception) -> Response:
    """What the router says."""
    assert isinstance(error, HTTPException)
    where = f"{request.method} {request.url.path}"
    if error.status_code == HTTPStatus.METHOD_NOT_ALLOWED:
        allowed = (error.headers or {}).get("Allow", "another method")
        return problem("method_not_allowed", f"{where}: this takes {allowed}", headers=error.headers)
    if error.status_code == HTTPStatus.NOT_FOUND:
        return problem("not_found", f"{where}: there is no such route; GET /v1/openapi.json lists those there are")
    return problem("invalid", str(error.detail), headers=error.headers)


class UnexpectedErrors:
    """ASGI middleware: an exception that nothing else handles is logged, and answered if there is still time.

    Starlette's own place for this raises the exception again after the answer, and it would be logged twice.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        begun = False

        async def sending(message: Message) -> None:
            nonlocal begun
            begun = True
            await send(message)

        try:
            await self._app(scope, receive, sending)
        except Exception as error:
            reference = _note(scope, error)
            if begun:
                raise  # cuts the connection, so that the client sees that the answer is not whole
            detail = f"a bug in schedd: the daemon's log tells more under the reference {reference}"
            await problem("internal", detail)(scope, receive, send)


def _note(scope: Scope, error: Exception) -> str:
    """Log an error of ours; the reference under which it is found."""
    reference = uuid.uuid4().hex[:12]
    structlog.get_logger("schedd").error(
        "request_failed", reference=reference, method=scope.get("method"), path=scope.get("path"), exc_info=error
    )
    return reference
