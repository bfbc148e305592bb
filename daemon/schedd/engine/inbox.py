"""The one way into the engine thread: facts, calls and questions, in the order of their arrival.

Tests: tests/unit/engine/test_inbox.py.
"""

import queue
import time
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any, Protocol

from schedd.core.events import AttemptEnded, AttemptSpawned, ClockStepped, DrainBegan, DrainExpired, WorkersChanged

MAX_ROUND_MESSAGES = 1_000
"""How much one round takes at once: enough to share a commit widely, bounded so that no round is endless."""

Fact = AttemptEnded | AttemptSpawned | ClockStepped | DrainBegan | DrainExpired | WorkersChanged


class Request(Protocol):
    """Something that changes rows on behalf of a caller. See `requests.py`."""

    def apply(self, round_: Any) -> Any:
        """Do it within a round; the answer is JSON-able. Raises Refused, and then nothing has changed."""


@dataclass(slots=True)
class Call:
    """A request with the future of its answer.

    With a `key` it is answered once and for all: repeated with the same `digest` it gets the same answer.
    """

    request: Request
    future: "Future[Any]" = field(default_factory=Future)
    key: str | None = None
    digest: str = ""
    arrived: float = field(default_factory=time.monotonic)


@dataclass(slots=True)
class Question:
    """Something to ask of the machine between rounds: `ask(machine)` reads and never writes."""

    ask: Callable[[Any], Any]
    future: "Future[Any]" = field(default_factory=Future)


Message = Fact | Call | Question


class Inbox:
    """A queue that one thread waits on. `post` may be called from any thread and never blocks."""

    def __init__(self) -> None:
        self._queue: queue.SimpleQueue[Message | None] = queue.SimpleQueue()

    def post(self, message: Message) -> None:
        """Hand a message over."""
        self._queue.put(message)

    def wake(self) -> None:
        """Let the engine look at its clock and its flags now."""
        self._queue.put(None)

    def wait(self, timeout_s: float | None) -> list[Message]:
        """What has arrived, oldest first; waits for the first one up to `timeout_s` (None: for ever)."""
        messages: list[Message] = []
        try:
            first = self._queue.get(timeout=timeout_s)
            if first is not None:
                messages.append(first)
            while len(messages) < MAX_ROUND_MESSAGES:
                following = self._queue.get_nowait()
                if following is not None:
                    messages.append(following)
        except queue.Empty:
            pass
        return messages

    def __len__(self) -> int:
        return self._queue.qsize()
