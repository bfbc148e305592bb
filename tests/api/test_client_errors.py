"""What the client makes of a daemon that is not there, goes away, or says no."""

import json
import os
import re
import shutil
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from schedd import client as client_module
from schedd import connection as connection_module
from schedd.api.socket import bind
from schedd.client import Client, ClientError, NoAnswer, NoDaemon, OutcomeUnknown, ProblemError, SocketPathTooLong

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 15\r\n\r\n" + b'{"paused":true}'
BUSY = b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 4\r\n\r\nfull"


class Scripted:
    """A server that answers each request with the next piece of a script; None stands for hanging up instead."""

    def __init__(self, path: Path, script: list[bytes | None]) -> None:
        self.requests: list[bytes] = []
        self.connections = 0
        self._script = script
        self._socket = bind(path)
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def keys(self) -> list[str]:
        return [re.search(rb"Idempotency-Key: (\S+)", request)[1].decode() for request in self.requests]  # type: ignore[index]

    def close(self) -> None:
        self._socket.shutdown(socket.SHUT_RDWR)
        self._thread.join(10.0)
        self._socket.close()

    def _run(self) -> None:
        while True:
            try:
                connection, _ = self._socket.accept()
            except OSError:
                return
            self.connections += 1
            with connection:
                while self._script and (request := self._read(connection)):
                    self.requests.append(request)
                    answer = self._script.pop(0)
                    if answer is None:
                        break
                    connection.sendall(answer)

    @staticmethod
    def _read(connection: socket.socket) -> bytes:
        got = b""
        while b"\r\n\r\n" not in got:
            part = connection.recv(65_536)
            if not part:
                return b""
            got += part
        length = re.search(rb"Content-Length: (\d+)", got)
        while length and len(got.partition(b"\r\n\r\n")[2]) < int(length[1]):
            got += connection.recv(65_536)
        return got


@pytest.fixture
def scripted(tmp_path: Path) -> Iterator[Callable[..., Scripted]]:
    """Makes scripted servers at `tmp_path / "s"`."""
    made: list[Scripted] = []

    def make(*script: bytes | None) -> Scripted:
        made.append(Scripted(tmp_path / "s", list(script)))
        return made[-1]

    yield make
    for server in made:
        server.close()


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pauses between tries are as short as can be."""
    monkeypatch.setattr(client_module, "FIRST_PAUSE_S", 0.001)
    monkeypatch.setattr(client_module, "LONGEST_PAUSE_S", 0.002)
    monkeypatch.setattr(connection_module, "BUSY_PAUSE_S", 0.001)


def test_without_a_socket_the_message_says_how_to_start_the_daemon(tmp_path: Path) -> None:
    """No socket: nobody has started schedd, or it listens elsewhere."""
    with pytest.raises(NoDaemon) as caught:
        Client(tmp_path / "s").status()
    assert str(caught.value) == (
        f"schedd is not running: there is no socket at {tmp_path / 's'}; start it with `schedd`, "
        "or name the socket it listens on (--socket or SCHEDD_SOCKET)"
    )


def test_a_socket_that_nobody_listens_on_is_told_apart(tmp_path: Path) -> None:
    """A stale socket: schedd has died."""
    bind(tmp_path / "s").close()
    with pytest.raises(NoDaemon, match=r"nobody listens at .* any more; start it again with `schedd`"):
        Client(tmp_path / "s").status()


def test_what_is_no_socket_is_told_as_such(tmp_path: Path) -> None:
    """A path to something else is a mistake in the path."""
    (tmp_path / "s").write_text("")
    with pytest.raises(NoDaemon, match=r"is not a socket; name the socket"):
        Client(tmp_path / "s").status()


def test_a_path_through_a_file_is_as_good_as_no_socket(tmp_path: Path) -> None:
    """A directory of the path that is none cannot hold a socket."""
    (tmp_path / "s").write_text("")
    with pytest.raises(NoDaemon, match="there is no socket"):
        Client(tmp_path / "s" / "s").status()


def test_a_socket_that_is_not_ours_to_use_names_the_group(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No permission: the message names who may, and how to become one of them."""

    def refuse(made: socket.socket, path: Path, timeout_s: float | None) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(connection_module, "_connect_patiently", refuse)
    group = subprocess.run(["id", "-gn"], capture_output=True, text=True, check=True).stdout.strip()
    with bind(tmp_path / "s"), pytest.raises(NoDaemon, match=rf"may not use .* group {group}; join that group"):
        Client(tmp_path / "s").status()


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to become somebody else")
@pytest.mark.parametrize("closed", ["socket", "directory"])
def test_the_kernels_refusal_is_that_refusal(tmp_path: Path, closed: str) -> None:
    """Somebody who is neither owner nor in the group gets the sentence, from the real system."""
    home = Path("/run") / f"schedd-test-{os.getpid()}"
    script = (
        "import grp, os, pwd; from schedd.client import Client, NoDaemon\n"
        "os.setgroups([]); os.setgid(65534); os.setuid(65534)\n"
        f"try: Client({str(home / 's')!r}).status()\n"
        "except NoDaemon as error: print(error)\n"
    )
    try:
        with bind(home / "s"):
            if closed == "socket":
                home.chmod(0o755)
            done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    finally:
        shutil.rmtree(home)
    assert done.stdout.startswith(f"you may not use schedd's socket {home / 's'}: it is for the user root")


def test_a_path_that_is_too_long_says_so(tmp_path: Path) -> None:
    """The system's bound on the length of a socket's path is named, with the length."""
    path = tmp_path / ("s" * 120)
    with pytest.raises(SocketPathTooLong, match=rf"{len(str(path))} bytes and the system allows 107"):
        Client(path).status()


def test_a_queue_of_connections_that_stays_full_is_waited_for_and_then_told(tmp_path: Path) -> None:
    """A daemon too busy to take a connection is not taken for one that is not there."""
    with bind(tmp_path / "s") as listening:
        listening.listen(0)
        with socket.socket(socket.AF_UNIX) as first:
            first.connect(str(tmp_path / "s"))
            with pytest.raises(NoDaemon, match="too busy to take a connection"):
                Client(tmp_path / "s", timeout=0.05).status()


def test_a_change_whose_connection_is_lost_is_repeated_with_the_same_key(
    tmp_path: Path, scripted: Callable[..., Scripted]
) -> None:
    """The daemon sees one key, so that it carries the change out once."""
    server = scripted(None, None, OK)
    with Client(tmp_path / "s") as schedd:
        assert schedd.pause() == {"paused": True}
    assert len(server.requests) == 3
    assert len(set(server.keys())) == 1


def test_each_change_has_a_key_of_its_own_unless_one_is_given(
    tmp_path: Path, scripted: Callable[..., Scripted]
) -> None:
    """Two calls are two changes; a key that the caller gives is the one sent."""
    server = scripted(OK, OK, OK)
    with Client(tmp_path / "s") as schedd:
        schedd.pause()
        schedd.pause()
        schedd.pause(key="mine")
    first, second, third = server.keys()
    assert first != second
    assert third == "mine"


def test_a_connection_that_stays_lost_leaves_the_outcome_unknown(
    tmp_path: Path, scripted: Callable[..., Scripted]
) -> None:
    """After so many tries the caller is told, with the key to repeat the change with."""
    server = scripted(*[None] * client_module.TRIES)
    with (
        Client(tmp_path / "s") as schedd,
        pytest.raises(OutcomeUnknown, match="repeat it with the idempotency key") as caught,
    ):
        schedd.cancel(["x"])
    assert set(server.keys()) == {caught.value.key}
    assert len(server.requests) == client_module.TRIES


def test_a_daemon_that_dies_amid_a_change_and_stays_away_leaves_the_outcome_unknown(
    tmp_path: Path, scripted: Callable[..., Scripted]
) -> None:
    """That nobody answers now does not mean that nothing was done before."""
    server = scripted(None)
    with Client(tmp_path / "s") as schedd:
        threading.Thread(target=lambda: (_until(lambda: server.requests), server._socket.shutdown(2))).start()
        with pytest.raises(OutcomeUnknown):
            schedd.pause()


def test_a_busy_daemon_is_asked_again_within_bounds(tmp_path: Path, scripted: Callable[..., Scripted]) -> None:
    """503 is repeated with the same key; one that lasts is an unknown outcome that quotes the daemon."""
    server = scripted(BUSY, OK, *[BUSY] * client_module.TRIES)
    with Client(tmp_path / "s") as schedd:
        assert schedd.pause() == {"paused": True}
        with pytest.raises(OutcomeUnknown, match="schedd answered 503: full"):
            schedd.pause()
    assert len(server.requests) == 2 + -(-client_module.TRIES // client_module.COST_OF_BUSY)


def test_a_question_that_is_never_answered_is_no_unknown_outcome(
    tmp_path: Path, scripted: Callable[..., Scripted]
) -> None:
    """A question changes nothing: it only stays unanswered."""
    scripted(*[None] * client_module.TRIES)
    with Client(tmp_path / "s") as schedd, pytest.raises(NoAnswer, match="the connection was lost"):
        schedd.status()


def test_a_daemon_that_does_not_answer_in_time_is_told(tmp_path: Path) -> None:
    """The timeout bounds the wait for an answer: unknown for a change, unanswered for a question."""
    with bind(tmp_path / "s"), Client(tmp_path / "s", timeout=0.05) as schedd:
        with pytest.raises(OutcomeUnknown, match=r"longer than 0\.05 s"):
            schedd.pause()
        with pytest.raises(NoAnswer, match=r"longer than 0\.05 s"):
            schedd.status()


def test_a_connection_gone_stale_is_made_again(tmp_path: Path, scripted: Callable[..., Scripted]) -> None:
    """The daemon may close a connection that was idle for long: the next request goes over a new one, unnoticed."""
    server = scripted(OK.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n"), OK, OK)
    with Client(tmp_path / "s") as schedd:
        for _ in range(3):
            assert schedd.pause() == {"paused": True}
    assert server.connections == 2


def test_a_refusal_carries_code_detail_and_places(tmp_path: Path, scripted: Callable[..., Scripted]) -> None:
    """What the daemon says is handed on whole."""
    body = json.dumps(
        {"status": 422, "code": "invalid", "detail": "no", "errors": [{"loc": ["tasks", 0], "message": "bad"}]}
    ).encode()
    scripted(b"HTTP/1.1 422 x\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
    with Client(tmp_path / "s") as schedd, pytest.raises(ProblemError, match="no") as caught:
        schedd.submit({"tasks": [{}]})
    error = caught.value
    assert (error.status, error.code, error.detail) == (422, "invalid", "no")
    assert error.errors == [{"loc": ["tasks", 0], "message": "bad"}]


@pytest.mark.parametrize("body", [b"<html>", b"[]", b'{"a": 1}', b""])
def test_an_error_of_somebody_else_is_quoted(tmp_path: Path, scripted: Callable[..., Scripted], body: bytes) -> None:
    """An answer that is not schedd's does not end in a traceback."""
    scripted(b"HTTP/1.1 404 x\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
    with Client(tmp_path / "s") as schedd, pytest.raises(ProblemError, match="schedd answered 404"):
        schedd.status()


@pytest.mark.parametrize("answer", [b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi", b"SSH-2.0-x\r\n\r\n"])
def test_an_answer_that_is_no_json_or_no_http_is_an_error_of_ours(
    tmp_path: Path, scripted: Callable[..., Scripted], answer: bytes
) -> None:
    """Something else that listens at the path is told apart from a bug."""
    scripted(*[answer] * client_module.TRIES)
    with Client(tmp_path / "s") as schedd, pytest.raises(ClientError):
        schedd.status()


def test_a_log_that_breaks_off_is_not_taken_for_whole(tmp_path: Path, scripted: Callable[..., Scripted]) -> None:
    """A stream that ends without its last chunk is an error, after what did come."""
    scripted(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nsome\r\n", None)
    got: list[bytes] = []

    def read() -> None:
        got.extend(Client(tmp_path / "s", timeout=0.2).log("x"))

    with pytest.raises(NoAnswer, match="broke off"):
        read()
    assert got == [b"some"]


def test_too_many_ids_for_one_request_are_refused_before_they_are_sent(tmp_path: Path) -> None:
    """The bound is told as such, and not as a broken connection."""
    with pytest.raises(ProblemError, match="too many ids"):
        Client(tmp_path / "s").wait(["x" * 100] * 3_000)


def test_the_client_loads_none_of_the_server(tmp_path: Path) -> None:
    """The command line starts fast: neither the server's libraries nor asyncio come with the client."""
    code = (
        "import sys, schedd.client; "
        "print(sorted(set(sys.modules) & {'asyncio', 'pydantic', 'sqlalchemy', 'fastapi', 'uvicorn', 'rich', 'typer', "
        "'structlog', 'h11', 'uuid'}))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def _until(condition: Callable[[], Any]) -> None:
    while not condition():
        threading.Event().wait(0.001)
