"""Log files and attempts are held against each other, and what does not belong together is a note."""

import os
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from schedd.core.model import Outcome
from schedd.store import migrate
from schedd.store.base import StoreUnavailable
from schedd.store.findings import Report
from schedd.workers import logcheck
from schedd.workers.logcheck import attempt_of, check_logs
from schedd.workers.logfiles import HAVE_LOGS, log_path, open_log

THREAD = '{"call": "a:b", "isolation": "thread"}'


@pytest.fixture
def database(tmp_path: Path) -> Path:
    path = tmp_path / "schedd.db"
    migrate.upgrade(path)
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("INSERT INTO batch (seq, created_at) VALUES (1, 1.0)")
        connection.commit()
    return path


@pytest.fixture
def logs(tmp_path: Path) -> Path:
    directory = tmp_path / "logs"
    directory.mkdir()
    return directory


@pytest.fixture
def add(database: Path) -> Callable[..., None]:
    """`add(seq, outcome, ...)`: a task `t<seq>` with these attempts."""

    def insert(seq: int, *outcomes: str | None, payload: str = '{"run": "x"}') -> None:
        with closing(sqlite3.connect(database)) as connection:
            columns = [row[1] for row in connection.execute("PRAGMA table_info(task)") if row[3]]
            values = dict.fromkeys(columns, 1) | {"seq": seq, "id": f"t{seq}", "status": "pending", "payload": payload}
            marks = ", ".join("?" * len(columns))
            connection.execute(f"INSERT INTO task ({', '.join(columns)}) VALUES ({marks})", [*values.values()])
            for number, outcome in enumerate(outcomes, 1):
                sql = "INSERT INTO attempt (task_seq, number, run, outcome, started_at) VALUES (?, ?, 1, ?, 1.0)"
                connection.execute(sql, (seq, number, outcome))
            connection.commit()

    return insert


def touch(logs: Path, seq: int, number: int) -> Path:
    path = log_path(logs, seq, number)
    os.close(open_log(path))
    return path


def found(database: Path, logs: Path) -> dict[str, list[str]]:
    report = Report(database)
    check_logs(database, logs, report)
    return {kind: [message for _, message in notes.shown] for kind, notes in report.kinds.items()}


def test_files_and_attempts_that_belong_together_are_no_finding(
    database: Path, logs: Path, add: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """However many pages of them."""
    monkeypatch.setattr(logcheck, "PAGE", 3)
    for seq in (1, 2, 999, 1_000, 1_234_567):
        add(seq, *HAVE_LOGS, None)
        for number in (1, 2, 3, 4):
            touch(logs, seq, number)
    assert found(database, logs) == {}


def test_only_an_attempt_that_had_a_process_must_have_a_log(
    database: Path, logs: Path, add: Callable[..., None]
) -> None:
    """The others may have ended before that, or still run; a function in a thread may have had nothing to say."""
    add(1, *[str(outcome) for outcome in Outcome if outcome not in HAVE_LOGS], None)
    add(2, "succeeded", "failed", payload=THREAD)
    assert found(database, logs) == {}
    add(3, "failed", "crashed", "succeeded")
    touch(logs, 3, 1)
    path = log_path(logs, 3, 3)
    assert found(database, logs) == {"attempt_without_log": [f"attempt 3 of t3 has ended, and {path} is not there"]}


@pytest.mark.parametrize("page", [1, 2, 1_000])
def test_each_missing_log_is_found_whatever_the_size_of_a_page(
    database: Path, logs: Path, add: Callable[..., None], monkeypatch: pytest.MonkeyPatch, page: int
) -> None:
    """At the borders of pages too."""
    monkeypatch.setattr(logcheck, "PAGE", page)
    for seq in (1, 2, 3):
        add(seq, "failed", "succeeded")
    assert len(found(database, logs)["attempt_without_log"]) == 6


def test_a_log_of_an_attempt_that_there_is_not_is_found(database: Path, logs: Path, add: Callable[..., None]) -> None:
    """Of a task that is gone, or of a number that was never reached."""
    add(1, "succeeded")
    touch(logs, 1, 1)
    strays = {touch(logs, 1, 2), touch(logs, 7, 1)}
    messages = found(database, logs)["log_without_attempt"]
    assert {message.split(" is of the attempt ")[0] for message in messages} == {str(path) for path in strays}
    assert any("the attempt 2 of a task with seq 1: none such" in message for message in messages)


def test_what_is_no_log_is_told(database: Path, logs: Path) -> None:
    """Wherever it lies; directories and links are not followed out."""
    (logs / "README").touch()
    (logs / "0" / "000").mkdir(parents=True)
    (logs / "0" / "000" / "2000.1.log").touch()  # on another shelf than its own
    (logs / "0" / "up").symlink_to("..")
    messages = found(database, logs)
    assert messages.keys() == {"foreign_file"}
    names = {message.removesuffix(" is no log file of schedd") for message in messages["foreign_file"]}
    assert names == {str(logs / "README"), str(logs / "0" / "000" / "2000.1.log"), str(logs / "0" / "up")}


def test_without_a_log_directory_every_log_is_missing(database: Path, logs: Path, add: Callable[..., None]) -> None:
    """As after a restore on a new disk."""
    add(1, "succeeded")
    logs.rmdir()
    assert found(database, logs).keys() == {"attempt_without_log"}


def test_what_may_not_be_read_is_told(
    database: Path, logs: Path, add: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Once for a directory, and the check goes on."""
    add(1, "succeeded")
    touch(logs, 1, 1)

    def refuse(path: object) -> object:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(logcheck.os, "scandir", refuse)
    assert found(database, logs) == {"log_unreadable": [f"{logs}: Permission denied"]}
    monkeypatch.setattr(logcheck.os, "lstat", refuse)
    assert found(database, logs)["log_unreadable"] == [
        f"{logs}: Permission denied",
        f"{log_path(logs, 1, 1)}: Permission denied",
    ]


def test_without_a_database_it_says_so(tmp_path: Path, logs: Path) -> None:
    """In the words of the store."""
    with pytest.raises(StoreUnavailable):
        check_logs(tmp_path / "nowhere.db", logs, Report(tmp_path / "nowhere.db"))


def test_the_name_of_a_log_leads_back_to_its_attempt(logs: Path) -> None:
    """For every shelf and drawer."""
    for seq in (1, 999, 1_000, 999_999, 1_000_000, 123_456_789):
        for number in (1, 2, 999, 1_000, 1_000_000):
            assert attempt_of(logs, log_path(logs, seq, number)) == (seq, number)


@pytest.mark.parametrize(
    "name",
    ["1.1.log", "0/000/1.1", "0/000/x.1.log", "0/000/1.2.log", "0/000/01.1.log", "0/000/1.1.log.gz", "0/000/1/0/1.log",
     "0/000/1/1/2.log", "0/000/²/0/2.log", f"0/000/{'9' * 30}.1.log", "0/000/1/0/0/2.log"],
)  # fmt: skip
def test_other_names_are_of_no_attempt(logs: Path, name: str) -> None:
    """Not even those that come close."""
    assert attempt_of(logs, logs / name) is None
