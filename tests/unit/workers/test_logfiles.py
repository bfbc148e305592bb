"""Where logs are kept."""

import os
from collections import Counter
from pathlib import Path

from schedd.workers.logfiles import log_path, open_log, remove_logs


def entries(paths: list[Path]) -> Counter[Path]:
    """How many entries each directory holds when these files are there."""
    seen = {path for file in paths for path in (file, *file.parents)}
    return Counter(path.parent for path in seen)


def test_no_directory_is_large() -> None:
    """Neither a million tasks nor a million attempts of one make a directory of more than 2,000 entries."""
    root = Path("logs")
    shelves = [log_path(root, seq, 1) for seq in range(0, 2_000_000, 1_000)]
    one_shelf = [log_path(root, seq, number) for seq in range(5_000, 6_000) for number in range(1, 6)]
    attempts = [log_path(root, 5, number) for number in range(1, 1_000_001, 1_000)]
    one_drawer = [log_path(root, 5, number) for number in range(500_000, 502_000)]
    for paths in (shelves, one_shelf, attempts, one_drawer):
        assert max(entries(paths).values()) <= 2_000


def test_paths_are_distinct() -> None:
    """No two attempts share a file."""
    root = Path("logs")
    paths = [log_path(root, seq, number) for seq in (*range(1, 1_200), 10**6, 10**6 + 1) for number in range(1, 6)]
    assert len(set(paths)) == len(paths)


def test_open_log_appends(tmp_path: Path) -> None:
    """Opening makes directories as needed, adds to what is there, and is not inherited."""
    path = log_path(tmp_path, 1, 2)
    for text in (b"a", b"b"):
        descriptor = open_log(path)
        assert not os.get_inheritable(descriptor)
        os.write(descriptor, text)
        os.close(descriptor)
    assert path.read_bytes() == b"ab"


def test_a_log_opened_anew_holds_nothing_of_another_attempt(tmp_path: Path) -> None:
    """One of before a backup was restored had the same numbers. From there on it is added to, never written over."""
    path = log_path(tmp_path, 1, 1)
    path.parent.mkdir(parents=True)
    path.write_bytes(b"of a life that never was")
    descriptor = open_log(path, anew=True)
    with path.open("ab") as other:
        other.write(b"a")
    os.write(descriptor, b"b")
    os.close(descriptor)
    assert path.read_bytes() == b"ab"


def test_the_logs_of_every_attempt_are_removed(tmp_path: Path) -> None:
    """Those of later attempts stand elsewhere than that of the first; those of other tasks stay."""
    mine = [log_path(tmp_path, 7, number) for number in (1, 2, 1_500)]
    others = [log_path(tmp_path, 8, number) for number in (1, 2)]
    for path in (*mine, *others):
        os.close(open_log(path))
    remove_logs(tmp_path, 7, 1_500)
    remove_logs(tmp_path, 9, 2)
    assert not any(path.exists() for path in mine)
    assert not mine[1].parents[1].exists()
    assert all(path.exists() for path in others)
