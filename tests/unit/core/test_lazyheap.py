"""The lazy heap against a sorted list, with records that come back under the keys of their old selves."""

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as some

from schedd.core.lazyheap import SLACK, LazyHeap
from schedd.core.model import OpenTask, RetryPolicy


def record(seq: int) -> OpenTask:
    return OpenTask(seq, str(seq), 0, RetryPolicy(), None, 0.0)


def is_bounded(heap: LazyHeap) -> bool:
    return heap.stale() <= len(heap) + SLACK


class TestOrder:
    """Smallest `(key, seq)` first."""

    def test_keys_come_first_and_seqs_break_ties(self):
        """What was submitted first goes first among equals."""
        heap = LazyHeap()
        for key, seq in [(2, 1), (1, 5), (1, 3), (0, 9), (1, 4)]:
            heap.push(key, record(seq))
        assert [task.seq for task in iter(heap.pop, None)] == [9, 3, 4, 5, 1]

    def test_an_empty_heap_has_nothing_to_give(self):
        """Neither peek nor pop raises."""
        heap = LazyHeap()
        assert heap.peek() is None
        assert heap.pop() is None
        assert len(heap) == 0

    def test_a_pushed_record_moves_to_its_new_key(self):
        """A record is in it at most once, under the last key it was given."""
        heap = LazyHeap()
        one, two = record(1), record(2)
        heap.push(1, one)
        heap.push(2, two)
        heap.push(3, one)
        assert len(heap) == 2
        assert heap.pop() is two
        assert heap.pop() is one
        assert heap.pop() is None

    def test_peek_takes_nothing(self):
        """It tells key, seq and record of what pop would give."""
        heap = LazyHeap()
        task = record(7)
        heap.push(1.5, task)
        assert heap.peek() == (1.5, 7, task)
        assert task in heap
        assert heap.key_of(task) == 1.5
        assert heap.pop() is task
        assert task not in heap
        assert heap.key_of(task) is None


class TestRevived:
    """Another record under the same seq and key, as after an operator's retry."""

    def test_the_revived_record_is_what_comes_out(self):
        """Its old self, discarded under the same key, is not mistaken for it."""
        heap = LazyHeap()
        old, revived = record(1), record(1)
        heap.push(5, old)
        heap.discard(old)
        heap.push(5, revived)
        assert old not in heap
        assert (heap.key_of(old), heap.key_of(revived)) == (None, 5)
        assert heap.pop() is revived
        assert heap.pop() is None

    def test_discarding_the_old_record_leaves_the_revived_one(self):
        """Nothing happens if a record is not there, even if another with its seq is."""
        heap = LazyHeap()
        old, revived = record(1), record(1)
        heap.push(5, old)
        heap.discard(old)
        heap.push(5, revived)
        heap.discard(old)
        assert revived in heap
        assert heap.pop() is revived

    def test_pushing_the_revived_record_replaces_its_old_self(self):
        """There is one entry for a seq: the last."""
        heap = LazyHeap()
        old, revived = record(1), record(1)
        heap.push(5, old)
        heap.push(5, revived)
        assert list(heap) == [revived]
        assert heap.pop() is revived
        assert heap.pop() is None


class TestPruning:
    """Stale entries never outnumber the live ones by more than a little."""

    def test_discards_do_not_pile_up(self):
        """A thousand that went leave at most the slack behind."""
        heap = LazyHeap()
        tasks = [record(seq) for seq in range(1_000)]
        for task in tasks:
            heap.push(1, task)
        for task in tasks:
            heap.discard(task)
            assert is_bounded(heap)
        assert heap.stale() <= SLACK

    def test_moves_do_not_pile_up(self):
        """One record moved a thousand times is one record and at most a little more than the slack."""
        heap = LazyHeap()
        task = record(1)
        for key in range(1_000, 0, -1):
            heap.push(key, task)
            assert is_bounded(heap)
        assert len(heap) == 1

    def test_pops_above_stale_entries_do_not_break_the_bound(self):
        """What is popped makes fewer live ones, so the stale ones below must go too."""
        heap = LazyHeap()
        live = [record(seq) for seq in range(100)]
        gone = [record(seq) for seq in range(100, 264)]
        for task in live:
            heap.push(1, task)
        for task in gone:
            heap.push(2, task)
        for task in gone:
            heap.discard(task)
        assert heap.stale() > SLACK, "there must be something to prune"
        for task in live:
            assert heap.pop() is task
            assert is_bounded(heap)


class TestAgainstASortedList:
    """Whatever is done to it, it is a sorted list."""

    @settings(max_examples=150, deadline=None, derandomize=True)
    @given(some.lists(some.tuples(some.integers(0, 3), some.integers(0, 5), some.integers(0, 2)), max_size=60))
    def test_it_does_what_a_sorted_list_does(self, steps: list[tuple[int, int, int]]):
        """Push, discard, revive and pop, over few seqs and keys, so that both meet often."""
        self.compare(steps)

    @pytest.mark.parametrize("seed", range(5))
    def test_it_does_so_when_much_is_pruned(self, seed: int):
        """Long runs over many seqs, where the heap is rebuilt again and again."""
        chance = random.Random(seed)
        self.compare([(chance.choice((0, 0, 0, 1, 1, 2, 3)), chance.randrange(200), chance.randrange(4))
                      for _ in range(2_000)])  # fmt: skip

    @staticmethod
    def compare(steps: list[tuple[int, int, int]]) -> None:
        heap, model = LazyHeap(), {}
        records = {seq: record(seq) for seq in range(200)}
        for kind, seq, key in steps:
            task = records[seq]
            if kind == 0:
                heap.push(key, task)
                model[seq] = (key, seq, task)
            elif kind == 1:
                heap.discard(task)
                model.pop(seq, None)
            elif kind == 2:
                records[seq] = record(seq)  # the old self may still be in there, and must stay in there
                if seq in model:
                    heap.push(key, records[seq])
                    model[seq] = (key, seq, records[seq])
            else:
                expected = min(model.values(), default=None)
                assert heap.pop() is (expected and expected[2])
                if expected:
                    del model[expected[1]]
            expected = min(model.values(), default=None)
            assert heap.peek() == expected
            assert len(heap) == len(model)
            assert is_bounded(heap)
        assert sorted(heap) == sorted(entry[2] for entry in model.values())
        assert [task.seq for task in iter(heap.pop, None)] == [seq for _, seq, _ in sorted(model.values())]
