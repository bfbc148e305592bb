"""Runs a call: a function in a process of its own, forked by the fork server, or in the worker's own thread.

Tests: tests/unit/workers/test_call.py, tests/unit/workers/test_thread_call.py.
"""

import json
import os
import signal
import threading
import traceback
from collections.abc import Callable
from functools import lru_cache
from typing import Any

from schedd.core import limits
from schedd.core.model import Outcome
from schedd.workers import ending, functions, text
from schedd.workers.attempt import Attempt
from schedd.workers.command import Began, Setting, await_group_end
from schedd.workers.ending import Ending
from schedd.workers.server import Call, Server, ServerLost
from schedd.workers.work import Work

MAX_ANSWER_BYTES = 16 * limits.MAX_RESULT_CHARS  # JSON text within JSON text: an emoji takes 14 bytes

START_PATIENCE_S = 30.0
"""How long the fork server may take to start a process before it is given up for dead."""

# --- in a process -------------------------------------------------------------------------------------------------


class RemoteGroup:
    """The process group of a child of the fork server, which alone may signal it: a `Target`."""

    def __init__(self, call: Call) -> None:
        self._call = call

    def terminate(self) -> bool:
        """TERM, and CONT for those that are stopped and could not take it."""
        self._call.signal(signal.SIGTERM)
        self._call.signal(signal.SIGCONT)
        return True

    def kill(self) -> None:
        """KILL."""
        self._call.signal(signal.SIGKILL)


def run_in_process(attempt: Attempt, work: Work, setting: Setting, server: Server) -> Ending:
    """Call the function in a new process, and wait for its end."""
    request = {
        "call": work.call,
        "args": work.args,
        "kwargs": work.kwargs,
        "cwd": work.cwd if work.cwd is not None else os.getcwd(),
        "environment": setting.environment,
        "cgroup": str(setting.cgroup) if setting.cgroup is not None else None,
    }
    body = json.dumps(request).encode()
    try:
        exchange = os.memfd_create("schedd-call", os.MFD_CLOEXEC)
    except OSError as error:
        return ending.schedd_failed(f"cannot make room for a call: {error.strerror}")
    try:
        with open(exchange, "wb", buffering=0, closefd=False) as file:
            file.write(body)  # a memory file takes it whole
        call = server.spawn(setting.environment, setting.log, exchange)
        return _await_end(attempt, work, call, setting.began, lambda: os.pread(exchange, MAX_ANSWER_BYTES, len(body)))
    except (ServerLost, OSError) as error:
        return ending.schedd_failed(f"cannot start a process for {work.call}: {error}")
    finally:
        os.close(exchange)


def _await_end(attempt: Attempt, work: Work, call: Call, began: Began, answer: Callable[[], bytes]) -> Ending:
    message = call.first_message(START_PATIENCE_S)
    if message[0] == "lost":
        return ending.schedd_failed(ServerLost.__doc__ or "")
    if message[0] == "refused":
        return ending.schedd_failed(f"cannot start a process for {work.call}: {os.strerror(message[2])}")
    try:
        attempt.attach(RemoteGroup(call))
        pid = message[2]
        began(attempt, work, pid, message[3])
        message = call.mailbox.get()
    finally:
        attempt.detach()
    if message[0] == "lost":
        return ending.crashed("the process that starts calls died, and this one with it")
    await_group_end(pid)
    _, _, status, max_rss, cpu_time = message
    return _judge(status, _read_answer(answer()))._replace(max_rss=max_rss, cpu_time=cpu_time)


def _read_answer(data: bytes) -> list[Any]:
    """`[kind, text, class name...]` as child.py writes it; empty where a process left none, or something else."""
    try:
        answer = json.loads(data)
    except ValueError:
        return []
    return answer if isinstance(answer, list) and len(answer) >= 2 else []


def _judge(status: int, answer: list[Any]) -> Ending:
    """The end of a call by its wait status and its own word."""
    ended = ending.of_status(status)
    if not answer or ended.signal is not None:
        return ended
    kind, told, *classes = answer
    if kind == "not_started":
        return ending.start_failed(str(told))
    if kind == "raised" and ended.outcome is Outcome.FAILED:
        return ended._replace(error=text.clean(str(told)), exceptions=tuple(map(str, classes)))
    if kind == "returned" and ended.outcome is Outcome.SUCCEEDED and isinstance(told, str):
        return ended._replace(result=text.clean(told, limits.MAX_RESULT_CHARS))
    return ended


# --- in a thread --------------------------------------------------------------------------------------------------

_resolve = lru_cache(maxsize=4_096)(functions.resolve)  # what was imported here stays imported anyway


class Flag:
    """A function in a thread, which can only be asked: a `Target`.

    `abandon` is called when the grace is over; the thread itself cannot be ended.
    """

    __slots__ = ("_abandon", "_event")

    def __init__(self, event: threading.Event | None, abandon: Callable[[], None]) -> None:
        self._event = event
        self._abandon = abandon

    def terminate(self) -> bool:
        """Set the flag, if the function takes one."""
        if self._event is None:
            return False
        self._event.set()
        return True

    def kill(self) -> None:
        """Wait for it no longer."""
        self._abandon()


def run_in_thread(
    attempt: Attempt, work: Work, abandon: Callable[[], None], write_log: Callable[[str], None]
) -> Ending:
    """Call the function here. Of its output only a traceback goes to the log, by `write_log`."""
    function = work.function
    if function is None:
        try:
            function = _resolve(work.call or "")
        except functions.CannotImport as error:
            return ending.start_failed(str(error))
    args, kwargs = work.args, work.kwargs
    event = None
    if functions.takes_cancel(function, len(args), kwargs):
        event = threading.Event()
        kwargs = {**kwargs, functions.CANCEL: event}
    attempt.attach(Flag(event, abandon))
    try:
        result = function(*args, **kwargs)
    except BaseException as error:  # noqa: BLE001  # whatever a task raises is its own end, not the worker's
        attempt.detach()
        if isinstance(error, SystemExit) and functions.exit_code(error) == 0:
            return ending.SUCCEEDED
        trace = error.__traceback__
        write_log("".join(traceback.format_exception(type(error), error, trace and trace.tb_next)))
        return ending.failed(text.of_error(error), text.of_class(error))
    attempt.detach()
    return ending.SUCCEEDED if result is None else Ending(Outcome.SUCCEEDED, result=text.of_result(result))
