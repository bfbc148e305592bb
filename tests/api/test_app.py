"""What holds for every route: bounds, errors, clients that misbehave."""

import random
import threading
from collections.abc import Callable
from typing import Any

import pytest
import structlog
from fastapi import FastAPI

from schedd.api import body as body_module
from schedd.client import Client, ProblemError
from schedd.core import limits
from schedd.engine.requests import PauseStarting
from support.api_daemon import ApiDaemon
from support.unixhttp import connected, exchange, read_all

Ask = Callable[..., Any]
POST = b"POST /v1/batches HTTP/1.1\r\nHost: x\r\n"


def test_an_unknown_route_and_a_wrong_method_are_problems(ask: Ask) -> None:
    """The router's own refusals have the same shape as all others."""
    for target in ("/", "/v1/task/x", "/v1/status/", "/docs"):
        answer = ask("GET", target)
        assert (answer.status, answer.body["code"]) == (404, "not_found")
        assert answer.headers["content-type"] == "application/problem+json"
    answer = ask("DELETE", "/v1/tasks")
    assert (answer.status, answer.body["code"]) == (405, "method_not_allowed")
    assert answer.body["detail"] == "DELETE /v1/tasks: this takes GET"


def test_an_announced_body_over_the_limit_is_refused_unread(daemon: ApiDaemon) -> None:
    """200 MB in the header are enough to refuse it: not a byte of them has to be sent."""
    with connected(daemon.socket) as client:
        client.sendall(POST + b"Content-Length: 209715200\r\n\r\n")
        answer = read_all(client)
    assert answer.startswith(b"HTTP/1.1 413 ")
    assert str(limits.MAX_BODY_BYTES).encode() in answer
    assert b"64 MiB" in answer


def test_a_streamed_body_over_the_limit_is_refused_when_it_gets_there(
    daemon: ApiDaemon, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A body whose size nobody announced is read up to the limit and no further."""
    monkeypatch.setattr(limits, "MAX_BODY_BYTES", 1_000_000)
    chunk = b"10000\r\n" + b"x" * 65_536 + b"\r\n"
    sent = 0
    with connected(daemon.socket) as client:
        try:
            client.sendall(POST + b"Transfer-Encoding: chunked\r\n\r\n")
            for _ in range(3_000):
                client.sendall(chunk)
                sent += 65_536
        except (BrokenPipeError, ConnectionResetError):
            pass
        answer = read_all(client)
    assert answer.startswith(b"HTTP/1.1 413 ")
    assert sent < 20_000_000, "it went on reading"


def test_the_client_tells_that_a_body_is_too_large(schedd: Client) -> None:
    """The refusal is read although the daemon has closed the connection in the middle of the body."""
    with pytest.raises(ProblemError, match="67108864 bytes") as caught:
        schedd.submit(b" " * 200_000_000)
    assert (caught.value.status, caught.value.code) == (413, "too_large")
    assert schedd.health()["live"]


def test_a_body_of_exactly_the_limit_is_read(schedd: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    """The limit is the largest that is allowed."""
    monkeypatch.setattr(limits, "MAX_BODY_BYTES", 100_000)
    spec = b'{"tasks": [{"run": "x"}]}'
    assert schedd.submit(spec + b" " * (100_000 - len(spec)))["ids"] == ["1"]
    with pytest.raises(ProblemError, match="100000 bytes"):
        schedd.submit(spec + b" " * (100_001 - len(spec)))


def test_a_body_that_stalls_is_given_up(daemon: ApiDaemon, monkeypatch: pytest.MonkeyPatch) -> None:
    """A client that stops in the middle of its body gets 408 and loses the connection."""
    monkeypatch.setattr(body_module, "CHUNK_DEADLINE_S", 0.05)
    with connected(daemon.socket) as client:
        client.sendall(POST + b"Content-Length: 100\r\n\r\n{")
        answer = read_all(client)
    assert answer.startswith(b"HTTP/1.1 408 ")
    assert b'"code":"timed_out"' in answer


def test_a_client_that_hangs_up_in_its_body_changes_nothing(
    daemon: ApiDaemon, schedd: Client, eventually: Callable[..., None]
) -> None:
    """Half a request is no request, and no error of the daemon's."""
    with structlog.testing.capture_logs() as logs:
        for cut in (1, 10):
            with connected(daemon.socket) as client:
                client.sendall(POST + b"Content-Length: 100\r\n\r\n" + b'{"tasks": [{"run": "x"}]}'[:cut])
        eventually(lambda: len(daemon.server._server.server_state.tasks) == 0)
        assert list(schedd.iter_tasks()) == []
    assert [entry for entry in logs if entry["log_level"] == "error"] == []


def test_a_client_that_hangs_up_after_its_request_does_not_undo_it(
    daemon: ApiDaemon, schedd: Client, eventually: Callable[..., None]
) -> None:
    """What was sent whole is carried out, whether anybody reads the answer or not."""
    stuck, release = threading.Event(), threading.Event()

    def hold_up(machine: Any) -> None:
        stuck.set()
        release.wait(30.0)

    daemon.engine.ask(hold_up)
    assert stuck.wait(10.0)
    spec = b'{"tasks": [{"id": "a", "run": "x"}]}'
    with connected(daemon.socket) as client:
        client.sendall(POST + b"Content-Length: %d\r\n\r\n" % len(spec) + spec)
        eventually(lambda: len(daemon.inbox) > 0)
    release.set()
    eventually(lambda: [task["id"] for task in schedd.iter_tasks()] == ["a"])


def test_random_requests_leave_the_daemon_alive(daemon: ApiDaemon, schedd: Client) -> None:
    """Bytes, targets and bodies of any kind are answered or cut off, and the next client is served."""
    seed = random.randrange(2**32)
    dice = random.Random(seed)
    routes = ["tasks", "task", "wait", "log", "events", "batch", "batches", "cancel", "depend", "status"]
    for _ in range(100):
        target = f"/v1/{dice.choice(routes)}?".encode() + bytes(dice.choices(range(33, 127), k=dice.randrange(50)))
        body = dice.randbytes(dice.randrange(100))
        method = dice.choice([b"GET", b"POST", b"PUT", b"X"])
        head = b" HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: %d\r\n\r\n" % len(body)
        with connected(daemon.socket) as client:
            client.sendall(method + b" " + target + head + body)
            answer = read_all(client)
        assert answer.startswith(b"HTTP/1.1 "), f"seed {seed}: {target!r} {body!r}"
        assert not answer.startswith(b"HTTP/1.1 5"), f"seed {seed}: {target!r} {body!r}"
        exchange(daemon.socket, dice.randbytes(dice.randrange(1, 500)))
    assert schedd.health() == {"live": True, "ready": True, "degraded": None}, f"seed {seed}"


def test_one_connection_serves_many_requests(daemon: ApiDaemon, schedd: Client) -> None:
    """The client keeps its connection over questions, changes and refusals."""
    schedd.status()
    used = schedd._connection
    assert used is not None
    socket_used = used.sock
    schedd.pause()
    with pytest.raises(ProblemError):
        schedd.task("nobody")
    schedd.submit({"tasks": [{"run": "x"}]})
    assert schedd._connection is used
    assert used.sock is socket_used
    assert len(daemon.server._server.server_state.connections) == 1


def test_a_bug_in_a_read_is_a_500_with_a_reference_that_is_in_the_log(
    daemon: ApiDaemon, ask: Ask, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The caller learns nothing of our insides but where the admin finds them, once."""

    def broken(*arguments: Any, **more: Any) -> Any:
        raise RuntimeError("a secret of the daemon")

    monkeypatch.setattr(daemon.reads, "task", broken)
    with structlog.testing.capture_logs() as logs:
        answer = ask("GET", "/v1/task?id=a")
    assert (answer.status, answer.body["code"]) == (500, "internal")
    assert "secret" not in str(answer.body)
    [entry] = [entry for entry in logs if entry["log_level"] == "error"]
    assert entry["reference"] in answer.body["detail"]
    assert isinstance(entry["exc_info"], RuntimeError)
    assert ask("GET", "/v1/health").body["ready"]


def test_a_bug_in_a_request_is_a_500_and_the_engine_goes_on(
    daemon: ApiDaemon, ask: Ask, schedd: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A request that fails in the engine is refused alone, with a reference."""

    def broken(self: Any, round_: Any) -> Any:
        raise RuntimeError("boom")

    with monkeypatch.context() as patched, structlog.testing.capture_logs() as logs:
        patched.setattr(PauseStarting, "apply", broken)
        answer = ask("POST", "/v1/pause", {})
    assert (answer.status, answer.body["code"]) == (500, "internal")
    [entry] = [entry for entry in logs if entry["log_level"] == "error"]
    assert entry["reference"] in answer.body["detail"]
    assert schedd.pause() == {"paused": True}


def test_an_answer_that_breaks_off_is_cut_and_not_ended(
    daemon: ApiDaemon, schedd: Client, started: Callable[[str], None]
) -> None:
    """When a stream fails after it began, the client sees that it is not whole, and the log tells why."""
    schedd.submit({"tasks": [{"id": "a", "run": "x"}]})
    started("a")
    daemon.log_path(1, 1).mkdir()
    with structlog.testing.capture_logs() as logs, connected(daemon.socket) as client:
        client.sendall(b"GET /v1/log?id=a HTTP/1.1\r\nHost: x\r\n\r\n")
        answer = read_all(client)
    assert answer.startswith(b"HTTP/1.1 200 ")
    assert not answer.endswith(b"0\r\n\r\n")
    assert any(entry["event"] == "request_failed" for entry in logs)


def test_the_application_has_no_pages_of_its_own(daemon: ApiDaemon) -> None:
    """No documentation pages that would load scripts from elsewhere."""
    assert isinstance(daemon.app, FastAPI)
    assert daemon.app.docs_url is None
    assert daemon.app.redoc_url is None
