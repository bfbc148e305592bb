"""The daemon itself: how it is, and whether it starts tasks. Tests: tests/api/test_daemon_routes.py."""

import time
from typing import NamedTuple

from fastapi import APIRouter, Request, Response

from schedd import wire
from schedd.answers import Degraded, Health, PausedAnswer, StatusAnswer
from schedd.api import tasks
from schedd.api.backend import Backend
from schedd.api.body import Query, read_query
from schedd.api.openapi import documented
from schedd.api.problems import json_response
from schedd.core.machine import Machine
from schedd.core.model import Status
from schedd.engine.loop import Unavailable
from schedd.engine.requests import PauseStarting

FAILED_SHOWN = 5


class NoQuery(Query):
    """A route without parameters."""


class _Memory(NamedTuple):
    """What only the engine knows of the whole."""

    running: int
    ready: int
    paused: bool
    draining: bool


def routes(backend: Backend) -> APIRouter:
    """The routes of this noun."""
    router = APIRouter(tags=["daemon"])

    @router.get("/v1/status", summary="The daemon at a glance", **documented(StatusAnswer, query=NoQuery))
    async def status(request: Request) -> Response:
        read_query(NoQuery, request)
        memory = await backend.ask(_memory)
        rows = await backend.read(lambda: _overview(backend))
        health = _health(backend, memory)
        counts = {status.value: 0 for status in Status} | rows.counts
        counts[Status.READY] = memory.ready
        counts[Status.PENDING] = max(counts[Status.PENDING] - memory.ready, 0)
        info = backend.info
        answer: StatusAnswer = {
            "version": info.version,
            "pid": info.pid,
            "started_at": info.started_at,
            "workers": info.workers,
            "busy": memory.running,
            "paused": memory.paused,
            "draining": memory.draining,
            "counts": counts,
            "running": rows.running,
            "failed": rows.failed,
            "health": health,
            "state_dir": info.state_dir,
        }
        return json_response(answer)

    return router
