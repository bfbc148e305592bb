"""Questions about dependency graphs: is a batch acyclic, would a new edge close a cycle.

Batch graphs are lists of indices, live ones are records that point at their children. Every search here uses an
explicit stack or queue, so depth costs memory and never recursion. Tests: tests/unit/core/test_graph.py.
"""

from collections.abc import Iterator, Sequence

from schedd.core.model import OpenTask


def find_cycle(parents: Sequence[Sequence[int]]) -> tuple[list[int], int] | None:
    """One exact cycle of a batch and how many other tasks are stuck behind one, or None if there is no cycle.

    `parents[i]` lists what task i depends on. The path reads `x depends on y` and repeats its first node at its end;
    it starts at its smallest index. Kahn's algorithm, O(V + E).
    """
    unmet = [len(of_task) for of_task in parents]
    if not any(unmet):
        return None
    children: list[list[int]] = [[] for _ in parents]
    for index, of_task in enumerate(parents):
        for parent in of_task:
            children[parent].append(index)
    free = [index for index, count in enumerate(unmet) if not count]
    for index in free:  # grows while it is walked
        for child in children[index]:
            unmet[child] -= 1
            if not unmet[child]:
                free.append(child)
    stuck = len(parents) - len(free)
    if not stuck:
        return None
    cycle = _walk_back(parents, unmet)
    return cycle, stuck - (len(cycle) - 1)


def _walk_back(parents: Sequence[Sequence[int]], unmet: Sequence[int]) -> list[int]:
    """A cycle among the tasks that Kahn's algorithm left over: from any of them, some parent is left over too."""
    node = next(index for index, count in enumerate(unmet) if count)
    position: dict[int, int] = {}
    path: list[int] = []
    while node not in position:
        position[node] = len(path)
        path.append(node)
        node = next(parent for parent in parents[node] if unmet[parent])
    cycle = path[position[node] :]
    start = cycle.index(min(cycle))
    cycle = cycle[start:] + cycle[:start]
    return [*cycle, cycle[0]]


def children_of(task: OpenTask) -> Iterator[OpenTask]:
    """Every child of an open task, over all three kinds of edge."""
    for edges in (task.children, task.children_if_failed, task.children_if_finished):
        if edges:
            yield from edges


def find_path(start: OpenTask, goal: OpenTask) -> list[OpenTask] | None:
    """The chain of records from `start` down its children to `goal`, both included, or None.

    Looks only at what `start` can reach. O(edges reached).
    """
    if start is goal:
        return [start]
    came_from: dict[int, OpenTask] = {}
    stack = [start]
    while stack:
        task = stack.pop()
        for child in children_of(task):
            if child.seq in came_from or child.status.is_terminal:
                continue
            came_from[child.seq] = task
            if child is goal:
                path = [child]
                while path[-1] is not start:
                    path.append(came_from[path[-1].seq])
                return path[::-1]
            stack.append(child)
    return None
