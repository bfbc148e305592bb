"""Stopping on purpose, at any moment: exit code 0 within bounds, nothing left running, and it costs no attempt."""

import json
import os
import random
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from typing import Any

import pytest

from schedd.core.events import StartAttempt
from schedd.core.model import Outcome
from schedd.service import ExitCode
from schedd.workers import terminator
from schedd.workers.attempt import Attempt
from schedd.workers.terminator import Terminator
from schedd.workers.work import Work
from support.daemons import (
    RealDaemon,
    daemon_of,
    end_all,
    fast_retries,
    is_alive,
    minds_signals,
    pids_in,
    until,
)

pytestmark = [pytest.mark.real]

EXIT_PATIENCE_S = 60.0
STOPS = int(os.environ.get("SCHEDD_CRASH_STOPS", "15"))
DEAF = "trap '' TERM; echo $$ >>$P; while :; do sleep 0.05; done"
WITHOUT_KILLS = """
import os, signal, sys
from schedd import runtime, service
runtime.GIVE_UP_S = runtime.CLOSE_PATIENCE_S = 0.3
os.killpg = signal.pidfd_send_signal = lambda whom, number: None
service.main(sys.argv[4:])  # what stands before is the command that is started instead
"""
"""A daemon whose signals have no effect, as on processes in uninterruptible sleep."""

FIRST_DEAF = "trap '' TERM; [ $SCHEDD_ATTEMPT -gt 1 ] && exit 0; echo $$ >>$P; while :; do sleep 0.05; done"


def await_handlers(process: "subprocess.Popen[bytes]") -> None:
    """Until SIGTERM no longer just kills it: the start of the interpreter, before any code of schedd."""
    until(lambda: process.poll() is not None or minds_signals(process.pid), "it minds signals")


def terminate_after(daemon: RealDaemon, delay_s: float) -> None:
    """Start it, and stop it so many seconds after it began to mind signals; it must exit with 0."""
    process = daemon.spawn()
    await_handlers(process)
    time.sleep(delay_s)
    process.send_signal(signal.SIGTERM)
    assert process.wait(EXIT_PATIENCE_S) == 0, f"SIGTERM after {delay_s} s"


@pytest.mark.slow
@pytest.mark.timeout(300 + 20 * STOPS)
def test_sigterm_at_any_moment_of_the_start():
    """Over a database with thousands of tasks, some of them ready to run: every stop is clean, nothing is lost, and
    no attempt is more than interrupted.
    """
    seed = random.SystemRandom().randrange(2**32)
    rng = random.Random(seed)
    with daemon_of(workers=3, settings=["drain_timeout = 0.1"]) as daemon:
        try:
            tasks: dict[str, Any] = {f"later{index}": {"run": "true", "delay": "10h"} for index in range(3000)}
            tasks |= {f"now{index}": {"run": "sleep 0.05"} for index in range(120)}
            ids = daemon.client.submit({"name": "many", "tasks": tasks})["ids"]
            ready = [task_id for task_id in ids if "/now" in task_id]
            daemon.stop()
            for _ in range(STOPS):
                terminate_after(daemon, rng.uniform(0.0, 0.8))
                assert daemon.marked() == []
            daemon.start()
            assert set(daemon.settle(*ready[-3:], patience_s=120).values()) == {"succeeded"}
            assert daemon.client.wait(ready, timeout=120)["done"]
            counts = daemon.client.status()["counts"]
            assert (counts["succeeded"], counts["pending"]) == (120, 3000)
            outcomes = dict(daemon.rows("select outcome, count(*) from attempt group by outcome"))
            assert outcomes.keys() <= {"succeeded", "interrupted"}
            assert outcomes["succeeded"] == 120
        except BaseException as error:
            error.add_note(f"seed {seed}")
            raise


@pytest.mark.slow
def test_sigterm_while_the_database_is_made():
    """On a fresh state directory, at any moment of its making; the next start finds what it can use."""
    rng = random.Random(3)
    for _ in range(4):
        with daemon_of(start=False) as daemon:
            terminate_after(daemon, rng.uniform(0.0, 0.6))
            daemon.start()
            task_id = daemon.submit(run="true")
            assert daemon.settle(task_id) == {task_id: "succeeded"}
            daemon.stop()


def test_handlers_are_the_first_thing():
    """They stand before the configuration is read, so that only the interpreter's own start is without them."""
    with daemon_of(start=False) as daemon:
        fifo = daemon.home / "schedd.toml"
        fifo.unlink()
        os.mkfifo(fifo)
        process = daemon.spawn()  # it cannot go on before somebody writes its configuration
        await_handlers(process)
        process.send_signal(signal.SIGTERM)
        fifo.write_text("workers = 1\n")
        assert process.wait(EXIT_PATIENCE_S) == 0
        assert not daemon.database.exists(), "nothing was begun"


def test_sigterm_before_the_lock_and_while_another_holds_it():
    """A second daemon that is told to stop before it looks at the lock exits with 0; the first goes on."""
    with daemon_of() as daemon:
        first = daemon.process
        try:
            second = daemon.spawn()
            await_handlers(second)
            second.send_signal(signal.SIGTERM)
            assert second.wait(EXIT_PATIENCE_S) in (0, 3), "0, or 3 if it was as far as the lock"
        finally:
            daemon.process = first
        assert daemon.answers()


def test_sigterm_while_it_waits_for_a_locked_database():
    """Another process keeps the database; the daemon gives up waiting with 0."""
    with daemon_of() as daemon:
        daemon.stop()
        other = sqlite3.connect(daemon.database, isolation_level=None)
        other.execute("BEGIN EXCLUSIVE")
        try:
            process = daemon.spawn()
            until(lambda: "waiting_for_database" in daemon.story(), "it waits")
            process.send_signal(signal.SIGTERM)
            assert process.wait(EXIT_PATIENCE_S) == 0
        finally:
            other.close()
        daemon.start()


def test_a_stop_lets_running_tasks_finish_and_starts_nothing_more():
    """Within `drain_timeout` what runs ends as it would; what waits stays for the next start."""
    with daemon_of(workers=1, settings=["drain_timeout = 60"]) as daemon:
        started = daemon.home / "started"
        running = daemon.submit(name="running", run=f"touch {started}; sleep 1")
        waiting = daemon.submit(name="waiting", run="true")
        until(started.exists, "it runs")
        daemon.stop()
        assert daemon.outcomes(running) == ["succeeded"]
        assert daemon.outcomes(waiting) == []
        daemon.start()
        assert daemon.settle(running, waiting) == {running: "succeeded", waiting: "succeeded"}


def test_what_does_not_finish_is_interrupted_and_runs_again():
    """Commands and functions that ignore TERM: `interrupted` costs no attempt (there is only one here), nothing is
    left running after the stop, and each runs again after the start.
    """
    with daemon_of(workers=4, settings=["drain_timeout = 0.3"]) as daemon:
        found = daemon.home / "pids"
        (daemon.home / "poison.py").write_text(
            "import os, signal, subprocess, time\n"
            "def deaf(path):\n"
            "    if os.environ['SCHEDD_ATTEMPT'] != '1': return\n"
            "    signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
            "    child = subprocess.Popen(['sleep', '600'])\n"
            "    open(path, 'a').write('%d\\n%d\\n' % (os.getpid(), child.pid))\n"
            "    time.sleep(600)\n"
        )
        env = {"P": str(found)}
        once = {"grace": 0.3, "retry": {"max_attempts": 1}}
        ids = [
            daemon.submit(run=FIRST_DEAF, env=env, **once),
            daemon.submit(run="[ $SCHEDD_ATTEMPT -gt 1 ] || { echo $$ >>$P; exec sleep 600; }", env=env, **once),
            daemon.submit(run="[ $SCHEDD_ATTEMPT -gt 1 ] || { echo $$ >>$P; kill -STOP $$; }", env=env, **once),
            daemon.submit(call="poison:deaf", args=[str(found)], cwd=str(daemon.home), **once),
        ]
        until(lambda: len(pids_in(found)) == 5, "all of it runs")
        daemon.stop()
        assert not any(map(is_alive, pids_in(found)))
        assert daemon.marked() == []
        assert [daemon.outcomes(task_id) for task_id in ids] == [["interrupted"]] * 4
        assert daemon.rows("select status, attempts from task") == [("pending", 0)] * 4
        daemon.start()
        assert set(daemon.settle(*ids).values()) == {"succeeded"}
        assert [daemon.outcomes(task_id) for task_id in ids] == [["interrupted", "succeeded"]] * 4


@pytest.mark.slow
def test_stopped_again_and_again_a_task_keeps_its_attempts():
    """Three stops and two real failures: it still has its third attempt."""
    with daemon_of(settings=["drain_timeout = 0.05"]) as daemon:
        found = daemon.home / "pids"
        script = "echo $$ >>$P; [ $(wc -l <$P) -le 3 ] && exec sleep 600; [ $(wc -l <$P) -le 5 ] && exit 1; exit 0"
        task_id = daemon.submit(run=script, env={"P": str(found)}, retry=fast_retries(3))
        for number in range(1, 4):
            until(lambda number=number: len(pids_in(found)) == number, "it runs")
            daemon.stop()
            daemon.start()
        assert daemon.settle(task_id) == {task_id: "succeeded"}
        assert daemon.outcomes(task_id) == ["interrupted"] * 3 + ["failed"] * 2 + ["succeeded"]


def test_a_second_signal_hurries():
    """With ten minutes to drain, and after a second SIGTERM none: interrupted, and exit code 0."""
    with daemon_of(settings=["drain_timeout = 600"]) as daemon:
        found = daemon.home / "pids"
        task_id = daemon.submit(run=DEAF, env={"P": str(found)}, grace=0.3)
        until(lambda: pids_in(found), "it runs")
        process = daemon.process
        assert process is not None
        process.send_signal(signal.SIGTERM)
        until(lambda: "draining" in daemon.story(), "it drains")
        assert process.poll() is None
        process.send_signal(signal.SIGINT)
        assert process.wait(EXIT_PATIENCE_S) == 0
        assert daemon.outcomes(task_id) == ["interrupted"]
        assert not any(map(is_alive, pids_in(found)))


def test_a_hail_of_signals_neither_blocks_nor_breaks_a_stop():
    """Signals at every moment of a stop, until it has ended: a handler that took a lock would find it taken here."""
    with daemon_of(workers=2, settings=["drain_timeout = 600"]) as daemon:
        found = daemon.home / "pids"
        ids = [daemon.submit(run=DEAF, env={"P": str(found)}, grace=0.5) for _ in range(2)]
        until(lambda: len(pids_in(found)) == 2, "they run")
        process = daemon.process
        assert process is not None
        deadline = time.monotonic() + EXIT_PATIENCE_S
        while process.poll() is None and time.monotonic() < deadline:
            process.send_signal(signal.SIGTERM)
            time.sleep(0.0005)
        assert process.poll() == 0
        assert [daemon.outcomes(task_id) for task_id in ids] == [["interrupted"]] * 2
        assert not any(map(is_alive, pids_in(found)))


@pytest.mark.slow
def test_sigterm_amid_work():
    """Short tasks all the time and a stop at any moment: interrupted or done, never crashed, never twice done."""
    rng = random.Random(5)
    with daemon_of(workers=4, settings=["drain_timeout = 0"]) as daemon:
        names = [f"t{index}" for index in range(120)]
        record = daemon.home / "record"
        run = f"echo $SCHEDD_TASK_ID >>{record}.start; sleep 0.1; echo $SCHEDD_TASK_ID >>{record}.end"
        ids = daemon.client.submit({"tasks": {name: {"run": run} for name in names}})["ids"]
        for _ in range(4):
            time.sleep(rng.uniform(0.0, 0.5))
            daemon.stop()
            assert daemon.marked() == []
            assert daemon.rows("select count(*) from attempt where outcome is null") == [(0,)]
            daemon.start()
        assert daemon.client.wait(ids, timeout=60)["done"]
        outcomes = dict(daemon.rows("select outcome, count(*) from attempt group by outcome"))
        assert outcomes.keys() <= {"succeeded", "interrupted"}
        assert outcomes["succeeded"] == len(names)


def test_what_cannot_be_killed_is_told_with_a_code_of_its_own():
    """A stop gives up on it in the end. It does not say that all is well: which task, which pid, and exit code 7."""
    with daemon_of(settings=["drain_timeout = 0.1"], launcher=[sys.executable, "-c", WITHOUT_KILLS]) as daemon:
        task_id = daemon.submit(command=["sleep", "600"], grace=0.1, retry={"max_attempts": 1})
        sql = "select pid from attempt where pid is not null"
        until(lambda: daemon.rows(sql), "its process")
        ((pid,),) = daemon.rows(sql)
        process = daemon.process
        assert process is not None
        process.send_signal(signal.SIGTERM)
        assert process.wait(EXIT_PATIENCE_S) == ExitCode.LEFT_RUNNING == 7, daemon.story()
        assert is_alive(pid)
        told = {line["event"]: line for line in map(json.loads, daemon.story().splitlines())}
        left = told["stopped_with_attempts_running"]
        assert (left["level"], left["tasks"], left["pids"]) == ("error", [task_id], [pid])
        assert told["leftovers_not_killed"]["pids"] == [pid]
        assert told["stopped"]["code"] == 7
        end_all([pid])


# --- the grace of a stop ------------------------------------------------------------------------------------------


class Deaf:
    """A target that ends only when it is killed."""

    def __init__(self) -> None:
        self.killed = threading.Event()

    def terminate(self) -> bool:
        return True

    def kill(self) -> None:
        self.killed.set()


@pytest.mark.parametrize("asked_before", [None, Outcome.CANCELLED])
def test_a_stop_does_not_wait_for_a_grace_of_hours(monkeypatch: pytest.MonkeyPatch, asked_before: Outcome | None):
    """A task's own grace may be longer than the daemon's time to stop; then it would be killed without an outcome.
    Also one that was being cancelled already is ended in time.
    """
    monkeypatch.setattr(terminator, "LONGEST_INTERRUPT_S", 0.05)
    ender, target = Terminator(), Deaf()
    attempt = Attempt(StartAttempt(1, "t", 1, 1), None)
    attempt.work = Work(run="", grace=3600.0)
    attempt.attach(target)
    if asked_before is not None:
        ender.stop(attempt, asked_before)
        assert not target.killed.wait(0.2)
    ender.stop(attempt, Outcome.INTERRUPTED)
    assert target.killed.wait(30)
    ender.close()
