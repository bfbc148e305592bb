"""`schedctl` in this process, with a client that only remembers what it was asked."""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import pytest

from schedd.cli import app
from schedd.cli.session import Session


class Ran(NamedTuple):
    """How a use of `schedctl` ended."""

    code: int
    out: str
    err: str


class FakeClient:
    """Gives the answers it was told to give, and keeps the calls. An answer that is an exception is raised."""

    def __init__(self) -> None:
        self.answers: dict[str, Any] = {}
        self.calls: list[tuple[str, tuple[Any, ...], dict[str, Any]]] = []

    def __getattr__(self, name: str) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            self.calls.append((name, args, kwargs))
            answer = self.answers[name]
            if callable(answer):
                answer = answer(*args, **kwargs)
            if isinstance(answer, Exception):
                raise answer
            return answer

        return call


@pytest.fixture
def client(monkeypatch: pytest.MonkeyPatch) -> FakeClient:
    """The client that every verb gets."""
    fake = FakeClient()
    monkeypatch.setattr(Session, "client", lambda self: fake)
    return fake


@pytest.fixture
def ctl(capsys: pytest.CaptureFixture[str]) -> Callable[..., Ran]:
    """`ctl("status", "a")` runs `schedctl status a`."""

    def run(*arguments: str) -> Ran:
        capsys.readouterr()
        code = app.run(arguments)
        return Ran(code, *capsys.readouterr())

    return run


@pytest.fixture(autouse=True)
def _plain_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """No test depends on who runs it."""
    for name in ("SCHEDD_SOCKET", "NO_COLOR", "COLUMNS"):
        monkeypatch.delenv(name, raising=False)


def task_view(**changes: Any) -> dict[str, Any]:
    """A TaskView, pending, with what is changed."""
    view: dict[str, Any] = {
        "id": "build",
        "seq": 1,
        "batch": None,
        "status": "pending",
        "priority": 0,
        "attempts": 0,
        "max_attempts": 1,
        "number": 0,
        "runs": 0,
        "times": None,
        "every": None,
        "run_at": 0.0,
        "created_at": 0.0,
        "started_at": None,
        "settled_at": None,
        "held": False,
        "cancel_requested": False,
        "error": None,
        "what": "make",
    }
    return view | changes


def task_detail(**changes: Any) -> dict[str, Any]:
    """A TaskDetail, pending, with what is changed."""
    more: Mapping[str, Any] = {
        "work": {"run": "make", "cwd": "/src"},
        "retry": {"max_attempts": 1, "base_delay": 1.0, "max_delay": 3600.0},
        "deps": [],
        "dependents": [],
        "history": [],
    }
    return task_view() | dict(more) | changes


@pytest.fixture
def view() -> Callable[..., dict[str, Any]]:
    """`view(status="running")` makes a TaskView."""
    return task_view


@pytest.fixture
def detail() -> Callable[..., dict[str, Any]]:
    """`detail(status="running")` makes a TaskDetail."""
    return task_detail
