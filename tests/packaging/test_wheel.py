"""What people install is the wheel: it must hold all that runs, find its migrations, and hold nothing else."""

import os
import subprocess
import sys
import zipfile
from email.parser import HeaderParser
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

pytestmark = [pytest.mark.slow, pytest.mark.timeout(180)]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, built from this checkout without the network."""
    out = tmp_path_factory.mktemp("dist")
    command = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(out), str(ROOT)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    (built,) = out.glob("*.whl")
    return built


@pytest.fixture(scope="module")
def unpacked(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel's files, as an installer lays them."""
    site = tmp_path_factory.mktemp("site")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(site)
    return site


def python(site: Path, *arguments: str) -> str:
    """What a fresh interpreter prints that finds schedd in `site` before it looks anywhere else."""
    environment = {**os.environ, "PYTHONPATH": str(site)}
    command = [sys.executable, "-W", "error", *arguments]
    done = subprocess.run(
        command, cwd=site.parent, env=environment, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_the_wheel_holds_the_package_whole(wheel: Path) -> None:
    """Every module of the source tree, the type marker and every migration are in it."""
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
    source = ROOT / "daemon"
    modules = {path.relative_to(source).as_posix() for path in (source / "schedd").rglob("*.py")}
    migrations = {
        f"schedd/{path.relative_to(ROOT).as_posix()}"
        for path in (ROOT / "migrations").rglob("*")
        if path.is_file() and path.suffix in (".py", ".mako")
    }
    assert any("/versions/" in name for name in migrations), "the checkout has no migration"
    wanted = modules | migrations | {"schedd/py.typed"}
    assert wanted - names == set()


def test_the_wheel_holds_nothing_else(wheel: Path) -> None:
    """Only the package and its metadata: no tests, benchmarks, examples or compiled files."""
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
    foreign = [name for name in names if not name.startswith("schedd/") and ".dist-info/" not in name]
    assert foreign == []
    assert [name for name in names if "test" in Path(name).name or name.endswith(".pyc")] == []


def test_the_wheel_installs_the_two_commands(unpacked: Path) -> None:
    """`schedd` and `schedctl` are entry points that can be imported."""
    (entry_points,) = unpacked.glob("schedd-*.dist-info/entry_points.txt")
    assert entry_points.read_text().split("[console_scripts]")[1].split() == [
        *("schedctl", "=", "schedd.cli.app:main"),
        *("schedd", "=", "schedd.service:main"),
    ]
    python(unpacked, "-c", "from schedd.cli.app import main; from schedd.service import main")


def test_the_wheel_states_its_licence_and_pythons(unpacked: Path) -> None:
    """The metadata says what may be done with it and where it runs."""
    (metadata,) = unpacked.glob("schedd-*.dist-info/METADATA")
    headers = HeaderParser().parsestr(metadata.read_text())
    assert (headers["License-Expression"], headers["Requires-Python"]) == ("MIT", ">=3.11")
    assert list(metadata.parent.rglob("LICENSE")) != []


def test_the_installed_package_finds_its_own_migrations(unpacked: Path) -> None:
    """Without a checkout around, the scripts beside the package are used."""
    found = python(unpacked, "-c", "from schedd.store.migrate import script_location; print(script_location())")
    assert Path(found) == unpacked / "schedd" / "migrations"


def test_the_installed_package_makes_a_database(unpacked: Path, tmp_path: Path) -> None:
    """The migrations in the wheel run: a new file becomes a database with the tables of schedd."""
    database = tmp_path / "schedd.db"
    python(unpacked, "-m", "schedd.store.migrate", str(database))
    tables = python(
        unpacked,
        "-c",
        "import sqlite3, sys;"
        "db = sqlite3.connect(sys.argv[1]);"
        "print(*sorted(row[0] for row in db.execute(\"SELECT name FROM sqlite_master WHERE type = 'table'\")));"
        "db.close()",
        str(database),
    )
    assert {"task", "dependency", "attempt", "batch", "event", "request"} <= set(tables.split())
