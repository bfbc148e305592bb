"""A batch that may be accepted: names are unique, dependencies resolved as far as the batch goes, no cycle.

An object of `NewBatch` that exists has passed its checks, so nothing that holds one has to repeat them.
Tests: tests/unit/core/test_batch.py.
"""

from collections.abc import Collection, Sequence

from schedd.core import graph, limits
from schedd.core.errors import CycleError, DuplicateId, InvalidRequest, SelfDependency, UnknownDependency
from schedd.core.model import Dependency, NewTask, When, check_id


class NewBatch:
    """The tasks of one submission, checked.

    `parents[i]` holds `(index, when)` for each dependency of task i within the batch, `external[i]` (absent when
    empty) those on tasks that must exist already. Raises InvalidRequest, DuplicateId, SelfDependency or CycleError.
    """

    __slots__ = ("external", "name", "parents", "tasks")

    def __init__(self, tasks: Sequence[NewTask], name: str | None = None) -> None:
        if name is not None:
            check_id(name, "batch name", limits.MAX_BATCH_NAME_CHARS)
        if not tasks:
            raise InvalidRequest("a batch needs at least one task")
        if len(tasks) > limits.MAX_TASKS_PER_BATCH:
            raise InvalidRequest(
                f"a batch may hold at most {limits.MAX_TASKS_PER_BATCH} tasks, not {len(tasks)}; submit it in parts"
            )
        self.name = name
        self.tasks = tuple(tasks)
        self.parents: list[list[tuple[int, When]]] = []
        self.external: dict[int, list[Dependency]] = {}
        self._resolve(_index_by_name(self.tasks))
        found = graph.find_cycle([[index for index, _ in of_task] for of_task in self.parents])
        if found:
            path, stuck = found
            raise CycleError([self.label(index) for index in path], stuck)

    def label(self, index: int) -> str:
        """What to call a task of the batch in a message."""
        return self.tasks[index].name or f"task {index + 1}"

    def check_known(self, known: Collection[str]) -> None:
        """Raises UnknownDependency unless every external dependency is among the `known` ids."""
        for index, dependencies in self.external.items():
            for dependency in dependencies:
                if dependency.on not in known:
                    raise UnknownDependency(
                        f"{self.label(index)} depends on {dependency.on!r}, which is neither a task of this batch "
                        "nor a known one"
                    )

    def _resolve(self, index_of: dict[str, int]) -> None:
        for index, task in enumerate(self.tasks):
            local: dict[int, When] = {}
            outside: dict[str, Dependency] = {}
            for dependency in task.deps:
                parent = index_of.get(dependency.on)
                if parent == index:
                    raise SelfDependency(f"{self.label(index)} cannot depend on itself")
                earlier = local.get(parent) if parent is not None else None
                if parent is None:
                    seen = outside.setdefault(dependency.on, dependency)
                    earlier = seen.when
                elif earlier is None:
                    local[parent] = dependency.when
                if earlier is not None and earlier is not dependency.when:
                    raise InvalidRequest(
                        f"{self.label(index)} lists {dependency.on} twice, as `{earlier}` and as `{dependency.when}`"
                    )
            self.parents.append(list(local.items()))
            if outside:
                self.external[index] = list(outside.values())


def _index_by_name(tasks: Sequence[NewTask]) -> dict[str, int]:
    index_of: dict[str, int] = {}
    for index, task in enumerate(tasks):
        if task.name is None:
            continue
        if index_of.setdefault(task.name, index) != index:
            raise DuplicateId(f"two tasks of this batch have the id {task.name!r}; each needs its own")
    return index_of
