"""What an operator's retry brings back: the tasks named, what was skipped only because of them, and, on request, what
ran after them.

`plan` reads the graph of ended tasks through a callback, a generation at a time; `check` judges the plan against the
open graph. Neither changes anything. Tests: tests/unit/core/test_revival.py.
"""

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from schedd.core import graph
from schedd.core.errors import AlreadyEnded, CycleError
from schedd.core.model import Status, StoredEdge, StoredTask, When

if TYPE_CHECKING:
    from schedd.core.machine import Machine


class Kin(NamedTuple):
    """An edge, with what the rows at its two ends say. `has_run` is whether the child has ever had an attempt."""

    task_seq: int
    on_seq: int
    when: When
    status: Status
    on_status: Status
    on_id: str
    has_run: bool

    @property
    def is_blocked(self) -> bool:
        """Whether the parent has ended in a way that never releases the child."""
        return self.on_status.is_terminal and not self.when.is_met_by(self.on_status)


Family = Callable[[Collection[int]], Iterable[Kin]]
"""Every edge that has one of these tasks at either end."""


@dataclass(slots=True)
class Plan:
    """The seqs that come back, and every edge at one of them, by (task_seq, on_seq)."""

    seqs: set[int] = field(default_factory=set)
    edges: dict[tuple[int, int], Kin] = field(default_factory=dict)
    up: dict[int, list[Kin]] = field(default_factory=dict)
    down: dict[int, list[Kin]] = field(default_factory=dict)

    def blockers_of(self, seq: int) -> list[Kin]:
        """The edges that keep a task from coming back: to what has ended otherwise and does not come back itself."""
        return [kin for kin in self.up.get(seq, ()) if kin.is_blocked and kin.on_seq not in self.seqs]

    def look(self, family: Family, seqs: Iterable[int]) -> None:
        """Learn all edges of these tasks."""
        unknown = [seq for seq in seqs if seq not in self.up]
        for seq in unknown:
            self.up[seq], self.down[seq] = [], []
        asked = set(unknown)
        found = {(kin.task_seq, kin.on_seq): kin for kin in (family(unknown) if unknown else ())}
        self.edges.update(found)
        for kin in found.values():
            if kin.task_seq in asked:
                self.up[kin.task_seq].append(kin)
            if kin.on_seq in asked:
                self.down[kin.on_seq].append(kin)


def plan(roots: Collection[int], downstream: bool, family: Family) -> Plan:
    """The closure of `roots`. A root is in it even where its blockers are not: the caller looks at `blockers_of`."""
    made = Plan(set(roots))
    generation = list(roots)
    made.look(family, generation)
    while generation:
        children = {
            kin.task_seq: kin
            for seq in generation
            for kin in made.down[seq]
            if kin.status.is_terminal and kin.task_seq not in made.seqs
        }
        made.look(family, children)
        joining = [seq for seq, kin in children.items() if _joins(made, kin, downstream)]
        made.seqs.update(joining)
        generation = joining
    return made


def _joins(made: Plan, kin: Kin, downstream: bool) -> bool:
    if kin.status is Status.SKIPPED:
        was_blocked = any(edge.is_blocked for edge in made.up[kin.task_seq])
        return was_blocked and not made.blockers_of(kin.task_seq)
    return downstream and kin.has_run and not made.blockers_of(kin.task_seq)


@dataclass(frozen=True, slots=True)
class Revive:
    """Bring ended tasks back: their rows, their edges to what they depend on, and the edges from open tasks to them."""

    rows: tuple[StoredTask, ...]
    edges: tuple[StoredEdge, ...]
    below: tuple[StoredEdge, ...]


def check(machine: "Machine", event: Revive) -> None:
    """Raises CycleError if what comes back and what is open would wait for each other: a late edge may have closed a
    cycle through a task that had ended; AlreadyEnded if something would come back that can never start. O(what the
    revived tasks can reach).
    """
    names = {row.seq: row.id for row in event.rows}
    for edge in event.edges:
        ended = edge.on_seq not in names and edge.on_seq not in machine.open
        if ended and (edge.on_status is None or not edge.when.is_met_by(edge.on_status)):
            raise AlreadyEnded(
                f"{names[edge.task_seq]} cannot run again: what it depends on (seq {edge.on_seq}) has ended otherwise "
                "and does not come back"
            )
    kids: dict[int, list[int]] = {}
    for edge in event.edges:
        if edge.on_seq in names or edge.on_seq in machine.open:
            kids.setdefault(edge.on_seq, []).append(edge.task_seq)
    for edge in event.below:
        child = machine.open.get(edge.task_seq)
        if child is not None and not child.has_started:
            kids.setdefault(edge.on_seq, []).append(edge.task_seq)
    reached = list(names)
    index_of = {seq: index for index, seq in enumerate(reached)}
    pairs: list[tuple[int, int]] = []
    for seq in reached:  # grows while it is walked
        task = machine.open.get(seq)
        following = [*kids.get(seq, ())]
        if task is not None:
            names[seq] = task.id
            following += [child.seq for child in graph.children_of(task) if machine.open.get(child.seq) is child]
        for child_seq in following:
            if child_seq not in index_of:
                index_of[child_seq] = len(reached)
                reached.append(child_seq)
            pairs.append((index_of[child_seq], index_of[seq]))
    parents: list[list[int]] = [[] for _ in reached]
    for child_index, parent_index in pairs:
        parents[child_index].append(parent_index)
    found = graph.find_cycle(parents)
    if found is not None:
        path, stuck = found
        raise CycleError([names[reached[index]] for index in path], stuck)
