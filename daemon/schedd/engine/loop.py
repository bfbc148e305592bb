"""The engine: takes what has arrived, lets the core decide, commits, and only then lets effects go.

Theory of operation
-------------------
`step(messages)` is one round, and all there is to simulate; `run()` is the thread around it that waits. Messages stay
in the backlog until the round that took them is committed:

    begin -> handle each message -> claim for free workers -> write rows -> commit -> effects, answers, observers

Nothing leaves before the commit, so a round that fails can be forgotten: the machine is thrown away and rebuilt from
rows, and the backlog is taken again. What happens next depends on the fault:

    StoreUnavailable   it can pass: wait (doubling, `LONGEST_BACKOFF_S` at most) and take the backlog again. Facts are
                       kept for as long as it takes; a call older than `PATIENCE_S` is answered `Unavailable`.
    StoreBroken        it cannot pass: `run` ends and the daemon stops with its own exit code.
    anything else      one message is to blame: each is taken in a round of its own. A call that fails alone is
                       refused; a fact that fails alone is ours, and ends `run`.

A commit that raised may have been durable all the same. A keyed call finds its stored answer when it is taken again;
one without a key is answered `Unavailable` at once. A fact taken twice is ignored by the machine, and a clock step,
which says how much and not what, is remembered under a key. And a row that says
`running` for an attempt that was never let go (`_live` knows those that were) has its start let go after the reload.

It refuses to know what a task does (`Executor`), what rows look like (`Store`) and what time it is (`Clock`).
Tests: tests/unit/engine/test_engine.py, tests/simulation.
"""

import json
import secrets
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

from schedd.core.errors import KeyReused, Refused
from schedd.core.events import (
    AttemptEnded,
    AttemptSpawned,
    ClockStepped,
    DrainBegan,
    DrainExpired,
    Effect,
    Hold,
    Logged,
    Output,
    StartAttempt,
    StopAttempt,
)
from schedd.core.machine import Machine
from schedd.core.model import KnownTask, OpenTask, Outcome, StopReason
from schedd.core.rebuilding import rebuild
from schedd.engine.clock import Clock
from schedd.engine.inbox import Call, Inbox, Message, Question
from schedd.engine.round import Round
from schedd.store.base import StatementFailed, Store, StoreBroken, StoreUnavailable

PATIENCE_S = 5.0
FIRST_BACKOFF_S = 0.05
LONGEST_BACKOFF_S = 5.0
LONGEST_SLEEP_S = 86_400.0
HINT_DELAY_S = 1.0
"""A pid is written with the next round, and with one of its own if none comes for this long."""


TEND_INTERVAL_S = 10.0
"""How often the store is looked after while there is something to commit, or to complain about."""

MOST_PIDS_NAMED = 10


class Unavailable(Exception):
    """schedd could not write to its database; the outcome is unknown, so repeat the request with the same key."""


class RequestFailed(Exception):
    """schedd could not carry out this request because of a bug or a statement the database refused; nothing was
    changed."""


class Executor(Protocol):
    """What does the work: `workers.pool.Pool`, or a fake in tests. No method may block or raise."""

    def start(self, order: StartAttempt, payload: Any) -> None:
        """Begin an attempt; its end is posted as AttemptEnded, whatever happens."""

    def stop(self, order: StopAttempt) -> None:
        """Ask a running attempt to end; one that has ended already is no news."""

    def take_spawned(self) -> list[AttemptSpawned]:
        """The processes that came to be since the last call."""


class Committed(NamedTuple):
    """What a round made durable, for observers: the log lines and the ends of attempts, in order."""

    events: list[Logged]
    ended: list[AttemptEnded]


Observer = Callable[[Committed], None]
"""Called in the engine thread after each commit that changed anything: it must be quick and must not raise."""


@dataclass(frozen=True, slots=True)
class Fault:
    """Why schedd cannot write at the moment, or what else an admin should see to; since when (UTC seconds)."""

    since: float
    message: str


@dataclass(frozen=True, slots=True)
class Recovery:
    """What recovery found: open tasks, attempts that died with the last daemon, rows set aside, and the ids of the
    tasks it holds because something of an earlier attempt could not be killed.
    """

    open_tasks: int
    crashed: int
    damaged: int
    held: tuple[str, ...] = ()


class _Decided(NamedTuple):
    """What a round has decided and its commit made durable: to be let go once."""

    effects: list[Effect]
    payloads: dict[int, Any]
    answers: list[tuple[Call, Any]]
    committed: Committed


class Engine:
    """Owns the machine. `post` and the properties may be used from any thread, all else by the engine's own."""

    def __init__(
        self, store: Store, executor: Executor, clock: Clock, workers: int, inbox: Inbox | None = None
    ) -> None:
        self.inbox = inbox if inbox is not None else Inbox()  # an empty one is false
        self.fault: Fault | None = None  # why nothing can be written
        self.complaint: Fault | None = None  # what an admin should see to although all is written
        self.on_fault: Callable[[Fault | None], None] = lambda fault: None  # told when one comes, changes, goes
        self.on_complaint: Callable[[Fault | None], None] = lambda complaint: None  # told when one comes and goes
        self.left_running: tuple[str, ...] = ()  # the tasks that `run` has given up waiting for when it ended
        self.beat = clock.monotonic()  # when the loop last made progress: the watchdog's food
        self._store = store
        self._executor = executor
        self._clock = clock
        self._workers = workers
        self._machine: Machine | None = None
        self._backlog: list[Message] = []
        self._observers: list[Observer] = []
        self._backoff_s = 0.0
        self._retry_at = 0.0
        self._tend_at = 0.0
        self._untended = False  # whether something was committed since the store was looked after
        self._unhinted: set[tuple[int, int]] = set()  # those of `_live` whose process nobody has heard of yet
        self._hint_pause_s = HINT_DELAY_S
        self._interrupting = False
        self._live: set[tuple[int, int]] = set()  # (seq, number) of the attempts let go and not ended
        self._hints_at: float | None = None
        self._ended = False
        self._draining = False
        self._drain_at: float | None = None
        self._give_up_at: float | None = None
        clock.subscribe(self.inbox.wake)

    # --- for other threads --------------------------------------------------------------------------------------

    def call(self, call: Call) -> "Future[Any]":
        """Post a request; the future is answered after the commit that made it durable."""
        call.future.set_running_or_notify_cancel()
        self._post(call)
        return call.future

    def ask(self, question: Callable[[Machine], Any]) -> "Future[Any]":
        """Have `question(machine)` answered between two rounds. It must be quick and must not write."""
        asked = Question(question)
        asked.future.set_running_or_notify_cancel()
        self._post(asked)
        return asked.future

    def stop(self, drain_s: float, give_up_s: float) -> None:
        """Start nothing more; interrupt what still runs after `drain_s`; end the loop when all is written.

        If that takes longer than `give_up_s` after the drain (a full disk, an unkillable process) the loop ends all
        the same, and what it could not write counts as crashed at the next start. May be called again to hurry.
        """
        now = self._clock.monotonic()
        self._drain_at = now + drain_s
        self._give_up_at = now + drain_s + give_up_s
        self.inbox.wake()

    def observe(self, observer: Observer) -> None:
        """Add an observer; before `run`."""
        self._observers.append(observer)

    # --- the engine thread --------------------------------------------------------------------------------------

    def recover(self, in_the_way: Iterable[tuple[int | None, int]] = ()) -> Recovery:
        """Rebuild the machine from rows and end every attempt that died with the last daemon.

        Call it once, before `run`, when no process of the last daemon is left but those `in_the_way`: (seq of its
        task, pid), the seq None where it is not known. Their tasks are held. Killed at any point and repeated, it
        comes to the same rows. Raises what the store raises.
        """
        now = self._clock.now()
        out = Output()
        stored = self._store.load()
        machine = Machine(self._workers)
        rebuild(machine, stored, now, out)
        died = list(machine.running.values())
        for task in died:
            error = "the daemon died while this attempt ran"
            crashed = AttemptEnded(task.seq, task.number, Outcome.CRASHED, now, error=error, task_id=task.id)
            machine.handle(crashed, now, out)
        held = _hold_back_from(machine, in_the_way, died, now, out)
        try:
            self._store.begin()
            self._store.write(out)
            self._store.commit()
        except BaseException:
            self._store.rollback()
            raise
        self._machine = machine
        self._tell(Committed(list(out.events), list(out.ended)))
        return Recovery(len(machine.open), len(died), len(stored.damaged), held)

    def run(self) -> None:
        """Rounds until `stop` is through. Raises StoreBroken or the error of a fact that could not be taken.

        Whoever waits for an answer when it ends, or asks later, is told so.
        """
        try:
            while not self._is_over():
                messages = self.inbox.wait(self._wait_s())
                self.beat = self._clock.monotonic()
                self.step(messages)
        finally:
            self._ended = True
            if self._machine is not None:
                self.left_running = tuple(task.id for task in self._machine.running.values())
            self._turn_away(self._backlog)
            self._turn_away_all()

    def step(self, messages: list[Message]) -> None:
        """Take messages, and whatever else is due now."""
        asked = [message for message in messages if isinstance(message, Question)]
        self._backlog += [message for message in messages if not isinstance(message, Question)]
        self._note_time()
        self._note_hints()
        try:
            if self._retry_at <= self._clock.monotonic():
                self._take_backlog()
        except BaseException:
            self._turn_away(asked)
            raise
        self._expire_calls()
        for question in asked:
            self._answer_question(question)
        self._tend()

    def _post(self, message: Call | Question) -> None:
        self.inbox.post(message)
        if self._ended:  # nobody reads the inbox any more, or perhaps has read it for the last time
            self._turn_away_all()

    def _turn_away_all(self) -> None:
        while messages := self.inbox.wait(0):
            self._turn_away(messages)

    @staticmethod
    def _turn_away(messages: Sequence[Message]) -> None:
        """Answer those that nobody will take any more. Each message is taken out of the inbox by one thread only."""
        for message in messages:
            if isinstance(message, (Call, Question)) and not message.future.done():
                message.future.set_exception(Unavailable(f"the scheduler has ended. {Unavailable.__doc__}"))

    # --- one round ----------------------------------------------------------------------------------------------

    def _take_backlog(self) -> None:
        backlog, self._backlog = self._backlog, []
        facts: list[Message] = [message for message in backlog if not isinstance(message, Call)]
        if self.fault is not None and facts and len(facts) < len(backlog):
            # What must be written goes first and alone: it may fit on a disk where a request does not. If it does,
            # the next round, which follows at once, takes the calls.
            self._backlog = [message for message in backlog if isinstance(message, Call)]
            backlog = facts
        self._take(backlog)

    def _take(self, backlog: list[Message]) -> None:
        try:
            decided = self._commit(backlog)
        except StoreUnavailable as fault:
            self._hold_back(backlog, fault)
        except StoreBroken:
            self._backlog = backlog + self._backlog
            raise
        except Exception as error:  # noqa: BLE001 - the top of the round: whatever it was, one message is to blame
            self._reset()
            self._take_one_by_one(backlog, error)
        else:
            self._recovered()
            self._release(decided)

    def _take_one_by_one(self, backlog: list[Message], error: Exception) -> None:
        """A message in the failed round is to blame: find it, refuse it, and lose none of the others."""
        if not backlog:
            raise error
        for index, message in enumerate(backlog):
            try:
                decided = self._commit([message])
            except StoreUnavailable as fault:
                self._hold_back(backlog[index:], fault)
                return
            except StoreBroken:
                self._backlog = backlog[index:] + self._backlog
                raise
            except Exception as reason:
                self._reset()
                if not isinstance(message, Call):
                    self._backlog = backlog[index:] + self._backlog
                    raise
                failure = RequestFailed(f"{RequestFailed.__doc__} ({type(reason).__name__}: {reason})")
                failure.__cause__ = reason
                message.future.set_exception(failure)
            else:
                self._release(decided)
        self._recovered()

    def _commit(self, messages: list[Message]) -> "_Decided | None":
        """Begin, decide, commit: what may be let go now, None if there was nothing to do.

        On any exception nothing has left, and the machine is rebuilt before it is used again.
        """
        now = self._clock.now()
        machine = self._machine or self._reload(now)
        idle = not (messages or self._is_due(machine, now))
        if idle and self.fault is None:
            return None
        store = self._store
        store.begin()
        if not idle:
            self._machine = None  # until the commit, what it says has not happened
        round_ = Round(machine, store, now)
        answers: list[tuple[Call, Any]] = []
        for message in messages:
            if isinstance(message, Call):
                answers.append((message, self._answer(round_, message)))
            elif isinstance(message, ClockStepped):
                self._take_clock_step(round_, message)
            else:
                assert not isinstance(message, Question)
                round_.handle(message)
        if idle:
            round_.out.paused = machine.paused  # writes what is there already: only a write shows that a fault is over
        machine.claim(now, round_.out)
        round_.flush()
        starting = [effect.seq for effect in round_.out.effects if isinstance(effect, StartAttempt)]
        payloads = store.payloads(starting) if starting else {}
        try:
            store.commit()
        except Exception:
            self._refuse_unkeyed(messages)
            raise
        self._machine = machine
        self._untended = True
        return _Decided(round_.out.effects, payloads, answers, Committed(round_.events, round_.ended))

    def _release(self, decided: "_Decided | None") -> None:
        """Let go what a commit has made durable. What raises here ends the engine: it must not be taken again."""
        if decided is None:
            return
        committed = decided.committed
        ended = [(event.seq, event.number) for event in committed.ended]
        self._live.difference_update(ended)
        self._unhinted.difference_update(ended)
        if not self._unhinted:
            self._hints_at = None
        self._let_go(decided.effects, decided.payloads)
        for call, answer in decided.answers:
            if isinstance(answer, Exception):
                call.future.set_exception(answer)
            else:
                call.future.set_result(answer)
        if committed.events or committed.ended:
            self._tell(committed)

    def _answer(self, round_: Round, call: Call) -> Any:
        """What to tell the caller once the round is committed: a value, or the refusal as an exception."""
        if call.key is not None:
            stored = self._store.answer_of(call.key)
            if stored is not None:
                return json.loads(stored.answer) if stored.digest == call.digest else KeyReused()
        try:
            answer = call.request.apply(round_)
        except Refused as refusal:
            return refusal
        round_.flush()
        if call.key is not None:
            self._store.remember(call.key, call.digest, json.dumps(answer, separators=(",", ":")), round_.now)
        return answer

    def _take_clock_step(self, round_: Round, step: ClockStepped) -> None:
        """Move the due times once, even if the commit that moved them only seemed to fail: the step is remembered as
        the answer of a keyed request is.
        """
        if self._store.answer_of(step.key) is None:
            round_.handle(step)
            self._store.remember(step.key, "", "{}", round_.now)

    def _let_go(self, effects: list[Effect], payloads: dict[int, Any]) -> None:
        for effect in effects:
            if isinstance(effect, StartAttempt):
                self._live.add((effect.seq, effect.number))
                self._unhinted.add((effect.seq, effect.number))
                self._executor.start(effect, payloads.get(effect.seq))
                self._hint_pause_s = HINT_DELAY_S
                due = self._clock.monotonic() + HINT_DELAY_S
                self._hints_at = due if self._hints_at is None else min(due, self._hints_at)
            else:
                self._executor.stop(effect)

    def _tell(self, committed: Committed) -> None:
        for observer in self._observers:
            observer(committed)

    def _answer_question(self, question: Question) -> None:
        try:
            machine = self._machine or self._reload(self._clock.now())
            question.future.set_result(question.ask(machine))
        except StoreUnavailable as fault:
            self._reset()
            question.future.set_exception(Unavailable(str(fault)))
        except Exception as error:  # noqa: BLE001 - it belongs to who asked
            self._reset()
            question.future.set_exception(error)

    # --- faults -------------------------------------------------------------------------------------------------

    def _reset(self) -> None:
        """Roll the failed round back. (Where it had begun to decide, `_machine` is None: it is rebuilt when needed.)"""
        self._store.rollback()

    def _reload(self, now: float) -> Machine:
        """The machine as the rows have it, after a round that failed.

        Running rows are attempts that the executor really runs, or whose start was committed and never let go: those
        are let go now. So is the stop of a cancelled one, of all of them where a drain is over, and of what runs for
        a row that is set aside; a second stop does no harm.
        """
        machine = Machine(self._workers)
        out = Output()
        rebuild(machine, self._store.load(), now, out)
        if out.has_rows():
            self._store.begin()
            self._store.write(out)
            self._store.commit()
        running = {(task.seq, task.number): task for task in machine.running.values()}
        orphaned = self._live - running.keys()
        effects: list[Effect] = [StopAttempt(seq, number, StopReason.INTERRUPTED) for seq, number in orphaned]
        for key, task in running.items():
            if key not in self._live:
                effects.append(
                    StartAttempt(task.seq, task.id, task.number, task.runs + 1, task.units, task.base_number)
                )
            if task.cancel_requested:
                effects.append(StopAttempt(task.seq, task.number, StopReason.CANCELLED))
            if self._interrupting:
                effects.append(StopAttempt(task.seq, task.number, StopReason.INTERRUPTED))
        starting = [effect.seq for effect in effects if isinstance(effect, StartAttempt)]
        payloads = self._store.payloads(starting) if starting else {}
        machine.draining = self._draining
        self._machine = machine
        self._live &= running.keys()
        self._unhinted &= running.keys()
        self._let_go(effects, payloads)
        self._tell(Committed(list(out.events), list(out.ended)))  # also when empty: whoever waits must look again
        return machine

    def _hold_back(self, backlog: list[Message], fault: StoreUnavailable) -> None:
        """Keep what must be written, and try again later."""
        self._reset()
        self._backlog = [
            message for message in backlog if not (isinstance(message, Call) and message.future.done())
        ] + self._backlog
        self._backoff_s = min(max(self._backoff_s * 2, FIRST_BACKOFF_S), LONGEST_BACKOFF_S)
        self._retry_at = self._clock.monotonic() + self._backoff_s
        known = self.fault
        self.fault = Fault(known.since if known else self._clock.now(), str(fault))
        if self.fault != known:
            self.on_fault(self.fault)

    def _recovered(self) -> None:
        if self.fault is not None:
            self.fault = None
            self.on_fault(None)
        self._backoff_s = 0.0
        self._retry_at = 0.0

    def _expire_calls(self) -> None:
        """Answer the calls that have waited too long for a fault to pass."""
        if not self._backlog:
            return
        now = self._clock.monotonic()
        kept: list[Message] = []
        for message in self._backlog:
            if isinstance(message, Call) and message.arrived + PATIENCE_S <= now:
                message.future.set_exception(self._unavailable())
            else:
                kept.append(message)
        self._backlog = kept

    def _refuse_unkeyed(self, messages: list[Message]) -> None:
        """After a commit with an unknown outcome: a call without a key must not be taken twice."""
        for message in messages:
            if isinstance(message, Call) and message.key is None and not message.future.done():
                message.future.set_exception(self._unavailable())

    def _unavailable(self) -> Unavailable:
        reason = f" ({self.fault.message})" if self.fault else ""
        return Unavailable(f"{Unavailable.__doc__}{reason}")

    def _tend(self) -> None:
        """Look after the store now and then, and remember what it complains about."""
        if self.fault or not (self._untended or self.complaint) or self._clock.monotonic() < self._tend_at:
            return
        self._tend_at = self._clock.monotonic() + TEND_INTERVAL_S
        self._untended = False
        message, known = self._store.tend(), self.complaint
        if message is None:
            self.complaint = None
        else:
            self.complaint = Fault(known.since if known else self._clock.now(), message)
        if (known is None) != (message is None):
            self.on_complaint(self.complaint)

    # --- time ---------------------------------------------------------------------------------------------------

    def _note_time(self) -> None:
        """Turn what the clocks say into messages."""
        step = self._clock.take_step()
        if step:
            self._backlog.insert(0, ClockStepped(step, f"clock-step-{secrets.token_hex(8)}"))
        if self._drain_at is not None and not self._draining:
            self._draining = True
            self._tell_machine(DrainBegan())
        if self._drain_at is not None and self._clock.monotonic() >= self._drain_at:
            self._drain_at = float("inf")
            self._interrupting = True
            self._tell_machine(DrainExpired())

    def _tell_machine(self, event: DrainBegan | DrainExpired) -> None:
        """A drain writes nothing, so it need not wait for a database that cannot be written. (A machine that has yet
        to be rebuilt is told by `_reload`.)
        """
        if self._machine is not None:
            out = Output()
            self._machine.handle(event, self._clock.now(), out)
            self._let_go(out.effects, {})

    def _note_hints(self) -> None:
        """Turn the processes that have come to be into facts, with whatever else there is to write, and with a round
        of their own when their time has come. While one that was started has none (a function has none at all) the
        next look is twice as far away.
        """
        now = self._clock.monotonic()
        is_due = self._hints_at is not None and self._hints_at <= now
        if not (is_due or self._backlog):
            return
        hints = self._executor.take_spawned()
        self._backlog += hints
        self._unhinted -= {(hint.seq, hint.number) for hint in hints}
        if not self._unhinted:
            self._hints_at = None
        elif is_due:
            self._hint_pause_s *= 2
            self._hints_at = now + self._hint_pause_s

    def _wait_s(self) -> float | None:
        """How long nothing can happen unless a message arrives; None for ever."""
        clock = self._clock
        bounds: list[float] = []
        monotonic = clock.monotonic()
        if self._backlog or self.fault:
            bounds.append(self._retry_at - monotonic)
            oldest = next((message for message in self._backlog if isinstance(message, Call)), None)
            if oldest is not None:
                bounds.append(oldest.arrived + PATIENCE_S - monotonic)
        else:
            if self._machine is None:
                bounds.append(0.0)  # a message was refused as a bug: rebuild, and see what is due
            if self.complaint:
                bounds.append(self._tend_at - monotonic)
            due = self._machine.next_due() if self._machine else None
            if due is not None:
                bounds.append(clock.wait_for(due))
            if self._hints_at is not None:
                bounds.append(self._hints_at - monotonic)
        for at in (self._drain_at, self._give_up_at):
            if at is not None and at != float("inf"):
                bounds.append(at - monotonic)
        return min(max(min(bounds), 0.0), LONGEST_SLEEP_S) if bounds else None

    @staticmethod
    def _is_due(machine: Machine, now: float) -> bool:
        due = machine.next_due()
        if due is not None and due <= now:
            return True
        return machine.could_start(now)

    def _is_over(self) -> bool:
        """Whether a stop is through: nothing runs and nothing is left to write, or there is no more time for it."""
        if not self._draining:
            return False
        if self._give_up_at is not None and self._clock.monotonic() >= self._give_up_at:
            return True
        return self._machine is not None and not self._machine.running and not self._backlog


def _hold_back_from(
    machine: Machine, in_the_way: Iterable[tuple[int | None, int]], died: list[OpenTask], now: float, out: Output
) -> tuple[str, ...]:
    """Hold the tasks that a process of an earlier attempt stands in the way of; their ids. What is nobody's might be
    of any that ran when the daemon died.
    """
    pids: dict[int, list[int]] = {}
    for seq, pid in in_the_way:
        for owner in [task.seq for task in died] if seq is None else [seq]:
            pids.setdefault(owner, []).append(pid)
    held = []
    for seq in sorted(pids.keys() & machine.open.keys()):
        task = machine.open[seq]
        which = ", ".join(map(str, pids[seq][:MOST_PIDS_NAMED]))
        reason = (
            f"held: what is left of an earlier attempt (pid {which}) cannot be killed and may still be at work; "
            f"see that it has ended, then `schedctl release {task.id}`"
        )
        machine.handle(Hold(KnownTask(task.seq, task.id, task.status), reason), now, out)
        held.append(task.id)
    return tuple(held)


__all__ = [
    "Committed",
    "Engine",
    "Executor",
    "Fault",
    "Observer",
    "Recovery",
    "RequestFailed",
    "StatementFailed",
    "Unavailable",
]
