"""Where schedd keeps its things when nobody says otherwise. Standard library only: the CLI's start imports it.

Tests: tests/unit/test_paths.py.
"""

import os
from pathlib import Path


def default_state_dir() -> Path:
    """`SCHEDD_STATE_DIR`, else /var/lib/schedd for root, else schedd in the user's XDG state directory."""
    given = os.environ.get("SCHEDD_STATE_DIR")
    if given:
        return Path(given)
    if os.geteuid() == 0:
        return Path("/var/lib/schedd")
    base = os.environ.get("XDG_STATE_HOME") or os.path.expanduser("~/.local/state")
    return Path(base) / "schedd"


def default_socket(state_dir: Path | None = None) -> Path:
    """`SCHEDD_SOCKET`, else schedd.sock in a state directory that was named (as an argument or by
    `SCHEDD_STATE_DIR`), else /run/schedd/schedd.sock for root, else in the user's XDG runtime directory, and without
    one in the state directory.
    """
    given = os.environ.get("SCHEDD_SOCKET")
    if given:
        return Path(given)
    if state_dir is None and os.environ.get("SCHEDD_STATE_DIR"):
        state_dir = default_state_dir()
    if state_dir is not None:
        return state_dir / "schedd.sock"
    if os.geteuid() == 0:
        return Path("/run/schedd/schedd.sock")
    runtime = os.environ.get("XDG_RUNTIME_DIR")
    return Path(runtime) / "schedd" / "schedd.sock" if runtime else default_state_dir() / "schedd.sock"


def default_config() -> Path:
    """`SCHEDD_CONFIG`, else /etc/schedd/schedd.toml for root, else schedd/schedd.toml in the XDG config directory."""
    given = os.environ.get("SCHEDD_CONFIG")
    if given:
        return Path(given)
    if os.geteuid() == 0:
        return Path("/etc/schedd/schedd.toml")
    base = os.environ.get("XDG_CONFIG_HOME") or os.path.expanduser("~/.config")
    return Path(base) / "schedd" / "schedd.toml"
