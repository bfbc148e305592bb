"""Turns a recorded workflow graph into a spec whose tasks sleep and write down what happened to them.

A graph file is (gzipped) JSON: `{"name", "tasks": [{"id", "deps", "runtime_s" or null}, ...]}`. Each task becomes one
call of step.sh, which sleeps for `runtime_s` times a factor and appends lines to one record file; judge.py reads that.
It knows nothing of how the spec is run. Tests: tests/unit/test_bench_graphs.py.

    python bench/graphs.py GRAPH RECORD --seconds 30 > spec.json
"""

import argparse
import gzip
import heapq
import json
import re
import statistics
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

STEP = Path(__file__).resolve().parent / "step.sh"
MAX_NAME_CHARS = 120
DEFAULT_RUNTIME_S = 1.0
"""What a task sleeps (before the factor) in a graph in which no runtime was recorded."""


@dataclass(frozen=True, slots=True)
class Node:
    """A task of a graph: `name` is a valid schedd id, `deps` are names, `seconds` is how long it takes."""

    name: str
    deps: tuple[str, ...]
    seconds: float


@dataclass(frozen=True, slots=True)
class Graph:
    """A graph in the order of its file. `name_of` maps the ids of the file to the names of the nodes."""

    name: str
    nodes: tuple[Node, ...]
    name_of: dict[str, str]

    @property
    def deps(self) -> dict[str, tuple[str, ...]]:
        """The dependencies of each name."""
        return {node.name: node.deps for node in self.nodes}


def load(path: Path) -> Graph:
    """The graph in a JSON file, gzipped if its name ends in .gz. Raises OSError, ValueError or KeyError."""
    data = path.read_bytes()
    if path.suffix == ".gz":
        data = gzip.decompress(data)
    return from_dict(json.loads(data))


def from_dict(data: dict[str, Any]) -> Graph:
    """The graph that a graph file holds. A runtime that was not recorded becomes the median of those that were."""
    tasks = data["tasks"]
    name_of = valid_names(task["id"] for task in tasks)
    recorded = [task["runtime_s"] for task in tasks if task.get("runtime_s") is not None]
    missing = statistics.median(recorded) if recorded else DEFAULT_RUNTIME_S
    nodes = []
    for task in tasks:
        runtime = task.get("runtime_s")
        deps = tuple(dict.fromkeys(name_of[dep] for dep in task["deps"]))
        nodes.append(Node(name_of[task["id"]], deps, missing if runtime is None else float(runtime)))
    return Graph(valid_name(data["name"]), tuple(nodes), name_of)


def valid_names(ids: Iterable[str]) -> dict[str, str]:
    """A valid and unique name for each id, in order. Raises ValueError if an id comes twice."""
    name_of: dict[str, str] = {}
    taken: set[str] = set()
    for given in ids:
        if given in name_of:
            raise ValueError(f"the graph has two tasks with the id {given!r}")
        name = base = valid_name(given)
        number = 2
        while name in taken:
            name = f"{base}.{number}"
            number += 1
        taken.add(name)
        name_of[given] = name
    return name_of


def valid_name(given: str) -> str:
    """`given` as an id that schedd takes and that holds no space: letters, digits, dot, dash and underscore."""
    name = re.sub(r"[^A-Za-z0-9._-]", "_", given)[:MAX_NAME_CHARS]
    return name if name[:1].isalpha() else f"t{name}"


def makespan(nodes: Sequence[Node], workers: int) -> float:
    """How long list scheduling in the order of `nodes` takes: what a scheduler without any cost of its own needs."""
    index_of = {node.name: index for index, node in enumerate(nodes)}
    unmet = [len(node.deps) for node in nodes]
    children: list[list[int]] = [[] for _ in nodes]
    for index, node in enumerate(nodes):
        for dep in node.deps:
            children[index_of[dep]].append(index)
    ready = [index for index, count in enumerate(unmet) if not count]
    running: list[tuple[float, int]] = []
    now = 0.0
    while ready or running:
        while ready and len(running) < workers:
            index = heapq.heappop(ready)
            heapq.heappush(running, (now + nodes[index].seconds, index))
        now, ended = heapq.heappop(running)
        for child in children[ended]:
            unmet[child] -= 1
            if not unmet[child]:
                heapq.heappush(ready, child)
    return now


def scaled(graph: Graph, seconds: float, workers: int) -> Graph:
    """The same graph with its runtimes multiplied so that an ideal run on `workers` takes `seconds`."""
    ideal = makespan(graph.nodes, workers)
    factor = seconds / ideal if ideal else 0.0
    nodes = tuple(Node(node.name, node.deps, node.seconds * factor) for node in graph.nodes)
    return Graph(graph.name, nodes, graph.name_of)


def to_spec(graph: Graph, record: Path, max_attempts: int = 10) -> dict[str, Any]:
    """A spec that runs the graph and writes to `record`. Every attempt that a crash ends counts, hence many."""
    return {
        "name": graph.name,
        "defaults": {"retry": {"max_attempts": max_attempts, "base_delay": 0.05, "max_delay": 1}},
        "tasks": {
            node.name: {
                "command": ["/bin/sh", str(STEP), str(record), node.name, f"{node.seconds:.3f}"],
                "deps": list(node.deps),
            }
            for node in graph.nodes
        },
    }


def main() -> None:
    """The command: prints the spec as JSON."""
    parser = argparse.ArgumentParser(description="Turn a graph file into a spec whose tasks sleep and keep a record.")
    parser.add_argument("graph", type=Path)
    parser.add_argument("record", type=Path, help="the file that the tasks append to")
    parser.add_argument("--seconds", type=float, default=30.0, help="how long an ideal run should take (default 30)")
    parser.add_argument("--workers", type=int, default=4)
    arguments = parser.parse_args()
    graph = scaled(load(arguments.graph), arguments.seconds, arguments.workers)
    json.dump(to_spec(graph, arguments.record.resolve()), sys.stdout, indent=1)


if __name__ == "__main__":
    main()
