"""A process of one call: makes itself at home, imports the function, calls it, and tells how that went.

The exchange file holds the request, a JSON object (call, args, kwargs, cwd, environment, cgroup), from its beginning;
the answer, a JSON list, is appended to it:

    ["returned", result]        JSON text or null
    ["raised", error]           `Type: message`; the traceback is in the log
    ["not_started", reason]     the directory or the function is not there

A process that ends without an answer is judged by its exit code or signal, as any process is. The exit codes are those
Python itself would end with. It imports the standard library (and constants) only.
Tests: tests/unit/workers/test_call.py.
"""

import _thread
import atexit
import json
import os
import signal
import sys
import threading
import traceback
from collections.abc import Callable, Iterable
from typing import Any

from schedd.workers import cgroups, functions, signals, text


def attend(exchange: int, changed_signals: Iterable[int]) -> int:
    """Do what the request says; the exit code. `changed_signals` are those the fork server does not have at their
    defaults.
    """
    try:
        os.setsid()
        signals.be_fresh(changed_signals)
        request = json.loads(os.pread(exchange, os.fstat(exchange).st_size, 0))
        if request["cgroup"] is not None:
            cgroups.enter(request["cgroup"])
        answer, code = _serve(request)
        _wind_up()
    except BaseException as error:  # noqa: BLE001  # a KeyboardInterrupt can come at any point: it is an end like others
        answer, code = _raised(error)
    if answer is not None:
        os.write(exchange, json.dumps(answer).encode())
    return code


def _serve(request: dict[str, Any]) -> tuple[list[Any] | None, int]:
    """The answer (None: the exit code says it all) and the exit code."""
    try:
        os.chdir(request["cwd"])
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        return ["not_started", f"cannot enter the directory {request['cwd']!r}: {reason}"], 1
    try:
        _settle_in(request)
    except (OSError, ValueError) as error:
        return ["not_started", f"cannot set its environment: {error}"], 1
    try:
        function = functions.resolve(request["call"])
    except functions.CannotImport as error:
        if error.__cause__ is not None:
            traceback.print_exception(error.__cause__)
        return ["not_started", str(error)], 1
    args, kwargs = request["args"], request["kwargs"]
    if functions.takes_cancel(function, len(args), kwargs):
        kwargs[functions.CANCEL] = _event_of_term()
    return _call(function, args, kwargs)


def _settle_in(request: dict[str, Any]) -> None:
    """Environment, import path and output, as a fresh `python -m` in this directory would have them."""
    os.environ.clear()
    os.environ.update(request["environment"])
    added = [os.getcwd()]
    added += [path for path in request["environment"].get("PYTHONPATH", "").split(os.pathsep) if path]
    sys.path[:] = [*added, *sys.path]
    sys.argv = [request["call"]]
    sys.path_importer_cache.clear()  # what the server saw of directories may be older than the task's modules
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(encoding="utf-8", errors="backslashreplace", line_buffering=True)  # type: ignore[union-attr]


def _event_of_term() -> threading.Event:
    """An event that SIGTERM sets. Not by the handler itself: it runs in the main thread, between any two steps of a
    `wait()` on that very event, whose lock it could then never get.
    """
    event = threading.Event()
    signal.signal(signal.SIGTERM, lambda number, frame: _thread.start_new_thread(event.set, ()))
    return event


def _call(function: Callable[..., Any], args: list[Any], kwargs: dict[str, Any]) -> tuple[list[Any] | None, int]:
    try:
        result = function(*args, **kwargs)
    except SystemExit as error:
        code = functions.exit_code(error)
        if isinstance(error.code, (int, type(None))):
            return None, code
        print(error.code, file=sys.stderr)
        return ["raised", text.of_error(error), *text.of_class(error)], code
    except BaseException as error:  # noqa: BLE001  # whatever a task raises is its own end, not ours
        return _raised(error)
    return ["returned", text.of_result(result)], 0


def _raised(error: BaseException) -> tuple[list[Any], int]:
    trace = error.__traceback__
    traceback.print_exception(type(error), error, trace and trace.tb_next)  # without the frame of this module
    return ["raised", text.of_error(error), *text.of_class(error)], 1


def _wind_up() -> None:
    """End as an interpreter does: wait for threads, run what was registered for the exit, flush.

    The same calls as in `multiprocessing`, which has the same job.
    """
    threading._shutdown()  # type: ignore[attr-defined]  # noqa: SLF001
    atexit._run_exitfuncs()  # noqa: SLF001
    sys.stdout.flush()
    sys.stderr.flush()
