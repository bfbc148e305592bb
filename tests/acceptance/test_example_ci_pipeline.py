"""The library's example prints what its documentation says, word for word."""

import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "ci_pipeline.py"

EXPECTED = """\
checkout succeeded
build succeeded
test retry in 0.05s (ConnectionError: test db not up yet)
lint succeeded
docs succeeded
test retry in 0.10s (ConnectionError: test db not up yet)
test succeeded
package succeeded
deploy succeeded
refused: dependency cycle: a -> c -> b -> a (1 more task waits behind it); remove one of these dependencies
cancel report: True | again: False
report cancelled
email skipped
migrate retry in 0.05s (RuntimeError: disk full)
migrate failed (RuntimeError: disk full)
notify skipped
heartbeat run 1
heartbeat run 2
heartbeat succeeded
40 tasks in 5 layers on 4 workers, in order: True
"""


@pytest.mark.real
def test_the_ci_pipeline_example_prints_exactly_this() -> None:
    """Order, retries, refusal, cancel, failure and recurrence are the same in every run, and so is the text."""
    command = [sys.executable, "-W", "error", str(EXAMPLE)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (done.stdout, done.stderr, done.returncode) == (EXPECTED, "", 0)
