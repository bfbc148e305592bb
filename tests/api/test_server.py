"""uvicorn as schedd runs it: quiet when idle, bounded with clients that stall, ended in bounded time."""

import asyncio
import contextlib
import os
import random
import socket
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import pytest
from fastapi import FastAPI, Response
from fastapi.responses import StreamingResponse

from schedd.api import server as server_module
from schedd.api.server import ApiServer, ServerError
from schedd.api.socket import bind
from support.unixhttp import connected, exchange, read_all, read_until

GET = b"GET /hello HTTP/1.1\r\nHost: x\r\n\r\n"


class Served:
    """A server of a small app, and the events that the app's handlers wait for."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.stops = 0
        self.streaming = threading.Event()
        app = FastAPI(openapi_url=None)
        app.state.on_stop = self._on_stop

        @app.get("/hello")
        async def hello() -> Response:
            return Response("hello")

        @app.get("/endless")
        async def endless() -> Response:
            return StreamingResponse(self._endless())

        self.server = ApiServer(app, bind(path))

    def _on_stop(self) -> None:
        self.stops += 1

    async def _endless(self) -> AsyncIterator[bytes]:
        while True:
            self.streaming.set()
            yield b"more"
            await asyncio.sleep(0.01)


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    """A running server; it is stopped at the end, if the test has not done so."""
    made = Served(tmp_path / "s")
    made.server.start()
    yield made
    made.server.stop(1.0)


def _switches() -> int:
    """How often the threads of this process have given up the processor by themselves (that is: made a system call
    that waited), without the thread that asks.
    """
    count = 0
    for thread in Path("/proc/self/task").iterdir():
        if int(thread.name) != threading.get_native_id():
            with contextlib.suppress(FileNotFoundError):
                lines = (thread / "status").read_text().splitlines()
                count += sum(int(line.split()[1]) for line in lines if line.startswith("voluntary_ctxt"))
    return count


def test_it_answers_when_start_returns(served: Served) -> None:
    """There is no moment after `start` in which a client finds nobody."""
    assert exchange(served.path, GET).endswith(b"hello")


def test_answers_name_no_server_and_no_date(served: Served) -> None:
    """Headers that nobody needs are left out."""
    head = exchange(served.path, GET).lower().partition(b"\r\n\r\n")[0]
    assert b"\r\nserver:" not in head
    assert b"\r\ndate:" not in head


def test_an_idle_server_does_nothing(served: Served) -> None:
    """No timer of the server's runs while nobody talks to it (uvicorn's own loop wakes ten times a second)."""
    exchange(served.path, GET)
    before = _switches()
    threading.Event().wait(2.0)
    assert _switches() - before < 10


def test_a_stop_removes_the_socket_and_refuses_who_comes_after(served: Served) -> None:
    """After `stop` the path is free for the next daemon."""
    served.server.stop(1.0)
    assert not served.path.exists()
    assert served.stops == 1
    served.server.stop(1.0)  # again: nothing more happens
    assert served.stops == 1


def test_a_stop_leaves_the_socket_of_another_daemon_alone(served: Served) -> None:
    """If somebody has put a socket of their own in the place of ours, it is not ours to remove."""
    served.path.unlink()
    with bind(served.path):
        served.server.stop(1.0)
        assert served.path.is_socket()


def test_a_stop_cuts_off_endless_answers_when_the_time_is_up(served: Served) -> None:
    """A stream without end does not hold up a stop for longer than it was given."""
    with connected(served.path) as client:
        client.sendall(GET.replace(b"/hello", b"/endless"))
        assert served.streaming.wait(10.0)
        began = time.monotonic()
        served.server.stop(0.3)
        assert time.monotonic() - began < 0.3 + server_module.THREAD_PATIENCE_S
        assert not served.server._thread.is_alive()
        assert read_all(client).startswith(b"HTTP/1.1 200")


def test_half_a_request_is_closed_after_the_deadline(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    """A head that does not come to its end, trickling or not, holds its connection for a bounded time."""
    monkeypatch.setattr(server_module, "HEAD_DEADLINE_S", 0.3)
    with connected(served.path) as silent, connected(served.path) as half, connected(served.path) as trickling:
        half.sendall(GET[:10])
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            for byte in GET[:-1]:
                trickling.sendall(bytes([byte]))
                trickling.settimeout(0.05)
                with contextlib.suppress(TimeoutError):
                    assert trickling.recv(1) == b""
                    break
            else:
                pytest.fail("a trickling head was never cut off")
        assert read_all(silent) == b""
        assert read_all(half) == b""


def test_a_connection_is_kept_for_further_requests(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    """The deadline is for a head that has begun, not for the pause between two requests."""
    monkeypatch.setattr(server_module, "HEAD_DEADLINE_S", 0.1)
    with connected(served.path) as client:
        client.sendall(GET)
        assert read_until(client, b"hello")
        threading.Event().wait(0.3)
        client.sendall(GET)
        assert read_until(client, b"hello")


def test_requests_sent_in_one_piece_are_answered_in_turn(served: Served) -> None:
    """Pipelining works, whatever the deadline for heads makes of it."""
    assert exchange(served.path, GET * 3).count(b"HTTP/1.1 200") == 3


def test_random_bytes_leave_it_alive(served: Served) -> None:
    """Whatever is sent, it goes on answering others."""
    seed = random.randrange(2**32)
    dice = random.Random(seed)
    for _ in range(50):
        exchange(served.path, dice.randbytes(dice.randrange(1, 2_000)), b"\r\n\r\n")
    assert exchange(served.path, GET).endswith(b"hello"), f"seed {seed}"


def test_a_head_that_is_too_long_is_refused(served: Served) -> None:
    """A head has a bound, and what exceeds it is answered with an error."""
    answer = exchange(served.path, b"GET /hello HTTP/1.1\r\nHost: x\r\nX: ", b"x" * (server_module.MAX_HEAD_BYTES + 1))
    assert answer.startswith(b"HTTP/1.1 4")


def test_a_start_that_fails_says_why(tmp_path: Path) -> None:
    """A socket that cannot be served raises from `start`, and does not leave a thread that waits."""
    made = Served(tmp_path / "s")
    made.server._socket.close()
    with pytest.raises(ServerError, match="did not start"):
        made.server.start()


def test_more_connections_than_allowed_are_told_to_come_back(
    served: Served, monkeypatch: pytest.MonkeyPatch, eventually: Callable[..., None]
) -> None:
    """Beyond the limit a request gets 503, and the server goes on when there is room again."""
    served.server._server.config.limit_concurrency = 2
    with connected(served.path), connected(served.path):
        eventually(lambda: len(served.server._server.server_state.connections) == 2)
        assert exchange(served.path, GET).startswith(b"HTTP/1.1 503")
    eventually(lambda: exchange(served.path, GET).endswith(b"hello"))


def test_file_descriptors_are_given_back(served: Served, eventually: Callable[..., None]) -> None:
    """Clients that hang up at any moment leave no descriptor open."""
    exchange(served.path, GET)
    eventually(lambda: not served.server._server.server_state.connections)
    before = len(os.listdir("/proc/self/fd"))
    for cut in (0, 1, 20, len(GET)):
        with socket.socket(socket.AF_UNIX) as client:
            client.connect(str(served.path))
            client.sendall(GET[:cut])
    eventually(lambda: len(os.listdir("/proc/self/fd")) <= before)
