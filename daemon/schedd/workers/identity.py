"""Who started a process: the identity of the state directory, and whether the machine was booted since.

Both are small files of the state directory, apart from the database: a backup of the database that is restored
elsewhere must not take its processes for its own. Tests: tests/unit/workers/test_identity.py.
"""

import os
import re
from dataclasses import dataclass
from pathlib import Path

MARKER_VARIABLE = "SCHEDD_MARKER"
_IDENTITY = "identity"
_BOOT = "boot"
_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


class IdentityDamaged(OSError):
    """The file `identity` of the state directory does not hold what schedd wrote."""


@dataclass(frozen=True, slots=True)
class Marker:
    """Names the attempts of one start of the daemon on one state directory."""

    identity: str
    start: str

    @classmethod
    def for_this_start(cls, identity: str) -> "Marker":
        """A marker that no other start has."""
        return cls(identity, os.urandom(4).hex())

    @property
    def of_all(self) -> str:
        """What the values of all attempts of this start begin with."""
        return f"{self.identity}:{self.start}:"

    def value(self, seq: int, number: int) -> str:
        """The value of SCHEDD_MARKER for one attempt."""
        return f"{self.identity}:{self.start}:{seq}:{number}"


def load_identity(state_dir: Path) -> str:
    """The identity of a state directory, made when it has none. The caller holds the directory's lock.

    Raises OSError if the file cannot be read or written, or IdentityDamaged.
    """
    path = state_dir / _IDENTITY
    try:
        identity = path.read_text("ascii", "replace").strip()
    except FileNotFoundError:
        identity = os.urandom(8).hex()
        _write(path, identity)
        return identity
    if not re.fullmatch(r"[0-9a-f]{16}", identity):
        raise IdentityDamaged(
            f"{path} is damaged. By it schedd finds what is left of tasks after a crash: see that none of them still "
            "runs, then remove the file"
        )
    return identity


def is_same_boot(state_dir: Path) -> bool:
    """Whether the machine is in the same boot as at the last `remember_boot`; only then do pids mean anything."""
    try:
        return (state_dir / _BOOT).read_text("ascii", "replace").strip() == _boot_id()
    except FileNotFoundError:
        return False


def remember_boot(state_dir: Path) -> None:
    """Write down the present boot: after what the last daemon left was killed, before anything new is started."""
    if not is_same_boot(state_dir):
        _write(state_dir / _BOOT, _boot_id())


def _boot_id() -> str:
    return _BOOT_ID.read_text("ascii").strip()


def _write(path: Path, text: str) -> None:
    """Put a file there whole and durable, or not at all."""
    draft = path.with_name(path.name + ".new")
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o640)
    try:
        os.write(descriptor, f"{text}\n".encode("ascii"))
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
    os.replace(draft, path)
    directory = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)
