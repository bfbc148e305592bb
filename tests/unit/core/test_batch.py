"""A batch that exists has passed its checks."""

import pytest

from schedd.core import limits
from schedd.core.batch import NewBatch
from schedd.core.errors import CycleError, DuplicateId, InvalidRequest, SelfDependency, UnknownDependency
from schedd.core.model import Dependency, When
from support.core_driver import new


class TestShape:
    """Names and numbers."""

    def test_an_empty_batch_is_refused(self):
        """There must be something to do."""
        with pytest.raises(InvalidRequest, match="at least one task"):
            NewBatch([])

    def test_too_many_tasks_are_refused(self):
        """The message says the bound and what to do about it."""
        with pytest.raises(InvalidRequest, match="at most 250000 tasks, not 250001; submit it in parts"):
            NewBatch([new("a")] * (limits.MAX_TASKS_PER_BATCH + 1))

    @pytest.mark.parametrize("name", ["", "a/b", "7", "x" * (limits.MAX_BATCH_NAME_CHARS + 1)])
    def test_a_batch_name_is_checked(self, name: str):
        """An empty name is no name, not no name given."""
        with pytest.raises(InvalidRequest, match=r"^batch name "):
            NewBatch([new("a")], name)

    def test_two_tasks_of_one_name_are_refused(self):
        """The message names the name."""
        with pytest.raises(DuplicateId, match="two tasks of this batch have the id 'a'"):
            NewBatch([new("a"), new("b"), new("a")])

    def test_tasks_without_a_name_are_told_by_their_place(self):
        """Any number of them is fine; messages count from one."""
        batch = NewBatch([new(None), new("b"), new(None)])
        assert [batch.label(index) for index in range(3)] == ["task 1", "b", "task 3"]


class TestDependencies:
    """What is resolved within the batch, and what is left for those who know the rest."""

    def test_names_of_the_batch_are_resolved_first(self):
        """Parents are (index, when); what is not in the batch is external."""
        batch = NewBatch([new("b", "a", Dependency("old", When.FINISHED)), new("a"), new("c", "old")])
        assert batch.parents == [[(1, When.SUCCEEDED)], [], []]
        assert batch.external == {0: [Dependency("old", When.FINISHED)], 2: [Dependency("old")]}

    def test_a_dependency_listed_twice_is_one(self):
        """Within the batch and outside of it."""
        batch = NewBatch([new("a"), new("b", "a", "a", "old", "old")])
        assert batch.parents[1] == [(0, When.SUCCEEDED)]
        assert batch.external == {1: [Dependency("old")]}

    @pytest.mark.parametrize("on", ["a", "old"])
    def test_one_dependency_with_two_whens_is_refused(self, on: str):
        """Which of them was meant cannot be known, and the message says both."""
        deps = (Dependency(on), Dependency(on, When.FINISHED))
        with pytest.raises(InvalidRequest, match=f"b lists {on} twice, as `succeeded` and as `finished`"):
            NewBatch([new("a"), new("b", *deps)])

    def test_a_self_dependency_is_refused(self):
        """By its own class, not as a cycle."""
        with pytest.raises(SelfDependency, match=r"^b cannot depend on itself$"):
            NewBatch([new("a"), new("b", "a", "b")])

    def test_an_unknown_dependency_is_refused_when_the_known_are_known(self):
        """The message says who depends on what."""
        batch = NewBatch([new("a", "old"), new(None, "nobody")])
        batch.check_known({"old", "nobody"})
        with pytest.raises(UnknownDependency, match="task 2 depends on 'nobody', which is neither"):
            batch.check_known({"old"})


class TestCycles:
    """Refused with one exact cycle, by name."""

    def test_the_cycle_is_named_and_the_stuck_are_counted(self):
        """a depends on c, b on a, c on b and d on c: a -> c -> b -> a, and one more waits."""
        with pytest.raises(CycleError) as caught:
            NewBatch([new("a", "c"), new("b", "a"), new("c", "b"), new("d", "c")])
        assert caught.value.path == ["a", "c", "b", "a"]
        assert caught.value.stuck == 1

    def test_an_edge_of_any_when_closes_a_cycle(self):
        """Whatever end is waited for, waiting in a circle never ends."""
        with pytest.raises(CycleError) as caught:
            NewBatch([new("a", Dependency("b", When.FAILED)), new("b", Dependency("a", When.FINISHED))])
        assert caught.value.path == ["a", "b", "a"]
        assert caught.value.stuck == 0
