"""Tasks: a page of them, one of them, and what may be done to them. Tests: tests/api/test_task_routes.py."""

import heapq
from collections.abc import Callable

from fastapi import APIRouter, Request, Response
from pydantic import Field

from schedd.answers import DependAnswer, ResultsAnswer, RetryAnswer, TaskDetail, TasksAnswer, TaskView, UndependAnswer
from schedd.api.backend import Backend
from schedd.api.body import Query, read_query
from schedd.api.openapi import DEPEND_BODY, IDS_BODY, RETRY_BODY, UNDEPEND_BODY, documented
from schedd.api.problems import ApiError, answer
from schedd.api.views import task_detail, task_views
from schedd.core import limits
from schedd.core.machine import Machine
from schedd.core.model import Status
from schedd.engine.inbox import Request as EngineRequest
from schedd.engine.requests import CancelTasks, DependTasks, HoldTasks, UndependTasks
from schedd.engine.retrying import RetryTasks
from schedd.wire import parse_depend, parse_ids, parse_retry, parse_undepend

MAX_PAGE = 1_000
MAX_READINGS = 20
"""How many times rows are read for one page: where most of what is read is not asked for, pages come shorter."""

_ON_MANY = ("unknown_task", "already_ended", "key_reused")
_ON_RETRY = (
    "unknown_task", "already_ended", "not_ended", "cycle", "invalid", "unknown_resource", "over_capacity", "key_reused"
)  # fmt: skip
_ON_EDGE = ("unknown_task", "self_dependency", "cycle", "already_ended", "already_started", "key_reused")


class TasksQuery(Query):
    """Which tasks, and which page of them."""

    status: list[Status] = Field(default=[], description="Tasks in any of these states; may be repeated.")
    batch: str | None = Field(default=None, description="Tasks of the batch with this full name.")
    id: list[str] = Field(
        default=[],
        description="Tasks with any of these full ids; may be repeated.",
        max_length=limits.MAX_IDS_PER_REQUEST,
    )
    limit: int = Field(default=100, ge=1, le=MAX_PAGE, description="How many at most.")
    after: int = Field(default=0, ge=0, le=limits.MAX_INTEGER, description="The `next` of the page before.")


class TaskQuery(Query):
    """Which task."""

    id: str = Field(description="The full id of a task.")


def routes(backend: Backend) -> APIRouter:
    """Look, and act."""
    router = APIRouter(tags=["tasks"])

    @router.get("/v1/tasks", summary="A page of tasks", **documented(TasksAnswer, query=TasksQuery))
    async def tasks(request: Request) -> Response:
        return answer(await _page(backend, read_query(TasksQuery, request)))

    @router.get(
        "/v1/task", summary="All about one task", **documented(TaskDetail, query=TaskQuery, codes=["unknown_task"])
    )
    async def task(request: Request) -> Response:
        task_id = read_query(TaskQuery, request).id
        row = await backend.read(lambda: backend.reads.task(task_id))
        if row is None:
            raise unknown_task(task_id)
        return answer(await task_detail(backend, row))

    def act_on_many(verb: str, summary: str, parse: Callable[[bytes], EngineRequest]) -> None:
        @router.post(
            f"/v1/{verb}",
            name=verb,
            summary=summary,
            **documented(ResultsAnswer, body=IDS_BODY, codes=_ON_MANY),
        )
        async def act(request: Request) -> Response:
            return await backend.change(request, parse)

    act_on_many("cancel", "Cancel tasks, running or not", lambda body: CancelTasks(parse_ids(body)))
    act_on_many("hold", "Keep tasks from starting", lambda body: HoldTasks(parse_ids(body), held=True))
    act_on_many("release", "Undo holds", lambda body: HoldTasks(parse_ids(body), held=False))

    @router.post(
        "/v1/depend",
        summary="Let one task wait for another",
        **documented(DependAnswer, body=DEPEND_BODY, codes=_ON_EDGE),
    )
    async def depend(request: Request) -> Response:
        return await backend.change(request, lambda body: DependTasks(*parse_depend(body)))

    @router.post(
        "/v1/undepend",
        summary="Let one task wait for another no longer",
        **documented(UndependAnswer, body=UNDEPEND_BODY, codes=_ON_EDGE),
    )
    async def undepend(request: Request) -> Response:
        return await backend.change(request, lambda body: UndependTasks(*parse_undepend(body)))

    @router.post(
        "/v1/retry",
        summary="Run ended tasks again",
        **documented(RetryAnswer, body=RETRY_BODY, codes=_ON_RETRY),
    )
    async def retry(request: Request) -> Response:
        return await backend.change(request, _retrying)

    return router


def _retrying(body: bytes) -> RetryTasks:
    asked = parse_retry(body)
    return RetryTasks(
        tuple(asked["ids"]),
        asked.get("downstream", False),
        asked.get("only_failed", False),
        asked.get("dry_run", False),
    )


def unknown_task(task_id: str) -> ApiError:
    """The refusal for an id that nobody has."""
    return ApiError("unknown_task", f"there is no task {task_id!r}; `schedctl list` shows those there are")


async def _page(backend: Backend, query: TasksQuery) -> TasksAnswer:
    if set(query.status) == {Status.READY}:
        return await _ready_page(backend, query)
    wanted = {status.value for status in query.status or Status}
    stored = {Status.PENDING.value if status == Status.READY else status for status in wanted}
    shown: list[TaskView] = []
    after = query.after
    for _ in range(MAX_READINGS):
        rows = await backend.read(
            lambda after=after: backend.reads.tasks(  # type: ignore[misc]
                statuses=stored if query.status else (), batch=query.batch, ids=query.id, after=after, limit=query.limit
            )
        )
        views = [view for view in await task_views(backend, rows) if view["status"] in wanted]
        room = query.limit - len(shown)
        shown += views[:room]
        if len(views) > room:
            return {"tasks": shown, "next": shown[-1]["seq"]}
        if len(rows) < query.limit:
            return {"tasks": shown, "next": None}
        after = rows[-1]["seq"]
        if len(shown) == query.limit:
            break
    return {"tasks": shown, "next": after}


async def _ready_page(backend: Backend, query: TasksQuery) -> TasksAnswer:
    """Ready tasks, as the engine knows them."""
    prefix = "" if query.batch is None else f"{query.batch}/"
    ids = set(query.id)

    def question(machine: Machine) -> list[int]:
        seqs = (
            task.seq
            for task in machine.ready
            if task.seq > query.after and task.id.startswith(prefix) and (not ids or task.id in ids)
        )
        return heapq.nsmallest(query.limit + 1, seqs)

    seqs = await backend.ask(question)
    page = seqs[: query.limit]
    rows = await backend.read(lambda: backend.reads.tasks_by_seqs(page))
    views = [view for view in await task_views(backend, rows) if view["status"] == Status.READY]
    return {"tasks": views, "next": page[-1] if len(seqs) > query.limit else None}
