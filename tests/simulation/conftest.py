"""A migrated, empty database to copy for each seed: migrating 2,000 times would be the longest part of the run."""

from pathlib import Path

import pytest

from schedd.store import migrate


@pytest.fixture(scope="session")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The path of a database at the newest schema."""
    path = tmp_path_factory.mktemp("template") / "schedd.db"
    migrate.upgrade(path)
    return path
