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
    retried: dict[int, int]  # seq -> how often an operator has retried it
    last_event: dict[tuple[int, str], int]  # (seq, kind) -> the id of its last line in the event log

    def is_met(self, on_seq: int, when: str) -> bool | None:
        """True: met; False: can never be met; None: not decided yet."""
        status = self.tasks[on_seq]["status"]
        if status not in TERMINAL:
            return None
        return when == "finished" or when == status

    def deps_of(self, seq: int) -> list[bool | None]:
        """How each dependency of a task stands."""
        return [self.is_met(on, when) for task, on, when in self.edges if task == seq]

    def has_started(self, seq: int) -> bool:
        """Whether it has had an attempt since it was submitted or retried: its dependencies matter no more."""
        return bool(self.tasks[seq]["number"] > self.tasks[seq]["base_number"])

    def is_stirred(self, seq: int) -> bool:
        """Whether something that it depends on was retried, and may be what it had not been when this one started."""
        return any(task == seq and self.retried.get(on) for task, on, _ in self.edges)

    def is_retried_since(self, seq: int, *kinds: str) -> bool:
        """Whether its last retry came after the last event of these kinds."""
        retry = self.last_event.get((seq, "retried"), 0)
        return retry > max((self.last_event.get((seq, kind), 0) for kind in kinds), default=0)

    def started_before_a_parent_was_retried(self, seq: int) -> bool:
        """Whether something that it depends on was retried after its last start: what was met then need not be now."""
        start = self.last_event.get((seq, "started"), 0)
        parents = [on for task, on, _ in self.edges if task == seq]
        return any(self.last_event.get((on, "retried"), 0) > start for on in parents)

    def may_run(self, seq: int, now: float) -> bool:
        """Whether a pending task may start now, by the rules alone."""
        row = self.tasks[seq]
        return (
            row["status"] == "pending"
            and not row["held"]
            and not self.paused
            and row["run_at"] <= now
            and (self.has_started(seq) or all(met is True for met in self.deps_of(seq)))
        )


@dataclass
class Ledger:
    """What callers and workers were told or told us, and the last snapshot."""

    path: Path
    accepted: dict[str, int] = field(default_factory=dict)  # id -> size of its batch
    cancelled: dict[str, int] = field(default_factory=dict)  # id -> number of attempts when its cancel was answered
    refused: set[str] = field(default_factory=set)  # tags (see `tag_of`) of submits that were refused
    edges: set[tuple[str, str, str]] = field(default_factory=set)  # (after, before, when) of late edges, as answered
    held: dict[str, bool] = field(default_factory=dict)  # id -> as answered last, unless asked again since
    paused: bool | None = None  # as answered last, unless asked again since
    reported: dict[tuple[int, int], str] = field(default_factory=dict)  # (seq, number) -> outcome that a worker posted
    last: Snapshot | None = None

    def __post_init__(self) -> None:
        self._connection = sqlite3.connect(self.path, isolation_level=None)
        self._connection.row_factory = sqlite3.Row
        self._version: int | None = None

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
        retries = query("select task_seq, count(*) from event where kind = 'retried' group by 1").fetchall()
        last = query("select task_seq, kind, max(id) from event where task_seq is not null group by 1, 2").fetchall()
        query("commit")
        paused = setting is not None and str(setting[0]) in ("1", "true", "True")
        retried = dict(tuple(row) for row in retries)
        return Snapshot(tasks, edges, attempts, paused, retried, {(row[0], row[1]): row[2] for row in last})

    def check(self) -> Snapshot:
        """Read everything and judge it. Raises AssertionError with the story."""
        version = self._connection.execute("pragma data_version").fetchone()[0]
        if self.last is not None and version == self._version:  # nothing was committed since
            self._forget_last_lives(self.last)
            self._promises_are_kept(self.last)
            return self.last
        now = self.read()
        self._version = version  # of before the read: at worst it is read once more
        self._forget_last_lives(now)
        self._promises_are_kept(now)
        self._each_submit_once(now)
        for seq, row in now.tasks.items():
            before = self.last.tasks.get(seq) if self.last else None
            self._row_is_sound(now, seq, row)
            self._attempts_are_sound(now, seq, row)
            self._outcomes_are_true(now, seq, row)
            again = now.retried.get(seq, 0) > (self.last.retried.get(seq, 0) if self.last else 0)
            if before is not None and not again:
                self._move_is_legal(before, row)
            if before is not None:
                assert row["number"] >= before["number"], f"attempts were forgotten: {before} -> {row}"
        if self.last:
            gone = set(self.last.tasks) - set(now.tasks)
            assert not gone, f"rows are gone: {gone}"
        self.last = now
        return now

    def _forget_last_lives(self, now: Snapshot) -> None:
        """Drop the promises that a retry has ended."""
        for seq in now.retried:  # promises of its last life, whenever they were heard of
            if now.is_retried_since(seq, "cancelled", "cancel_requested"):
                self.cancelled.pop(now.tasks[seq]["id"], None)
            if now.is_retried_since(seq, "held", "released"):
                self.held.pop(now.tasks[seq]["id"], None)

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
            assert row["status"] in ("running", "cancelled", "skipped"), f"{task_id} was cancelled and is {row}"
        for task_id, held in self.held.items():
            row = by_id[task_id]
            if row["status"] not in TERMINAL:
                assert bool(row["held"]) is held, f"held should be {held}, as was answered: {row}"
        if self.edges:
            edges = {(now.tasks[task]["id"], now.tasks[on]["id"], when) for task, on, when in now.edges}
            assert self.edges <= edges, f"late edges were answered and are gone: {self.edges - edges}"
        if self.paused is not None:
            assert now.paused is self.paused, f"paused should be {self.paused}, as was answered"

    def _each_submit_once(self, now: Snapshot) -> None:
        """However often a submit was repeated there is one batch of it, and none if it was refused."""
        batches: dict[str, set[int]] = {}
        for row in now.tasks.values():
            batches.setdefault(row["payload"], set()).add(row["batch_seq"])
        for tag, seqs in batches.items():
            assert len(seqs) == 1, f"the submit {tag} was taken {len(seqs)} times"
            assert tag not in self.refused, f"the submit {tag} was refused and is there"

    @staticmethod
    def _row_is_sound(now: Snapshot, seq: int, row: dict[str, Any]) -> None:
        deps = now.deps_of(seq)
        status = row["status"]

        def story() -> str:
            return f"{row} with dependencies {deps}"

        if status == "pending" and not now.has_started(seq):
            assert False not in deps, f"waits for what can never happen: {story()}"
            assert not row["cancel_requested"], f"pending with a cancel on it: {story()}"
        out_of_time = status == "failed" and not now.has_started(seq) and row["error"] == "its deadline has passed"
        if status in ("running", "succeeded", "failed") and not now.is_stirred(seq) and not out_of_time:
            assert all(met is True for met in deps), f"ran before what it depends on: {story()}"
        late = row["error"] == "skipped because it could not start in time" and row["start_before"] is not None
        if status == "skipped" and not late and not now.is_stirred(seq):
            assert False in deps, f"skipped without a reason: {story()}"
            assert row["attempts"] == 0, f"skipped after it ran: {story()}"  # what was interrupted did not count
        assert (row["settled_at"] is not None) == (status in TERMINAL), f"settled_at: {story()}"
        if status == "succeeded" and row["times"] is not None:
            assert row["runs"] == row["times"], f"succeeded before its last run: {story()}"

    @staticmethod
    def _attempts_are_sound(now: Snapshot, seq: int, row: dict[str, Any]) -> None:
        attempts = now.attempts[seq]

        def story() -> str:
            return f"{row} with attempts {attempts}"

        assert [attempt["number"] for attempt in attempts] == list(range(1, row["number"] + 1)), f"numbers: {story()}"
        open_ones = [attempt["number"] for attempt in attempts if attempt["outcome"] is None]
        expected = [row["number"]] if row["status"] == "running" else []
        assert open_ones == expected, f"open attempts: {story()}"
        run = row["runs"] if row["status"] == "succeeded" else row["runs"] + 1
        counted = [
            attempt
            for attempt in attempts
            if attempt["run"] == run
            and attempt["number"] > row["base_number"]
            and attempt["outcome"] not in (None, "interrupted")
            and not (attempt["outcome"] == "start_failed" and attempt["error"] == "schedd's fault")
        ]
        assert row["attempts"] == len(counted), f"attempts are counted wrong: {story()}"
        assert row["attempts"] <= row["max_attempts"], f"tried too often: {story()}"
        if row["status"] == "failed" and row["attempts"] < row["max_attempts"]:
            out_of_time = row["deadline"] is not None and "its deadline" in row["error"]
            last = attempts[-1] if attempts else {"exit_code": None}
            hopeless = row["retry_rules"] is not None and last["exit_code"] == 2
            assert out_of_time or hopeless, f"gave up too early: {story()}"

    def _outcomes_are_true(self, now: Snapshot, seq: int, row: dict[str, Any]) -> None:
        """An attempt has ended as its worker said; or, if it never said, with the daemon it crashed. (A life that was
        ended by a cancel says so no more once it was retried.)
        """
        for attempt in now.attempts[seq]:
            outcome = attempt["outcome"]
            if outcome is None:
                continue
            said = self.reported.get((seq, attempt["number"]), "crashed")
            if attempt["number"] <= row["base_number"]:
                continue
            allowed = {said, "crashed"}  # what it said may have died with the daemon before it was written
            if row["cancel_requested"] and attempt["number"] == row["number"]:
                allowed = {"cancelled"}
            assert outcome in allowed, f"attempt {attempt} of {row} was reported as {said}"

    @staticmethod
    def _move_is_legal(before: dict[str, Any], after: dict[str, Any]) -> None:
        if before is after:
            return

        def story() -> str:
            return f"{before} -> {after}"

        if before["status"] in TERMINAL:
            assert before == after, f"an ended task was changed: {story()}"
        assert after["runs"] >= before["runs"], f"runs were forgotten: {story()}"
        if before["cancel_requested"]:
            assert after["status"] in ("running", "cancelled"), f"a cancel was forgotten: {story()}"
