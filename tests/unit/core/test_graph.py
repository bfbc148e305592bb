"""Cycles of batches and paths of live graphs, compared with naive methods on random graphs."""

from collections.abc import Sequence
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as some

from schedd.core.graph import children_of, find_cycle, find_path
from schedd.core.model import OpenTask, RetryPolicy, Status

CHAIN = 100_000


def reached(parents: Sequence[Sequence[int]]) -> list[set[int]]:
    """Naively: from each node, all that can be reached by one or more steps to a parent."""
    reach = [set(of_node) for of_node in parents]
    changed = True
    while changed:
        changed = False
        for node in range(len(parents)):
            more = set().union(reach[node], *(reach[parent] for parent in reach[node]))
            changed = changed or more != reach[node]
            reach[node] = more
    return reach


def record(seq: int) -> OpenTask:
    return OpenTask(seq, f"n{seq}", 0, RetryPolicy(), None, 0.0)


def link(parent: OpenTask, child: OpenTask, kind: str = "children") -> None:
    setattr(parent, kind, [*(getattr(parent, kind) or []), child])


@some.composite
def graphs(draw: some.DrawFn, most: int = 12) -> list[list[int]]:
    """Parents by node, without self-dependencies (a batch refuses those before it looks for cycles)."""
    size = draw(some.integers(1, most))
    node = some.integers(0, size - 1)
    edges = draw(some.sets(some.tuples(node, node), max_size=size * 2))
    return [sorted(parent for child, parent in edges if child == index != parent) for index in range(size)]


class TestFindCycle:
    """One exact cycle and the number of tasks behind it."""

    @pytest.mark.parametrize("parents", [[], [[]], [[], [0]], [[], [0], [0], [1, 2]], [[1], []]])
    def test_a_graph_without_one_has_none(self, parents: list[list[int]]):
        """Nothing, a single task, a chain either way, a diamond."""
        assert find_cycle(parents) is None

    def test_the_path_reads_x_depends_on_y(self):
        """a depends on c, b on a, c on b, d on c: a -> c -> b -> a, and d is stuck behind it."""
        assert find_cycle([[2], [0], [1], [2]]) == ([0, 2, 1, 0], 1)

    def test_a_self_dependency_is_a_cycle_of_one(self):
        """The shortest path goes from a node to itself."""
        assert find_cycle([[], [1]]) == ([1, 1], 0)

    def test_tasks_before_a_cycle_are_not_stuck(self):
        """What the cycle depends on could run; only what waits for it is counted."""
        assert find_cycle([[], [0, 2], [1], [2], [3]]) == ([1, 2, 1], 2)

    def test_of_two_cycles_one_is_named_and_both_are_counted(self):
        """Tasks of the other cycle could never start either."""
        path, stuck = find_cycle([[1], [0], [3], [2]]) or ([], 0)
        assert path == [0, 1, 0]
        assert stuck == 2

    def test_a_path_leads_around_what_only_hangs_on_the_cycle(self):
        """The walk may begin at a task that is stuck, which is then not part of the path."""
        assert find_cycle([[1], [2], [1]]) == ([1, 2, 1], 1)

    @settings(max_examples=150, deadline=None, derandomize=True)
    @given(graphs())
    def test_it_agrees_with_a_naive_search(self, parents: list[list[int]]):
        """There is a cycle if some node reaches itself; the path is a real one; stuck are all that reach one."""
        reach = reached(parents)
        on_cycles = {node for node in range(len(parents)) if node in reach[node]}
        found = find_cycle(parents)
        assert (found is None) == (not on_cycles)
        if found is None:
            return
        path, stuck = found
        assert path[0] == path[-1] == min(path)
        assert len(set(path)) == len(path) - 1
        assert all(parent in parents[node] for node, parent in pairwise(path))
        doomed = {node for node in range(len(parents)) if on_cycles & ({node} | reach[node])}
        assert stuck == len(doomed) - len(set(path))

    def test_depth_takes_no_recursion(self, shallow_stack):
        """A cycle through a hundred thousand tasks is named whole."""
        parents = [[index - 1] for index in range(CHAIN)]
        parents[0] = [CHAIN - 1]
        with shallow_stack():
            path, stuck = find_cycle(parents) or ([], 0)
        assert path == [0, *range(CHAIN - 1, -1, -1)]
        assert stuck == 0


class TestFindPath:
    """From a record down its children to another."""

    def test_a_record_reaches_itself_at_once(self):
        """The path of one."""
        task = record(1)
        assert find_path(task, task) == [task]

    @pytest.mark.parametrize("kind", ["children", "children_if_failed", "children_if_finished"])
    def test_every_kind_of_edge_is_followed(self, kind: str):
        """A cycle through an edge of any `when` is a cycle."""
        one, two, three = record(1), record(2), record(3)
        link(one, two, kind)
        link(two, three, kind)
        assert find_path(one, three) == [one, two, three]
        assert find_path(three, one) is None

    def test_a_settled_record_leads_nowhere(self):
        """Edges through what has ended are no longer waited for."""
        one, two, three = record(1), record(2), record(3)
        link(one, two)
        link(two, three)
        two.status = Status.SKIPPED
        assert find_path(one, three) is None

    def test_children_are_those_of_all_three_kinds(self):
        """In the order of the kinds."""
        one, two, three, four = (record(seq) for seq in range(1, 5))
        link(one, four, "children_if_finished")
        link(one, two)
        link(one, three, "children_if_failed")
        assert list(children_of(one)) == [two, three, four]
        assert list(children_of(two)) == []

    @settings(max_examples=150, deadline=None, derandomize=True)
    @given(graphs())
    def test_it_agrees_with_a_naive_search(self, parents: list[list[int]]):
        """There is a path exactly where a naive closure says so, and it follows real edges."""
        reach = reached(parents)
        records = [record(index) for index in range(len(parents))]
        for index, of_node in enumerate(parents):
            for parent in of_node:
                link(records[parent], records[index])
        for goal in range(1, len(parents)):
            path = find_path(records[0], records[goal])
            assert (path is not None) == (0 in reach[goal])
            if path is not None:
                assert path[0] is records[0]
                assert path[-1] is records[goal]
                assert all(above.seq in parents[below.seq] for above, below in pairwise(path))

    def test_depth_takes_no_recursion(self, shallow_stack):
        """A path of a hundred thousand steps is found and told whole."""
        chain = [record(seq) for seq in range(CHAIN)]
        for above, below in pairwise(chain):
            above.children = [below]
        with shallow_stack():
            assert find_path(chain[0], chain[-1]) == chain

    def test_only_what_the_start_reaches_is_looked_at(self):
        """A wide graph beside it costs nothing: its records are never asked for their children."""
        start, below, elsewhere = record(1), record(2), record(3)
        link(start, below)
        elsewhere.children = object()  # type: ignore[assignment]  # would raise if it were walked
        assert find_path(start, elsewhere) is None
