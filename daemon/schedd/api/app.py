"""The HTTP application: the routes of every noun on one backend, problems for all that goes wrong, OpenAPI.

What it promises to callers is docs/api.md. Tests: tests/api.
"""

from typing import Any

from fastapi import FastAPI

from schedd.api import (
    openapi,
    problems,
    routes_admin,
    routes_batches,
    routes_daemon,
    routes_events,
    routes_logs,
    routes_prune,
    routes_tasks,
    routes_waits,
)
from schedd.api.backend import Backend, Info

_NOUNS = (
    routes_daemon,
    routes_batches,
    routes_tasks,
    routes_waits,
    routes_logs,
    routes_events,
    routes_admin,
    routes_prune,
)


def create_app(backend: Backend) -> FastAPI:
    """The application for `api.server.ApiServer`, which calls `app.state.on_stop` when a stop begins."""
    app = FastAPI(
        title="schedd",
        version=backend.info.version,
        description="A persistent, restart-safe task scheduler for one machine. See docs/api.md.",
        openapi_url="/v1/openapi.json",
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
    )
    app.state.on_stop = backend.feed.close
    problems.install(app)
    for noun in _NOUNS:
        app.include_router(noun.routes(backend))
    made: list[dict[str, Any]] = []

    def description() -> dict[str, Any]:
        if not made:
            made.append(openapi.describe(app))
        return made[0]

    app.openapi = description  # type: ignore[method-assign]  # FastAPI's own way to replace it
    return app


__all__ = ["Backend", "Info", "create_app"]
