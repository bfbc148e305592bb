"""The signals that tasks inherit, in a process whose starter ignored some."""

import subprocess
import sys

SCRIPT = """
import signal, subprocess, sys
from schedd.workers import signals
for name in ("SIGINT", "SIGHUP", "SIGCHLD"):
    signal.signal(getattr(signal, name), signal.SIG_IGN)
if {repair}:
    signals.keep_ignored_from_children()
signal.raise_signal(signal.SIGHUP)
print(subprocess.run(["grep", "SigIgn", "/proc/self/status"], capture_output=True, text=True).stdout.split()[1])
"""


def ignored_by_a_child(repair: bool) -> int:
    """The bits of the signals that a child ignores, but for 32 and 33: those are the C library's, and no program's."""
    script = SCRIPT.format(repair=repair)
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    return int(done.stdout, 16) & ~(1 << 31 | 1 << 32)


def test_ignored_signals_are_not_inherited() -> None:
    """What the daemon ignores, it still survives, but its children have it at the default."""
    assert ignored_by_a_child(repair=False) != 0
    assert ignored_by_a_child(repair=True) == 0
