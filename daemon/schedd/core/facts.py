"""What happened to the machine's tasks, its workers and its clock: facts, which cannot be refused.

A fact that is no news (its attempt has ended already) is ignored, so repeating one is harmless.
Tests: tests/unit/core/test_machine*.py.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from schedd.core import limits
from schedd.core.events import (
    AttemptEnded,
    AttemptSpawned,
    ClockStepped,
    DrainBegan,
    DrainExpired,
    Logged,
    Output,
    StopAttempt,
    WorkersChanged,
)
from schedd.core.model import OpenTask, Outcome, Status, StopReason, Wall
from schedd.core.records import log
from schedd.core.recurrence import next_planned
from schedd.core.retry import backoff, may_retry

if TYPE_CHECKING:
    from schedd.core.machine import Machine

DEADLINE_PASSED: Final = "its deadline has passed"


def _attempt_ended(machine: "Machine", event: AttemptEnded, now: float, out: Output) -> None:
    """Settle the attempt, and the task unless it runs again.

    An attempt that is not the task's running one is no news (its end was committed although the commit seemed to
    fail): it is ignored, which makes repeating a fact harmless.
    """
    task = machine.running.get(event.seq)
    if task is None or task.number != event.number:
        return
    if task.cancel_requested and event.outcome is not Outcome.CANCELLED:
        event = _as_cancelled(event)
    out.ended.append(event)
    machine.leave_running(task)
    outcome = event.outcome
    if outcome is Outcome.INTERRUPTED:
        log(out, now, task, "interrupted", {"attempt": event.number})
        machine.run_again(task, now, now, out)
        return
    if outcome is Outcome.START_FAILED and not event.counts:
        if machine.run_again(task, now + limits.SCHEDD_FAULT_DELAY_S, now, out, event.error):
            delay = {"attempt": event.number, "error": event.error, "delay": limits.SCHEDD_FAULT_DELAY_S}
            log(out, now, task, "start_postponed", delay)
        return
    task.attempts += 1
    if outcome is Outcome.CANCELLED:
        machine.settle(task, Status.CANCELLED, None, now, out)
    elif outcome is Outcome.SUCCEEDED:
        _run_succeeded(machine, task, now, out)
    elif task.deadline is not None and task.deadline <= now:
        story = f"{DEADLINE_PASSED} ({event.error})" if event.error else DEADLINE_PASSED
        machine.settle(task, Status.FAILED, story, now, out)
    elif task.attempts < task.retry.max_attempts and may_retry(task.retry, event):
        delay_s = backoff(task.retry, task.attempts, event.luck)
        if machine.run_again(task, now + delay_s, now, out, event.error):
            detail = {"attempt": event.number, "outcome": outcome.value, "error": event.error, "delay": delay_s}
            log(out, now, task, "retry", detail)
    else:
        machine.settle(task, Status.FAILED, event.error, now, out)


def _attempt_spawned(machine: "Machine", event: AttemptSpawned, now: float, out: Output) -> None:
    task = machine.running.get(event.seq)
    if task is not None and task.number == event.number:
        out.spawned.append(event)


def _run_succeeded(machine: "Machine", task: OpenTask, now: float, out: Output) -> None:
    recurrence = task.recurrence
    task.runs += 1
    if recurrence is None or task.runs >= recurrence.times:
        machine.settle(task, Status.SUCCEEDED, None, now, out)
        return
    assert task.planned_at is not None, f"task {task.seq} ran without a planned start"
    task.planned_at, missed = next_planned(recurrence, task.planned_at, now)
    task.attempts = 0
    log(out, now, task, "run", {"run": task.runs, "missed": missed} if missed else {"run": task.runs})
    machine.run_again(task, task.planned_at, now, out)


def _clock_stepped(machine: "Machine", event: ClockStepped, now: float, out: Output) -> None:
    """Move every due time along with the clock, so that what was to wait a minute still waits a minute. Dates stay:
    what was to start at ten o'clock starts when the clock says so.
    """
    for task in machine.open.values():
        if _shift(task, event.delta):
            out.changed[task.seq] = task
        if task in machine.delayed:
            machine.delayed.push(task.run_at, task)
        elif task.status is Status.READY and task.run_at > now:  # placed by a rebuild that did not know of the step
            machine.postpone(task)
        machine.watch(task)  # also what had been told to stop: its deadline may be ahead again
    for seq in machine.ready.passed:
        machine.ready.passed[seq] += event.delta
    out.events.append(Logged(now, None, None, "clock_stepped", {"delta": event.delta}))


def _shift(task: OpenTask, delta: float) -> bool:
    """Move those times of a task that are no dates; whether there were any."""
    before = (task.run_at, task.planned_at, task.start_before, task.deadline)
    if not task.wall & Wall.START or task.has_started:
        task.run_at += delta
    if task.planned_at is not None:
        task.planned_at += delta
    if task.start_before is not None and not task.wall & Wall.START_BEFORE:
        task.start_before += delta
    if task.deadline is not None and not task.wall & Wall.DEADLINE:
        task.deadline += delta
    return before != (task.run_at, task.planned_at, task.start_before, task.deadline)


def _drain_began(machine: "Machine", event: DrainBegan, now: float, out: Output) -> None:
    machine.draining = True


def _drain_expired(machine: "Machine", event: DrainExpired, now: float, out: Output) -> None:
    for task in machine.running.values():
        out.effects.append(StopAttempt(task.seq, task.number, StopReason.INTERRUPTED))


def _workers_changed(machine: "Machine", event: WorkersChanged, now: float, out: Output) -> None:
    machine.workers = event.workers


def _as_cancelled(event: AttemptEnded) -> AttemptEnded:
    """The same end, told as the end of a cancelled attempt: a cancel beats every outcome."""
    return replace(event, outcome=Outcome.CANCELLED)


HANDLERS: Final[dict[type, Callable[["Machine", Any, float, Output], None]]] = {
    AttemptEnded: _attempt_ended,
    AttemptSpawned: _attempt_spawned,
    ClockStepped: _clock_stepped,
    DrainBegan: _drain_began,
    DrainExpired: _drain_expired,
    WorkersChanged: _workers_changed,
}
