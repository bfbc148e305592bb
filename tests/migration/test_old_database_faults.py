"""Each operation of the upgrade of an old database fails, or is the last one of the process: the old database is whole,
and the next start finishes.

Upgraded are the databases of all former releases, with what is in them, so every step is broken at each place. One of a
release to come is made up (`support.migrating.REBUILD`): it builds a table anew on whose rows others depend. Beside the
scripts, the backup and the looks at the file fail as well. (test_migration_faults.py does it without data, from nothing
too, with more kinds of faults.)
"""

import itertools
import shutil
import signal
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from schedd.store import migrate
from schedd.store.base import StoreUnavailable
from support import migrating
from support.migrating import NEXT, OLD, lost_in, revision_of, rows_of
from support.nth import BUSY, FULL, IOERR, Place

RELEASES = sorted(path.stem for path in OLD.glob("*.db"))
KILLS = 12

from_each_release = pytest.mark.parametrize("start", RELEASES)
from_each_and_nothing = pytest.mark.parametrize("start", [*RELEASES, "absent"])


@pytest.fixture
def scripts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The scripts of a release to come, which the program is."""
    made = migrating.scripts_of_next_release(tmp_path)
    monkeypatch.setattr(migrate, "script_location", lambda: made)
    monkeypatch.setattr(migrate, "HEAD", NEXT)
    return made


class Case:
    """A database to upgrade, again and again from the same state."""

    def __init__(self, folder: Path, start: str) -> None:
        self.start = start
        self.path = folder / "state" / "schedd.db"
        self.old = None if start == "absent" else OLD / f"{start}.db"
        self.before = {} if self.old is None else rows_of(self.old)

    def lay_out(self) -> None:
        """As it is before the upgrade."""
        shutil.rmtree(self.path.parent, ignore_errors=True)
        self.path.parent.mkdir()
        if self.old is not None:
            shutil.copyfile(self.old, self.path)

    def backups(self) -> list[Path]:
        return sorted(self.path.parent.glob("*.bak"))

    def judge_unfinished(self) -> None:
        """It is as it was, or (a commit that only seemed to fail) wholly new; nothing between, and no copy is half."""
        revision = revision_of(self.path)
        if revision == NEXT:
            self.judge_finished()
            return
        assert revision == (None if self.start == "absent" else self.start)
        if self.old is not None:
            assert rows_of(self.path) == self.before
            assert_sound(self.path)
        for backup in self.backups():
            assert rows_of(backup) == self.before

    def judge_finished(self) -> None:
        """Everything is there, and so is a copy from before."""
        assert revision_of(self.path) == NEXT
        assert_sound(self.path)
        after = rows_of(self.path)
        assert lost_in(self.before, after) == []
        assert after["task"]["note"] == [f"note of {task_id}" for task_id in after["task"]["id"]]
        assert after["more"]["task_seq"] == after["task"]["seq"]
        if self.old is not None:
            assert after["attempt"]["number"], "the rows that depend on the table were wiped"
            assert after["dependency"]["when"]
            assert rows_of(self.backups()[-1]) == self.before
        assert not [path.name for path in self.path.parent.iterdir() if path.suffix == ".partial"]


def assert_sound(path: Path) -> None:
    """As far as SQLite can tell."""
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        assert connection.execute("PRAGMA foreign_key_check").fetchall() == []


@from_each_and_nothing
def test_the_step_keeps_what_depends_on_the_table(start: str, tmp_path: Path, scripts: Path):
    """Without any fault; the copy is named for the revision that it has."""
    case = Case(tmp_path, start)
    case.lay_out()
    done = migrate.upgrade(case.path)
    case.judge_finished()
    if start == "absent":
        assert (done.from_revision, done.backup) == (None, None)
    else:
        assert (done.from_revision, done.backup) == (start, case.path.with_name(f"schedd.db.{start}.bak"))


def try_to_upgrade(path: Path) -> str:
    """Why it is refused; empty if it is not. A failure for good must say that nothing was changed."""
    try:
        migrate.upgrade(path)
    except StoreUnavailable as error:
        return str(error)
    except migrate.MigrationFailed as error:
        return str(error) if "nothing was changed" in str(error) else f"what was changed? {error}"
    return ""


def fail(case: Case, at: int, code: int, stays: bool) -> bool:
    """Upgrade with a fault, judge what it leaves, and finish without one; whether the place was reached."""
    case.lay_out()
    place = Place(at, code, stays)
    end = migrating.intercept(place.pass_by)
    try:
        refused = try_to_upgrade(case.path)
        if stays and refused:
            refused = try_to_upgrade(case.path)  # the next start, which meets the same
            assert refused
    finally:
        end()
    assert bool(refused) == bool(place.hits), f"{place.met}, and it says: {refused}"
    if refused:
        assert not refused.startswith("what was changed?"), refused
        case.judge_unfinished()
        migrate.upgrade(case.path)
    case.judge_finished()
    return bool(place.hits)


@pytest.mark.slow
@pytest.mark.timeout(600)
@from_each_release
@pytest.mark.parametrize("stays", [False, True], ids=["once", "for ever"])
def test_whichever_operation_of_an_upgrade_fails(start: str, stays: bool, tmp_path: Path, scripts: Path):
    """Full disk, I/O error, lock, before and after each operation: refused, whole, and finished by the next start."""
    case = Case(tmp_path, start)
    at, kinds = 0, itertools.cycle((FULL, IOERR, BUSY))
    while True:
        at += 2 if stays else 1
        try:
            if not fail(case, at, next(kinds), stays):
                break
        except BaseException as error:
            error.add_note(f"the fault was at point {at} from {start}, {'for ever' if stays else 'once'}")
            raise
    assert at > 60, "the loop has ended early: it proves nothing"


def operations(case: Case) -> int:
    """How often the program and SQLite meet during an upgrade."""
    case.lay_out()
    count: list[str] = []
    end = migrating.intercept(lambda connection, when, sql: count.append(sql))
    try:
        migrate.upgrade(case.path)
    finally:
        end()
    return len(count)


@pytest.mark.slow
@pytest.mark.timeout(600)
@from_each_and_nothing
def test_a_kill_at_any_operation_leaves_the_old_database_whole(start: str, tmp_path: Path, scripts: Path):
    """SIGKILL at moments from the first operation to the last; the next start finishes, with a copy from before."""
    case = Case(tmp_path, start)
    count = operations(case)
    moments = sorted({1 + (count - 1) * number // (KILLS - 1) for number in range(KILLS)})
    for at in moments:
        case.lay_out()
        command = [sys.executable, migrating.__file__, str(case.path), str(scripts), str(at)]
        done = subprocess.run(command, capture_output=True, timeout=60, check=False)
        assert done.returncode == -signal.SIGKILL, done.stderr
        for leftover in case.path.parent.glob("*.partial"):
            leftover.unlink()
        try:
            case.judge_unfinished()
            migrate.upgrade(case.path)
            case.judge_finished()
        except BaseException as error:
            error.add_note(f"killed at point {at} of {count} from {start}")
            raise
