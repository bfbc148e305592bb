"""A chain of a hundred thousand tasks takes memory, time in proportion, and no recursion."""

import pytest

from schedd.core.batch import NewBatch
from schedd.core.errors import CycleError
from schedd.core.events import AddDependency, AttemptEnded, Output, Submit
from schedd.core.machine import Machine
from schedd.core.model import (
    Dependency,
    KnownTask,
    NewTask,
    OpenTask,
    Outcome,
    RetryPolicy,
    Status,
    Stored,
    StoredEdge,
    When,
)
from schedd.core.rebuilding import rebuild
from support.core_driver import START, row_of

CHAIN = 100_000
NAMES = [f"n{index}" for index in range(1, CHAIN + 1)]


@pytest.fixture(scope="module")
def submission() -> Submit:
    """A chain: each task but the first depends on the one before it; task n{i} has the seq i."""
    deps = [(), *((Dependency(name),) for name in NAMES[:-1])]
    tasks = [NewTask(payload=None, name=name, deps=of_task) for name, of_task in zip(NAMES, deps, strict=True)]
    return Submit(NewBatch(tasks), 1, 1, tuple(NAMES), {})


class TestDepth:
    """All within a few dozen frames."""

    def test_skips_travel_a_chain(self, submission: Submit, shallow_stack):
        """The first fails, and all others are skipped in the same event; nothing of them is left."""
        machine, out = Machine(1), Output()
        with shallow_stack():
            machine.handle(submission, START, out)
            machine.claim(START, out)
            out.clear_rows()
            machine.handle(AttemptEnded(1, 1, Outcome.FAILED, START), START, out)
            skipped = [task.seq for task in out.changed.values() if task.status is Status.SKIPPED]
            assert skipped == list(range(2, CHAIN + 1))
            assert not machine.open
            del machine, out  # freeing the chain takes no recursion either

    def test_successes_travel_a_chain(self, submission: Submit, shallow_stack):
        """Each in turn succeeds and starts the next; nothing of them is left."""
        machine, out = Machine(1), Output()
        with shallow_stack():
            machine.handle(submission, START, out)
            machine.claim(START, out)
            out.clear_rows()
            for seq in range(1, CHAIN + 1):
                machine.handle(AttemptEnded(seq, 1, Outcome.SUCCEEDED, START), START, out)
                machine.claim(START, out)
                assert out.changed[seq].status is Status.SUCCEEDED
                out.clear_rows()
            assert len(out.effects) == CHAIN
            assert not machine.open
            assert not machine.running

    def test_a_cycle_over_the_whole_chain_is_refused_with_its_path(self, submission: Submit, shallow_stack):
        """The first cannot wait for the last: the path names every task of the chain."""
        machine, out = Machine(0), Output()
        first, last = KnownTask(1, NAMES[0], Status.PENDING), KnownTask(CHAIN, NAMES[-1], Status.PENDING)
        with shallow_stack():
            machine.handle(submission, START, out)
            with pytest.raises(CycleError) as caught:
                machine.handle(AddDependency(last, first), START, out)
        assert caught.value.path == [NAMES[0], *reversed(NAMES)]

    def test_a_chain_is_rebuilt_and_skipped(self, shallow_stack):
        """From rows that say that what came before it is gone, it is skipped from its top to its end."""
        retry = RetryPolicy()
        rows = [row_of(OpenTask(seq, name, 0, retry, None, START)) for seq, name in enumerate(NAMES, 1)]
        edges = [StoredEdge(seq, seq - 1, When.SUCCEEDED, Status.PENDING) for seq in range(2, CHAIN + 1)]
        edges.append(StoredEdge(1, CHAIN + 1, When.FINISHED, None))
        machine, out = Machine(0), Output()
        with shallow_stack():
            rebuild(machine, Stored(rows, edges), START, out)
        assert not machine.open
        assert len(out.changed) == CHAIN
