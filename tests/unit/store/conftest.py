"""Both stores, driven by a real machine; and a migrated database to break."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from schedd.store import migrate
from schedd.store.memory import MemoryStore
from schedd.store.sqlite import SqliteStore, open_store


@pytest.fixture(scope="session")
def migrated(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """The bytes of an empty database at the newest schema, to copy."""
    path = tmp_path_factory.mktemp("migrated") / "schedd.db"
    migrate.upgrade(path)
    return path.read_bytes()


@pytest.fixture
def database(migrated: bytes, tmp_path: Path) -> Path:
    """The path of a fresh database."""
    path = tmp_path / "schedd.db"
    path.write_bytes(migrated)
    return path


@pytest.fixture
def sqlite_store(database: Path) -> Iterator[SqliteStore]:
    """A store on a fresh database."""
    store = open_store(database)
    yield store
    store.close()


@pytest.fixture(params=["memory", "sqlite"])
def reopen(request: pytest.FixtureRequest, database: Path) -> Iterator[Callable[[], Any]]:
    """Opens the same store again and again, as restarts would: memory is simply still there."""
    opened: list[Any] = []
    memory = MemoryStore()

    def again() -> Any:
        if request.param == "memory":
            return memory
        for store in opened:
            store.close()
        opened.append(open_store(database))
        return opened[-1]

    yield again
    for store in opened:
        store.close()
