"""The output of an attempt, streamed from its file. Tests: tests/api/test_log_routes.py."""

import asyncio
import json
import os
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any, Literal

from fastapi import APIRouter, Request, Response
from fastapi.responses import StreamingResponse
from pydantic import Field

from schedd.api.backend import Backend
from schedd.api.body import Query, read_query
from schedd.api.openapi import documented
from schedd.api.problems import ApiError
from schedd.api.routes_tasks import unknown_task
from schedd.core import limits
from schedd.core.machine import Machine
from schedd.engine.loop import Unavailable
from schedd.workers.logfiles import HAVE_LOGS

CHUNK_BYTES = 65_536
POLL_S = 0.2
"""How often the file is looked at while a client follows it."""

MEDIA_TYPE = "application/octet-stream"


class LogQuery(Query):
    """Which output, from where on."""

    id: str = Field(description="The full id of a task.")
    attempt: int | None = Field(
        default=None, ge=1, le=limits.MAX_INTEGER, description="The `number` of an attempt; the last one without it."
    )
    offset: int = Field(default=0, ge=0, le=limits.MAX_INTEGER, description="The byte to begin at.")
    follow: Literal["0", "1"] = Field(default="0", description="1: go on while the attempt runs, and end with it.")


def routes(backend: Backend) -> APIRouter:
    """One stream."""
    router = APIRouter(tags=["logs"])

    @router.get(
        "/v1/log",
        summary="The output of an attempt",
        response_class=StreamingResponse,
        **documented(MEDIA_TYPE, query=LogQuery, codes=["unknown_task", "unknown_attempt", "log_missing"]),
    )
    async def log(request: Request) -> Response:
        query = read_query(LogQuery, request)
        seq, number, path = await _find(backend, query)
        chunks = _Log(backend, path, query.offset)
        return StreamingResponse(
            chunks.follow(seq, number) if query.follow == "1" else chunks.rest(),
            media_type=MEDIA_TYPE,
            headers={"X-Schedd-Attempt": str(number)},
        )

    return router


async def _find(backend: Backend, query: LogQuery) -> tuple[int, int, Path]:
    """The seq of the task, the number of the attempt and where its log is. Raises ApiError."""
    row = await backend.read(lambda: backend.reads.task(query.id))
    if row is None:
        raise unknown_task(query.id)
    last: int = row["number"]
    number = last if query.attempt is None else query.attempt
    if not last:
        raise ApiError("unknown_attempt", f"{query.id} has not been started yet, so it has no output")
    if number > last:
        raise ApiError("unknown_attempt", f"{query.id} has no attempt {number}; its last one is {last}")
    path = backend.log_path(row["seq"], number)
    if not _in_thread(row) and await backend.read(lambda: _is_missing(backend, row["seq"], number, path)):
        raise ApiError(
            "log_missing",
            f"the log of attempt {number} of {query.id} is not there any more ({path}): it was removed, or the "
            "database was restored from a backup, which holds no logs",
        )
    return row["seq"], number, path


def _in_thread(row: Mapping[str, Any]) -> bool:
    """Whether a task is a function in a thread of the daemon, which has a log only if it had something to say."""
    try:
        work = json.loads(row["payload"])
    except ValueError:
        return False
    return isinstance(work, dict) and work.get("isolation") == "thread"


def _is_missing(backend: Backend, seq: int, number: int, path: Path) -> bool:
    """The outcome first: what has ended had its file before."""
    return backend.reads.outcome(seq, number) in HAVE_LOGS and not os.path.lexists(path)


class _Log:
    """The file of one attempt, read chunk by chunk in the threads that read rows. It need not exist: an attempt that
    wrote nothing may have none.
    """

    def __init__(self, backend: Backend, path: Path, offset: int) -> None:
        self._backend = backend
        self._path = path
        self._offset = offset

    async def rest(self) -> AsyncIterator[bytes]:
        """What is there from the offset on, up to the size the file has now: an attempt may write faster than a
        client reads.
        """
        size = await self._backend.read(self._size)
        while chunk := await self._backend.read(lambda: self._chunk(size - self._offset)):
            self._offset += len(chunk)
            yield chunk

    async def follow(self, seq: int, number: int) -> AsyncIterator[bytes]:
        """The same, and what is added, until the attempt has ended and all is sent."""
        running = True
        with self._backend.feed.follow(seq, number) as follower:
            while True:
                if follower.must_ask:  # before the reading: what an ended attempt wrote is all there
                    follower.must_ask = False
                    try:
                        running = await self._runs(seq, number)
                    except Unavailable:
                        follower.must_ask = True
                async for chunk in self.rest():
                    yield chunk
                if not running or self._backend.feed.closed:
                    return
                await asyncio.sleep(POLL_S)

    async def _runs(self, seq: int, number: int) -> bool:
        def question(machine: Machine) -> bool:
            task = machine.running.get(seq)
            return task is not None and task.number == number

        return await self._backend.ask(question)

    def _size(self) -> int:
        try:
            return self._path.stat().st_size
        except FileNotFoundError:
            return 0

    def _chunk(self, wanted: int) -> bytes:
        if wanted <= 0:
            return b""
        descriptor = os.open(self._path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
        try:
            return os.pread(descriptor, min(wanted, CHUNK_BYTES), self._offset)
        finally:
            os.close(descriptor)
