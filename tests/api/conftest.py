"""A served daemon whose attempts the test ends, a client of it, and ways to talk to it past the client."""

import http.client
import json
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from schedd.client import Client
from schedd.store import migrate
from support.api_daemon import ApiDaemon


class Answer(NamedTuple):
    """What came back: `body` is the JSON, or the bytes where it is none."""

    status: int
    headers: dict[str, str]
    body: Any


@pytest.fixture(scope="session")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A migrated database, to be copied."""
    path = tmp_path_factory.mktemp("template") / "schedd.db"
    migrate.upgrade(path)
    return path


@pytest.fixture
def new_daemon(tmp_path: Path, template: Path) -> Iterator[Callable[..., ApiDaemon]]:
    """Makes started daemons (with the arguments of ApiDaemon), which are stopped at the end."""
    made: list[ApiDaemon] = []

    def make(**more: Any) -> ApiDaemon:
        home = tmp_path / f"d{len(made)}"
        home.mkdir()
        made.append(ApiDaemon(home, template, **more))
        made[-1].start()
        return made[-1]

    yield make
    for daemon in made:
        daemon.stop()


@pytest.fixture
def daemon(new_daemon: Callable[..., ApiDaemon]) -> ApiDaemon:
    """A daemon with two workers."""
    return new_daemon()


@pytest.fixture
def schedd(daemon: ApiDaemon) -> Iterator[Client]:
    """A client of that daemon."""
    with daemon.client() as client:
        yield client


@pytest.fixture
def ask(daemon: ApiDaemon) -> Callable[..., Answer]:
    """`ask(method, target, body, headers)`: one request as it is, and its answer."""

    def send(method: str, target: str, body: Any = None, headers: dict[str, str] | None = None) -> Answer:
        connection = http.client.HTTPConnection("localhost", timeout=30.0)
        connection.sock = socket.socket(socket.AF_UNIX)
        try:
            connection.sock.settimeout(30.0)
            connection.sock.connect(str(daemon.socket))
            data = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
            connection.request(method, target, data, headers or {})
            response = connection.getresponse()
            raw = response.read()
        finally:
            connection.close()
        told = {name.lower(): value for name, value in response.getheaders()}
        return Answer(response.status, told, json.loads(raw) if "json" in told.get("content-type", "") else raw)

    return send


@pytest.fixture
def started(daemon: ApiDaemon, eventually: Callable[..., None]) -> Callable[[str], None]:
    """`started(id)` returns when an attempt of the task has been let go."""

    def wait(task_id: str) -> None:
        eventually(lambda: daemon.order_of(task_id) is not None)

    return wait
