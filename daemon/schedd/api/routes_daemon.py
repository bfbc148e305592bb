"""The daemon itself: how it is, and whether it starts tasks. Tests: tests/api/test_daemon_routes.py."""

import time
from typing import NamedTuple

from fastapi import APIRouter, Request, Response

from schedd.answers import Degraded, Health, PausedAnswer, StatusAnswer
from schedd.api.backend import Backend
from schedd.api.body import Query, read_query
from schedd.api.openapi import EMPTY_BODY, documented
from schedd.api.problems import answer
from schedd.api.views import Row, counts_view, task_views
from schedd.core.machine import Machine
from schedd.engine.loop import Unavailable
from schedd.engine.requests import PauseStarting
from schedd.wire import parse_empty

FAILED_SHOWN = 5


class NoParameters(Query):
    """A route that takes no parameters."""


class _Memory(NamedTuple):
    """What only the engine knows of the whole."""

    running: int
    ready: int
    paused: bool
    draining: bool


def routes(backend: Backend) -> APIRouter:
    """How it is, and a stop and go for all tasks."""
    router = APIRouter(tags=["daemon"])

    @router.get("/v1/status", summary="The daemon at a glance", **documented(StatusAnswer, query=NoParameters))
    async def status(request: Request) -> Response:
        read_query(NoParameters, request)
        return answer(await _status(backend))

    @router.get("/v1/health", summary="Whether it accepts work", **documented(Health, query=NoParameters))
    async def health(request: Request) -> Response:
        read_query(NoParameters, request)
        try:
            memory = await backend.ask(_memory)
        except Unavailable:
            memory = None
        return answer(_health(backend, memory))

    @router.post("/v1/pause", summary="Start no further attempt", **documented(PausedAnswer, body=EMPTY_BODY))
    async def pause(request: Request) -> Response:
        return await backend.change(request, lambda body: _pausing(body, paused=True))

    @router.post("/v1/resume", summary="Undo a pause", **documented(PausedAnswer, body=EMPTY_BODY))
    async def resume(request: Request) -> Response:
        return await backend.change(request, lambda body: _pausing(body, paused=False))

    return router


async def _status(backend: Backend) -> StatusAnswer:
    memory = await backend.ask(_memory)
    reads, info = backend.reads, backend.info

    def rows() -> tuple[dict[str, int], list[Row], list[Row]]:
        return reads.counts(), reads.running(), reads.last_failed(FAILED_SHOWN)

    counts, running, failed = await backend.read(rows)
    return {
        "version": info.version,
        "pid": info.pid,
        "started_at": info.started_at,
        "workers": info.workers,
        "busy": memory.running,
        "paused": memory.paused,
        "draining": memory.draining,
        "counts": counts_view(counts, memory.ready),
        "running": await task_views(backend, running),
        "failed": await task_views(backend, failed),
        "health": _health(backend, memory),
        "state_dir": info.state_dir,
    }


def _health(backend: Backend, memory: _Memory | None) -> Health:
    """`memory` is None if the engine did not answer."""
    fault = backend.engine.fault
    if fault is not None:
        return {"live": True, "ready": False, "degraded": {"since": fault.since, "message": fault.message}}
    if memory is None:
        since = time.time() - max(time.monotonic() - backend.engine.beat, 0.0)
        return {"live": True, "ready": False, "degraded": {"since": since, "message": "the engine does not answer"}}
    complaint = backend.engine.complaint
    degraded: Degraded | None = {"since": complaint.since, "message": complaint.message} if complaint else None
    return {"live": True, "ready": not memory.draining, "degraded": degraded}


def _memory(machine: Machine) -> _Memory:
    return _Memory(len(machine.running), len(machine.ready), machine.paused, machine.draining)


def _pausing(body: bytes, *, paused: bool) -> PauseStarting:
    parse_empty(body)
    return PauseStarting(paused)
