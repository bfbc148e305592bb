"""What processes of tasks inherit of the daemon's signal dispositions: nothing.

A handler is reset by exec, an ignored signal stays ignored; a shell cannot even trap it then. So a daemon that was
started by `nohup` or in the background of a script would run tasks that Ctrl-C or a hangup cannot end.
Tests: tests/unit/workers/test_signals.py.
"""

import signal
import threading
from collections.abc import Iterable

_PYTHONS_OWN = frozenset({signal.SIGPIPE, signal.SIGXFSZ})  # ignored by the interpreter; subprocess restores them


def keep_ignored_from_children() -> None:
    """Let signals that this process ignores be at their default in its children; here they still do nothing.

    Must be called by the main thread; by another it does nothing.
    """
    if threading.current_thread() is not threading.main_thread():
        return
    for number in signal.valid_signals() - _PYTHONS_OWN:
        if signal.getsignal(number) is signal.SIG_IGN:
            children = number == signal.SIGCHLD  # ignored, it would make the kernel reap children behind our back
            signal.signal(number, signal.SIG_DFL if children else _do_nothing)


def changed() -> list[int]:
    """The signals that are not as in a Python process that has just been started."""
    return [
        int(number)
        for number in signal.valid_signals() - _PYTHONS_OWN - {signal.SIGINT}
        if signal.getsignal(number) not in (signal.SIG_DFL, None)
    ]


def be_fresh(changed: Iterable[int]) -> None:
    """Undo what is `changed` and block nothing: for a process that is about to become a task's."""
    for number in changed:
        signal.signal(number, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())


def _do_nothing(number: int, frame: object) -> None:
    pass
