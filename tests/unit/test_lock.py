"""One scheduler per state directory."""

import os
from pathlib import Path

import pytest

from schedd.lock import AlreadyLocked, StateDirLock


def test_the_second_is_told_who_holds_it(tmp_path: Path):
    """The message names the directory and the pid."""
    lock = StateDirLock(tmp_path / "lock")
    with pytest.raises(AlreadyLocked) as caught:
        StateDirLock(tmp_path / "lock")
    assert str(os.getpid()) in str(caught.value)
    assert str(tmp_path) in str(caught.value)
    lock.release()
    StateDirLock(tmp_path / "lock").release()


def test_a_symlink_leads_to_the_same_lock(tmp_path: Path):
    """Whatever path leads there."""
    real = tmp_path / "real"
    real.mkdir()
    (tmp_path / "link").symlink_to(real)
    lock = StateDirLock(real / "lock")
    with pytest.raises(AlreadyLocked):
        StateDirLock(tmp_path / "link" / "lock")
    lock.release()


def test_release_twice_is_harmless(tmp_path: Path):
    """A close after a failed start."""
    lock = StateDirLock(tmp_path / "lock")
    lock.release()
    lock.release()
