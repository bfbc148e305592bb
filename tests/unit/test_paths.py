"""Where things are when nobody says otherwise."""

from pathlib import Path

import pytest

from schedd import paths


@pytest.fixture(autouse=True)
def clean(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("SCHEDD_STATE_DIR", "SCHEDD_SOCKET", "SCHEDD_CONFIG", "XDG_RUNTIME_DIR", "XDG_STATE_HOME"):
        monkeypatch.delenv(name, raising=False)


def as_user(monkeypatch: pytest.MonkeyPatch, uid: int) -> None:
    monkeypatch.setattr("os.geteuid", lambda: uid)
    monkeypatch.setenv("HOME", "/home/ann")


def test_root_has_the_system_places(monkeypatch: pytest.MonkeyPatch):
    """/var/lib, /run and /etc."""
    as_user(monkeypatch, 0)
    assert paths.default_state_dir() == Path("/var/lib/schedd")
    assert paths.default_socket() == Path("/run/schedd/schedd.sock")
    assert paths.default_config() == Path("/etc/schedd/schedd.toml")


def test_a_user_has_the_xdg_places(monkeypatch: pytest.MonkeyPatch):
    """With and without a runtime directory."""
    as_user(monkeypatch, 1000)
    assert paths.default_state_dir() == Path("/home/ann/.local/state/schedd")
    assert paths.default_socket() == Path("/home/ann/.local/state/schedd/schedd.sock")
    monkeypatch.setenv("XDG_RUNTIME_DIR", "/run/user/1000")
    assert paths.default_socket() == Path("/run/user/1000/schedd/schedd.sock")


def test_a_named_state_directory_holds_its_own_socket(monkeypatch: pytest.MonkeyPatch):
    """So that a second scheduler does not meet the first one's socket; SCHEDD_SOCKET beats all."""
    as_user(monkeypatch, 0)
    assert paths.default_socket(Path("/srv/x")) == Path("/srv/x/schedd.sock")
    monkeypatch.setenv("SCHEDD_STATE_DIR", "/srv/y")
    assert paths.default_socket() == Path("/srv/y/schedd.sock")
    monkeypatch.setenv("SCHEDD_SOCKET", "/tmp/s")
    assert paths.default_socket(Path("/srv/x")) == Path("/tmp/s")
