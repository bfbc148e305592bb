"""A graph file becomes a spec that schedd accepts, whatever its ids look like and whatever was not recorded."""

import gzip
import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from schedd.core.batch import NewBatch
from schedd.core.model import Dependency, NewTask
from support import benches

graphs: Any = benches.load("graphs")


def graph_of(*tasks: tuple[str, list[str], float | None]) -> Any:
    """A graph of (id, deps, runtime) triples."""
    return graphs.from_dict(
        {"name": "g", "tasks": [{"id": name, "deps": deps, "runtime_s": runtime} for name, deps, runtime in tasks]}
    )


def test_odd_ids_become_valid_unique_names() -> None:
    """Slashes, spaces, digits and emptiness are mended, and two ids never become one name."""
    given = ["a/b", "a b", "a_b", "7", "-x", "", "naïve*?[x]", "y" * 300, "y" * 301]
    name_of = graphs.valid_names(given)
    assert list(name_of) == given
    names = list(name_of.values())
    assert len(set(names)) == len(names)
    assert not any(" " in name for name in names)
    NewBatch([NewTask(payload=None, name=name) for name in names])  # the core takes each


def test_an_id_that_comes_twice_is_refused() -> None:
    """A graph file with a duplicate is damaged, and guessing would lose an edge."""
    with pytest.raises(ValueError, match="two tasks with the id 'a'"):
        graphs.valid_names(["a", "a"])


def test_edges_follow_the_names() -> None:
    """A dependency on an odd id is one on its name; a repeated one counts once."""
    graph = graph_of(("a/b", [], 1.0), ("c", ["a/b", "a/b"], 2.0))
    assert graph.deps == {"a_b": (), "c": ("a_b",)}
    assert graph.name_of == {"a/b": "a_b", "c": "c"}


def test_a_runtime_that_was_not_recorded_is_the_median() -> None:
    """Where some are known the median stands in, where none is known a second does."""
    assert [node.seconds for node in graph_of(("a", [], 1.0), ("b", [], None), ("c", [], 3.0)).nodes] == [1.0, 2.0, 3.0]
    assert [node.seconds for node in graph_of(("a", [], None)).nodes] == [1.0]


def test_the_makespan_is_that_of_list_scheduling() -> None:
    """Two workers: a (2 s) beside b and c (1 s each), then d after all of them."""
    graph = graph_of(("a", [], 2.0), ("b", [], 1.0), ("c", [], 1.0), ("d", ["a", "b", "c"], 1.0))
    assert graphs.makespan(graph.nodes, 2) == 3.0
    assert graphs.makespan(graph.nodes, 1) == 5.0
    assert graphs.makespan((), 4) == 0.0


def test_scaling_gives_the_run_the_length_asked_for() -> None:
    """The factor is the same for every task."""
    graph = graphs.scaled(graph_of(("a", [], 2.0), ("b", ["a"], 6.0)), 4.0, 2)
    assert [node.seconds for node in graph.nodes] == [1.0, 3.0]
    assert graphs.makespan(graph.nodes, 2) == 4.0


def test_a_file_may_be_gzipped(tmp_path: Path) -> None:
    """Both forms hold the same graph."""
    text = json.dumps({"name": "g", "tasks": [{"id": "a", "deps": [], "runtime_s": 1}]}).encode()
    (tmp_path / "g.json").write_bytes(text)
    (tmp_path / "g.json.gz").write_bytes(gzip.compress(text))
    assert graphs.load(tmp_path / "g.json") == graphs.load(tmp_path / "g.json.gz")


def test_the_spec_makes_a_batch(tmp_path: Path) -> None:
    """Names, edges and commands of the spec are those of the graph, and the core accepts them."""
    graph = graph_of(("a/b", [], 0.5), ("c", ["a/b"], 0.25))
    record = tmp_path / "record"
    spec = graphs.to_spec(graph, record)
    assert spec["name"] == "g"
    assert spec["tasks"]["c"] == {
        "command": ["/bin/sh", str(graphs.STEP), str(record), "c", "0.250"],
        "deps": ["a_b"],
    }
    NewBatch(
        [
            NewTask(payload=None, name=name, deps=tuple(Dependency(on) for on in task["deps"]))
            for name, task in spec["tasks"].items()
        ],
        spec["name"],
    )


def test_a_step_writes_its_start_and_its_end(tmp_path: Path) -> None:
    """One step appends two whole lines: word, name, attempt, pid and a time in UTC seconds."""
    record = tmp_path / "record"
    record.write_text("start x 1 1 1.0\n")
    environment = {**os.environ, "SCHEDD_ATTEMPT": "3"}
    subprocess.run(["/bin/sh", graphs.STEP, record, "a", "0"], env=environment, check=True, timeout=30)
    lines, violations = benches.load("judge").read(record.read_text())
    assert violations == []
    assert [(line.word, line.name, line.number) for line in lines[1:]] == [("start", "a", 3), ("end", "a", 3)]
    assert lines[1].pid == lines[2].pid
    assert 1_600_000_000 < lines[1].at <= lines[2].at
