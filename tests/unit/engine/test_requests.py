"""Requests: ids are resolved, everything is judged before anything changes, the answers have their shapes."""

import pytest

from schedd.core.batch import NewBatch
from schedd.core.errors import AlreadyEnded, CycleError, DuplicateId, InvalidRequest, SelfDependency, UnknownTask
from schedd.core.model import NewTask, Outcome, Status, When
from schedd.engine.requests import CancelTasks, DependTasks, HoldTasks, PauseStarting, SubmitBatch
from support.engine_bench import Bench, task


class TestSubmit:
    """SubmitBatch."""

    def test_ids_of_a_named_batch_carry_its_name_and_number(self, bench: Bench):
        """ci becomes ci-1 and ci-2, and the counter is per name."""
        assert bench.submit(task("a"), task("b", "a"), name="ci") == ["ci-1/a", "ci-1/b"]
        assert bench.submit(task("a"), name="ci") == ["ci-2/a"]
        assert bench.submit(task("a"), name="nightly") == ["nightly-1/a"]

    def test_a_task_without_an_id_gets_its_seq(self, bench: Bench):
        """Outside a batch and inside one."""
        assert bench.submit(NewTask(payload="x"), task("b")) == ["1", "b"]
        assert bench.submit(NewTask(payload="x"), name="ci") == ["ci-1/3"]

    def test_an_id_is_taken_for_ever(self, bench: Bench):
        """Also after its task has ended."""
        bench.submit(task("a"))
        bench.end(1)
        error = bench.call(SubmitBatch(NewBatch([task("a")]))).exception(0)
        assert isinstance(error, DuplicateId)
        assert "'a'" in str(error)
        assert "succeeded" in str(error)

    def test_a_dependency_names_the_batch_first(self, bench: Bench):
        """A task of the same file hides an existing one of the same id."""
        bench.submit(task("a"))
        bench.submit(task("a"), task("b", "a"), name="ci")
        assert bench.memory.edge(2, 3) is When.SUCCEEDED
        assert bench.memory.edge(1, 3) is None

    def test_a_dependency_on_an_older_task_by_its_full_id(self, bench: Bench):
        """It waits for a task of an earlier batch."""
        bench.submit(task("a"), name="ci")
        bench.submit(task("b", "ci-1/a"))
        assert set(bench.executor.running) == {1}
        bench.end(1)
        assert set(bench.executor.running) == {2}


class TestCancel:
    """CancelTasks."""

    def test_each_id_is_judged_by_itself(self, bench: Bench):
        """One that has ended does not keep the others."""
        bench.submit(task("a"), task("b"), task("c"))
        bench.end(1)
        results = bench.call(CancelTasks(("a", "b", "c"))).result(0)["results"]
        assert [result["ok"] for result in results] == [False, True, True]
        assert results[0]["error"] == AlreadyEnded.code

    def test_an_unknown_id_refuses_the_whole_request(self, bench: Bench):
        """A typing error cancels nothing."""
        bench.submit(task("a"))
        assert isinstance(bench.call(CancelTasks(("a", "nobody"))).exception(0), UnknownTask)
        assert bench.status("a") is Status.RUNNING

    def test_a_batch_name_stands_for_its_open_tasks(self, bench: Bench):
        """What has ended is left alone; a batch that has ended is refused."""
        bench.submit(task("a"), task("b"), task("c", "b"), name="ci")
        bench.end(1)
        results = bench.call(CancelTasks(("ci-1",))).result(0)["results"]
        assert [result["id"] for result in results] == ["ci-1/b", "ci-1/c"]
        bench.end(2, Outcome.CANCELLED)
        assert isinstance(bench.call(CancelTasks(("ci-1",))).exception(0), AlreadyEnded)

    def test_cancelling_twice_is_refused_and_changes_nothing(self, bench: Bench):
        """Running or ended."""
        bench.submit(task("a"))
        assert bench.call(CancelTasks(("a",))).result(0)["results"][0]["ok"]
        assert not bench.call(CancelTasks(("a",))).result(0)["results"][0]["ok"]
        assert len(bench.executor.stopped) == 1

    def test_a_whole_batch_ends_as_cancelled(self, bench: Bench):
        """What waits is cancelled before what it waits for, so nothing of it is merely skipped, and nothing refused."""
        bench.submit(task("w"), task("x"))
        bench.submit(task("a"), task("b", "a"), task("c", "b"), name="ci")
        results = bench.call(CancelTasks(("ci-1",))).result(0)["results"]
        assert results == [{"id": f"ci-1/{name}", "ok": True} for name in "abc"]
        assert {bench.status(f"ci-1/{name}") for name in "abc"} == {Status.CANCELLED}

    def test_what_ends_by_the_cancel_of_another_is_not_refused(self, bench: Bench):
        """A late edge turns the order round: the first is skipped by the cancel of the second, and that is as asked."""
        bench.submit(task("w"), task("x"), task("a"), task("b"))
        bench.call(DependTasks("b", "a"))
        results = bench.call(CancelTasks(("a", "b"))).result(0)["results"]
        assert results == [{"id": "a", "ok": True}, {"id": "b", "ok": True}]
        assert (bench.status("a"), bench.status("b")) == (Status.SKIPPED, Status.CANCELLED)


class TestDepend:
    """DependTasks."""

    def test_a_late_edge_holds_its_task_back(self, bench: Bench):
        """The task starts only after the new dependency."""
        bench.submit(task("x"), task("y"), task("a"), task("b"))
        answer = bench.call(DependTasks("b", "a")).result(0)
        assert answer == {"before": "b", "after": "a", "when": "succeeded", "added": True}
        bench.end(1)
        bench.end(2)
        assert set(bench.executor.running) == {4}

    def test_an_edge_that_exists_is_no_change(self, bench: Bench):
        """Added once more it says so; with another `when` it is refused."""
        bench.submit(task("x"), task("y"), task("a"), task("b", "a"))
        assert bench.call(DependTasks("a", "b")).result(0)["added"] is False
        assert isinstance(bench.call(DependTasks("a", "b", When.FAILED)).exception(0), InvalidRequest)

    def test_a_cycle_is_refused_with_its_exact_path(self, bench: Bench):
        """The path reads `x depends on y`."""
        bench.submit(task("x"), task("y"), task("a"), task("b", "a"), task("c", "b"))
        error = bench.call(DependTasks("c", "a")).exception(0)
        assert isinstance(error, CycleError)
        assert error.path == ["a", "c", "b", "a"]
        assert isinstance(bench.call(DependTasks("a", "a")).exception(0), SelfDependency)

    def test_unknown_ends_are_refused(self, bench: Bench):
        """Either of them."""
        bench.submit(task("a"))
        assert isinstance(bench.call(DependTasks("a", "nobody")).exception(0), UnknownTask)
        assert isinstance(bench.call(DependTasks("nobody", "a")).exception(0), UnknownTask)


class TestHoldAndPause:
    """HoldTasks and PauseStarting."""

    def test_a_held_task_does_not_start_until_released(self, bench: Bench):
        """While it is held, others pass."""
        bench.submit(task("x"), task("y"), task("a"), task("b"))
        bench.call(HoldTasks(("a",), True))
        bench.end(1)
        assert set(bench.executor.running) == {2, 4}
        bench.end(2)
        bench.call(HoldTasks(("a",), False))
        assert set(bench.executor.running) == {3, 4}

    @pytest.mark.parametrize("again", [False, True])
    def test_pause_stops_all_starting_and_survives_a_reload(self, bench: Bench, again: bool):
        """A paused scheduler stays paused after a restart."""
        bench.call(PauseStarting(True))
        bench.submit(task("a"))
        if again:
            bench.engine = bench.new_engine()
            bench.engine.recover()
        bench.step()
        assert not bench.executor.running
        bench.call(PauseStarting(False))
        assert set(bench.executor.running) == {1}
