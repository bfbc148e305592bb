"""Deleting what has ended, in steps so small that the engine is never kept for long.

A step judges again what it was told to delete: between the reading of candidates and this transaction a task may have
been brought back by `retry`, or become what an open task waits for. Edges and attempts go before their task, at most
`MAX_ROWS` of each in a step, since one task may have a hundred thousand of either.
Tests: tests/unit/store/test_pruning.py.
"""

import json
import sqlite3
from collections.abc import Sequence
from typing import Final

from schedd.store.base import Pruned
from schedd.store.tables import OPEN

MAX_ROWS: Final = 2_000
"""How many rows of one table a step deletes."""

VACUUM_PAGES: Final = 64
"""How many free pages a step gives back to the file system."""

_ENDED = f"NOT ({OPEN})"
# What may go: it has ended long enough ago, and nothing that is open waits for it. CROSS JOIN keeps the planner from
# scanning the open tasks.
_FIT = f"""
SELECT t.seq FROM json_each(?) AS wanted CROSS JOIN task AS t ON t.seq = wanted.value
WHERE {_ENDED.replace("status", "t.status")} AND t.settled_at < ? AND NOT EXISTS (
    SELECT 1 FROM dependency AS d CROSS JOIN task AS c ON c.seq = d.task_seq
    WHERE d.on_seq = t.seq AND {OPEN.replace("status", "c.status")})
"""  # noqa: S608 - constants of ours
_DROP_EDGES = """
DELETE FROM dependency WHERE (task_seq, on_seq) IN (
    SELECT d.task_seq, d.on_seq FROM json_each(?) AS gone CROSS JOIN dependency AS d ON d.task_seq = gone.value
    UNION ALL
    SELECT d.task_seq, d.on_seq FROM json_each(?) AS gone CROSS JOIN dependency AS d ON d.on_seq = gone.value
    LIMIT ?)
"""
_DROP_ATTEMPTS = """
DELETE FROM attempt WHERE (task_seq, number) IN (
    SELECT a.task_seq, a.number FROM json_each(?) AS gone CROSS JOIN attempt AS a ON a.task_seq = gone.value LIMIT ?)
"""
_BATCHES = "SELECT DISTINCT batch_seq FROM task WHERE seq IN (SELECT value FROM json_each(?))"
_DROP_TASKS = "DELETE FROM task WHERE seq IN (SELECT value FROM json_each(?))"
_DROP_BATCHES = """
DELETE FROM batch WHERE seq IN (SELECT value FROM json_each(?))
AND NOT EXISTS (SELECT 1 FROM task WHERE task.batch_seq = batch.seq)
"""
# Both tables are filled in the order of time, so what is old is what is first.
_DROP_EVENTS = """
DELETE FROM event WHERE id IN (SELECT id FROM (SELECT id, at FROM event ORDER BY id LIMIT ?) WHERE at < ?)
"""
_DROP_REQUESTS = """
DELETE FROM request WHERE rowid IN (
    SELECT rowid FROM (SELECT rowid, at FROM request ORDER BY rowid LIMIT ?) WHERE at < ?)
"""


def prune_tasks(connection: sqlite3.Connection, seqs: Sequence[int], before: float) -> Pruned:
    """Delete those of these tasks that ended before `before`, with all that belongs to them, as far as one step goes.

    `more` says that a further step is needed for them. Within the open transaction. Raises sqlite3.Error.
    """
    fit = json.dumps([row[0] for row in connection.execute(_FIT, (json.dumps(list(seqs)), before))])
    edges = connection.execute(_DROP_EDGES, (fit, fit, MAX_ROWS)).rowcount
    attempts = connection.execute(_DROP_ATTEMPTS, (fit, MAX_ROWS)).rowcount
    if MAX_ROWS in (edges, attempts):
        return Pruned(0, more=True)
    batches = json.dumps([row[0] for row in connection.execute(_BATCHES, (fit,))])
    removed = connection.execute(_DROP_TASKS, (fit,)).rowcount
    connection.execute(_DROP_BATCHES, (batches,))
    _give_back(connection)
    return Pruned(removed, more=False)


def prune_history(connection: sqlite3.Connection, before: float) -> Pruned:
    """Delete the oldest lines of the event log and answers of keyed requests from before `before`, one step of them."""
    events = connection.execute(_DROP_EVENTS, (MAX_ROWS, before)).rowcount
    requests = connection.execute(_DROP_REQUESTS, (MAX_ROWS, before)).rowcount
    _give_back(connection)
    return Pruned(events + requests, more=MAX_ROWS in (events, requests))


def _give_back(connection: sqlite3.Connection) -> None:
    """Return some free pages to the file system, one at a time: of a pragma without columns Python takes one step."""
    free = connection.execute("PRAGMA freelist_count").fetchone()[0]
    for _ in range(min(free, VACUUM_PAGES)):
        connection.execute("PRAGMA incremental_vacuum(1)")
