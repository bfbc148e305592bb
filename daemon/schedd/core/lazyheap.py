"""A heap whose entries may go stale in place: the structure under both the ready and the delayed queue.

Taking a task out of the middle of a heap is O(n); here it only stops being *live*, and its entry is dropped when it
comes to the top. When stale entries outnumber live ones the heap is rebuilt, so that it never holds more than about
twice what lives. Tests: tests/unit/core/test_lazyheap.py.
"""

import heapq
from collections.abc import Iterator
from typing import Any

from schedd.core.model import OpenTask

Entry = tuple[Any, int, OpenTask]
SLACK = 64
"""How many stale entries are not worth a rebuild, however few live ones there are."""


class LazyHeap:
    """Records ordered by `(key, seq)`, smallest first. A record is in it at most once.

    push, pop, discard and peek are amortised O(log n). An entry lives while it is the one that `_live`
    holds for its seq: identity, so that a record that was revived under the same key is not mistaken for its old self.
    """

    __slots__ = ("_entries", "_live")

    def __init__(self) -> None:
        self._entries: list[Entry] = []
        self._live: dict[int, Entry] = {}

    def __len__(self) -> int:
        return len(self._live)

    def __contains__(self, task: OpenTask) -> bool:
        entry = self._live.get(task.seq)
        return entry is not None and entry[2] is task

    def __iter__(self) -> Iterator[OpenTask]:
        """What lives, in no order."""
        return (entry[2] for entry in self._live.values())

    def key_of(self, task: OpenTask) -> Any:
        """The key that a record stands under, or None if it is not there."""
        return self._live[task.seq][0] if task in self else None

    def push(self, key: Any, task: OpenTask) -> None:
        """Put a record in, or move it to another key."""
        entry = (key, task.seq, task)
        self._live[task.seq] = entry
        heapq.heappush(self._entries, entry)
        self._prune()

    def discard(self, task: OpenTask) -> None:
        """Take a record out; nothing happens if it is not there."""
        if task in self:
            del self._live[task.seq]
            self._prune()

    def peek(self) -> Entry | None:
        """The smallest `(key, seq, record)`, or None."""
        entries = self._entries
        while entries:
            entry = entries[0]
            if self._live.get(entry[1]) is entry:
                return entry
            heapq.heappop(entries)
        return None

    def pop(self) -> OpenTask | None:
        """Take out the record with the smallest key, or None."""
        entry = self.peek()
        if entry is None:
            return None
        heapq.heappop(self._entries)
        del self._live[entry[1]]
        self._prune()
        return entry[2]

    def stale(self) -> int:
        """How many entries are only waiting to be dropped."""
        return len(self._entries) - len(self._live)

    def _prune(self) -> None:
        if self.stale() > len(self._live) + SLACK:
            self._entries = list(self._live.values())
            heapq.heapify(self._entries)
