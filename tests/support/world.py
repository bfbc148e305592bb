"""A whole scheduler without threads, processes or time: the real core, engine and SQLite store, driven by a seed.

The world submits random work, ends attempts in any order and way, sets the clock, makes the store fail before and
after its work, and crashes at any operation: what was not committed is gone, every process is dead, and a new engine
recovers from the file. After every step the `Ledger` judges the rows and `invariants` the machine.
"""

import shutil
from concurrent.futures import Future
from pathlib import Path
from random import Random
from typing import Any

from schedd.core import invariants
from schedd.core.batch import NewBatch
from schedd.core.errors import Refused
from schedd.core.events import AttemptSpawned
from schedd.core.limits import SCHEDD_FAULT_DELAY_S
from schedd.core.model import (
    CatchUp,
    Dependency,
    Moment,
    NewTask,
    Outcome,
    Recurrence,
    RetryPolicy,
    StopReason,
    Wall,
    When,
)
from schedd.engine.inbox import Call, Message, Request
from schedd.engine.loop import Engine, Unavailable
from schedd.engine.requests import CancelTasks, DependTasks, HoldTasks, PauseStarting, SubmitBatch
from schedd.engine.retrying import RetryTasks
from schedd.store.base import StoreUnavailable
from schedd.store.check import check_database
from schedd.store.sqlite import open_store
from support.fakes import FailingStore, FakeClock, FakeExecutor
from support.ledger import Ledger, Snapshot
from support.nth import Crash


class World:
    """One seed's life. `crashes` and `faults` count what happened to it."""

    def __init__(self, seed: int, folder: Path, template: Path, steps: int = 40) -> None:
        self.random = Random(seed)
        self.steps = steps
        self.path = folder / f"{seed}.db"
        shutil.copy(template, self.path)
        self.clock = FakeClock()
        self.workers = self.random.randint(1, 4)
        self.fault_rate = self.random.choice([0.0, 0.02, 0.1])
        self.late_rate = self.random.choice([0.0, 0.01, 0.05, 0.3])
        self.crash_rate = self.random.choice([0.0, 0.01, 0.05])
        self.crashes = 0
        self.faults = 0
        self.interrupts = 0
        self.keys = 0
        self.tags = 0
        self.ledger = Ledger(self.path)
        self.repeat_rate = 0.8  # of the keyed calls that a crash left unanswered
        self.asked: dict[str, Call | None] = {}  # a switch -> who set it last, unless that was a repeat
        self.planned: dict[int, float] = {}  # seq -> the monotonic time at which its present run was planned
        self.not_before: dict[int, float] = {}  # seq -> the monotonic time that a task waits for
        self.limits: dict[tuple[int, str], float] = {}  # (seq, which) -> its date, or its time on the monotonic clock
        self.clock_is_set = False  # and no round has been committed since
        self.unanswered: list[tuple[Call, Future[Any]]] = []
        self.ids: list[str] = []
        self._store = open_store(self.path)
        self._store_pragmas()
        self.store = FailingStore(self._store, self._fail, self._fail_late)
        self.executor = FakeExecutor()
        self.engine: Engine
        self.boot()

    def close(self) -> None:
        """Remove the world."""
        self.ledger.close()
        self._store.close()
        for path in self.path.parent.glob(f"{self.path.name}*"):
            path.unlink()

    # --- life and death -----------------------------------------------------------------------------------------

    def boot(self) -> None:
        """Start a daemon on the file; every process of the last one is dead."""
        if self.clock_is_set:  # a daemon does not know what was done to the clock before its start
            self.not_before.clear()
            self.planned.clear()
            self.limits.clear()
            self.clock_is_set = False
        for _ in range(1_000):
            self.on_boot()
            self.executor = FakeExecutor()
            self.engine = Engine(self.store, self.executor, self.clock, self.workers)  # type: ignore[arg-type]
            try:
                self.engine.recover()
                break
            except Crash:
                self._die()
            except StoreUnavailable:
                self._store.rollback()
            self.judge_times(self.ledger.last, self.ledger.check())  # half a recovery is none
        else:
            raise AssertionError("no start succeeds any more")
        self.judge_database()
        self.judge_times(self.ledger.last, self.ledger.check())
        repeats, self.unanswered = self.unanswered, []
        for call, _ in repeats:
            if call.key is not None and self.random.random() < self.repeat_rate:
                self.call(call.request, key=call.key)

    def on_boot(self) -> None:
        """Called at each try to start."""

    def _die(self) -> None:
        self.crashes += 1
        self._store.rollback()

    def _fail(self, name: str, count: int) -> BaseException | None:
        if self.random.random() < self.crash_rate:
            return Crash()
        if self.random.random() < self.fault_rate:
            self.faults += 1
            return StoreUnavailable("simulated")
        return None

    def _fail_late(self, count: int) -> BaseException | None:
        if self.random.random() < self.crash_rate:
            return Crash()
        if self.random.random() < self.late_rate:
            self.faults += 1
            return StoreUnavailable("simulated after the commit")
        return None

    def _store_pragmas(self) -> None:
        """Crashes are simulated, not powered off: fsync would only cost time."""
        self._store.set_synchronous_off()

    # --- steps --------------------------------------------------------------------------------------------------

    def run(self) -> None:
        """Live for some steps, then let everything finish and check that it did."""
        for _ in range(self.steps):
            self.one_step()
        self.finish()

    def one_step(self) -> None:
        """Something happens."""
        choice = self.random.random()
        if choice < 0.30:
            self.submit()
        elif choice < 0.62:
            self.step(*self.some_ends())
        elif choice < 0.70 and self.ids:
            self.cancel()
        elif choice < 0.76 and self.ids:
            self.call(HoldTasks((self.random.choice(self.ids),), self.random.random() < 0.5))
        elif choice < 0.82 and len(self.ids) > 1:
            before, after = self.random.sample(self.ids, 2)
            self.call(DependTasks(before, after, self.a_when()))
        elif choice < 0.87 and self.ids:
            self.retry()
        elif choice < 0.89:
            self.call(PauseStarting(self.random.random() < 0.4))
        elif choice < 0.91:
            self.set_clock(self.random.choice([-3600.0, -5.0, 5.0, 3600.0]))
        elif choice < 0.93:
            self.stop_on_purpose()
        else:
            self.clock.advance(self.random.choice([0.1, 1.0, 5.0, 30.0]))
            self.step()

    def retry(self) -> None:
        """An operator brings something back, or would."""
        ids = tuple(self.random.sample(self.ids, min(len(self.ids), self.random.randint(1, 3))))
        self.call(
            RetryTasks(ids, self.random.random() < 0.4, self.random.random() < 0.2, dry_run=self.random.random() < 0.2)
        )

    def set_clock(self, delta: float) -> None:
        """The admin sets the wall clock."""
        self.clock.set_by(delta)
        self.clock_is_set = True
        self.step()

    def step(self, *messages: Message) -> None:
        """One round, judged; a crash in it boots a new daemon."""
        before = self.ledger.check()
        self.executor.started.clear()
        try:
            self.engine.step(list(messages))
        except Crash:
            self._die()
            self.collect()
            self.judge_times(before, self.ledger.check())
            self.boot()
            self.collect()
            self.ledger.check()
            return
        self.collect()
        after = self.ledger.check()
        self.judge_starts(before, after)
        if self.engine.fault is None:
            self.clock_is_set = False
            self.judge_stops(after)
        self.judge_times(before, after)
        machine = self.engine._machine
        if machine is not None and self.engine.fault is None:  # during a fault it waits, and what is due with it
            invariants.check(machine, self.clock.now())
            running = {seq for seq, row in after.tasks.items() if row["status"] == "running"}
            assert set(machine.running) == running, "the machine and the rows disagree about what runs"
            ended_and_waiting = {message.seq for message in self.engine._backlog if hasattr(message, "outcome")}
            assert set(self.executor.running) == running - ended_and_waiting, "rows and processes disagree"

    def judge_starts(self, before: Snapshot, after: Snapshot) -> None:
        """What has started was allowed to, and nothing better was left behind while a worker was free."""
        now = self.clock.now()
        started = [order.seq for order in self.executor.started]
        for seq in started:
            row = after.tasks[seq]
            assert row["status"] == "running" and after.attempts[seq], f"started before that was committed: {row}"
            claimed_at = after.attempts[seq][-1]["started_at"]  # earlier than now where a commit only seemed to fail
            if row["number"] == row["base_number"] + 1 and not after.started_before_a_parent_was_retried(seq):
                assert all(met is True for met in after.deps_of(seq)), f"started before what it depends on: {row}"
            assert row["run_at"] <= max(now, claimed_at), f"started early at {now}: {row}"
            assert not row["held"] or claimed_at < now, f"started although held: {row}"
        fresh = [seq for seq in started if before.tasks.get(seq, {}).get("status") != "running"]
        assert not (fresh and after.paused), f"{fresh} started although starting is paused"
        assert not (fresh and self.engine._draining), f"{fresh} started although the daemon is stopping"
        if self.engine.fault is not None or self.engine._draining:
            return
        left = [seq for seq in after.tasks if after.may_run(seq, now)]
        running = [seq for seq, row in after.tasks.items() if row["status"] == "running"]
        if left:
            assert len(running) >= self.workers, f"a worker idles while {left} may run"
        rank = {seq: (after.tasks[seq]["priority"], seq) for seq in after.tasks}
        if left and fresh and not after.paused:
            best_left = min(rank[seq] for seq in left)
            worst = max(rank[seq] for seq in fresh)
            assert worst < best_left, f"{worst} was started before {best_left}"

    def judge_stops(self, after: Snapshot) -> None:
        """Whatever is being cancelled has been told."""
        told = {(stop.seq, stop.number) for stop in self.executor.stopped}
        for seq in self.executor.running:
            row = after.tasks[seq]
            if row["cancel_requested"]:
                assert (seq, row["number"]) in told, f"nobody told the attempt that it is cancelled: {row}"
            if row["deadline"] is not None and row["deadline"] <= self.clock.now():
                assert (seq, row["number"]) in told, f"nobody told the attempt that its time is over: {row}"
        for seq, row in after.tasks.items():
            limits = [row["deadline"], None if after.has_started(seq) else row["start_before"]]
            overdue = any(limit is not None and limit <= self.clock.now() for limit in limits)
            assert row["status"] != "pending" or not overdue, f"it is out of time and waits: {row}"

    def judge_times(self, before: Snapshot | None, after: Snapshot) -> None:
        """Each pending task waits exactly as long as it should, whatever was done to the wall clock.

        The naive model: a submit waits for its delay, a failed attempt for its backoff, a next run for its beat, on a
        clock that nobody sets.
        """
        mono, wall = self.clock.monotonic(), self.clock.now()
        for seq, row in after.tasks.items():
            was = before.tasks.get(seq) if before else None
            if row["planned_at"] is not None and (was is None or was["planned_at"] is None) and not self.clock_is_set:
                self.planned[seq] = mono
            if after.retried.get(seq, 0) > (before.retried.get(seq, 0) if before else 0):
                self.planned.pop(seq, None)
                if row["planned_at"] is not None and not self.clock_is_set:
                    self.planned[seq] = mono
            has_run = was is not None and row["runs"] != was["runs"] and row["runs"] != 0
            if has_run and row["every"] is not None:
                self.judge_beat(seq, row)
            if row["status"] != "pending":
                self.not_before.pop(seq, None)
            elif after.retried.get(seq, 0) > (before.retried.get(seq, 0) if before else 0):
                self.not_before[seq] = mono
            elif was is None:
                self.not_before[seq] = mono + row["delay"]
            elif was["number"] != row["number"] or was["status"] == "running":  # an attempt has ended
                last = after.attempts[seq][-1]
                if last["outcome"] == "interrupted":
                    self.not_before[seq] = mono
                elif last["outcome"] == "start_failed" and last["error"] == "schedd's fault":
                    self.not_before[seq] = mono + SCHEDD_FAULT_DELAY_S
                elif not has_run:
                    wait = row["base_delay"] * 2 ** (row["attempts"] - 1)
                    self.not_before[seq] = mono + min(wait, row["max_delay"])
            for name, bit in (("start_before", Wall.START_BEFORE), ("deadline", Wall.DEADLINE)):
                if row["status"] not in ("pending", "running"):
                    self.limits.pop((seq, name), None)
                elif row[name] is not None and not self.clock_is_set:
                    at = row[name] if row["wall"] & bit else row[name] - wall + mono
                    known = self.limits.setdefault((seq, name), at)
                    assert abs(at - known) < 0.001, f"its {name} has moved: {row}"
            if seq in self.not_before and not self.clock_is_set:
                due, should = row["run_at"] - wall, self.not_before[seq] - mono
                assert abs(due - should) < 0.001, f"waits {due} s more instead of {should}: {row}"

    def judge_beat(self, seq: int, row: dict[str, Any]) -> None:
        """A run has ended: count the beats up to the one that its policy takes."""
        planned, every, now = self.planned.pop(seq, None), row["every"], self.clock.monotonic()
        self.not_before.pop(seq, None)
        if planned is None:
            return
        beat = planned + every
        if row["catch_up"] != CatchUp.ALL.value:
            while beat + every <= now:
                beat += every
            if min(abs(beat - now), abs(beat + every - now)) < 0.001:
                return  # due this very moment, or not: the last digit decides
            if row["catch_up"] == CatchUp.NONE.value and beat <= now:
                beat += every
        self.planned[seq] = self.not_before[seq] = beat

    @staticmethod
    def switches_of(request: Request) -> tuple[str, ...]:
        """The ids whose hold a request sets; "" stands for the pause."""
        if isinstance(request, HoldTasks):
            return request.ids
        return ("",) if isinstance(request, PauseStarting) else ()

    def call(self, request: Request, key: str | None = None) -> Call:
        """Post a request with a key (or, sometimes, without one) and take a round."""
        is_repeat = key is not None
        if key is None and self.random.random() < 0.9:
            self.keys += 1
            key = f"key-{self.keys}"
        call = Call(request, key=key, digest=repr(type(request)), arrived=self.clock.monotonic())
        call.future.set_running_or_notify_cancel()
        self.unanswered.append((call, call.future))
        for switch in self.switches_of(request):
            self.asked[switch] = None if is_repeat else call
            self.ledger.held.pop(switch, None)
        if isinstance(request, PauseStarting):
            self.ledger.paused = None
        self.step(call)
        return call

    def collect(self) -> None:
        """Write down what callers were told."""
        waiting = []
        for call, future in self.unanswered:
            if not future.done():
                waiting.append((call, future))
                continue
            error = future.exception()
            if error is not None:
                assert isinstance(error, (Refused, Unavailable)), f"an unexpected error: {error!r}"
                if isinstance(error, Refused) and isinstance(call.request, SubmitBatch):
                    self.ledger.refused.add(call.request.batch.tasks[0].payload)
                continue
            self.note(call, future.result())
        self.unanswered = waiting

    def note(self, call: Call, answer: dict[str, Any]) -> None:
        """An answer is a promise. Of a repeated switch it may be an old one, that another has overtaken."""
        request = call.request
        if isinstance(request, SubmitBatch):
            for task_id in answer["ids"]:
                self.ledger.accepted[task_id] = len(answer["ids"])
                if task_id not in self.ids:
                    self.ids.append(task_id)
        if isinstance(request, CancelTasks):
            rows = {row["id"]: row for row in self.ledger.read().tasks.values()}
            for result in answer["results"]:
                if result["ok"]:
                    self.ledger.cancelled.setdefault(result["id"], rows[result["id"]]["number"])
        if isinstance(request, HoldTasks):
            for result in answer["results"]:
                if result["ok"] and self.asked[result["id"]] is call:
                    self.ledger.held[result["id"]] = request.held
        if isinstance(request, DependTasks):
            self.ledger.edges.add((answer["after"], answer["before"], answer["when"]))
        if isinstance(request, PauseStarting) and self.asked[""] is call:
            self.ledger.paused = answer["paused"]

    def judge_database(self) -> None:
        """What `schedctl check` would say of it: nothing."""
        report = check_database(self.path)
        assert report.unjudged is None
        assert not report.kinds, [found.shown for found in report.told()]

    # --- random work --------------------------------------------------------------------------------------------

    def a_when(self) -> When:
        return self.random.choice([When.SUCCEEDED, When.SUCCEEDED, When.FAILED, When.FINISHED])

    def submit(self) -> None:
        self.tags += 1
        size = self.random.randint(1, 6)
        tasks = [self.a_task(index, size) for index in range(size)]
        try:
            batch = NewBatch(tasks, self.random.choice([None, "ci", "nightly"]))
        except Refused:
            return
        self.call(SubmitBatch(batch))

    def a_task(self, index: int, size: int) -> NewTask:
        random = self.random
        deps = {str(other): f"n{other}" for other in range(index) if random.random() < 0.3}
        if random.random() < 0.05 and index + 1 < size:
            deps["cycle"] = f"n{index + 1}"
        if self.ids and random.random() < 0.3:
            deps["old"] = random.choice(self.ids)
        name = f"n{index}" if random.random() < 0.5 else None
        return NewTask(
            payload=str(self.tags),
            name=f"n{index}-{self.keys}" if name is None and random.random() < 0.5 else name,
            deps=tuple(Dependency(on, self.a_when()) for on in deps.values()),
            priority=random.randint(-2, 2),
            retry=RetryPolicy(
                random.randint(1, 3),
                random.choice([0.0, 0.5, 5.0]),
                8.0,
                never_on_exit_codes=(2,) if random.random() < 0.3 else (),
            ),
            recurrence=self.a_recurrence(),
            delay=random.choice([0.0, 0.0, 0.0, 2.0, 60.0]),
            start_before=self.a_limit(),
            deadline=self.a_limit(),
        )

    def a_limit(self) -> Moment | None:
        """A limit in time, as a wait or as a date."""
        if self.random.random() < 0.85:
            return None
        wait = self.random.choice([1.0, 20.0, 500.0])
        is_date = self.random.random() < 0.3
        return Moment(self.clock.now() + wait if is_date else wait, is_date)

    def a_recurrence(self) -> Recurrence | None:
        if self.random.random() < 0.85:
            return None
        return Recurrence(self.random.choice([0.5, 10.0]), self.random.randint(1, 3), self.random.choice(list(CatchUp)))

    def cancel(self) -> None:
        running = sorted(order.id for order in self.executor.running.values())
        among = running if running and self.random.random() < 0.4 else self.ids
        self.call(CancelTasks(tuple(self.random.sample(among, min(len(among), self.random.randint(1, 2))))))

    def some_ends(self) -> list[Message]:
        running = sorted(self.executor.running)
        count = self.random.randint(0, len(running))
        ends: list[Message] = []
        for seq in self.random.sample(running, count):
            if self.random.random() < 0.2:
                self.executor.spawned.append(AttemptSpawned(seq, self.executor.running[seq].number, 1000 + seq, 1))
            else:
                ends.append(self.an_end(seq))
        return ends

    def an_end(self, seq: int) -> Message:
        number = self.executor.running[seq].number
        stops = {(stop.seq, stop.number): stop.reason for stop in self.executor.stopped}
        reason = stops.get((seq, number))
        if reason is StopReason.INTERRUPTED:
            outcome = Outcome.INTERRUPTED
        elif reason is StopReason.CANCELLED:
            outcome = self.random.choice([Outcome.CANCELLED, Outcome.SUCCEEDED, Outcome.FAILED])
        else:
            outcome = self.random.choices(
                [Outcome.SUCCEEDED, Outcome.FAILED, Outcome.TIMED_OUT, Outcome.START_FAILED, Outcome.CRASHED],
                [70, 15, 5, 5, 5],
            )[0]
        if outcome is Outcome.START_FAILED and self.random.random() < 0.5:
            return self.end(seq, outcome, error="schedd's fault", counts=False)
        code = self.random.choice([1, 2]) if outcome is Outcome.FAILED else None
        return self.end(seq, outcome, error=None if outcome is Outcome.SUCCEEDED else "simulated", exit_code=code)

    def end(self, seq: int, outcome: Outcome, **more: Any) -> Message:
        """The end of a running attempt, which the ledger will find in the rows."""
        self.ledger.reported[(seq, self.executor.running[seq].number)] = outcome.value
        return self.executor.end(seq, outcome, self.clock.now(), **more)

    # --- ends ---------------------------------------------------------------------------------------------------

    def stop_on_purpose(self) -> None:
        """Drain, interrupt, and start again: no attempt is counted for it."""
        self.interrupts += 1
        self.engine.stop(self.random.choice([0.0, 5.0]), 1000.0)
        crashes = self.crashes
        self.step()
        for _ in range(50):
            if self.crashes != crashes:
                return  # the daemon died while it stopped: `step` has booted the next one
            if self.engine._is_over():
                break
            self.clock.advance(5.0)
            told = {stop.seq for stop in self.executor.stopped}
            self.step(*[self.an_end(seq) for seq in sorted(self.executor.running) if seq in told])
        else:
            raise AssertionError("a stop never came to its end")
        assert not self.executor.running
        self.boot()
        self.collect()
        self.ledger.check()

    def finish(self) -> None:
        """No more faults: everything that was accepted comes to an end."""
        self.fault_rate = self.late_rate = self.crash_rate = 0.0
        self.clock.advance(30.0)  # past the pause after the last fault
        self.step()
        self.call(PauseStarting(False))
        for _ in range(400):
            rows = self.ledger.read().tasks.values()
            if all(row["status"] in ("succeeded", "failed", "cancelled", "skipped") for row in rows):
                break
            for row in rows:
                if row["held"] and row["status"] == "pending":
                    self.call(HoldTasks((row["id"],), False))
            self.clock.advance(30.0)
            self.step(*[self.an_end(seq) for seq in sorted(self.executor.running)])
        else:
            raise AssertionError(f"not everything ended: {[dict(row) for row in rows]}")
        machine = self.engine._machine
        assert machine is not None
        assert not machine.open, "ended tasks stayed in memory"
        assert not self.unanswered, "a call was never answered"
        self.judge_database()
