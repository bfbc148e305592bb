"""Waiting for tasks and batches to end, by long poll. Tests: tests/api/test_wait_routes.py."""

from typing import cast

from fastapi import APIRouter, Request, Response
from pydantic import Field

from schedd.answers import Unsuccessful, WaitAnswer
from schedd.api.backend import Backend
from schedd.api.body import Query, read_query
from schedd.api.openapi import documented
from schedd.api.problems import ApiError, answer
from schedd.api.views import counts_view, ready_among
from schedd.core import limits

MAX_TIMEOUT_S = 60.0


class WaitQuery(Query):
    """What to wait for, and how long."""

    id: list[str] = Field(
        description="Full id of a task, or full name of a batch; may be repeated.",
        min_length=1,
        max_length=limits.MAX_IDS_PER_REQUEST,
    )
    timeout: float = Field(
        default=MAX_TIMEOUT_S, ge=0, le=MAX_TIMEOUT_S, description="Seconds until it answers anyway."
    )


def routes(backend: Backend) -> APIRouter:
    """One long poll."""
    router = APIRouter(tags=["tasks"])

    @router.get(
        "/v1/wait",
        summary="Answers when all of it has ended, or at the timeout",
        **documented(WaitAnswer, query=WaitQuery, codes=["unknown_task"]),
    )
    async def wait(request: Request) -> Response:
        query = read_query(WaitQuery, request)
        watch = backend.feed.watch(query.timeout)
        seqs, unknown = await backend.read(lambda: backend.reads.seqs_of(query.id))
        if unknown:
            raise ApiError(
                "unknown_task", f"there is no task or batch {unknown[0]!r}; `schedctl list` shows the tasks there are"
            )
        still_open = seqs
        while True:
            asked = still_open  # what has ended is not asked for again
            still_open = await backend.read(lambda asked=asked: backend.reads.open_among(asked))  # type: ignore[misc]
            if not still_open or not await watch.changed() or await request.is_disconnected():
                return answer(await _progress(backend, seqs))

    return router


async def _progress(backend: Backend, seqs: list[int]) -> WaitAnswer:
    stored, unsuccessful = await backend.read(lambda: backend.reads.progress(seqs))
    still_open = stored.get("pending", 0) + stored.get("running", 0)
    ready = len(await ready_among(backend, seqs)) if still_open else 0
    return {
        "done": not still_open,
        "open": still_open,
        "counts": counts_view(stored, ready),
        "unsuccessful": cast("list[Unsuccessful]", unsuccessful),
    }
