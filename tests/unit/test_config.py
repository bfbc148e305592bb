"""The daemon's settings: what wins over what, and what is said when something is wrong."""

from pathlib import Path

import pytest

from schedd.config import ConfigError, load


def write(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "schedd.toml"
    path.write_text(text)
    return path


def test_the_file_is_under_the_command_line(tmp_path: Path):
    """A flag wins, a flag that was not given does not."""
    path = write(tmp_path, 'state_dir = "/srv/a"\nworkers = 3\ndrain_timeout = 5\n')
    config = load(path, {"workers": 7, "state_dir": None})
    assert (config.state_dir, config.workers, config.drain_timeout) == (Path("/srv/a"), 7, 5.0)
    assert config.socket_path == Path("/srv/a/schedd.sock")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("worker = 3\n", ["unknown key 'worker'", "'workers'"]),
        ("workers = 0\n", ["workers", "greater than or equal to 1"]),
        ('workers = "4"\n', ["workers"]),
        ("workers = \n", ["not valid TOML", "line 1"]),
        ('log_level = "loud"\n', ["log_level", "debug"]),
    ],
)
def test_what_is_wrong_is_named(tmp_path: Path, text: str, words: list[str]):
    """The key, the file and the nearest known key."""
    with pytest.raises(ConfigError) as caught:
        load(write(tmp_path, text), {})
    assert "schedd.toml" in str(caught.value)
    for word in words:
        assert word in str(caught.value)


def test_a_named_file_must_exist(tmp_path: Path):
    """A default file may be absent, a named one may not."""
    with pytest.raises(ConfigError, match="cannot read"):
        load(tmp_path / "nothing.toml", {})


def test_paths_are_made_absolute_and_defaults_stay_defaults(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """A relative path is the caller's; a state directory that nobody named does not move the socket."""
    monkeypatch.chdir(tmp_path)
    for name in ("SCHEDD_STATE_DIR", "SCHEDD_SOCKET"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("os.geteuid", lambda: 0)
    named = load(write(tmp_path, ""), {"state_dir": Path("here")})
    assert (named.state_dir, named.socket_path) == (tmp_path / "here", tmp_path / "here" / "schedd.sock")
    assert load(write(tmp_path, ""), {}).socket_path == Path("/run/schedd/schedd.sock")


def test_the_environment_is_over_the_file_and_under_the_command_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """So that schedd and schedctl, which reads no file, meet at the same socket."""
    monkeypatch.setenv("SCHEDD_STATE_DIR", "/srv/env")
    monkeypatch.setenv("SCHEDD_SOCKET", "/srv/env.sock")
    path = write(tmp_path, 'state_dir = "/srv/file"\nsocket = "/srv/file.sock"\n')
    assert load(path, {}).socket_path == Path("/srv/env.sock")
    assert load(path, {}).state_dir == Path("/srv/env")
    assert load(path, {"socket": Path("/srv/flag.sock")}).socket_path == Path("/srv/flag.sock")
