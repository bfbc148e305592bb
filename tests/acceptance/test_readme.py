"""The README's tour runs as printed, and the links of the pages at the top lead somewhere."""

import os
import re
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
STAMP = ROOT / ".venv" / ".installed"


def tour() -> str:
    """The shell blocks of the section "Five minutes", one after the other."""
    section = (ROOT / "README.md").read_text().split("## Five minutes", 1)[1].split("\n## ", 1)[0]
    blocks: list[str] = re.findall(r"^```sh\n(.*?)^```$", section, re.DOTALL | re.MULTILINE)
    assert len(blocks) >= 5, "the tour has lost its blocks"
    return "".join(blocks)


@pytest.mark.parametrize(
    "page", ["README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "bench/README.md", "docs/operations.md"]
)
def test_the_links_of_a_page_lead_somewhere(page: str) -> None:
    """Every relative link names a file or directory of the checkout."""
    path = ROOT / page
    targets = re.findall(r"\]\((?!https?:)([^)#]+)[^)]*\)", path.read_text())
    assert [target for target in targets if not (path.parent / target).exists()] == []


@pytest.fixture
def checkout() -> Iterator[Path]:
    """A directory that looks like a checkout after `make .venv/.installed`, with a path short enough for a socket."""
    directory = Path(tempfile.mkdtemp(prefix="schedd-readme-"))
    for name in ("Makefile", "pyproject.toml", "examples", ".venv"):
        (directory / name).symlink_to(ROOT / name)
    yield directory
    shutil.rmtree(directory)


@pytest.mark.real
@pytest.mark.slow
@pytest.mark.skipif(not STAMP.exists(), reason="this environment was not made by make")
def test_the_tour_runs_as_printed(checkout: Path) -> None:
    """Every command of the tour succeeds, and shows what the text says it shows."""
    script = f"set -e\ntrap 'kill -9 $! 2>/dev/null || true' EXIT\n{tour()}"
    process = subprocess.Popen(
        ["bash", "-c", script],
        cwd=checkout,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        out, err = process.communicate(timeout=90)
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    daemon_log = (checkout / ".demo" / "daemon.log").read_text()
    assert process.returncode == 0, f"{out}\n{err}\n{daemon_log}"
    assert "hello from " in out
    assert "test database not up yet (attempt 1)" in out
    assert "crashed" in out
    assert "it came back" in out
