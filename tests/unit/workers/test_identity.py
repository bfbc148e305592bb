"""The identity of a state directory and the boot it last saw."""

from pathlib import Path

import pytest

from schedd.workers import identity
from schedd.workers.identity import IdentityDamaged, Marker, is_same_boot, load_identity, remember_boot


def test_identity_is_made_once(tmp_path: Path) -> None:
    """A directory keeps its identity, and another has another."""
    first = load_identity(tmp_path)
    assert load_identity(tmp_path) == first
    assert [path.name for path in tmp_path.iterdir()] == ["identity"], "no draft is left"
    other = tmp_path / "other"
    other.mkdir()
    assert load_identity(other) != first


@pytest.mark.parametrize("text", ["", "zzzz", "0123456789abcdef0", "é"])
def test_damaged_identity(tmp_path: Path, text: str) -> None:
    """A damaged identity is not replaced silently: what it would find could be running."""
    (tmp_path / "identity").write_text(text)
    with pytest.raises(IdentityDamaged, match="remove the file"):
        load_identity(tmp_path)


def test_boot(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Pids mean something only in the boot that was remembered."""
    assert not is_same_boot(tmp_path)
    remember_boot(tmp_path)
    assert is_same_boot(tmp_path)
    other = tmp_path / "boot_id"
    other.write_text("another\n")
    monkeypatch.setattr(identity, "_BOOT_ID", other)
    assert not is_same_boot(tmp_path)
    remember_boot(tmp_path)
    assert is_same_boot(tmp_path)


def test_marker() -> None:
    """A marker names state directory, start and attempt; each start has its own."""
    assert Marker("id", "s").value(3, 4) == "id:s:3:4"
    assert Marker.for_this_start("id") != Marker.for_this_start("id")
