"""What there is of each resource, and who holds how much of it: held units are those of the running tasks, always.

A group is a resource whose capacity is its limit (`model.GROUP_PREFIX`); one without a limit never runs out. A
capacity may be set below what is held: then nothing of it is given until enough came back.
Tests: tests/unit/core/test_resources.py, and the naive simulator of tests/simulation/test_resources.py.
"""

from collections.abc import Mapping

from schedd.core.model import GROUP_PREFIX, Capacity, Demand, OpenTask


class Resources:
    """Capacities and holdings. Everything is O(entries of a demand), and of named units O(units)."""

    __slots__ = ("capacities", "held", "taken")

    def __init__(self, capacities: Mapping[str, Capacity] | None = None) -> None:
        self.capacities: dict[str, Capacity] = dict(capacities or {})
        self.held: dict[str, int] = {}
        self.taken: dict[str, set[str]] = {}  # the named units that somebody holds

    def free(self, name: str) -> int | None:
        """How much is left, below zero where more is held than there is; None for a group without a limit."""
        capacity = self.capacities.get(name)
        if capacity is not None:
            return capacity.total - self.held.get(name, 0)
        return None if name.startswith(GROUP_PREFIX) else -self.held.get(name, 0)

    def fits(self, demand: Demand) -> bool:
        """Whether all of a demand is free now."""
        for name, amount in demand:
            free = self.free(name)
            if free is not None and free < amount:
                return False
        return True

    def lacks(self, demand: Demand) -> list[str]:
        """The names of which there is not enough now."""
        return [name for name, amount in demand if (free := self.free(name)) is not None and free < amount]

    def can_ever_fit(self, demand: Demand) -> str | None:
        """The name of the first entry that is more than there is; None if all of it can be had."""
        for name, amount in demand:
            capacity = self.capacities.get(name)
            if not name.startswith(GROUP_PREFIX) and (capacity is None or amount > capacity.total):
                return name
        return None

    def leaves(self, demand: Demand, reserved: Demand) -> bool:
        """Whether all that is reserved is still free, as far as it is now, once `demand` was taken."""
        wanted = dict(demand)
        for name, amount in reserved:
            free = self.free(name)
            if name in wanted and free is not None and free - wanted[name] < amount:
                return False
        return True

    def take(self, task: OpenTask) -> None:
        """Give a task what it demands, with the first free units of those resources that name theirs."""
        units: dict[str, list[str]] = {}
        for name, amount in task.demand:
            self.held[name] = self.held.get(name, 0) + amount
            capacity = self.capacities.get(name)
            if capacity is not None and capacity.units is not None:
                taken = self.taken.setdefault(name, set())
                units[name] = [unit for unit in capacity.units if unit not in taken][:amount]
                taken.update(units[name])
        task.units = units or None

    def adopt(self, task: OpenTask) -> None:
        """Count a task that holds its demand, and its units, already."""
        for name, amount in task.demand:
            self.held[name] = self.held.get(name, 0) + amount
        for name, units in (task.units or {}).items():
            self.taken.setdefault(name, set()).update(units)

    def give_back(self, task: OpenTask) -> None:
        """What a task held is free again."""
        for name, amount in task.demand:
            self.held[name] -= amount
            if not self.held[name]:
                del self.held[name]
        for name, units in (task.units or {}).items():
            self.taken[name].difference_update(units)
            if not self.taken[name]:
                del self.taken[name]
        task.units = None

    def set(self, name: str, capacity: Capacity | None) -> None:
        """Change what there is; None: there is no such resource any more."""
        if capacity is None:
            self.capacities.pop(name, None)
        else:
            self.capacities[name] = capacity
