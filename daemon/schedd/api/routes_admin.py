"""What an admin asks of the daemon who may not read its files. Tests: tests/api/test_admin_routes.py."""

from functools import partial
from pathlib import Path

import anyio
import anyio.to_thread
from fastapi import APIRouter, Request, Response

from schedd.answers import CheckAnswer
from schedd.api.backend import Backend
from schedd.api.body import Query, read_query
from schedd.api.openapi import documented
from schedd.api.problems import ApiError, answer
from schedd.checkup import NotAStateDir, check_state_dir


class NoCheckParameters(Query):
    """A route that takes no parameters."""


def routes(backend: Backend) -> APIRouter:
    """The check of the state directory."""
    router = APIRouter(tags=["admin"])
    one_at_a_time = anyio.CapacityLimiter(1)  # it may read for minutes: neither two at once nor in the readers' way

    @router.get("/v1/check", summary="Whether its files are sound", **documented(CheckAnswer, query=NoCheckParameters))
    async def check(request: Request) -> Response:
        read_query(NoCheckParameters, request)
        look = partial(check_state_dir, Path(backend.info.state_dir))
        try:
            return answer(await anyio.to_thread.run_sync(look, limiter=one_at_a_time))
        except (NotAStateDir, PermissionError) as error:
            raise ApiError("unavailable", f"the state directory cannot be checked: {error}") from error

    return router
