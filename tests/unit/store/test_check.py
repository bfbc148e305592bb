"""Every kind of finding comes from a database damaged by hand, and none from a sound one.

That a database is sound after any amount of work, faults and crashes is tested by the simulation, which judges its
databases by the same check.
"""

import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from schedd.core.batch import NewBatch
from schedd.core.model import Dependency, Moment, NewTask, Outcome, Recurrence, RetryPolicy, When
from schedd.engine.inbox import Call, Request
from schedd.engine.loop import Engine
from schedd.engine.requests import CancelTasks, HoldTasks, PauseStarting, SubmitBatch
from schedd.store import atrest, check, findings
from schedd.store.base import StoreBroken, StoreUnavailable
from schedd.store.check import check_database
from schedd.store.findings import ERROR, NOTE, SHOWN, Report
from schedd.store.sqlite import open_store
from support.fakes import FakeClock, FakeExecutor

DOCS = Path(__file__).resolve().parents[3] / "docs" / "operations.md"


def task(name: str | None, *deps: Dependency, attempts: int = 1, **more: object) -> NewTask:
    return NewTask("{}", name, deps, retry=RetryPolicy(attempts, 0.0, 0.0), **more)  # type: ignore[arg-type]


TASKS = [
    task("done"),
    task("failing", attempts=2),
    task("mended", attempts=3),
    task("after", Dependency("done")),
    task("child", Dependency("failing")),
    task("mourner", Dependency("failing", When.FAILED)),
    task("beat", recurrence=Recurrence(60.0, 3)),
    task("unstartable", attempts=5),
    task("endless"),
    task("busy", priority=5),
    task("waiting", Dependency("busy")),
    task("behind", Dependency("waiting", When.FINISHED)),
    task("later", delay=500.0),
    task("held", delay=0.0, priority=9),
    task("expired", delay=500.0, deadline=Moment(3.0)),
    task("too-late", delay=500.0, start_before=Moment(3.0)),
    NewTask("{}", "picky", retry=RetryPolicy(5, 0.0, 0.0, never_on_exit_codes=(3,))),
    task(None),
]
ENDS = {
    "failing": [Outcome.FAILED, Outcome.TIMED_OUT],
    "mended": [Outcome.CRASHED, Outcome.INTERRUPTED],
    "unstartable": [Outcome.START_FAILED],
    "endless": [Outcome.CANCELLED],
    "picky": [Outcome.FAILED],
}
RUNNING = ("busy",)


def fill(path: Path) -> None:
    """Tasks in every state, with every outcome; `busy` runs when the daemon is killed."""
    store = open_store(path)
    executor, clock = FakeExecutor(), FakeClock()
    engine = Engine(store, executor, clock, 20)
    engine.recover()

    def ask(request: Request, key: str | None = None) -> None:
        call = Call(request, key=key, digest="d")
        engine.step([call])
        call.future.result(0)

    ask(SubmitBatch(NewBatch([task("x")], "ci")))
    ask(PauseStarting(True))
    ask(SubmitBatch(NewBatch(TASKS)), "key-1")
    ask(HoldTasks(("held",), True))
    ask(PauseStarting(False))
    ask(CancelTasks(("endless", "later")))
    ends = {name: list(outcomes) for name, outcomes in ENDS.items()}
    for _ in range(6):
        for seq, order in list(executor.running.items()):
            if order.id not in RUNNING:
                left = ends.get(order.id)
                outcome = left.pop(0) if left else Outcome.SUCCEEDED
                more: dict[str, Any] = (
                    {"result": '{"n": 1}'} if outcome is Outcome.SUCCEEDED else {"error": "no", "exit_code": 3}
                )
                if outcome is Outcome.START_FAILED:
                    more["counts"] = False
                engine.step([executor.end(seq, outcome, clock.now(), **more)])
        clock.advance(6.0)
        engine.step([])
    store.close()


@pytest.fixture(scope="module")
def worked(migrated: bytes, tmp_path_factory: pytest.TempPathFactory) -> bytes:
    path = tmp_path_factory.mktemp("worked") / "schedd.db"
    path.write_bytes(migrated)
    fill(path)
    return path.read_bytes()


@pytest.fixture
def filled(worked: bytes, tmp_path: Path) -> Path:
    """A database with something of everything in it, that nobody has open."""
    path = tmp_path / "schedd.db"
    path.write_bytes(worked)
    return path


def harm(path: Path, *statements: str) -> None:
    """Do what the schema would forbid."""
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("PRAGMA ignore_check_constraints = ON")
        for statement in statements:
            assert connection.execute(statement).rowcount, statement


def said(report: Report) -> str:
    return "\n".join(message for found in report.told() for _, message in found.shown)


def test_a_sound_database_gives_no_finding(filled: Path):
    """Although it holds every status, every outcome and an attempt that a killed daemon left open."""
    with closing(sqlite3.connect(filled)) as connection:
        statuses = {row[0] for row in connection.execute("SELECT status FROM task")}
        outcomes = [row[0] for row in connection.execute("SELECT outcome FROM attempt")]
    assert statuses == {"pending", "running", "succeeded", "failed", "cancelled", "skipped"}
    assert {*outcomes} == {*map(str, Outcome), None}
    report = check_database(filled)
    assert (report.kinds, report.unjudged) == ({}, None)
    assert (report.tasks, report.revision) == (19, check.HEAD)
    assert report.attempts == len(outcomes)


def test_a_new_database_gives_no_finding(database: Path):
    """Nothing in it is nothing wrong."""
    assert check_database(database).kinds == {}


def seq_of(name: str) -> str:
    return f"(SELECT seq FROM task WHERE id = '{name}')"


def edge(child: str, parent: str, when: str = "succeeded") -> str:
    return f"INSERT INTO dependency VALUES ({seq_of(child)}, {seq_of(parent)}, '{when}')"


def attempt(name: str, change: str) -> str:
    return f"UPDATE attempt SET {change} WHERE task_seq = {seq_of(name)}"


def row(name: str, change: str) -> str:
    return f"UPDATE task SET {change} WHERE id = '{name}'"


HARM: list[tuple[str, str, set[str]]] = [  # a statement, words of the message, and the kinds it is told as
    ("DELETE FROM batch WHERE name = 'ci-1'", "table task belongs to a batch that is gone", {"dangling"}),
    ("DELETE FROM task WHERE id = 'mended'", "table attempt belongs to a task that is gone", {"dangling"}),
    (f"INSERT INTO dependency VALUES ({seq_of('done')}, 999, 'failed')", "table dependency", {"dangling"}),
    (row("waiting", "payload = '{broken'"), "waiting is damaged: its payload is not JSON", {"damaged_task"}),
    (row("later", "run_at = 'soon', status = 'pending', settled_at = NULL"), "run_at", {"damaged_task"}),
    (
        row("waiting", "status = 'dancing'"),
        "waiting has the unknown status dancing",
        {"bad_status", "damaged_task"},
    ),
    (row("done", "settled_at = NULL"), "done is succeeded and has no time at which it ended", {"bad_settled_at"}),
    (row("waiting", "settled_at = 5"), "waiting is pending and has a time at which it ended", {"bad_settled_at"}),
    (attempt("busy", "outcome = 'interrupted', ended_at = 1"), "busy is running", {"running_without_attempt"}),
    (
        attempt("done", "outcome = NULL, ended_at = NULL"),
        "attempt 1 of done has not ended",
        {"stray_open_attempt", "attempts_miscounted"},
    ),
    (attempt("done", "outcome = 'vanished'"), "has the outcome vanished", {"bad_attempt"}),
    (attempt("done", "ended_at = NULL"), "has the outcome succeeded and ended at None", {"bad_attempt"}),
    (row("done", "number = 7"), "has had 7 attempts, of which there are 1 from 1 to 1", {"attempt_numbers"}),
    (row("held", "number = 2"), "has had 2 attempts, of which there are none", {"attempt_numbers"}),
    (row("done", "attempts = 0"), "counts 0 attempts in its run 1, and its rows come to 1", {"attempts_miscounted"}),
    (row("unstartable", "attempts = 3"), "its rows come to 1 to 2", {"attempts_miscounted"}),
    (row("failing", "max_attempts = 1"), "was tried 2 times and may be tried 1 times", {"attempts_miscounted"}),
    (row("failing", "max_attempts = 9"), "failed after 2 attempts of the 9", {"attempts_miscounted"}),
    (row("child", "attempts = 1"), "was skipped and yet counts 1 attempts", {"attempts_miscounted"}),
    (row("done", "attempts = 'one'"), "has counts that are not numbers", {"attempts_miscounted"}),
    (row("done", "runs = 2"), "done succeeded after 2 runs of the 1", {"runs_miscounted", "attempts_miscounted"}),
    (row("failing", "runs = 1"), "is failed and has all of its 1 runs", {"runs_miscounted", "attempts_miscounted"}),
    (attempt("beat", "run = 3"), "beat has an attempt in the run 3 and is in its run 2", {"runs_miscounted"}),
    (
        f"UPDATE dependency SET \"when\" = 'perhaps' WHERE task_seq = {seq_of('after')}",
        "after depends on done with `when: perhaps`",
        {"bad_dependency", "started_too_early"},
    ),
    (edge("waiting", "waiting"), "waiting depends on waiting", {"bad_dependency", "damaged_task"}),
    (edge("waiting", "failing"), "waiting waits for failing to be succeeded, which is failed", {"waits_in_vain"}),
    (edge("done", "busy"), "done is succeeded and has started, although busy is running", {"started_too_early"}),
    (edge("waiting", "behind"), "tasks wait for each other: ", {"cycle"}),
    (row("done", "id = 'a/b'"), "in no named batch, has the id 'a/b'", {"bad_id"}),
    (row("done", "id = x'00ff'"), "has the id", {"bad_id"}),
    (row("ci-1/x", "id = 'ci-2/x'"), "in the batch ci-1, has the id 'ci-2/x'", {"bad_id"}),
    ("DELETE FROM batch_counter", "there is a batch ci-1, and the counter of its name stands at 0", {"bad_counter"}),
    ("UPDATE batch_counter SET last = 0", "the counter of its name stands at 0", {"bad_counter"}),
    (
        "UPDATE sqlite_sequence SET seq = 1 WHERE name = 'task'",
        "the counter of the table task stands at 1, and there is a row 19",
        {"bad_counter"},
    ),
    ("DELETE FROM sqlite_sequence WHERE name = 'batch'", "the counter of the table batch stands", {"bad_counter"}),
    ("UPDATE request SET answer = '{'", "the request with the key key-1 is not JSON", {"bad_json"}),
    (attempt("done", "result = '{'"), "the result of attempt 1 of done is not JSON", {"bad_json"}),
    ("UPDATE event SET detail = '{' WHERE id = 1", "the detail of event 1 is not JSON", {"bad_json"}),
    ("UPDATE setting SET value = 'perhaps'", "neither 0 nor 1 but perhaps", {"bad_setting"}),
    (row("failing", "error = 'set aside: it was bad'"), "failing was set aside: it was bad", {"set_aside"}),
    (
        f"DELETE FROM dependency WHERE task_seq = {seq_of('child')}",
        "child was skipped, and nothing",
        {"skipped_without_reason"},
    ),
    ("INSERT INTO batch (seq, created_at) VALUES (77, 1.0)", "the batch seq 77 has no tasks", {"empty_batch"}),
    (
        f"DELETE FROM attempt WHERE number = 1 AND task_seq = {seq_of('failing')}",
        "failing has no attempts from before its attempt 2",
        {"earlier_attempts_gone"},
    ),
]


@pytest.mark.parametrize(("statement", "words", "kinds"), HARM, ids=[case[1][:40] for case in HARM])
def test_what_schedd_never_writes_is_found(filled: Path, statement: str, words: str, kinds: set[str]):
    """By name of the task, and nothing else is."""
    harm(filled, statement)
    report = check_database(filled)
    assert report.kinds.keys() == kinds, said(report)
    assert words in said(report)
    severities = {findings.KINDS[kind][0] for kind in kinds}
    assert report.count(ERROR) == sum(found.count for found in report.told()) * (severities == {ERROR})
    assert (report.count(NOTE) > 0) == (severities == {NOTE})


def test_the_value_that_a_column_must_not_have_is_found(filled: Path):
    """SQLite judges its own constraints; a row that has none of its values right is told, and the file is whole."""
    with closing(sqlite3.connect(filled, isolation_level=None)) as connection:
        sql = connection.execute("SELECT sql FROM sqlite_master WHERE name = 'task'").fetchone()[0]
        connection.execute("PRAGMA writable_schema = ON")
        change = "UPDATE sqlite_master SET sql = ? WHERE name = 'task'"
        connection.execute(change, (sql.replace(" NOT NULL", ""),))
        connection.execute("PRAGMA schema_version = 1000")
    harm(filled, row("waiting", "payload = NULL"))
    with closing(sqlite3.connect(filled, isolation_level=None)) as connection:
        connection.execute("PRAGMA writable_schema = ON")
        connection.execute(change, (sql,))
        connection.execute("PRAGMA schema_version = 1001")
    report = check_database(filled)
    assert report.kinds.keys() == {"missing_value", "damaged_task"}
    assert "SQLite finds: NULL value in task.payload" in said(report)


def overwrite(path: Path, name: str) -> None:
    """One page is not what it was."""
    with closing(sqlite3.connect(path)) as connection:
        page = connection.execute("SELECT rootpage FROM sqlite_master WHERE name = ?", (name,)).fetchone()[0]
    with path.open("r+b") as file:
        file.seek((page - 1) * 4096)
        file.write(b"\xff" * 4096)


BROKEN: dict[str, Callable[[Path], object]] = {
    "a table": lambda path: overwrite(path, "task"),
    "an index": lambda path: overwrite(path, "ix_task_open"),
    "cut off": lambda path: path.write_bytes(path.read_bytes()[: 4096 * 6]),
    "a letter": lambda path: path.write_bytes(b"this is a letter, not a database. " * 300),
    "no first page": lambda path: path.write_bytes(b"\xff" * 4096 + path.read_bytes()[4096:]),
}


@pytest.mark.parametrize("how", BROKEN)
def test_a_file_that_is_damaged_is_a_finding_and_no_crash(filled: Path, how: str):
    """What SQLite finds is told, and a backup named as the way out."""
    BROKEN[how](filled)
    report = check_database(filled)
    assert "damaged" in report.kinds
    assert "restore a backup" in report.kinds["damaged"].advice


def test_an_index_that_lacks_a_row_is_damage(filled: Path):
    """SQLite's own look into the indices."""
    with closing(sqlite3.connect(filled, isolation_level=None)) as connection:
        connection.execute("PRAGMA writable_schema = ON")
        connection.execute("UPDATE sqlite_master SET sql = replace(sql, 'UNIQUE', '') WHERE name = 'ix_task_status'")
        connection.execute(
            "UPDATE sqlite_master SET rootpage = (SELECT rootpage FROM sqlite_master WHERE name = 'ix_task_batch_seq') "
            "WHERE name = 'ix_task_status'"
        )
    assert "damaged" in check_database(filled).kinds


def test_an_empty_file_is_a_finding(tmp_path: Path):
    """A schedd that starts on it would begin with nothing, and nobody would know why."""
    (tmp_path / "schedd.db").touch()
    assert check_database(tmp_path / "schedd.db").kinds.keys() == {"empty"}


def test_somebody_elses_database_is_refused(tmp_path: Path):
    """It is not ours to judge."""
    path = tmp_path / "other.db"
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE invoices (id INTEGER)")
    with pytest.raises(StoreBroken, match=r"not a database of schedd: it has the tables \['invoices'\]"):
        check_database(path)


def test_what_is_not_there_cannot_be_read(tmp_path: Path):
    """Nor is it made."""
    with pytest.raises(StoreUnavailable):
        check_database(tmp_path / "schedd.db")
    assert not list(tmp_path.iterdir())


def test_another_revision_is_not_judged(filled: Path):
    """Its tables may mean something else; the file and the references are looked at all the same."""
    harm(filled, "UPDATE alembic_version SET version_num = '9999'", row("done", "attempts = 7"))
    report = check_database(filled)
    assert (report.kinds, report.revision) == ({}, "9999")
    assert report.unjudged is not None
    assert "revision 9999 and this schedctl knows" in report.unjudged
    harm(filled, "DELETE FROM batch WHERE name = 'ci-1'")
    assert check_database(filled).kinds.keys() == {"dangling"}


def test_of_many_findings_the_first_are_shown_and_all_are_counted(filled: Path):
    """A damaged table must not fill a terminal."""
    statement = "INSERT INTO batch (seq, name, created_at) VALUES "
    harm(filled, statement + ", ".join(f"({1000 + number}, NULL, 1.0)" for number in range(SHOWN + 30)))
    [found] = check_database(filled).told()
    assert (found.count, len(found.shown)) == (SHOWN + 30, SHOWN)


def test_a_long_cycle_is_told_on_one_line(filled: Path):
    """With its length, and with how many are stuck behind it."""
    with closing(sqlite3.connect(filled, isolation_level=None)) as connection:
        columns = [entry[1] for entry in connection.execute("PRAGMA table_info(task)")]
        values = ", ".join({"seq": "?", "id": "?"}.get(name, f'"{name}"') for name in columns)
        for number in range(100, 130):
            connection.execute(
                f"INSERT INTO task SELECT {values} FROM task WHERE id = 'waiting'", (number, f"c{number}")
            )
            after = 100 + (number - 99) % 29 if number < 129 else 100
            connection.execute("INSERT INTO dependency VALUES (?, ?, 'succeeded')", (number, after))
    report = check_database(filled)
    assert report.kinds.keys() == {"cycle"}
    [(name, message)] = report.kinds["cycle"].shown
    path = message.partition(": ")[2].partition(",")[0].split(" -> ")
    assert path[0] == path[-1] == name
    assert path[-2] == "(20 more)"
    assert len(path) == 11
    assert message.endswith(", and 1 more tasks are stuck behind it")


def test_values_of_any_kind_and_length_are_told_on_a_line(filled: Path):
    """A row may hold anything."""
    harm(filled, row("waiting", "status = x'00ff0a'"), row("done", f"id = '{'x' * 5000}'"))
    report = check_database(filled)
    assert all(len(message) < 600 for found in report.told() for _, message in found.shown)
    assert report.kinds.keys() >= {"bad_status", "bad_id"}


def test_every_kind_is_tested_here_or_with_the_logs_and_is_in_the_manual():
    """A new one without either fails here."""
    of_logs = {"log_without_attempt", "attempt_without_log", "foreign_file", "log_unreadable"}
    assert set().union(*(case[2] for case in HARM)) | of_logs | {"damaged", "empty", "missing_value"} == {
        *findings.KINDS
    }
    manual = DOCS.read_text("utf-8")
    assert [kind for kind in findings.KINDS if f"`{kind}`" not in manual] == []


# --- beside a daemon, and without a trace ---------------------------------------------------------------------------


def test_a_round_that_is_not_committed_is_no_fault(filled: Path):
    """What is seen is what is committed, while the daemon writes."""
    with closing(sqlite3.connect(filled, isolation_level=None)) as daemon:
        daemon.execute("PRAGMA journal_mode = WAL")
        daemon.execute("BEGIN IMMEDIATE")
        daemon.execute(row("done", "attempts = 7"))
        assert check_database(filled).kinds == {}
        daemon.execute("COMMIT")
        assert check_database(filled).kinds.keys() == {"attempts_miscounted"}


def test_a_database_that_nobody_has_open_is_read_without_a_trace(filled: Path):
    """Not even files beside it, which would belong to the wrong user."""
    before = filled.read_bytes()
    check_database(filled)
    assert filled.read_bytes() == before
    assert [path.name for path in filled.parent.iterdir()] == [filled.name]


@pytest.mark.parametrize("fails", [False, True])
def test_a_database_that_changes_meanwhile_is_read_again(filled: Path, fails: bool):
    """Whoever opens it while we read would pull it away under us."""
    asked: list[int] = []

    def question(connection: sqlite3.Connection) -> int:
        asked.append(connection.execute("SELECT count(*) FROM batch").fetchone()[0])
        if len(asked) == 1:
            harm(filled, "INSERT INTO batch (seq, created_at) VALUES (77, 1.0)")
            if fails:
                raise sqlite3.DatabaseError("torn")
        return asked[-1]

    assert atrest.read_without_trace(filled, question) == asked[0] + 1
    assert len(asked) == 2


def test_what_fails_on_a_database_at_rest_is_told_at_once(filled: Path):
    """Nobody changed it: a second look would find the same."""
    asked = []

    def question(connection: sqlite3.Connection) -> None:
        asked.append(1)
        raise sqlite3.DatabaseError("torn")

    with pytest.raises(sqlite3.DatabaseError, match="torn"):
        atrest.read_without_trace(filled, question)
    assert len(asked) == 1
