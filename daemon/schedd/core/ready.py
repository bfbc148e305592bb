"""The ready queue: one heap for each distinct demand, so that what does not fit never hides what does.

Tests: tests/unit/core/test_ready.py.
"""

from collections.abc import Iterator
from typing import Any

from schedd.core.lazyheap import Entry, LazyHeap
from schedd.core.model import Demand, OpenTask


class ReadyQueue:
    """Records ordered by `(key, seq)` within their demand. push and discard are amortised O(log n), `heads` is
    O(d log d) for d distinct demands among what is ready.

    `passed` holds, by seq, since when the best task was passed over for want of a resource.
    """

    __slots__ = ("_heaps", "passed")

    def __init__(self) -> None:
        self._heaps: dict[Demand, LazyHeap] = {}
        self.passed: dict[int, float] = {}

    def __len__(self) -> int:
        return sum(map(len, self._heaps.values()))

    def __contains__(self, task: OpenTask) -> bool:
        heap = self._heaps.get(task.demand)
        return heap is not None and task in heap

    def __iter__(self) -> Iterator[OpenTask]:
        """All that is ready, in no order."""
        for heap in self._heaps.values():
            yield from heap

    def key_of(self, task: OpenTask) -> Any:
        """The key that a record stands under, or None if it is not there."""
        heap = self._heaps.get(task.demand)
        return None if heap is None else heap.key_of(task)

    def push(self, key: Any, task: OpenTask) -> None:
        """Put a record in."""
        heap = self._heaps.get(task.demand)
        if heap is None:
            heap = self._heaps[task.demand] = LazyHeap()
        heap.push(key, task)

    def discard(self, task: OpenTask) -> None:
        """Take a record out; nothing happens if it is not there."""
        heap = self._heaps.get(task.demand)
        if heap is not None and task in heap:
            heap.discard(task)
            if not heap:
                del self._heaps[task.demand]
            if self.passed:
                self.passed.pop(task.seq, None)

    def heads(self) -> list[Entry]:
        """The best of each demand, best first."""
        if len(self._heaps) == 1:
            (heap,) = self._heaps.values()
            head = heap.peek()
            return [] if head is None else [head]
        return sorted(head for heap in self._heaps.values() if (head := heap.peek()) is not None)

    def stale(self) -> int:
        """How many entries are only waiting to be dropped."""
        return sum(heap.stale() for heap in self._heaps.values())

    def heaps(self) -> int:
        """How many demands have a heap."""
        return len(self._heaps)
