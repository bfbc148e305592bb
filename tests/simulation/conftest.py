"""A migrated, empty database to copy for each seed: migrating 2,000 times would be the longest part of the run."""

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from schedd.store import migrate

MEMORY = Path("/dev/shm")


@pytest.fixture(scope="session")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The path of a database at the newest schema."""
    path = tmp_path_factory.mktemp("template") / "schedd.db"
    migrate.upgrade(path)
    return path


@pytest.fixture
def scratch(tmp_path: Path) -> Iterator[Path]:
    """A folder in memory, where there is one: the crashes are only played, so a slow disk would prove nothing more."""
    if not os.access(MEMORY, os.W_OK):
        yield tmp_path
        return
    made = Path(tempfile.mkdtemp(prefix="schedd-simulation-", dir=MEMORY))
    yield made
    shutil.rmtree(made, ignore_errors=True)
