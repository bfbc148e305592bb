"""Rounds: nothing leaves before the commit, and what each kind of fault does."""

import pytest

from schedd.core.batch import NewBatch
from schedd.core.errors import AlreadyEnded, KeyReused, UnknownDependency
from schedd.core.events import AttemptSpawned
from schedd.core.model import DamagedTask, Outcome, RetryPolicy, Status, StopReason, Stored
from schedd.engine.inbox import Call, Inbox, Question
from schedd.engine.loop import PATIENCE_S, Committed, Engine, RequestFailed, Unavailable
from schedd.engine.requests import CancelTasks, SubmitBatch
from schedd.store.base import StatementFailed, StoreBroken, StoreUnavailable
from support.engine_bench import Bench, task

LOCKED = StoreUnavailable("the database is locked by another process")


def submit(*tasks, name=None):
    return SubmitBatch(NewBatch(tasks, name))


class TestRound:
    """The order of a round that goes well."""

    def test_a_submitted_task_starts_with_its_payload(self, bench: Bench):
        """A submit is answered with the ids and its task is started in the same round."""
        assert bench.submit(task("a")) == ["a"]
        assert [order.id for order in bench.executor.started] == ["a"]
        assert bench.executor.payloads[1] == "payload of a"
        assert bench.status("a") is Status.RUNNING

    def test_a_settle_and_the_next_start_share_a_commit(self, bench: Bench):
        """The end of one task releases and starts the next in one transaction."""
        bench.submit(task("a"), task("b", "a"))
        commits = len(bench.told)
        bench.end(1)
        assert len(bench.told) == commits + 1
        assert [order.id for order in bench.executor.started] == ["a", "b"]

    def test_only_free_workers_get_work(self, bench: Bench):
        """With two workers the third task waits for an end."""
        bench.submit(task("a"), task("b"), task("c"))
        assert set(bench.executor.running) == {1, 2}
        bench.end(2)
        assert set(bench.executor.running) == {1, 3}

    def test_a_refusal_answers_and_changes_nothing(self, bench: Bench):
        """A refused submit leaves no row, and its seq and batch number are not used up."""
        future = bench.call(submit(task("a", "nobody"), name="ci"))
        assert isinstance(future.exception(0), UnknownDependency)
        assert bench.memory.next_seq() == 1
        assert bench.submit(task("a"), name="ci") == ["ci-1/a"]

    def test_a_task_that_ends_in_this_very_round_is_judged_once(self, bench: Bench):
        """A submit that names a task whose end precedes it in the inbox finds it ended."""
        bench.submit(task("a"))
        ended = bench.executor.end(1, Outcome.SUCCEEDED, bench.clock.now())
        child = Call(submit(task("b", "a")))
        bench.step(ended, child)
        assert child.future.result(0)["ids"] == ["b"]
        assert set(bench.executor.running) == {2}

    def test_the_inbox_decides_between_a_cancel_and_a_finish(self, bench: Bench):
        """A cancel behind the finish is refused; a cancel before it wins."""
        bench.submit(task("a"), task("b"))
        late = Call(CancelTasks(("a",)))
        bench.step(bench.executor.end(1, Outcome.SUCCEEDED, bench.clock.now()), late)
        assert late.future.result(0)["results"][0]["error"] == AlreadyEnded.code
        assert bench.status("a") is Status.SUCCEEDED
        early = Call(CancelTasks(("b",)))
        bench.step(early, bench.executor.end(2, Outcome.SUCCEEDED, bench.clock.now()))
        assert early.future.result(0)["results"] == [{"id": "b", "ok": True}]
        assert bench.status("b") is Status.CANCELLED

    def test_a_retry_starts_when_it_is_due(self, bench: Bench):
        """The engine waits exactly until the due time of a retry."""
        bench.submit(task("a", retry=RetryPolicy(max_attempts=2, base_delay=10.0)))
        bench.clock.advance(1.0)
        bench.end(1, Outcome.FAILED, error="no")
        bench.step()
        assert not bench.executor.running
        assert bench.engine._wait_s() == pytest.approx(10.0)
        bench.clock.advance(10.0)
        bench.step()
        assert bench.executor.running[1].number == 2

    def test_an_idle_engine_waits_for_ever(self, bench: Bench):
        """With nothing due, nothing pending and no fault there is no timeout."""
        assert bench.engine._wait_s() is None

    def test_a_pid_is_written_with_a_round_of_its_own_at_last(self, bench: Bench):
        """A spawned process is recorded a second later even if nothing else happens."""
        bench.submit(task("a"))
        bench.executor.spawned.append(AttemptSpawned(1, 1, 4711, 99))
        assert bench.engine._wait_s() == pytest.approx(1.0)
        bench.clock.advance(1.0)
        bench.step()
        assert bench.engine._wait_s() is None

    def test_a_process_that_comes_late_is_written_too(self, bench: Bench):
        """While one that was started is not heard of, the engine looks again, each time twice as late."""
        bench.submit(task("a"))
        for pause in (1.0, 2.0, 4.0):
            assert bench.engine._wait_s() == pytest.approx(pause)
            bench.clock.advance(pause)
            bench.step()
        bench.executor.spawned.append(AttemptSpawned(1, 1, 4711, 99))
        bench.faults = [("begin", LOCKED)]
        bench.clock.advance(8.0)
        bench.step()
        assert bench.engine.fault is not None
        written = []
        original = bench.memory.write
        bench.memory.write = lambda out: (written.extend(out.spawned), original(out))[1]
        bench.clock.advance(1.0)
        bench.step()
        assert written == [AttemptSpawned(1, 1, 4711, 99)], "a failed round must not lose the hint"
        assert bench.engine._wait_s() is None

    def test_a_question_is_answered_from_the_committed_state(self, bench: Bench):
        """A question in the same round sees what the round has committed."""
        question = Question(lambda machine: sorted(machine.running))
        bench.step(Call(submit(task("a"))), question)
        assert question.future.result(0) == [1]

    def test_a_question_that_raises_hurts_only_itself(self, bench: Bench):
        """The error goes to who asked."""
        question = Question(lambda machine: 1 / 0)
        bench.step(question)
        assert isinstance(question.future.exception(0), ZeroDivisionError)
        assert bench.submit(task("a")) == ["a"]


class TestKeys:
    """Idempotency keys."""

    def test_a_repeated_key_gets_the_first_answer(self, bench: Bench):
        """The second submit with the same key and body makes no second batch."""
        first = bench.call(submit(task("x"), name="ci"), "k", "d").result(0)
        assert bench.call(submit(task("x"), name="ci"), "k", "d").result(0) == first
        assert bench.memory.next_seq() == 2

    def test_a_key_with_another_body_is_refused(self, bench: Bench):
        """The digest tells."""
        bench.call(submit(task("x")), "k", "d")
        assert isinstance(bench.call(submit(task("y")), "k", "e").exception(0), KeyReused)

    def test_a_refusal_is_not_remembered(self, bench: Bench):
        """What was refused may succeed later under the same key."""
        assert bench.call(submit(task("b", "a")), "k", "d").exception(0) is not None
        bench.submit(task("a"))
        assert bench.call(submit(task("b", "a")), "k", "d").result(0)["ids"] == ["b"]


class TestFaults:
    """What happens when rows cannot be written."""

    @pytest.mark.parametrize("operation", ["begin", "write", "payloads", "commit"])
    def test_nothing_leaves_before_the_commit(self, bench: Bench, operation: str):
        """While the fault lasts, nothing is started or answered; when it is over, the keyed call is taken again."""
        bench.faults = [(operation, LOCKED)]
        call = bench.call(submit(task("a")), "k", "d")
        assert not call.done()
        assert not bench.executor.started
        assert bench.engine.fault is not None
        bench.clock.advance(1.0)
        bench.step()
        assert call.result(0)["ids"] == ["a"]
        assert set(bench.executor.running) == {1}
        assert bench.engine.fault is None

    def test_facts_are_kept_until_they_can_be_written(self, bench: Bench):
        """The end of a task outlasts any number of failed rounds, with growing pauses."""
        bench.submit(task("a"))
        bench.faults = [("begin", LOCKED)] * 6
        bench.end(1)
        pauses = []
        while bench.engine.fault is not None:
            pause = bench.engine._wait_s()
            assert pause is not None
            pauses.append(pause)
            bench.clock.advance(pause)
            bench.step()
        assert pauses == sorted(pauses)
        assert len(pauses) == 6
        assert bench.status("a") is Status.SUCCEEDED

    def test_what_a_fault_holds_back_is_written_facts_first(self, bench: Bench):
        """The one exception to the order of the inbox: a fact must be written, and may fit where a call does not."""
        bench.submit(task("a"))
        bench.faults = [("begin", LOCKED)]
        cancel = bench.call(CancelTasks(("a",)), "k", "d")
        bench.end(1)
        bench.faults = []
        bench.clock.advance(1.0)
        bench.step()
        assert bench.status("a") is Status.SUCCEEDED
        assert not cancel.done()
        bench.step()
        assert cancel.result(0)["results"][0]["error"] == AlreadyEnded.code

    def test_a_round_before_its_time_does_not_hammer_the_store(self, bench: Bench):
        """Messages that arrive during the pause wait for it."""
        bench.faults = [("begin", LOCKED)]
        bench.call(submit(task("a")))
        operations = bench.store.count
        bench.call(submit(task("b")))
        assert bench.store.count == operations

    def test_a_call_waits_no_longer_than_its_patience(self, bench: Bench):
        """After some seconds the caller is told that the outcome is unknown and why."""
        bench.faults = [("begin", LOCKED)] * 100
        call = bench.call(submit(task("a")), "k", "d")
        bench.clock.advance(PATIENCE_S)
        bench.step()
        assert isinstance(call.exception(0), Unavailable)
        assert "locked" in str(call.exception(0))
        bench.faults = []
        bench.clock.advance(10.0)
        bench.step()
        assert bench.memory.next_seq() == 1, "an answered call is not carried out later"

    def test_a_commit_that_failed_late_is_found_by_its_key(self, bench: Bench):
        """The commit was durable although it raised: the repeated call gets the answer, not a second batch."""
        bench.late = [StoreUnavailable("disk I/O error")]
        call = bench.call(submit(task("a")), "k", "d")
        assert not call.done()
        bench.clock.advance(1.0)
        bench.step()
        assert call.result(0)["ids"] == ["a"]
        assert bench.memory.next_seq() == 2

    def test_a_commit_that_failed_late_refuses_calls_without_a_key(self, bench: Bench):
        """Without a key the call must not be taken twice: its outcome is unknown."""
        bench.late = [StoreUnavailable("disk I/O error")]
        call = bench.call(submit(task("a")))
        assert isinstance(call.exception(0), Unavailable)
        bench.clock.advance(1.0)
        bench.step()
        assert bench.memory.next_seq() == 2

    def test_a_clock_step_that_was_committed_late_moves_times_once(self, bench: Bench):
        """It is the one fact that says `more` and not `what`: taken twice it would move everything twice."""
        bench.submit(task("a", delay=100.0))
        bench.clock.set_by(3600.0)
        bench.late = [StoreUnavailable("disk I/O error")]
        bench.step()
        assert bench.engine.fault is not None
        bench.clock.advance(1.0)
        bench.step()
        assert bench.engine.fault is None
        bench.clock.advance(98.0)
        bench.step()
        assert not bench.executor.running
        bench.clock.advance(1.0)
        bench.step()
        assert set(bench.executor.running) == {1}

    def test_starts_that_were_committed_late_do_run(self, bench: Bench):
        """A start whose commit seemed to fail is durable as running: it must be started or be made to end."""
        bench.late = [StoreUnavailable("disk I/O error")]
        bench.call(submit(task("a")), "k", "d")
        bench.clock.advance(1.0)
        bench.step()
        assert bench.status("a") is Status.RUNNING
        assert set(bench.executor.running) == {1}, "a running row with nobody running it"

    def test_a_bad_statement_refuses_only_who_asked_for_it(self, bench: Bench):
        """In a round of three the one in the middle fails alone."""
        calls = [Call(submit(task(name))) for name in ("a", "b", "c")]
        bench.faults = [("write", StatementFailed("too big")), ("commit", StatementFailed("x"))]
        bench.faults.pop()
        seen = []
        original = bench.memory.write

        def write(out):
            if any(added.task.id == "b" for added in out.added):
                seen.append("b")
                raise StatementFailed("integer too big")
            original(out)

        bench.faults = []
        bench.memory.write = write
        bench.step(*calls)
        assert calls[0].future.result(0)["ids"] == ["a"]
        assert isinstance(calls[1].future.exception(0), RequestFailed)
        assert "integer too big" in str(calls[1].future.exception(0))
        assert calls[2].future.result(0)["ids"] == ["c"]
        assert bench.engine.fault is None

    def test_a_refused_call_does_not_stop_the_timers(self, bench: Bench):
        """The machine that it spoiled is rebuilt at once: what is due is not forgotten."""
        bench.submit(task("later", delay=5.0))
        bench.faults = [("write", StatementFailed("no")), ("write", StatementFailed("no"))]
        bench.clock.advance(0.0)
        assert isinstance(bench.call(submit(task("bad"))).exception(0), RequestFailed)
        assert bench.engine._wait_s() == 0.0
        bench.step()
        assert bench.engine._wait_s() == pytest.approx(5.0)

    def test_what_fails_after_the_commit_is_not_taken_again(self, bench: Bench):
        """A commit is let go once: an observer that raises ends the engine, and one submit made one task."""

        def observer(committed: Committed) -> None:
            raise MemoryError

        bench.engine.observe(observer)
        with pytest.raises(MemoryError):
            bench.call(submit(task("a")))
        assert bench.memory.next_seq() == 2

    def test_what_runs_for_a_row_that_is_set_aside_is_stopped(self, bench: Bench):
        """The row says that the task has failed; its attempt must not go on beside what follows from that."""
        bench.submit(task("a"))

        def load() -> Stored:
            return Stored([], [], [DamagedTask(1, "a", "unreadable", 1)])

        bench.memory.load = load
        bench.faults = [("commit", LOCKED)]
        bench.call(submit(task("b")), "k", "d")
        bench.clock.advance(1.0)
        bench.step()
        assert [(stop.seq, stop.number) for stop in bench.executor.stopped] == [(1, 1)]
        assert any(event.kind == "failed" for told in bench.told for event in told.events)

    def test_a_fact_that_cannot_be_written_ends_the_engine(self, bench: Bench):
        """It is our own fault: stop with the story rather than forget it."""
        bench.submit(task("a"))
        bench.faults = [("write", StatementFailed("bug")), ("write", StatementFailed("bug"))]
        with pytest.raises(StatementFailed):
            bench.end(1)

    def test_a_broken_store_ends_the_engine(self, bench: Bench):
        """What cannot pass is not tried again."""
        bench.faults = [("begin", StoreBroken("the database is damaged"))]
        with pytest.raises(StoreBroken):
            bench.call(submit(task("a")))

    def test_effects_of_a_failed_round_are_not_repeated(self, bench: Bench):
        """A cancel in a failed round stops its task once, after the commit."""
        bench.submit(task("a"))
        bench.faults = [("commit", LOCKED)]
        bench.call(CancelTasks(("a",)), "k", "d")
        assert not bench.executor.stopped
        bench.clock.advance(1.0)
        bench.step()
        assert [stop.reason for stop in bench.executor.stopped] == [StopReason.CANCELLED]


class TestRecovery:
    """A new engine on the rows of a dead one."""

    def test_running_rows_are_crashed_attempts(self, bench: Bench):
        """An attempt is left: it is retried; none is left: failed, and its child is skipped."""
        bench.submit(task("a", retry=RetryPolicy(max_attempts=2, base_delay=5.0)), task("b"), task("c", "b"))
        bench.executor.running.clear()
        engine = bench.new_engine()
        recovery = engine.recover()
        assert (recovery.open_tasks, recovery.crashed) == (1, 2)
        assert bench.status("a") is Status.PENDING
        assert bench.status("b") is Status.FAILED
        assert bench.status("c") is Status.SKIPPED
        bench.engine = engine
        bench.clock.advance(5.0)
        bench.step()
        assert bench.executor.running[1].number == 2

    def test_a_cancel_beats_the_crash(self, bench: Bench):
        """A task whose cancel was durable is cancelled, not retried."""
        bench.submit(task("a", retry=RetryPolicy(max_attempts=5)))
        bench.call(CancelTasks(("a",)))
        bench.executor.running.clear()
        bench.new_engine().recover()
        assert bench.status("a") is Status.CANCELLED

    def test_recovery_can_fail_and_be_repeated(self, bench: Bench):
        """Killed before its commit it has changed nothing; after it there is nothing left to do."""
        bench.submit(task("a", retry=RetryPolicy(max_attempts=3)))
        bench.executor.running.clear()
        bench.faults = [("commit", LOCKED)]
        with pytest.raises(StoreUnavailable):
            bench.new_engine().recover()
        assert bench.new_engine().recover().crashed == 1
        assert bench.new_engine().recover().crashed == 0


class TestStop:
    """A stop on purpose."""

    def test_a_drain_lets_running_tasks_finish(self, bench: Bench):
        """Nothing new starts, and the engine is over when the last one has ended."""
        bench.submit(task("a"), task("b", "a"))
        bench.engine.stop(10.0, 5.0)
        bench.step()
        assert not bench.engine._is_over()
        bench.end(1)
        assert bench.engine._is_over()
        assert not bench.executor.running

    def test_what_outlasts_the_drain_is_interrupted_and_costs_nothing(self, bench: Bench):
        """The interrupted attempt does not count and the task is pending for the next start."""
        bench.submit(task("a"))
        bench.engine.stop(10.0, 5.0)
        bench.step()
        bench.clock.advance(10.0)
        bench.step()
        assert [stop.reason for stop in bench.executor.stopped] == [StopReason.INTERRUPTED]
        bench.end(1, Outcome.INTERRUPTED)
        assert bench.engine._is_over()
        engine = bench.engine = bench.new_engine()
        assert engine.recover().crashed == 0
        bench.step()
        assert bench.executor.running[1].number == 2

    def test_an_idle_engine_stops_at_once_although_nothing_can_be_written(self, bench: Bench):
        """A drain writes nothing: it need not wait for a locked database."""
        bench.faults = [("begin", LOCKED)] * 1000
        bench.engine.stop(10.0, 5.0)
        bench.step()
        assert bench.engine._is_over()

    def test_what_runs_is_interrupted_on_time_although_nothing_can_be_written(self, bench: Bench):
        """The end of the drain does not wait for the database either; only the outcome does."""
        bench.submit(task("a"))
        bench.faults = [("begin", LOCKED)] * 3
        bench.engine.stop(1.0, 100.0)
        bench.step()
        bench.clock.advance(1.0)
        bench.step()
        assert [stop.reason for stop in bench.executor.stopped] == [StopReason.INTERRUPTED]
        bench.end(1, Outcome.INTERRUPTED)
        assert not bench.engine._is_over()
        while bench.engine.fault is not None:
            bench.clock.advance(5.0)
            bench.step()
        assert bench.engine._is_over()
        assert bench.status("a") is Status.PENDING

    def test_a_stop_that_cannot_write_gives_up(self, bench: Bench):
        """With the database gone a stop ends after its patience."""
        bench.submit(task("a"))
        bench.faults = [("begin", LOCKED)] * 1000
        bench.engine.stop(0.0, 5.0)
        bench.end(1, Outcome.INTERRUPTED)
        assert not bench.engine._is_over()
        bench.clock.advance(5.0)
        assert bench.engine._is_over()


class TestQuestions:
    """Questions while the rows cannot be read or written."""

    def test_a_question_in_a_fault_is_answered_and_leaves_no_transaction(self, bench: Bench):
        """The reload that it needs may fail half-way; the next round begins afresh."""
        bench.faults = [("commit", LOCKED)]
        call = bench.call(submit(task("a")), "k", "d")
        bench.faults = [("load", LOCKED)]
        question = Question(lambda machine: len(machine.open))
        bench.step(question)
        assert isinstance(question.future.exception(0), Unavailable)
        bench.clock.advance(1.0)
        bench.step()
        assert call.result(0)["ids"] == ["a"]

    def test_thousands_that_wait_at_the_end_are_all_told(self, bench: Bench):
        """The inbox hands out a bounded number at a time; nobody is left behind."""
        calls = [Call(submit(task(f"t{number}"))) for number in range(2_500)]
        for call in calls:
            bench.engine.inbox.post(call)
        bench.engine._draining = True  # over before it takes anything
        bench.engine.run()
        assert all(isinstance(call.future.exception(0), Unavailable) for call in calls)

    def test_an_inbox_that_is_given_is_the_one_that_is_read(self):
        """An empty inbox is false in a condition, and must be taken all the same."""
        inbox = Inbox()
        bench = Bench()
        engine = Engine(bench.memory, bench.executor, bench.clock, 1, inbox)
        assert engine.inbox is inbox
