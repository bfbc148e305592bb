"""Removing what has ended. Tests: tests/api/test_prune_routes.py."""

import time

from fastapi import APIRouter, Request, Response

from schedd.answers import PruneAnswer
from schedd.api.backend import Backend
from schedd.api.body import read_body
from schedd.api.openapi import PRUNE_BODY, documented
from schedd.api.problems import answer
from schedd.retention import Policy, Pruner
from schedd.wire import parse_prune

BUDGET_S = 2.0
"""How long one request removes: the client asks again while there is more."""


def routes(backend: Backend) -> APIRouter:
    """The pruning of history."""
    router = APIRouter(tags=["admin"])
    pruner = Pruner(backend.engine, backend.reads, backend.remove_logs)

    @router.post("/v1/prune", summary="Remove tasks that ended long ago", **documented(PruneAnswer, body=PRUNE_BODY))
    async def prune(request: Request) -> Response:
        asked = parse_prune(await read_body(request))
        policy = Policy(time.time() - asked["older_than"], asked.get("keep_last", 0))

        def work() -> PruneAnswer:
            if asked.get("dry_run"):
                return {"tasks": pruner.count(policy), "lines": 0, "more": False}
            removed = pruner.run(policy, BUDGET_S)
            return {"tasks": removed.tasks, "lines": removed.lines, "more": removed.more}

        return answer(await backend.read(work))

    return router
