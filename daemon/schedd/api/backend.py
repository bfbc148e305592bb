"""What the routes stand on: the engine, the rows, the feed; and how the event loop reaches them without ever waiting.

The engine is a thread: requests go to it as calls, questions about what only memory knows as questions. Rows are read
in a few threads of the API's own, large bodies are parsed there too. Tests: tests/api.
"""

import asyncio
import hashlib
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

import anyio
import anyio.to_thread
from fastapi import Request, Response

from schedd.api.body import read_body, read_key
from schedd.api.feed import Feed
from schedd.api.problems import answer
from schedd.core.machine import Machine
from schedd.engine.inbox import Call
from schedd.engine.inbox import Request as EngineRequest
from schedd.engine.loop import Engine, Unavailable
from schedd.store.reads import Reads

READ_THREADS = 4
SMALL_BODY_BYTES = 16_384
"""A body up to this size is parsed in the event loop: sooner done than handed to a thread."""

ASK_PATIENCE_S = 3.0
"""How long the engine may take to answer a question; in the middle of a commit it cannot."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Info:
    """What does not change while the daemon lives. `started_at` is UTC seconds."""

    version: str
    pid: int
    started_at: float
    state_dir: str
    workers: int


@dataclass(frozen=True, slots=True)
class Backend:
    """One daemon as the routes see it. `log_path(seq, number)` is where the output of an attempt is kept, and
    `remove_logs(seq, number)` removes that of a task with `number` attempts.
    """

    engine: Engine
    reads: Reads
    feed: Feed
    log_path: Callable[[int, int], Path]
    remove_logs: Callable[[int, int], None]
    info: Info
    _threads: anyio.CapacityLimiter = field(init=False, default_factory=lambda: anyio.CapacityLimiter(READ_THREADS))

    async def read(self, function: Callable[[], T]) -> T:
        """`function()`, run in one of the threads: for what reads rows or files, or takes long."""
        return await anyio.to_thread.run_sync(function, limiter=self._threads)

    async def ask(self, question: Callable[[Machine], T]) -> T:
        """What the engine answers to `question` between two rounds. Raises Unavailable if it does not in time."""
        asked: asyncio.Future[T] = asyncio.wrap_future(self.engine.ask(question))
        done, _ = await asyncio.wait([asked], timeout=ASK_PATIENCE_S)
        if not done:
            asked.cancel()
            raise Unavailable(f"the engine has not answered for {ASK_PATIENCE_S:g} s; try again")
        return asked.result()

    async def change(self, request: Request, parse: Callable[[bytes], EngineRequest], status: int = 200) -> Response:
        """Carry a changing request out: read it, parse it, hand it to the engine, and answer when it is durable.

        A client that hangs up in the meantime does not undo it. Raises what `parse`, the core and the engine raise.
        """
        key = read_key(request.headers)
        body = await read_body(request)

        def call() -> Call:
            return Call(parse(body), key=key, digest=_digest(request.url.path, body) if key else "")

        made = call() if len(body) <= SMALL_BODY_BYTES else await self.read(call)
        return answer(await asyncio.shield(asyncio.wrap_future(self.engine.call(made))), status)


def _digest(path: str, body: bytes) -> str:
    """What tells a request from another one under the same key."""
    return hashlib.sha256(path.encode() + b"\0" + body).hexdigest()
