"""`schedctl check` and `schedctl backup` on the files of a real daemon, and the manual's restore as it is printed."""

import json
import os
import re
import shutil
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from schedd.answers import CheckAnswer
from support.pressure import small_disk
from support.shapes import mismatch

pytestmark = pytest.mark.real

MANUAL = Path(__file__).resolve().parents[2] / "docs" / "operations.md"
POWERLESS = """
import ctypes, os, sys
for power in (1, 2):  # CAP_DAC_OVERRIDE and CAP_DAC_READ_SEARCH leave the bounding set, and so root's next program
    if ctypes.CDLL(None).prctl(24, power, 0, 0, 0) != 0:
        sys.exit(77)
os.execv(sys.argv[1], sys.argv[1:])
"""
"""Makes root as powerless as others against the permissions of files."""


def harm(daemon: Any, statement: str) -> None:
    """What somebody else writes into the database."""
    with closing(sqlite3.connect(daemon.state_dir / "schedd.db", isolation_level=None, timeout=20)) as connection:
        assert connection.execute(statement).rowcount


def work(ctl: Any) -> None:
    """A few tasks that end one way or the other."""
    ctl("submit", "--id", "good", "--wait", "--", "echo", "hello")
    ctl("submit", "--id", "bad", "--wait", "--", "false")
    ctl("submit", "--id", "never", "--after", "bad", "--wait", "--", "true")


FAULT = "UPDATE task SET attempts = 0 WHERE id = 'good'"


# --- check ----------------------------------------------------------------------------------------------------------


def test_a_sound_state_directory_is_told_on_one_line(daemon: Any, ctl: Any) -> None:
    """While the daemon runs and when it has stopped; then it is read without a trace."""
    work(ctl)
    expected = (0, f"{daemon.state_dir}/schedd.db: 3 tasks, 2 attempts: sound\n", "")
    assert ctl("check") == expected
    assert ctl("check", "--state-dir", str(daemon.state_dir)) == expected
    daemon.stop()
    before = sorted(path.name for path in daemon.state_dir.iterdir())
    assert ctl("check", "--state-dir", str(daemon.state_dir)) == expected
    assert sorted(path.name for path in daemon.state_dir.iterdir()) == before


def test_after_a_kill_it_is_sound_too(daemon: Any, ctl: Any) -> None:
    """What the daemon left in its write-ahead log is read, and a task that was running is no fault."""
    ctl("submit", "--id", "endless", "--", "sleep", "600")
    ctl("submit", "--id", "good", "--wait", "--", "true")
    daemon.kill()
    assert (daemon.state_dir / "schedd.db-wal").exists()
    ran = ctl("check", "--state-dir", str(daemon.state_dir))
    assert (ran.code, ran.err) == (0, "")
    assert ran.out.endswith(": 2 tasks, 2 attempts: sound\n")
    daemon.start()  # which ends what is left of `endless`
    assert ctl("check").code == 0


def test_faults_are_told_with_what_to_do(daemon: Any, ctl: Any) -> None:
    """Exit code 1; the same from a running and from a stopped one; as JSON in the promised shape."""
    work(ctl)
    harm(daemon, FAULT)
    ran = ctl("check")
    assert (ran.code, ran.err) == (1, "")
    first, advice, last = ran.out.splitlines()
    assert first == "error: good counts 0 attempts in its run 1, and its rows come to 1"
    assert advice.startswith("  schedd does not write this")
    assert last.endswith(": 3 tasks, 2 attempts: 1 fault")
    as_json = ctl("check", "--json")
    answer = json.loads(as_json.out)
    assert as_json.code == 1
    assert mismatch(answer, CheckAnswer) is None
    assert (answer["sound"], answer["errors"], answer["notes"]) == (False, 1, 0)
    assert [(found["kind"], found["shown"][0]["task"]) for found in answer["findings"]] == [
        ("attempts_miscounted", "good")
    ]
    daemon.stop()
    assert ctl("check", "--state-dir", str(daemon.state_dir)) == ran


def test_notes_do_not_change_the_exit_code(daemon: Any, ctl: Any) -> None:
    """They come about without a fault. Of many, the first are shown."""
    work(ctl)
    shutil.rmtree(daemon.state_dir / "logs")
    strays = daemon.state_dir / "logs" / "strays"
    strays.mkdir(parents=True)
    for number in range(25):
        (strays / str(number)).touch()
    ran = ctl("check")
    assert (ran.code, ran.err) == (0, "")
    assert ran.out.count("is no log file of schedd\n") == 20
    assert "note: and 5 more of this kind (foreign_file)\n" in ran.out
    assert "note: attempt 1 of good has ended, and " in ran.out
    assert ran.out.splitlines()[-1].endswith(": sound, 27 notes")


def test_a_damaged_file_is_a_fault_that_names_the_way_out(daemon: Any, ctl: Any) -> None:
    """No traceback, whatever the bytes are."""
    daemon.stop()
    path = daemon.state_dir / "schedd.db"
    path.write_bytes(path.read_bytes()[:4096] + b"\xff" * 40_960)
    ran = ctl("check", "--state-dir", str(daemon.state_dir))
    assert (ran.code, ran.err) == (1, "")
    assert ran.out.startswith("error: SQLite finds: ") or ran.out.startswith("error: the database cannot be read")
    assert "restore a backup" in ran.out


@pytest.mark.parametrize("verb", [("check",), ("backup", "copy.db")])
def test_bad_input_is_wrong_use(home: Path, ctl: Any, verb: tuple[str, ...]) -> None:
    """Exit code 2, with what to do, and nothing is made."""
    (home / "empty").mkdir()
    (home / "file").touch()
    before = sorted(home.rglob("*"))
    missing, nothing = f"{home}/nowhere", f"{home}/empty"
    for directory, words in (
        (missing, f"there is no directory {missing}; name the state directory of schedd with --state-dir"),
        (nothing, f"there is no database {nothing}/schedd.db; name the state directory"),
        (f"{home}/file", f"there is no database {home}/file/schedd.db"),
    ):
        ran = ctl(*verb, "--state-dir", directory)
        assert (ran.code, ran.out) == (2, ""), ran
        assert ran.err.startswith(f"schedctl: {words}"), ran.err
    nobody = ctl("--socket", f"{home}/nobody", *verb)
    assert (nobody.code, nobody.out) == (2, "")
    assert nobody.err == f"schedctl: no daemon answers at {home}/nobody; name its state directory with --state-dir\n"
    assert ctl(*verb, "--repair").code == 2
    assert sorted(home.rglob("*")) == before


def test_where_the_state_directory_comes_from(daemon: Any, home: Path, ctl: Any) -> None:
    """The daemon that answers says it; the environment does where none answers."""
    work(ctl)
    elsewhere = home / "elsewhere"
    elsewhere.mkdir()
    assert ctl("backup", str(elsewhere / "schedd.db")).code == 0
    assert ctl("check", SCHEDD_STATE_DIR=str(elsewhere)).out.startswith(f"{daemon.state_dir}/")  # SCHEDD_SOCKET is set
    named = ctl("check", "--state-dir", str(elsewhere))
    assert (named.code, named.err) == (0, "")
    assert named.out.splitlines()[-1].startswith(f"{elsewhere}/schedd.db: ")
    daemon.stop()
    assert ctl("check", SCHEDD_STATE_DIR=str(elsewhere)) == named


def test_what_cannot_be_judged_is_neither_sound_nor_faulty(daemon: Any, ctl: Any) -> None:
    """Exit code 3: another version's database, somebody else's."""
    daemon.stop()
    harm(daemon, "UPDATE alembic_version SET version_num = '9999'")
    ran = ctl("check", "--state-dir", str(daemon.state_dir))
    assert (ran.code, ran.err) == (3, "")
    assert "error: the tables have revision 9999 and this schedctl knows " in ran.out
    assert ran.out.endswith(": not judged\n")
    assert json.loads(ctl("check", "--json", "--state-dir", str(daemon.state_dir)).out)["sound"] is False
    (daemon.state_dir / "schedd.db").unlink()
    with closing(sqlite3.connect(daemon.state_dir / "schedd.db")) as connection:
        connection.execute("CREATE TABLE theirs (x)")
    ran = ctl("check", "--state-dir", str(daemon.state_dir))
    assert (ran.code, ran.out) == (3, "")
    assert "is not a database of schedd: it has the tables ['theirs']" in ran.err


@pytest.fixture
def powerless(ctl: Any) -> Callable[..., Any]:
    """`schedctl`, run by one to whom the permissions of files mean something."""
    if os.geteuid() != 0:
        pytest.skip("only root has files that others may not read")
    command = ctl.command

    def run(*arguments: str) -> Any:
        ctl.command = lambda *words: [sys.executable, "-c", POWERLESS, *command(*words)]
        try:
            ran = ctl(*arguments)
        finally:
            ctl.command = command
        if ran.code == 77:
            pytest.skip("root's power cannot be taken away here")
        return ran

    return run


def test_who_may_not_read_the_files_asks_the_daemon(daemon: Any, ctl: Any, powerless: Callable[..., Any]) -> None:
    """It has the same answer. Without one there is a reason; a backup is never made by the daemon."""
    work(ctl)
    harm(daemon, FAULT)
    told = ctl("check")
    daemon.state_dir.chmod(0)
    assert powerless("check") == told
    for verb in (("check", "--state-dir", str(daemon.state_dir / "x")), ("backup", "copy.db")):
        ran = powerless(*verb)
        assert (ran.code, ran.out) == (3, ""), ran
        assert ran.err.endswith("may not be read by you; run it as the user of schedd, or as root\n")
    daemon.state_dir.chmod(0o750)
    daemon.stop()
    (daemon.state_dir / "schedd.db").chmod(0)
    ran = powerless("check", "--state-dir", str(daemon.state_dir))
    assert (ran.code, ran.out) == (3, "")
    assert ran.err.startswith(f"schedctl: {daemon.state_dir}/schedd.db may not be read by you")


# --- backup ---------------------------------------------------------------------------------------------------------


def test_backups_of_a_daemon_at_work_are_whole(daemon: Any, home: Path, ctl: Any) -> None:
    """Each holds all that was answered before it was asked for, and is sound."""
    answered: list[str] = []
    over = threading.Event()

    def load() -> None:
        while not over.is_set():
            spec = {"name": "load", "tasks": {"a": {"run": "true"}, "b": {"run": "true", "deps": ["a"]}}}
            answered.append(daemon.client.submit(spec)["batch"])

    thread = threading.Thread(target=load)
    thread.start()
    try:
        for number in range(3):
            before = [*answered]
            restored = home / f"restored-{number}"
            restored.mkdir()
            ran = ctl("backup", str(restored / "schedd.db"))
            assert ran == (0, f"{restored}/schedd.db\n", "")
            assert [path.name for path in restored.iterdir()] == ["schedd.db"]
            assert (restored / "schedd.db").stat().st_mode & 0o777 == 0o600
            checked = json.loads(ctl("check", "--json", "--state-dir", str(restored)).out)
            assert checked["errors"] == 0, checked
            with closing(sqlite3.connect(restored / "schedd.db")) as connection:
                batches = {row[0] for row in connection.execute("SELECT name FROM batch")}
            assert batches >= set(before)
    finally:
        over.set()
        thread.join(30)
    assert len(answered) > 3, "there was no load: it proves nothing"


def test_a_backup_is_never_written_over(daemon: Any, home: Path, ctl: Any) -> None:
    """Neither an earlier one nor anything else, a link that leads nowhere included; a relative name is as for cp."""
    assert ctl("backup", "copy.db") == (0, f"{ctl.home}/copy.db\n", "")
    before = (ctl.home / "copy.db").read_bytes()
    ran = ctl("backup", "copy.db")
    assert ran == (2, "", f"schedctl: {ctl.home}/copy.db exists already; name another file\n")
    assert (ctl.home / "copy.db").read_bytes() == before
    (ctl.home / "link").symlink_to(home / "nowhere")
    assert ctl("backup", "link").code == 2
    assert ctl("backup", str(daemon.state_dir / "schedd.db")).code == 2
    assert ctl("backup").code == 2
    assert sorted(path.name for path in ctl.home.iterdir()) == ["copy.db", "link"]


@pytest.fixture
def read_only(home: Path) -> Iterator[Path]:
    """A directory that nobody can write to, root included."""
    with small_disk(home / "disk") as disk:
        mounted = subprocess.run(["mount", "-o", "remount,ro", str(disk.path)], capture_output=True, check=False)
        if mounted.returncode:
            pytest.skip("cannot be made read-only here")
        yield disk.path


def test_where_nobody_can_write_there_is_no_backup(daemon: Any, home: Path, ctl: Any, read_only: Path) -> None:
    """With the system's reason."""
    before = sorted(read_only.iterdir())
    assert ctl("backup", f"{read_only}/copy.db") == (
        2,
        "",
        f"schedctl: cannot write {read_only}/copy.db: Read-only file system\n",
    )
    assert sorted(read_only.iterdir()) == before
    assert ctl("backup", f"{home}/nowhere/copy.db").err.endswith("copy.db: No such file or directory\n")
    (home / "file").touch()
    assert ctl("backup", f"{home}/file/copy.db").err.endswith("copy.db: Not a directory\n")


@pytest.mark.parametrize("size", ["full", "half"])
def test_on_a_full_disk_there_is_no_backup(daemon: Any, home: Path, ctl: Any, size: str) -> None:
    """Nor half of one; the daemon does not notice, and with room it is made."""
    work(ctl)
    harm(daemon, "INSERT INTO setting VALUES ('ballast', zeroblob(3000000))")
    with small_disk(home / "disk", "6m" if size == "full" else "2m") as disk:
        if size == "full":
            disk.fill()
        before = sorted(disk.path.iterdir())
        ran = ctl("backup", f"{disk.path}/copy.db")
        assert (ran.code, ran.out) == (2, "")
        assert ran.err == f"schedctl: cannot write {disk.path}/copy.db: the disk is full\n"
        assert sorted(disk.path.iterdir()) == before
        disk.empty()
        assert ctl("backup", f"{disk.path}/copy.db").code == (0 if size == "full" else 2)
    assert ctl("submit", "--wait", "--", "true").code == 0


def test_of_a_damaged_database_no_copy_is_kept(daemon: Any, ctl: Any) -> None:
    """It would be taken for a backup. Exit code 3, and the manual is named."""
    work(ctl)
    daemon.stop()
    path = daemon.state_dir / "schedd.db"
    with closing(sqlite3.connect(path)) as connection:
        page = connection.execute("SELECT rootpage FROM sqlite_master WHERE name = 'event'").fetchone()[0]
    with path.open("r+b") as file:
        file.seek((page - 1) * 4096)
        file.write(b"\xff" * 4096)
    ran = ctl("backup", "--state-dir", str(daemon.state_dir), "copy.db")
    assert (ran.code, ran.out) == (3, "")
    assert "is damaged, and so would be its copy, which was not kept" in ran.err
    assert "docs/operations.md" in ran.err
    assert not list(ctl.home.iterdir())


# --- restore, as the manual has it ----------------------------------------------------------------------------------


def block_of(section: str) -> str:
    """The shell block of a section of the manual."""
    text = MANUAL.read_text().split(f"\n## {section}\n", 1)[1].split("\n## ", 1)[0]
    [block] = re.findall(r"^```sh\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)
    assert isinstance(block, str)
    return block


def restore(daemon: Any, ctl: Any, backup: Path) -> subprocess.CompletedProcess[str]:
    """Follow the manual to the letter; only who stops and starts the daemon, and the two paths, are another's."""
    head, middle, tail = re.split(r"^systemctl (?:stop|start) schedd\n", block_of("Restore"), flags=re.MULTILINE)
    assert tail == ""
    paths = f"STATE={daemon.state_dir} BACKUP={backup}"
    head, replaced = re.subn(r"^STATE=\S+ BACKUP=\S+$", paths, head, flags=re.MULTILINE)
    assert replaced == 1
    tools = 'schedctl() { "$PYTHON" -c "from schedd.cli.app import main; main()" "$@"; }\n'
    daemon.stop()
    done = subprocess.run(
        ["/bin/sh", "-c", tools + head + middle],
        env=ctl.environment | {"PYTHON": sys.executable},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    if done.returncode == 0:
        daemon.start()
    return done


def test_the_restore_of_the_manual(daemon: Any, home: Path, ctl: Any, eventually: Callable[..., None]) -> None:
    """All is as it was at the backup: what ended since runs again, what was accepted since is gone, what ran counts."""
    work(ctl)
    go, ran_file = home / "go", home / "ran"
    waits = f"echo $$ >> {ran_file}; until [ -e {go} ]; do sleep 0.05; done"
    ctl("submit", "--id", "running", "--max-attempts", "2", "-c", waits)
    ctl("submit", "--id", "behind", "--after", "running", "-c", "echo behind")
    eventually(ran_file.exists)
    assert ctl("backup", "copy.db").code == 0
    go.touch()
    assert ctl("wait", "behind").code == 0
    ctl("submit", "--id", "lost", "--wait", "-c", "echo lost")
    [last] = json.loads(ctl("status", "--json", "lost").out)
    go.unlink()
    done = restore(daemon, ctl, ctl.home / "copy.db")
    assert (done.returncode, done.stderr) == (0, ""), done
    assert f"{daemon.state_dir}/logs/0/000/{last['seq']}.1.log is of the attempt 1" in done.stdout
    assert done.stdout.splitlines()[-1].endswith(": sound, 2 notes")
    assert (daemon.state_dir / "before-restore" / "schedd.db").exists()
    assert ctl("status", "lost").code == 4
    assert ctl("logs", "good").out == "hello\n"
    eventually(lambda: ran_file.read_text().count("\n") == 2)
    assert ctl("submit", "--id", "new", "--wait", "-c", "echo new").code == 0
    assert json.loads(ctl("status", "--json", "new").out)[0]["seq"] == last["seq"]
    assert ctl("logs", "new").out == "new\n", "the log of the task that had this number holds another's output"
    go.touch()
    assert ctl("wait", "behind").code == 0
    [again] = json.loads(ctl("status", "--json", "running").out)
    assert [attempt["outcome"] for attempt in again["history"]] == ["crashed", "succeeded"]
    assert ctl("check").code == 0


def test_a_restore_of_what_is_no_backup_stops_at_the_check(daemon: Any, ctl: Any) -> None:
    """Before anything is started, and what was there is still there."""
    work(ctl)
    (ctl.home / "copy.db").write_bytes(b"this is a letter, not a database. " * 300)
    done = restore(daemon, ctl, ctl.home / "copy.db")
    assert done.returncode == 1
    assert "error: " in done.stdout
    kept = daemon.state_dir / "before-restore"
    assert ctl("check", "--state-dir", str(kept)).code == 0
    assert restore(daemon, ctl, kept / "schedd.db").returncode == 1, "before-restore is never written over"


def test_logs_that_are_gone_are_told(daemon: Any, ctl: Any) -> None:
    """They are not in a backup: no empty output that would be taken for silence."""
    work(ctl)
    ctl("backup", "copy.db")
    shutil.rmtree(daemon.state_dir / "logs")
    assert restore(daemon, ctl, ctl.home / "copy.db").returncode == 0
    for more in ([], ["-f"], ["-n", "3"]):
        ran = ctl("logs", *more, "good")
        assert (ran.code, ran.out) == (4, "")
        assert ran.err.startswith("schedctl: the log of attempt 1 of good is not there any more (")
        assert ran.err.endswith("or the database was restored from a backup, which holds no logs\n")
    assert "note: attempt 1 of good has ended, and " in ctl("check").out


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def test_a_second_directory_leaves_the_tasks_of_the_original_alone(
    daemon: Any, home: Path, ctl: Any, eventually: Callable[..., None]
) -> None:
    """Although its database says that they run, with their pids, and although it was started before in this boot."""
    pids = home / "pids"
    ctl("submit", "--id", "endless", "-c", f"echo $$ >> {pids}; exec sleep 600")
    eventually(lambda: pids.exists() and pids.read_text().endswith("\n"))
    original = int(pids.read_text())

    def pid_is_written() -> bool:
        with closing(sqlite3.connect(daemon.state_dir / "schedd.db", timeout=20)) as connection:
            return connection.execute("SELECT pid FROM attempt").fetchone() == (original,)

    eventually(pid_is_written)
    assert ctl("backup", "copy.db").code == 0
    second = type(daemon)(home / "second")
    second.home.mkdir()
    try:
        second.start()  # it now has an identity, and a memory of this boot
        assert restore(second, ctl, ctl.home / "copy.db").returncode == 0
        assert second.client.task("endless")["status"] == "failed"
        assert is_alive(original)
        assert daemon.client.task("endless")["status"] == "running"
        second.stop()
        assert is_alive(original)
    finally:
        second.close()
    ctl("cancel", "endless")
    eventually(lambda: not is_alive(original))


def test_the_move_of_the_manual(daemon: Any, home: Path, ctl: Any) -> None:
    """Tasks and logs arrive; the new directory is somebody of its own."""
    work(ctl)
    block = block_of("Move to another machine")
    if shutil.which("rsync") is None:
        block, replaced = re.subn(
            r"rsync -a --exclude identity --exclude boot --exclude lock (\S+)/ (\S+)/",
            r"mkdir \2; cp -a \1/. \2; rm \2/identity \2/boot \2/lock",
            block,
        )
        assert replaced == 1
    block = block.replace("new:/var/lib/schedd", f"{home}/new/state").replace("/var/lib/schedd", str(daemon.state_dir))
    block = block.replace("systemctl stop schedd\n", "")
    identity = (daemon.state_dir / "identity").read_text()
    daemon.stop()
    (home / "new").mkdir()
    subprocess.run(["/bin/sh", "-euc", block], check=True, timeout=60)
    moved = type(daemon)(home / "new")
    try:
        moved.start()
        assert (moved.state_dir / "identity").read_text() != identity
        there = {"SCHEDD_SOCKET": str(moved.socket)}
        assert ctl("logs", "good", **there).out == "hello\n"
        assert ctl("status", "never", **there).code == 0
        ran = ctl("check", **there)
        assert (ran.code, ran.out) == (0, f"{moved.state_dir}/schedd.db: 3 tasks, 2 attempts: sound\n")
    finally:
        moved.close()
