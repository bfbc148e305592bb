"""The output of an attempt, as a stream."""

import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from schedd.api import routes_logs
from schedd.client import Client, ProblemError
from schedd.core.model import Outcome
from schedd.engine.loop import Committed, Unavailable
from support.api_daemon import ApiDaemon
from support.unixhttp import connected, read_all

Ask = Callable[..., Any]


@pytest.fixture
def running(schedd: Client, started: Callable[[str], None]) -> None:
    """A task `a` (seq 1) whose first attempt runs."""
    schedd.submit({"tasks": [{"id": "a", "run": "x", "retry": {"max_attempts": 2, "base_delay": 0}}]})
    started("a")


@pytest.mark.usefixtures("running")
def test_output_comes_as_the_bytes_that_were_written(daemon: ApiDaemon, schedd: Client, ask: Ask) -> None:
    """No decoding, no line ends, any size, from any offset."""
    written = bytes(range(256)) * 1_000
    daemon.log_path(1, 1).write_bytes(written)
    assert b"".join(schedd.log("a")) == written
    assert b"".join(schedd.log("a", offset=len(written) - 3)) == written[-3:]
    assert b"".join(schedd.log("a", offset=len(written) + 3)) == b""
    answer = ask("GET", "/v1/log?id=a")
    assert answer.headers["x-schedd-attempt"] == "1"
    assert answer.headers["content-type"] == "application/octet-stream"


@pytest.mark.usefixtures("running")
def test_an_attempt_that_wrote_nothing_has_an_empty_output(schedd: Client) -> None:
    """No file is no error: it may be made with the first byte."""
    assert b"".join(schedd.log("a")) == b""


@pytest.mark.usefixtures("running")
def test_a_log_that_is_gone_is_told(daemon: ApiDaemon, schedd: Client, started: Callable[[str], None]) -> None:
    """An empty output would be taken for silence. What need not have had a log has an empty one."""
    daemon.end("a", Outcome.START_FAILED, error="no such program")
    started("a")
    daemon.end("a", Outcome.SUCCEEDED)
    schedd.wait(["a"])
    assert b"".join(schedd.log("a", attempt=1)) == b""
    for follow in (False, True):
        with pytest.raises(ProblemError, match="the log of attempt 2 of a is not there any more") as caught:
            list(schedd.log("a", follow=follow))
        assert (caught.value.status, caught.value.code) == (404, "log_missing")
        assert str(daemon.log_path(1, 2)) in caught.value.detail
    daemon.log_path(1, 2).touch()
    assert b"".join(schedd.log("a")) == b""


def test_a_function_in_a_thread_that_said_nothing_has_an_empty_output(
    daemon: ApiDaemon, schedd: Client, started: Callable[[str], None]
) -> None:
    """Its log is made by its first word."""
    schedd.submit({"tasks": [{"id": "b", "call": "os:getpid", "isolation": "thread"}]})
    daemon.end("b")
    schedd.wait(["b"])
    assert b"".join(schedd.log("b")) == b""


@pytest.mark.usefixtures("running")
def test_each_attempt_has_its_output_and_the_last_is_the_default(
    daemon: ApiDaemon, schedd: Client, ask: Ask, started: Callable[[str], None]
) -> None:
    """Earlier attempts stay readable by their number."""
    daemon.log_path(1, 1).write_bytes(b"first")
    daemon.end("a", Outcome.FAILED, error="no")
    started("a")
    daemon.log_path(1, 2).write_bytes(b"second")
    assert b"".join(schedd.log("a")) == b"second"
    assert b"".join(schedd.log("a", attempt=1)) == b"first"
    assert ask("GET", "/v1/log?id=a").headers["x-schedd-attempt"] == "2"


@pytest.mark.usefixtures("running")
def test_what_has_no_output_says_why(schedd: Client) -> None:
    """An unknown task, one that has not started, and an attempt that there is not are three things."""
    schedd.submit({"tasks": [{"id": "later", "run": "x", "delay": 1_000}]})
    for task_id, attempt, code, said in (
        ("nobody", None, "unknown_task", "no task 'nobody'"),
        ("later", None, "unknown_attempt", "later has not been started yet"),
        ("later", 1, "unknown_attempt", "later has not been started yet"),
        ("a", 2, "unknown_attempt", "no attempt 2; its last one is 1"),
    ):
        with pytest.raises(ProblemError, match=said) as caught:
            list(schedd.log(task_id, attempt))
        assert (caught.value.status, caught.value.code) == (404, code)


@pytest.mark.usefixtures("running")
@pytest.mark.parametrize(
    "query", ["id=a&attempt=0", "id=a&attempt=../x", "id=a&offset=-1", "id=a&follow=yes", "attempt=1"]
)
def test_a_wrong_question_for_a_log_is_refused(ask: Ask, query: str) -> None:
    """Numbers are numbers: nothing of a request becomes part of a path."""
    answer = ask("GET", f"/v1/log?{query}")
    assert (answer.status, answer.body["code"]) == (422, "invalid")


@pytest.mark.usefixtures("running")
def test_following_sends_what_is_added_and_ends_with_the_attempt(
    daemon: ApiDaemon, schedd: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A follower gets every byte, the last ones included, and then the end."""
    monkeypatch.setattr(routes_logs, "POLL_S", 0.01)
    path = daemon.log_path(1, 1)
    path.write_bytes(b"one")
    follower = schedd.log("a", follow=True)
    assert next(follower) == b"one"
    with path.open("ab") as file:
        file.write(b"two")
    assert next(follower) == b"two"
    with path.open("ab") as file:
        file.write(b"three")
    daemon.end("a", Outcome.SUCCEEDED)
    assert b"".join(follower) == b"three"


@pytest.mark.usefixtures("running")
def test_following_asks_the_engine_only_when_the_attempt_may_have_ended(
    daemon: ApiDaemon, schedd: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Once at the beginning and once at its end, however long it takes and however much else is committed. A commit
    of which nobody knows what was in it (it seemed to fail) is one more reason.
    """
    monkeypatch.setattr(routes_logs, "POLL_S", 0.001)
    asked, real = [], daemon.engine.ask

    def ask(question: Any) -> Any:
        asked.append(question)
        return real(question)

    monkeypatch.setattr(daemon.engine, "ask", ask)
    path = daemon.log_path(1, 1)
    path.write_bytes(b"begin")
    follower = schedd.log("a", follow=True)
    assert next(follower) == b"begin"
    for number in range(20):
        schedd.submit({"tasks": [{"id": f"other-{number}", "run": "x"}]})
        daemon.end(f"other-{number}", Outcome.SUCCEEDED)
        with path.open("ab") as file:
            file.write(b".")
        assert next(follower) == b"."
    assert len(asked) == 1
    daemon.feed.notify(Committed([], []))
    with path.open("ab") as file:
        file.write(b"!")
    assert next(follower) == b"!"
    daemon.end("a", Outcome.SUCCEEDED)
    assert b"".join(follower) == b""
    assert 2 <= len(asked) <= 3
    assert not daemon.feed._followers


@pytest.mark.usefixtures("running")
def test_following_survives_an_engine_that_is_busy(
    daemon: ApiDaemon, schedd: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A question without an answer is asked again: it says nothing of the attempt."""
    monkeypatch.setattr(routes_logs, "POLL_S", 0.001)
    failures, real = [Unavailable("busy")] * 3, daemon.engine.ask

    def ask(question: Any) -> Any:
        if failures:
            raise failures.pop()
        return real(question)

    daemon.log_path(1, 1).write_bytes(b"all")
    daemon.end("a", Outcome.SUCCEEDED)
    schedd.wait(["a"], 10.0)
    monkeypatch.setattr(daemon.engine, "ask", ask)
    assert b"".join(schedd.log("a", attempt=1, follow=True)) == b"all"
    assert not failures


@pytest.mark.usefixtures("running")
def test_following_an_attempt_that_has_ended_sends_it_and_ends(
    daemon: ApiDaemon, schedd: Client, started: Callable[[str], None]
) -> None:
    """An earlier attempt is over, though the task runs again."""
    daemon.log_path(1, 1).write_bytes(b"first")
    daemon.end("a", Outcome.FAILED, error="no")
    started("a")
    assert b"".join(schedd.log("a", attempt=1, follow=True)) == b"first"


@pytest.mark.usefixtures("running")
def test_a_follower_that_hangs_up_is_forgotten(
    daemon: ApiDaemon, monkeypatch: pytest.MonkeyPatch, eventually: Callable[..., None]
) -> None:
    """The file is looked at only while a client follows it."""
    monkeypatch.setattr(routes_logs, "POLL_S", 0.01)
    state = daemon.server._server.server_state
    with connected(daemon.socket) as client:
        client.sendall(b"GET /v1/log?id=a&follow=1 HTTP/1.1\r\nHost: x\r\n\r\n")
        eventually(lambda: state.tasks)
    eventually(lambda: not state.tasks)
    eventually(lambda: not daemon.feed._followers)


@pytest.mark.usefixtures("running")
def test_a_stop_ends_a_follower(daemon: ApiDaemon, schedd: Client, eventually: Callable[..., None]) -> None:
    """A silent follower does not hold up a stop."""
    got: list[bytes] = []
    thread = threading.Thread(target=lambda: got.extend(schedd.log("a", follow=True)))
    thread.start()
    eventually(lambda: daemon.server._server.server_state.tasks)
    began = time.monotonic()
    daemon.server.stop(10.0)
    assert time.monotonic() - began < 5.0
    thread.join()
    assert got == []


@pytest.mark.usefixtures("running")
def test_output_that_is_not_followed_ends_where_the_file_ended(daemon: ApiDaemon) -> None:
    """A file that grows while it is sent does not make the answer endless."""
    path = daemon.log_path(1, 1)
    path.write_bytes(b"x" * 500_000)
    stop = threading.Event()

    def grow() -> None:
        while not stop.is_set():
            with path.open("ab") as file:
                file.write(b"y" * 10_000)

    thread = threading.Thread(target=grow)
    thread.start()
    try:
        with connected(daemon.socket) as client:
            client.sendall(b"GET /v1/log?id=a HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
            answer = read_all(client)
    finally:
        stop.set()
        thread.join()
    assert answer.count(b"x") >= 500_000
    assert answer.endswith(b"0\r\n\r\n")
