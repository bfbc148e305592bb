"""A database of every released schema, as a killed daemon left it, is opened by the present program and runs on.

They are in tests/fixtures/databases, with the script that makes the next one, and stay there for ever.
"""

import json
import shutil
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from schedd.store import migrate
from schedd.store.check import check_database
from schedd.store.findings import ERROR
from schedd.store.tables import HEAD
from support.daemons import RealDaemon, daemon_of, until
from support.migrating import OLD, lost_in, revision_of, rows_of
from support.pressure import post

REVISIONS = sorted(path.stem for path in OLD.glob("*.db"))
ENDED = ("succeeded", "failed", "cancelled", "skipped")
KEYED = {"name": "keyed", "tasks": {"one": {"run": "true"}}}  # what `old-key` was given with: see make.py

every_release = pytest.mark.parametrize("revision", REVISIONS)


@pytest.fixture
def database(revision: str, tmp_path: Path) -> Path:
    """A copy of the fixture, that nobody has open."""
    path = tmp_path / "schedd.db"
    shutil.copyfile(OLD / f"{revision}.db", path)
    return path


def test_there_is_a_database_of_every_release():
    """Of each revision but the newest, which may not be released yet: `make.py` makes it before it is."""
    from alembic.script import ScriptDirectory

    known = {script.revision for script in ScriptDirectory(str(migrate.script_location())).walk_revisions()}
    assert {*REVISIONS} | {HEAD} == known


@every_release
def test_the_fixture_holds_something_of_everything(revision: str, database: Path):
    """Or the tests below would prove little."""
    assert revision_of(database) == revision
    with closing(sqlite3.connect(database)) as connection:

        def seen(sql: str) -> set[Any]:
            return {row[0] for row in connection.execute(sql)}

        assert seen("SELECT status FROM task") == {"pending", "running", *ENDED}
        assert seen("SELECT outcome FROM attempt") >= {
            "succeeded", "failed", "timed_out", "cancelled", "crashed", "start_failed", "interrupted", None
        }  # fmt: skip
        assert seen('SELECT "when" FROM dependency') == {"succeeded", "failed", "finished"}
        pending = "SELECT count(*) FROM task WHERE status = 'pending' AND "
        for what in ("held", "run_at > created_at + 3600", "every > 0 AND runs > 0", "attempts > 0"):
            assert seen(pending + what) >= {1}, what
        for table in ("request", "event", "batch_counter", "setting"):
            assert seen(f"SELECT count(*) > 0 FROM {table}") == {1}, table


@every_release
def test_it_is_upgraded_with_all_that_is_in_it(revision: str, database: Path):
    """Every value is what it was, the copy from before has the old revision, and the check finds no fault."""
    before = rows_of(database)
    done = migrate.upgrade(database)
    assert (done.from_revision, done.to_revision) == (revision, HEAD)
    assert lost_in(before, rows_of(database)) == []
    if revision == HEAD:
        assert done.backup is None
    else:
        assert done.backup == database.with_name(f"schedd.db.{revision}.bak")
        assert (revision_of(done.backup), rows_of(done.backup)) == (revision, before)
    report = check_database(database)
    assert (report.count(ERROR), report.unjudged) == (0, None), report
    assert migrate.upgrade(database) == migrate.Upgrade(HEAD, HEAD, None)


@every_release
def test_its_counters_go_on_where_they_were(revision: str, database: Path):
    """A number that was given is never given again, whatever becomes of its row."""
    with closing(sqlite3.connect(database)) as connection:
        connection.execute("UPDATE sqlite_sequence SET seq = seq + 500")  # the last rows are gone
        connection.commit()
        before = dict(connection.execute("SELECT name, seq FROM sqlite_sequence"))
    migrate.upgrade(database)
    with closing(sqlite3.connect(database)) as connection:
        after = dict(connection.execute("SELECT name, seq FROM sqlite_sequence"))
    assert before.items() <= after.items()


@pytest.fixture
def daemon(revision: str) -> Iterator[RealDaemon]:
    """A daemon on the old database."""
    with daemon_of(workers=3, start=False) as made:
        made.state_dir.mkdir(mode=0o750)
        shutil.copyfile(OLD / f"{revision}.db", made.database)
        yield made


@pytest.mark.real
@every_release
def test_what_is_open_in_it_runs_to_its_end(revision: str, daemon: RealDaemon):
    """Each task ends as its name says; what had ended stays as it was; keys, names and events go on."""
    before = rows_of(daemon.database)
    statuses = dict(zip(before["task"]["id"], before["task"]["status"], strict=True))
    was_open = {task_id for task_id, status in statuses.items() if status not in ENDED}
    expected = {
        task_id: task_id.rpartition("-")[2] if task_id in was_open else status for task_id, status in statuses.items()
    }
    daemon.start()
    assert daemon.client.status()["paused"], "the pause was in the database"
    running = [task_id for task_id, status in statuses.items() if status == "running"]
    assert {daemon.outcomes(task_id)[-1] for task_id in running} == {"crashed", "cancelled"}
    daemon.client.release([task_id for task_id in was_open if "/held" in task_id])
    daemon.client.resume()
    daemon.settle(*was_open)
    assert {task["id"]: task["status"] for task in daemon.client.iter_tasks()} == expected

    asked = post(daemon.socket, "/v1/batches", KEYED, "old-key")
    answer = before["request"]["answer"][before["request"]["key"].index("old-key")]
    assert asked.body == json.loads(answer), "a request was carried out a second time"
    last = before["batch_counter"]["last"][before["batch_counter"]["base_name"].index("keyed")]
    fresh = daemon.client.submit(KEYED)
    assert fresh["batch"] == f"keyed-{last + 1}"
    assert daemon.settle(*fresh["ids"]) == dict.fromkeys(fresh["ids"], "succeeded")
    events = daemon.rows("SELECT id, kind FROM event ORDER BY id")
    old = list(zip(before["event"]["id"], before["event"]["kind"], strict=True))
    assert events[: len(old)] == old
    assert len(events) > len(old)

    daemon.stop()
    report = check_database(daemon.database)
    assert (report.count(ERROR), report.unjudged) == (0, None), report
    after = rows_of(daemon.database)
    ended = {
        seq for seq, status in zip(before["task"]["seq"], before["task"]["status"], strict=True) if status in ENDED
    }
    for table, key in (("task", "seq"), ("attempt", "task_seq")):
        for column in before[table].keys() & after[table].keys():
            assert values_of(after[table], key, column, ended) == values_of(before[table], key, column, ended), column


def values_of(table: dict[str, list[Any]], key: str, column: str, keys: set[int]) -> list[Any]:
    """What a column holds in the rows with these keys."""
    return [value for of, value in zip(table[key], table[column], strict=True) if of in keys]


@pytest.mark.real
@every_release
def test_a_kill_at_its_first_start_costs_nothing(revision: str, daemon: RealDaemon):
    """At once, after the upgrade, after the recovery: each finds what the last has left, and counts each loss once."""
    moments: list[Callable[[], object]] = [
        lambda: True,
        lambda: revision_of(daemon.database) == HEAD,
        lambda: daemon.outcomes("old-2/runs-then-succeeded") == ["crashed"],
    ]
    for moment in moments:
        daemon.spawn()
        until(moment, "the moment of the kill")
        daemon.kill()
    daemon.start()
    assert daemon.outcomes("old-2/runs-then-succeeded") == ["crashed"]
    daemon.stop()
    report = check_database(daemon.database)
    assert (report.count(ERROR), report.unjudged) == (0, None), report
