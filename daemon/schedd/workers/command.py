"""Runs a `run` or a `command`: a process that leads a session of its own and writes straight into the attempt's log.

Theory of operation
-------------------
The worker blocks in `waitid(WNOWAIT)`, which leaves the ended leader a zombie. While it is one, nobody else can get
its pid, and so its process group: under the attempt's lock the rest of the group is killed and only then the leader
is reaped. Nothing polls, and no signal can go to a process that took over the pid. A process that was killed still
needs a moment to end; the attempt has ended when those of its group have, so that the next one meets nothing of it.

`subprocess` starts it (vfork and exec: the threaded daemon never runs Python in a forked copy of itself). The
interpreter stands still until exec, so what exec would wait for (a dead network mount) is looked at first, by this
thread alone. Tests: tests/unit/workers/test_command.py.
"""

import contextlib
import errno
import logging
import os
import resource
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from schedd.workers import cgroups, ending, procfs
from schedd.workers.attempt import Attempt
from schedd.workers.ending import Ending
from schedd.workers.procfs import start_ticks
from schedd.workers.work import Work

GROUP_PATIENCE_S = 2.0
"""How long the end of an attempt waits for what was killed of its group. Only the kernel can make it that long."""
_LONGEST_PAUSE_S = 0.05

Began = Callable[[Attempt, Work, int, int], None]
"""Told when a process came to be: the attempt, its work, the pid and when it began (clock ticks since boot)."""


class Setting(NamedTuple):
    """What a process gets besides its work: `log` is the descriptor that its output goes to, `cgroup` the directory
    of the cgroup that it enters.
    """

    environment: Mapping[str, str]
    log: int
    began: Began
    cgroup: Path | None = None


class Group:
    """The process group of a child that has not been reaped: a `Target`."""

    def __init__(self, leader: int) -> None:
        self._leader = leader

    def terminate(self) -> bool:
        """TERM, and CONT for those that are stopped and could not take it."""
        send_to_group(self._leader, signal.SIGTERM)
        send_to_group(self._leader, signal.SIGCONT)
        return True

    def kill(self) -> None:
        """KILL."""
        send_to_group(self._leader, signal.SIGKILL)


def send_to_group(leader: int, number: signal.Signals) -> None:
    """Signal a group whose leader was not reaped. Members of another user are left alone, as the kernel has it."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(leader, number)


def await_group_end(leader: int) -> None:
    """After a group was killed and its leader reaped: wait for the end of the others."""
    deadline = time.monotonic() + GROUP_PATIENCE_S
    pause_s = 0.0005
    while _has_members(leader):
        if pause_s >= _LONGEST_PAUSE_S and not _has_live_members(leader):
            return  # zombies, whose new parent does not reap them: a container without an init
        if time.monotonic() >= deadline:
            logging.getLogger(__name__).warning("killed processes of the group %d do not end", leader)
            return
        time.sleep(pause_s)
        pause_s = min(pause_s * 2, _LONGEST_PAUSE_S)


def _has_members(group: int) -> bool:
    try:
        os.killpg(group, 0)
    except (ProcessLookupError, PermissionError):  # those of another user cannot be killed, so not awaited either
        return False
    return True


def _has_live_members(group: int) -> bool:
    return any(seen.group == group for seen in procfs.table().values())


def run(attempt: Attempt, work: Work, setting: Setting) -> Ending:
    """Run the command to its end."""
    argv = ["/bin/sh", "-c", work.run] if work.run is not None else list(work.command or ())
    refusal = _look_first(argv[0], work.cwd)
    if refusal is not None:
        return refusal
    started = argv
    if setting.cgroup is not None and cgroups.keeps_all(setting.environment):
        if not _can_exec(argv[0], work.cwd, setting.environment):  # a shell would tell by its exit code alone
            return _why_not(FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT)), argv, work.cwd)
        started = cgroups.wrapped(argv, setting.cgroup, setting.environment)
    try:
        process = subprocess.Popen(
            started,
            stdin=subprocess.DEVNULL,
            stdout=setting.log,
            stderr=setting.log,
            cwd=work.cwd,
            env=setting.environment,
            start_new_session=True,
        )
    except OSError as error:
        return _why_not(error, argv, work.cwd)
    except ValueError as error:  # a NUL byte, a text that is no file name, a variable with "=" in its name
        return ending.start_failed(f"cannot start {argv[0]!r}: {error}")
    robbed = False
    try:
        attempt.attach(Group(process.pid))
        setting.began(attempt, work, process.pid, start_ticks(process.pid) or 0)
        robbed = not _await_end(process.pid)
    finally:
        ended = _forget(attempt, process) if robbed else _reap(attempt, process)
    return ended


def _await_end(pid: int) -> bool:
    """Block until the child has ended, and leave it a zombie; False if somebody else in this process has reaped it."""
    try:
        os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
    except ChildProcessError:
        return False
    return True


def _forget(attempt: Attempt, process: "subprocess.Popen[bytes]") -> Ending:
    """The leader is reaped already, so its pid, and with it the name of its group, may be somebody else's by now:
    signal nothing. (What is left of the group has the marker, or sits in the attempt's cgroup.)
    """
    with attempt.lock:
        attempt.detach_locked()
    return _unknown_end(process)


def _unknown_end(process: "subprocess.Popen[bytes]") -> Ending:
    process.returncode = 0  # or Popen would go on waiting for it
    return ending.failed("how it ended is not known: another part of this process has reaped its children")


def _reap(attempt: Attempt, process: "subprocess.Popen[bytes]") -> Ending:
    """Kill what is left of the group (all of it, if we come here by an error of our own), then reap the leader."""
    pid = process.pid
    with attempt.lock:
        attempt.detach_locked()
        send_to_group(pid, signal.SIGKILL)
        try:
            _, status, usage = os.wait4(pid, 0)
        except ChildProcessError:
            return _unknown_end(process)
        process.returncode = os.waitstatus_to_exitcode(status)
    await_group_end(pid)
    return ending.of_status(status)._replace(max_rss=_max_rss(usage), cpu_time=usage.ru_utime + usage.ru_stime)


def _max_rss(usage: resource.struct_rusage) -> int | None:
    """The child's peak in bytes. Linux counts what the child shared with the daemon before its exec as the child's, so
    a peak that is not above the daemon's own says nothing of the child.
    """
    if usage.ru_maxrss <= resource.getrusage(resource.RUSAGE_SELF).ru_maxrss:
        return None
    return usage.ru_maxrss * 1024


def _look_first(program: str, cwd: str | None) -> Ending | None:
    """Touch what exec will need; why it cannot start, if that is plain already."""
    try:
        if cwd is not None:
            os.stat(cwd)
            if not os.path.isdir(cwd):
                return ending.start_failed(f"cannot enter the directory {cwd!r}: it is not a directory")
        if os.path.isabs(program):
            os.stat(program)
    except OSError as error:
        what = "enter the directory" if error.filename == cwd else "start"
        return _refused(f"cannot {what} {error.filename!r}", error)
    except ValueError as error:
        return ending.start_failed(f"cannot start {program!r}: {error}")
    return None


def _can_exec(program: str, cwd: str | None, environment: Mapping[str, str]) -> bool:
    """Whether there is an executable file where exec would look for the program."""
    here = cwd or ""
    places = [""] if "/" in program else os.get_exec_path(environment)
    return any(_is_executable(os.path.join(here, place, program)) for place in places)


def _is_executable(path: str) -> bool:
    try:
        return os.path.isfile(path) and os.access(path, os.X_OK)
    except ValueError:
        return False


def _why_not(error: OSError, argv: Sequence[str], cwd: str | None) -> Ending:
    """What a failed Popen says: it names the directory, the program, or (its own trouble) neither."""
    if error.filename is not None and error.filename == cwd:
        return _refused(f"cannot enter the directory {cwd!r}", error)
    ended = _refused(f"cannot start {argv[0]!r}", error)
    if isinstance(error, FileNotFoundError) and "/" in argv[0]:
        program = os.path.join(cwd or "", argv[0])
        if os.path.exists(program):
            return ended._replace(error=f"{ended.error} (it is there, but the interpreter that it names is not)")
    return ended


def _refused(what: str, error: OSError) -> Ending:
    """An OSError as the end of a start: the task's fault, or that of a machine which is short of something."""
    reason = f"{what}: {error.strerror or error}"
    return ending.schedd_failed(reason) if error.errno in ending.SCHEDD_FAULTS else ending.start_failed(reason)
