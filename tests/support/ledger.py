"""The naive judge of a simulated run: it reads whole tables, keeps no clever state, and knows only what was promised.

Everything here is O(n) over all rows on purpose, and written without looking at the machine: it recomputes from rows
which tasks may run, which must have been skipped and which attempts count.
"""

import sqlite3
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

TERMINAL = {"succeeded", "failed", "cancelled", "skipped"}


@dataclass
class Snapshot:
    """All rows at one moment."""

    tasks: dict[int, dict[str, Any]]
    edges: list[tuple[int, int, str]]
    attempts: dict[int, list[dict[str, Any]]]
    paused: bool

    def is_met(self, on_seq: int, when: str) -> bool | None:
        """True: met; False: can never be met; None: not decided yet."""
        status = self.tasks[on_seq]["status"]
        if status not in TERMINAL:
            return None
        return when == "finished" or when == status

    def deps_of(self, seq: int) -> list[bool | None]:
        """How each dependency of a task stands."""
        return [self.is_met(on, when) for task, on, when in self.edges if task == seq]

    def may_run(self, seq: int, now: float) -> bool:
        """Whether a pending task may start now, by the rules alone."""
        row = self.tasks[seq]
        return (
            row["status"] == "pending"
            and not row["held"]
            and not self.paused
            and row["run_at"] <= now
            and all(met is True for met in self.deps_of(seq))
        )


@dataclass
class Ledger:
    """What callers were told, and the last snapshot."""

    path: Path
    accepted: dict[str, int] = field(default_factory=dict)  # id -> size of its batch
    cancelled: dict[str, int] = field(default_factory=dict)  # id -> number of attempts when its cancel was answered
    last: Snapshot | None = None

    def __post_init__(self) -> None:
        self._connection = sqlite3.connect(self.path, isolation_level=None)
        self._connection.row_factory = sqlite3.Row

    def close(self) -> None:
        self._connection.close()

    def read(self) -> Snapshot:
        """All rows now, as committed."""
        query = self._connection.execute
        query("begin")
        tasks = {row["seq"]: dict(row) for row in query("select * from task")}
        edges = [tuple(row) for row in query('select task_seq, on_seq, "when" from dependency')]
        attempts: dict[int, list[dict[str, Any]]] = {seq: [] for seq in tasks}
        for row in query("select * from attempt order by task_seq, number"):
            attempts[row["task_seq"]].append(dict(row))
        setting = query("select value from setting where name = 'paused'").fetchone()
        query("commit")
        paused = setting is not None and str(setting[0]) in ("1", "true", "True")
        return Snapshot(tasks, edges, attempts, paused)

    def check(self) -> Snapshot:
        """Read everything and judge it. Raises AssertionError with the story."""
        now = self.read()
        self._promises_are_kept(now)
        for seq, row in now.tasks.items():
            before = self.last.tasks.get(seq) if self.last else None
            self._row_is_sound(now, seq, row)
            self._attempts_are_sound(now, seq, row)
            if before is not None:
                self._move_is_legal(before, row)
        if self.last:
            gone = set(self.last.tasks) - set(now.tasks)
            assert not gone, f"rows are gone: {gone}"
        self.last = now
        return now

    def _promises_are_kept(self, now: Snapshot) -> None:
        by_id = {row["id"]: row for row in now.tasks.values()}
        sizes: dict[int, int] = {}
        for row in now.tasks.values():
            sizes[row["batch_seq"]] = sizes.get(row["batch_seq"], 0) + 1
        for task_id, size in self.accepted.items():
            assert task_id in by_id, f"{task_id} was accepted and is gone"
            assert sizes[by_id[task_id]["batch_seq"]] == size, f"the batch of {task_id} is half there"
        for task_id, number in self.cancelled.items():
            row = by_id[task_id]
            assert row["number"] == number, f"{task_id} was started again after its cancel was answered: {row}"
            assert row["status"] in ("running", "cancelled"), f"{task_id} was cancelled and is {row}"

    @staticmethod
    def _row_is_sound(now: Snapshot, seq: int, row: dict[str, Any]) -> None:
        deps = now.deps_of(seq)
        status = row["status"]
        story = f"{row} with dependencies {deps}"
        if status == "pending":
            assert False not in deps, f"waits for what can never happen: {story}"
            assert not row["cancel_requested"], f"pending with a cancel on it: {story}"
        if status in ("running", "succeeded", "failed"):
            assert all(met is True for met in deps), f"ran before what it depends on: {story}"
        if status == "skipped":
            assert False in deps, f"skipped without a reason: {story}"
            assert row["attempts"] == 0, f"skipped after it ran: {story}"  # what was interrupted did not count
        assert (row["settled_at"] is not None) == (status in TERMINAL), f"settled_at: {story}"
        if status == "succeeded" and row["times"] is not None:
            assert row["runs"] == row["times"], f"succeeded before its last run: {story}"

    @staticmethod
    def _attempts_are_sound(now: Snapshot, seq: int, row: dict[str, Any]) -> None:
        attempts = now.attempts[seq]
        story = f"{row} with attempts {attempts}"
        assert [attempt["number"] for attempt in attempts] == list(range(1, row["number"] + 1)), f"numbers: {story}"
        open_ones = [attempt["number"] for attempt in attempts if attempt["outcome"] is None]
        expected = [row["number"]] if row["status"] == "running" else []
        assert open_ones == expected, f"open attempts: {story}"
        run = row["runs"] if row["status"] == "succeeded" else row["runs"] + 1
        counted = [
            attempt
            for attempt in attempts
            if attempt["run"] == run
            and attempt["outcome"] not in (None, "interrupted")
            and not (attempt["outcome"] == "start_failed" and attempt["error"] == "schedd's fault")
        ]
        assert row["attempts"] == len(counted), f"attempts are counted wrong: {story}"
        assert row["attempts"] <= row["max_attempts"], f"tried too often: {story}"
        if row["status"] == "failed":
            assert row["attempts"] == row["max_attempts"], f"gave up too early: {story}"

    @staticmethod
    def _move_is_legal(before: dict[str, Any], after: dict[str, Any]) -> None:
        story = f"{before} -> {after}"
        if before["status"] in TERMINAL:
            assert before == after, f"an ended task was changed: {story}"
        assert after["number"] >= before["number"], f"attempts were forgotten: {story}"
        assert after["runs"] >= before["runs"], f"runs were forgotten: {story}"
        if before["cancel_requested"]:
            assert after["status"] in ("running", "cancelled"), f"a cancel was forgotten: {story}"
