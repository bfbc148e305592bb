"""The fork server: a small process with one thread that forks a process for each `call`, and reaps it.

Theory of operation
-------------------
The daemon has threads and must not fork Python code from itself, so it execs this module once (`server.py` is its end)
and orders forks over a SOCK_SEQPACKET socket, one JSON list a message:

    daemon -> server   ["spawn", id] with two descriptors: the attempt's log and the exchange file
                       ["signal", id, number]
    server -> daemon   ["started", id, pid, ticks]         when it began, in clock ticks since boot
                       ["refused", id, errno]              there was no room for a process
                       ["ended", id, status, rss, cpu]     wait status, peak bytes, seconds

The request itself is in the exchange file, which the child reads and appends its answer to (`child.py`): nothing of a
task passes through this process. A child is reaped only after the rest of its group was killed, while its zombie still
holds the pid. When the daemon's end closes, whatever way it died, every child is killed and the server ends.

It imports the standard library (and constants) only, never a task's modules: new code is seen by the next attempt.
Tests: tests/unit/workers/test_call.py.
"""

import contextlib
import errno
import gc
import json
import os
import select
import signal
import socket
import sys
from typing import Any, NoReturn

from schedd.workers import child, signals
from schedd.workers.procfs import start_ticks

MAX_MESSAGE_BYTES = 4_096
_IGNORED = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)  # its life is the daemon's, not the terminal's


class ForkServer:
    """Serves one daemon, on `link`, until it closes its end."""

    def __init__(self, link: socket.socket) -> None:
        self._link = link
        self._pids: dict[int, int] = {}
        self._ids: dict[int, int] = {}
        self._changed_signals: list[int] = []
        self._woken, self._waker = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)

    def run(self) -> None:
        """Until the daemon is gone."""
        for number in _IGNORED:
            signal.signal(number, signal.SIG_IGN)
        signal.signal(signal.SIGCHLD, lambda number, frame: None)
        self._changed_signals = signals.changed()
        signal.set_wakeup_fd(self._waker, warn_on_full_buffer=False)
        os.environ.clear()  # each child gets its own; what /proc shows, the marker too, stays as it was
        gc.freeze()  # what is alive now stays in pages that the children share
        poll = select.poll()
        poll.register(self._link, select.POLLIN)
        poll.register(self._woken, select.POLLIN)
        serving = True
        while serving:
            for descriptor, _ in poll.poll():
                if descriptor == self._woken:
                    self._reap()
                else:
                    serving = self._take_order()
        for pid in self._ids:
            _send(pid, signal.SIGKILL)

    def _take_order(self) -> bool:
        """One message of the daemon; False when it is gone."""
        try:
            data, descriptors, _, _ = socket.recv_fds(self._link, MAX_MESSAGE_BYTES, 2)
        except ConnectionError:
            return False
        if not data:
            return False
        order = json.loads(data)
        if order[0] == "spawn":
            self._spawn(order[1], descriptors)
        else:
            pid = self._pids.get(order[1])
            if pid is not None:  # not reaped yet: the pid is still its own
                _send(pid, order[2])
        return True

    def _spawn(self, call: int, descriptors: list[int]) -> None:
        try:
            if len(descriptors) != 2:  # the kernel drops what there is no room for
                raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
            pid = self._fork(*descriptors)
        except OSError as error:
            self._tell("refused", call, error.errno)
            return
        finally:
            for descriptor in descriptors:
                os.close(descriptor)
        self._pids[call] = pid
        self._ids[pid] = call
        self._tell("started", call, pid, start_ticks(pid) or 0)

    def _fork(self, log: int, exchange: int) -> int:
        """The pid of a new child. A signal that this process ignores waits until the child has its own dispositions."""
        signal.pthread_sigmask(signal.SIG_BLOCK, _IGNORED)
        try:
            pid = os.fork()
            if pid == 0:
                self._become_child(log, exchange)
            return pid
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, ())

    def _become_child(self, log: int, exchange: int) -> NoReturn:
        code = 1
        try:
            signal.set_wakeup_fd(-1)
            os.dup2(log, 1)
            os.dup2(log, 2)
            mine = {self._link.detach(), self._woken, self._waker, log}
            for descriptor in mine:
                os.close(descriptor)
            os.set_inheritable(exchange, False)
            code = child.attend(exchange, self._changed_signals)
        finally:
            os._exit(code)

    def _reap(self) -> None:
        """Report every child that has ended."""
        with contextlib.suppress(BlockingIOError):
            while os.read(self._woken, 4_096):
                pass
        while True:
            try:
                ended = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            except ChildProcessError:
                return
            if ended is None:
                return
            pid = ended.si_pid
            _send(pid, signal.SIGKILL)
            _, status, usage = os.wait4(pid, 0)
            call = self._ids.pop(pid)
            del self._pids[call]
            self._tell("ended", call, status, usage.ru_maxrss * 1024, usage.ru_utime + usage.ru_stime)

    def _tell(self, *message: Any) -> None:
        with contextlib.suppress(ConnectionError):  # the daemon is gone, as the next look at the socket will find
            self._link.send(json.dumps(message).encode())


def _send(pid: int, number: int) -> None:
    """Signal the group of a child that was not reaped, or the child alone before it leads a group."""
    for send in (os.killpg, os.kill):
        try:
            send(pid, number)
        except ProcessLookupError:
            continue
        except PermissionError:
            pass
        return


def main() -> None:
    """`python -m schedd.workers.forkserver FD`."""
    ForkServer(socket.socket(fileno=int(sys.argv[1]))).run()


if __name__ == "__main__":
    main()
