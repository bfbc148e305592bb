"""Batches: submit one, look at one. Tests: tests/api/test_batch_routes.py."""

from fastapi import APIRouter, Request, Response
from pydantic import Field

from schedd.answers import BatchView, SubmitAnswer
from schedd.api.backend import Backend
from schedd.api.body import Query, read_query
from schedd.api.openapi import SPEC_BODY, documented
from schedd.api.problems import ApiError, answer
from schedd.api.views import counts_view, ready_in_batch
from schedd.core import limits
from schedd.core.model import TERMINAL, Status
from schedd.engine.requests import SubmitBatch
from schedd.wire import parse_batch_json

_SUBMIT_CODES = (
    "cycle",
    "unknown_dependency",
    "self_dependency",
    "timed_out",
    "duplicate_id",
    "key_reused",
    "too_large",
)


class BatchQuery(Query):
    """Which batch."""

    name: str = Field(description="The full name of a batch.", max_length=limits.MAX_FULL_ID_CHARS)


def routes(backend: Backend) -> APIRouter:
    """Submit and see."""
    router = APIRouter(tags=["batches"])

    @router.post(
        "/v1/batches",
        summary="Submit a batch, whole or not at all",
        **documented(SubmitAnswer, status=201, body=SPEC_BODY, codes=_SUBMIT_CODES),
    )
    async def submit(request: Request) -> Response:
        return await backend.change(request, lambda body: SubmitBatch(parse_batch_json(body)), 201)

    @router.get("/v1/batch", summary="One batch", **documented(BatchView, query=BatchQuery, codes=["unknown_batch"]))
    async def batch(request: Request) -> Response:
        name = read_query(BatchQuery, request).name
        row = await backend.read(lambda: backend.reads.batch(name))
        if row is None:
            raise ApiError("unknown_batch", f"there is no batch {name!r}; `schedctl list` shows the tasks there are")
        counts = counts_view(row["counts"], await ready_in_batch(backend, name))
        done = all(not number for status, number in counts.items() if Status(status) not in TERMINAL)
        shown: BatchView = {"name": row["name"], "created_at": row["created_at"], "counts": counts, "done": done}
        return answer(shown)

    return router
