"""With a delegated cgroup nothing of an attempt can hide: it is killed whole at the attempt's end and at recovery.

A test makes a cgroup, marks it as systemd marks that of a unit with `Delegate=yes`, and starts a daemon in it. Where
that is not possible (no root, no cgroup v2) they are skipped.
"""

import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from schedd.workers import cgroups
from schedd.workers.cgroups import Cgroups
from support.daemons import RealDaemon, end_all, fast_retries, is_alive, pids_in, short_home, until

pytestmark = [pytest.mark.real]

# Neither environment, nor session, nor parent: nothing but the cgroup holds this process.
HIDE = "env -i setsid sh -c 'env -i setsid sleep 600 & echo $! >>{0}; exit 0'"


def mount_point() -> Path | None:
    """Where cgroup v2 is mounted."""
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        fields = line.split(" ")
        if fields[fields.index("-") + 1] == "cgroup2":
            return Path(fields[4])
    return None


@pytest.fixture
def part() -> Iterator[Path]:
    """A cgroup of this test, marked as delegated."""
    root = mount_point()
    made = None if root is None else root / f"schedd-test-{os.getpid()}-{time.monotonic_ns()}"
    try:
        assert made is not None
        made.mkdir()
        os.setxattr(made, "user.delegate", b"1")
        (made / "cgroup.procs").read_text()
    except (AssertionError, OSError) as error:
        pytest.skip(f"no cgroup v2 that this test may divide: {error}")
    if not (made / "cgroup.kill").exists():
        made.rmdir()
        pytest.skip("cgroup.kill needs Linux 5.14")
    yield made
    (made / "cgroup.kill").write_text("1")
    until(lambda: "populated 0" in (made / "cgroup.events").read_text(), "it is empty")
    for directory in sorted(made.rglob("*/"), reverse=True):
        if directory.is_dir():
            directory.rmdir()
    made.rmdir()


@pytest.fixture
def within(part: Path) -> Iterator[RealDaemon]:
    """A daemon that was started in the cgroup."""
    with short_home() as home:
        enter = ["/bin/sh", "-c", 'echo 0 >"$1/cgroup.procs"; shift; exec "$@"', "enter", str(part)]
        daemon = RealDaemon(home, 3, ["drain_timeout = 0.1"], enter)
        try:
            daemon.start()
            yield daemon
        except BaseException as error:
            error.add_note(daemon.story())
            raise
        finally:
            daemon.close()
            end_all(pids_in(home / "pids"))


def test_what_hides_completely_is_gone_when_its_attempt_has_ended(within: RealDaemon):
    """Commands, shell texts and functions; the cgroups are used again, so there are not more than workers."""
    found = within.home / "pids"
    hide = HIDE.format(found)
    (within.home / "poison.py").write_text(f"import os\ndef hide(): return os.system({hide!r})\n")
    ids = [within.submit(run=f"{hide}; exit 0") for _ in range(4)]
    ids += [within.submit(command=["sh", "-c", hide]) for _ in range(4)]
    ids += [within.submit(call="poison:hide", cwd=str(within.home)) for _ in range(4)]
    assert set(within.settle(*ids).values()) == {"succeeded"}
    assert len(pids_in(found)) == 12
    assert not any(map(is_alive, pids_in(found)))
    assert 1 <= len(slots(within)) <= 3
    within.stop()
    assert slots(within, without_daemon=True) == []


def slots(daemon: RealDaemon, without_daemon: bool = False) -> list[str]:
    """The cgroups that it has made."""
    root = mount_point()
    assert root is not None
    return [path.name for path in root.glob(f"schedd-test-{os.getpid()}-*/schedd-{daemon.identity()}-*")]


def test_what_hides_completely_is_gone_when_a_killed_daemon_is_back(within: RealDaemon):
    """Killed at once, so that no pid was written down: without the cgroup nothing could find this process."""
    found, lock, seen = within.home / "pids", within.home / "lock", within.home / "seen"
    script = f"""
    exec 9>>{lock}
    if flock -n 9; then echo free; else echo taken; fi >>{seen}
    [ $SCHEDD_ATTEMPT -eq 1 ] || exit 0
    {HIDE.format(found)}; exec env -i sleep 600"""
    task_id = within.submit(run=script, retry=fast_retries(5))
    until(lambda: pids_in(found), "the process")
    within.kill()
    assert all(map(is_alive, pids_in(found)))
    within.start()
    assert within.settle(task_id) == {task_id: "succeeded"}
    assert seen.read_text().split() == ["free", "free"]
    assert not any(map(is_alive, pids_in(found)))


def test_entering_changes_nothing_else_for_a_command(within: RealDaemon):
    """Its environment, its arguments, its exit code, and what is told of one that cannot be started."""
    out = within.home / "out"
    odd = ["sh", "-c", 'env >>"$0"; printf "<%s>" "$@" >>"$0"; exit 7', str(out), "a b", "", "*", "-e"]
    task_id = within.submit(command=odd, env={"PWD": "/kept"})
    assert within.settle(task_id) == {task_id: "failed"}
    assert within.rows("select exit_code from attempt") == [(7,)]
    text = out.read_text()
    assert text.endswith("<a b><><*><-e>")
    assert "SHLVL=0" not in text
    plain = within.submit(command=[str(Path("/usr/bin/env"))])
    within.settle(plain)
    names = {line.split("=")[0] for line in b"".join(within.client.log(plain)).decode().splitlines()}
    assert not names & {"PWD", "OLDPWD", "SHLVL"}
    for command in (["no-such-program"], ["/no/such/program"], ["/etc"], ["./relative"]):
        refused = within.submit(command=command)
        assert within.settle(refused) == {refused: "failed"}
        assert within.outcomes(refused) == ["start_failed"], command


def test_without_the_mark_nothing_is_divided(part: Path):
    """Root could write to any cgroup; only one that was handed over is used."""
    os.removexattr(part, "user.delegate")
    with short_home() as home:
        enter = ["/bin/sh", "-c", 'echo 0 >"$1/cgroup.procs"; shift; exec "$@"', "enter", str(part)]
        daemon = RealDaemon(home, 1, launcher=enter)
        try:
            daemon.start()
            task_id = daemon.submit(run="cat /proc/self/cgroup")
            daemon.settle(task_id)
            assert f"0::/{part.name}\n" in b"".join(daemon.client.log(task_id)).decode()
            daemon.stop()
        finally:
            daemon.close()


def test_a_cgroup_that_does_not_get_empty_is_not_used_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """And what is in it is told by pid. (A directory that merely looks like a cgroup: its kill has no effect.)"""
    monkeypatch.setattr(cgroups, "PATIENCE_S", 0.0)
    slots_of = Cgroups(tmp_path, "0" * 16)
    first = slots_of.take()
    assert first is not None
    (first / "cgroup.events").write_text("populated 1\nfrozen 0\n")
    (first / "cgroup.procs").write_text("12\n34\n")
    slots_of.give_back(first)
    second = slots_of.take()
    assert second not in (None, first)
    slots_of.give_back(second)
    assert slots_of.take() == second
    assert Cgroups(tmp_path, "0" * 16).clear(0.0) == [12, 34]
    assert Cgroups(tmp_path, "1" * 16).clear(0.0) == [], "those of another state directory are left alone"


@pytest.mark.parametrize(
    ("cgroup", "mount", "found"),
    [
        (
            "0::/system.slice/schedd.service\n",
            "41 31 0:38 / /cg rw shared:9 - cgroup2 cgroup2 rw",
            "/cg/system.slice/schedd.service",
        ),
        ("3:cpu:/a\n0::/x/y\n", "41 31 0:38 /x /cg rw - cgroup2 cgroup2 rw", "/cg/y"),
        ("0::/\n", "41 31 0:38 / /cg rw - cgroup2 cgroup2 rw", None),
        ("0::/other\n", "41 31 0:38 /x /cg rw - cgroup2 cgroup2 rw", None),
        ("0::/x\n", "41 31 0:38 / /proc rw - proc proc rw", None),
        ("3:cpu:/a\n", "41 31 0:38 / /cg rw - cgroup2 cgroup2 rw", None),
    ],
)
def test_the_own_cgroup_is_found(cgroup: str, mount: str, found: str | None):
    """By its name and the mount, as the kernel tells them; the root is never taken."""
    assert cgroups._own(cgroup, mount) == (None if found is None else Path(found))
