"""Where logs are kept."""

import os
from collections import Counter
from pathlib import Path

from schedd.workers.logfiles import log_path, open_log


def entries(paths: list[Path]) -> Counter[Path]:
    """How many entries each directory holds when these files are there."""
    seen = {path for file in paths for path in (file, *file.parents)}
    return Counter(path.parent for path in seen)


def test_no_directory_is_large() -> None:
    """Neither a million tasks nor a million attempts of one make a directory of more than 2,000 entries."""
    root = Path("logs")
    tasks = [log_path(root, seq, number) for seq in range(1, 1_000_001, 7) for number in (1, 2)]
    attempts = [log_path(root, 5, number) for number in range(1, 1_000_001, 7)]
    assert max(entries(tasks).values()) <= 2_000
    assert max(entries(attempts).values()) <= 2_000
    whole_shelf = [log_path(root, seq, number) for seq in range(1_000, 2_000) for number in range(1, 6)]
    assert max(entries(whole_shelf).values()) <= 2_000


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
