"""What an admin asks of the daemon."""

import sqlite3
import threading
from collections.abc import Callable
from contextlib import closing
from typing import Any

import pytest

from schedd.answers import CheckAnswer
from schedd.api import routes_admin
from schedd.checkup import check_state_dir
from schedd.client import Client
from schedd.store.base import StoreUnavailable
from support.api_daemon import ApiDaemon
from support.shapes import mismatch

Ask = Callable[..., Any]


def harm(daemon: ApiDaemon) -> None:
    """What somebody else writes into the database of a task `a`."""
    with closing(sqlite3.connect(daemon.database, isolation_level=None, timeout=20)) as connection:
        assert connection.execute("UPDATE task SET number = 7 WHERE id = 'a'").rowcount == 1


def test_a_sound_database_is_told_in_the_promised_shape(
    schedd: Client, daemon: ApiDaemon, started: Callable[[str], None]
) -> None:
    """With a task that runs and one that waits for it."""
    schedd.submit({"tasks": {"a": {"run": "x"}, "b": {"run": "x", "deps": ["a"]}}})
    started("a")
    answer = schedd.check()
    assert mismatch(answer, CheckAnswer) is None
    assert answer["sound"]
    assert (answer["tasks"], answer["attempts"], answer["findings"]) == (2, 1, [])
    assert (answer["state_dir"], answer["database"]) == (str(daemon.home), str(daemon.database))


def test_faults_are_told_and_the_daemon_goes_on(schedd: Client, daemon: ApiDaemon) -> None:
    """A finding is no error of the request; what is found is what `schedctl check` finds by itself."""
    schedd.submit({"tasks": {"a": {"run": "x"}}})
    daemon.end("a")
    schedd.wait(["a"])
    harm(daemon)
    answer = schedd.check()
    assert mismatch(answer, CheckAnswer) is None
    assert not answer["sound"]
    kinds = [found["kind"] for found in answer["findings"]]
    assert kinds == ["attempt_numbers", "attempt_without_log"]  # faults first; nothing here makes logs
    assert answer == check_state_dir(daemon.home)
    assert schedd.health()["ready"]


def test_a_check_does_not_let_go_of_the_lock_of_the_database(schedd: Client, daemon: ApiDaemon) -> None:
    """A file that is opened and closed by hand would; another writer could then write in the middle of a round."""
    schedd.submit({"tasks": {"a": {"run": "x"}}})
    daemon.store.begin()  # the engine is idle: this is its connection
    try:
        schedd.check()
        with (
            closing(sqlite3.connect(daemon.database, isolation_level=None, timeout=0)) as other,
            pytest.raises(sqlite3.OperationalError, match="locked"),
        ):
            other.execute("BEGIN IMMEDIATE")
    finally:
        daemon.store.rollback()


def test_it_takes_no_parameters(ask: Ask) -> None:
    """An unknown one is refused, as everywhere."""
    answer = ask("GET", "/v1/check?repair=1")
    assert (answer.status, answer.body["code"]) == (422, "invalid")
    assert ask("POST", "/v1/check").status == 405


def test_what_cannot_be_read_is_unavailable(ask: Ask, daemon: ApiDaemon, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the reason, and 503, whatever kept it."""
    daemon.database.rename(daemon.home / "moved.db")
    answer = ask("GET", "/v1/check")
    assert (answer.status, answer.body["code"]) == (503, "unavailable")
    assert f"there is no database {daemon.database}" in answer.body["detail"]
    (daemon.home / "moved.db").rename(daemon.database)

    def fail(path: object) -> None:
        raise StoreUnavailable("the database is locked")

    monkeypatch.setattr(routes_admin, "check_state_dir", fail)
    answer = ask("GET", "/v1/check")
    assert (answer.status, answer.body["code"]) == (503, "unavailable")
    assert "the database is locked" in answer.body["detail"]


def test_a_long_check_is_in_nobodys_way(
    ask: Ask, schedd: Client, monkeypatch: pytest.MonkeyPatch, eventually: Callable[..., None]
) -> None:
    """Questions and changes are answered meanwhile, and one check waits for the other."""
    go = threading.Event()
    running: list[int] = []
    most: list[int] = []

    def slow(path: object) -> dict[str, bool]:
        running.append(1)
        most.append(len(running))
        assert go.wait(20)
        running.pop()
        return {"sound": True}

    monkeypatch.setattr(routes_admin, "check_state_dir", slow)
    answers: list[Any] = []
    threads = [threading.Thread(target=lambda: answers.append(ask("GET", "/v1/check"))) for _ in range(6)]
    for thread in threads:
        thread.start()
    try:
        eventually(lambda: running)
        assert schedd.status()["counts"]["ready"] == 0
        schedd.submit({"tasks": {"a": {"run": "x"}}})
        assert schedd.task("a")["id"] == "a"
    finally:
        go.set()
        for thread in threads:
            thread.join(20)
    assert [answer.status for answer in answers] == [200] * 6
    assert max(most) == 1
