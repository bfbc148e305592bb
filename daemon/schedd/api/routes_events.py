"""The ordered log of events, to be read on from an id. Tests: tests/api/test_event_routes.py."""

from fastapi import APIRouter, Request, Response
from pydantic import Field

from schedd.answers import EventsAnswer
from schedd.api.backend import Backend
from schedd.api.body import Query, read_query
from schedd.api.openapi import documented
from schedd.api.problems import answer
from schedd.api.routes_waits import MAX_TIMEOUT_S
from schedd.core import limits

MAX_EVENTS = 1_000


class EventsQuery(Query):
    """Where to go on, and whether to wait there."""

    after: int = Field(default=0, ge=0, le=limits.MAX_INTEGER, description="The id of an event; later ones follow.")
    limit: int = Field(default=100, ge=1, le=MAX_EVENTS, description="How many at most.")
    timeout: float = Field(
        default=0.0, ge=0, le=MAX_TIMEOUT_S, description="Seconds to wait for the first one if there is none yet."
    )


def routes(backend: Backend) -> APIRouter:
    """One question, which may be a long poll."""
    router = APIRouter(tags=["events"])

    @router.get("/v1/events", summary="Events in order", **documented(EventsAnswer, query=EventsQuery))
    async def events(request: Request) -> Response:
        query = read_query(EventsQuery, request)
        watch = backend.feed.watch(query.timeout)
        while True:
            rows = await backend.read(lambda: backend.reads.events(query.after, query.limit))
            if rows or not await watch.changed() or await request.is_disconnected():
                last = rows[-1]["id"] if rows else query.after
                return answer({"events": rows, "next": last})

    return router
