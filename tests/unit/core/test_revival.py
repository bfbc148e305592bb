"""What a retry brings back: the closure, and the machine that takes it."""

from collections.abc import Collection
from random import Random
from typing import Any

import pytest

from schedd.core.errors import AlreadyEnded, CycleError, UnknownResource
from schedd.core.events import Cancel, Output, SetCapacity
from schedd.core.model import (
    Capacity,
    Dependency,
    Moment,
    NewTask,
    Outcome,
    Recurrence,
    RetryPolicy,
    Status,
    StoredEdge,
    StoredTask,
    When,
)
from schedd.core.revival import Kin, Plan, Revive, plan
from support.core_driver import Driver, new, row_of


class Tree:
    """A driver, with the lookups that a store would do."""

    def __init__(self, driver: Driver) -> None:
        self.driver = driver
        self.looks = 0

    def family(self, seqs: Collection[int]) -> list[Kin]:
        self.looks += 1
        by_seq = {task.seq: task for task in self.driver.tasks.values()}
        return [
            Kin(
                edge.task_seq,
                edge.on_seq,
                edge.when,
                by_seq[edge.task_seq].status,
                by_seq[edge.on_seq].status,
                by_seq[edge.on_seq].id,
                by_seq[edge.task_seq].number > 0,
            )
            for edge in self.driver.edges
            if edge.task_seq in seqs or edge.on_seq in seqs
        ]

    def plan(self, *names: str, downstream: bool = False) -> Plan:
        return plan([self.driver.tasks[name].seq for name in names], downstream, self.family)

    def names(self, *names: str, downstream: bool = False) -> set[str]:
        seqs = self.plan(*names, downstream=downstream).seqs
        return {task.id for task in self.driver.tasks.values() if task.seq in seqs}

    def event(self, *names: str, downstream: bool = False) -> Revive:
        made = self.plan(*names, downstream=downstream)
        edges = [StoredEdge(kin.task_seq, kin.on_seq, kin.when, kin.on_status) for kin in made.edges.values()]
        rows = [row_of(task) for task in self.driver.tasks.values() if task.seq in made.seqs]
        return Revive(
            tuple(rows),
            tuple(edge for edge in edges if edge.task_seq in made.seqs),
            tuple(edge for edge in edges if edge.on_seq in made.seqs and edge.task_seq not in made.seqs),
        )

    def retry(self, *names: str, downstream: bool = False) -> Output:
        out = self.driver.step(self.event(*names, downstream=downstream))
        self.driver.tasks.update((task.id, task) for task in self.driver.machine.open.values())
        return out


@pytest.fixture
def tree(drive: Any) -> Tree:
    """checkout; build and lint after it; test after build; deploy after test and lint; report when deploy finished;
    clean if build failed. Build fails.
    """
    driver: Driver = drive(4)
    driver.submit(
        new("checkout"),
        new("build", "checkout"),
        new("lint", "checkout"),
        new("test", "build"),
        new("deploy", "test", "lint"),
        new("report", Dependency("deploy", When.FINISHED)),
        new("clean", Dependency("build", When.FAILED)),
    )
    driver.end("checkout")
    driver.end("build", Outcome.FAILED, error="no compiler")
    driver.end("lint")
    driver.end("report")
    driver.end("clean")
    return Tree(driver)


class TestPlan:
    """Which tasks come back."""

    def test_what_was_skipped_only_because_of_it_comes_along(self, tree: Tree):
        """Any number of generations down; what ran stays as it is."""
        assert tree.names("build") == {"build", "test", "deploy"}

    def test_downstream_what_ran_comes_too(self, tree: Tree):
        """Whatever it ended as."""
        assert tree.names("build", downstream=True) == {"build", "test", "deploy", "report", "clean"}
        assert tree.names("checkout", downstream=True) == {
            "checkout", "build", "lint", "test", "deploy", "report", "clean",
        }  # fmt: skip

    def test_what_has_another_reason_stays(self, tree: Tree):
        """A skipped task comes back when the last of its reasons does."""
        tree.driver.submit(new("x"), new("y"), new("both", "x", "y"))
        tree.driver.end("x", Outcome.FAILED)
        tree.driver.end("y", Outcome.FAILED)
        assert tree.names("x") == {"x"}
        assert tree.names("x", "y") == {"x", "y", "both"}

    def test_a_root_that_is_kept_from_it_has_blockers(self, tree: Tree):
        """The caller refuses it with them."""
        made = tree.plan("test")
        assert [kin.on_id for kin in made.blockers_of(tree.driver.tasks["test"].seq)] == ["build"]

    def test_against_a_naive_closure(self, drive: Any):
        """Grown by looking at every task again and again, on random graphs."""
        for seed in range(150):
            random, driver = Random(seed), drive(20)
            tasks = []
            for number in range(random.randint(3, 14)):
                names = random.sample([f"t{index}" for index in range(number)], random.randint(0, min(number, 3)))
                deps = tuple(Dependency(name, random.choice(list(When))) for name in names)
                tasks.append(NewTask(None, f"t{number}", deps))
            driver.submit(*tasks)
            while driver.running():
                driver.end(sorted(driver.running())[0], random.choice([Outcome.SUCCEEDED, Outcome.FAILED]))
            tree, downstream = Tree(driver), random.random() < 0.5
            roots = {task.seq for task in driver.tasks.values() if task.number and random.random() < 0.3}
            assert plan(roots, downstream, tree.family).seqs == naive(tree, roots, downstream), seed


def naive(tree: Tree, roots: set[int], downstream: bool) -> set[int]:
    """By the words of the rule."""
    chosen = set(roots)
    every = tree.family([task.seq for task in tree.driver.tasks.values()])
    while True:
        before = set(chosen)
        for task in tree.driver.tasks.values():
            mine = [kin for kin in every if kin.task_seq == task.seq]
            kept = [kin for kin in mine if not kin.when.is_met_by(kin.on_status) and kin.on_seq not in chosen]
            if task.seq in chosen or kept or chosen.isdisjoint(kin.on_seq for kin in mine):
                continue
            if task.status is not Status.SKIPPED:
                chosen |= {task.seq} if downstream and task.number else set()
            elif any(not kin.when.is_met_by(kin.on_status) for kin in mine):
                chosen.add(task.seq)
        if chosen == before:
            return chosen


class TestRevive:
    """What comes back is open again."""

    def test_it_runs_as_if_it_were_new(self, tree: Tree):
        """In the order of its dependencies, with all its attempts, and numbers that go on."""
        driver = tree.driver
        out = tree.retry("build")
        assert {task.id for task in out.changed.values()} == {"build", "test", "deploy"}
        assert driver.running() == {"build"}
        build = driver.tasks["build"]
        assert (build.number, build.base_number, build.attempts, build.error) == (2, 1, 0, None)
        driver.end("build")
        driver.end("test")
        driver.end("deploy")
        assert driver.status("deploy") is Status.SUCCEEDED
        assert driver.kinds("test") == ["skipped", "retried", "started", "succeeded"]
        assert driver.starts().count("report") == 1, "it ran when deploy had been skipped, and stays as it is"

    def test_its_attempts_count_anew(self, drive: Any):
        """As many as a run allows."""
        driver = drive(1)
        driver.submit(new("x", retry=RetryPolicy(max_attempts=2, base_delay=0)))
        for _ in range(2):
            driver.end("x", Outcome.FAILED)
        Tree(driver).retry("x")
        driver.end("x", Outcome.FAILED)
        assert driver.running() == {"x"}
        driver.end("x", Outcome.FAILED)
        assert (driver.status("x"), driver.tasks["x"].number) == (Status.FAILED, 4)

    @pytest.mark.parametrize(("outcome", "runs"), [(Outcome.FAILED, 1), (Outcome.SUCCEEDED, 0)])
    def test_runs_go_on_or_begin_anew(self, drive: Any, outcome: Outcome, runs: int):
        """It goes on with the run in which it failed; what had succeeded begins with its first."""
        driver = drive(1)
        driver.submit(new("x", recurrence=Recurrence(10, 2)))
        driver.end("x")
        driver.advance(10)
        driver.end("x", outcome)
        Tree(driver).retry("x", downstream=True)
        assert driver.tasks["x"].runs == runs

    def test_open_children_wait_again(self, drive: Any):
        """Those that have not started; the others go on."""
        driver = drive(2)
        driver.submit(new("x"), new("started", Dependency("x", When.FAILED)))
        driver.end("x", Outcome.FAILED)
        driver.submit(
            new("waits", Dependency("x", When.FINISHED), delay=60), new("ready", Dependency("x", When.FAILED), delay=5)
        )
        driver.hold("ready")
        Tree(driver).retry("x")
        assert (driver.tasks["waits"].unmet, driver.tasks["ready"].unmet) == (1, 1)
        assert driver.running() == {"x", "started"}
        driver.end("x")
        assert driver.status("ready") is Status.SKIPPED
        assert driver.status("waits") is Status.PENDING
        assert driver.status("started") is Status.RUNNING

    def test_a_restart_comes_to_the_same(self, tree: Tree):
        """What has started before its parent came back waits for nothing, after a restart too."""
        driver = tree.driver
        driver.submit(new("slow", Dependency("build", When.FAILED), retry=RetryPolicy(max_attempts=2, base_delay=100)))
        driver.end("slow", Outcome.FAILED)
        tree.retry("build")
        before = {name: (task.unmet, task.status) for name, task in driver.tasks.items()}
        driver.restart()
        assert {name: (task.unmet, task.status) for name, task in driver.tasks.items()} == before

    def test_a_cycle_through_what_had_ended_is_refused(self, drive: Any):
        """A late edge may have closed it; nothing changes."""
        driver = drive(1)
        driver.submit(new("z"), new("y", delay=60), new("x", "z", Dependency("y", When.FINISHED)))
        driver.end("z", Outcome.FAILED)
        driver.depend("x", "y", When.FINISHED)
        refused = driver.refuse(CycleError, Tree(driver).event("z"))
        assert refused.path in (["x", "y", "x"], ["y", "x", "y"])

    def test_what_could_never_start_is_refused(self, tree: Tree):
        """The machine takes no event that would let a task start past what it depends on, whoever made it."""
        refused = tree.driver.refuse(AlreadyEnded, tree.event("test"))
        assert "test cannot run again" in str(refused)

    def test_what_cannot_have_what_it_needs_is_refused(self, drive: Any):
        """A resource may be gone since."""
        driver = drive(1)
        driver.step(SetCapacity("gpu", Capacity(1)))
        driver.submit(new("x", resources=(("gpu", 1),)))
        driver.end("x", Outcome.FAILED)
        driver.step(SetCapacity("gpu", None))
        driver.refuse(UnknownResource, Tree(driver).event("x"))

    def test_limits_in_time_that_passed_hold_no_more(self, drive: Any):
        """Those that have not do."""
        driver = drive(1)
        driver.submit(new("x", deadline=Moment(10), start_before=Moment(100)))
        driver.advance(10)
        driver.end("x", Outcome.TIMED_OUT)
        Tree(driver).retry("x")
        assert (driver.tasks["x"].deadline, driver.tasks["x"].start_before) == (None, driver.now + 90)

    def test_what_was_cancelled_is_no_more(self, drive: Any):
        """Neither a cancel nor a hold of its last life goes on."""
        driver = drive(1)
        driver.submit(new("x"))
        driver.hold("x")
        driver.step(Cancel(driver.known("x")))
        driver.end("x", Outcome.SUCCEEDED)
        assert driver.status("x") is Status.CANCELLED
        Tree(driver).retry("x")
        assert driver.running() == {"x"}
        driver.end("x")
        assert driver.status("x") is Status.SUCCEEDED

    def test_a_hundred_thousand_come_back(self, drive: Any, shallow_stack: Any):
        """A chain, without recursion."""
        size = 100_000
        driver = drive(1)
        rows = [
            StoredTask(seq, f"t{seq}", 0, RetryPolicy(), None, 0.0, None, Status.SKIPPED, 0, 0, 0, False, False)
            for seq in range(2, size + 1)
        ]
        first = StoredTask(1, "t1", 0, RetryPolicy(), None, 0.0, None, Status.FAILED, 1, 1, 0, False, False)
        edges = [StoredEdge(seq, seq - 1, When.SUCCEEDED, Status.SKIPPED) for seq in range(2, size + 1)]
        with shallow_stack():
            driver.machine.handle(Revive((first, *rows), tuple(edges), ()), driver.now, Output())
        assert len(driver.machine.open) == size
        assert driver.machine.open[size].unmet == 1
