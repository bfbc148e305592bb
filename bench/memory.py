"""What an open task costs in memory, in a runtime that holds a hundred thousand of them.

Every task depends on two earlier ones and the first is held back for an hour, so none starts and all stay open. Each
figure is taken in a process of its own:

    submit    resident memory gained by accepting them as one batch: includes what the request itself needed for a
              moment, which the allocator may keep
    recover   resident memory gained by opening the same state directory again
    traced    bytes that Python holds after such an opening, by tracemalloc

    python bench/memory.py --tasks 100000
"""

import argparse
import gc
import json
import resource
import shutil
import subprocess
import sys
import tempfile
import tracemalloc
from pathlib import Path

from schedd.core.batch import NewBatch
from schedd.core.model import Dependency, NewTask
from schedd.engine.inbox import Call
from schedd.engine.requests import SubmitBatch
from schedd.runtime import Runtime

PAYLOAD = json.dumps({"command": ["/bin/true"]})
HELD_BACK_S = 3600.0
PATIENCE_S = 300.0


def batch_of(tasks: int) -> NewBatch:
    """A graph in which all wait, in the end, for a first task that starts in an hour."""
    new = [NewTask(PAYLOAD, name="root", delay=HELD_BACK_S)]
    for index in range(1, tasks):
        earlier = {(index - 1) // 2, (index - 1) // 3}
        deps = tuple(Dependency(f"node-{parent}" if parent else "root") for parent in sorted(earlier))
        new.append(NewTask(PAYLOAD, name=f"node-{index}", deps=deps))
    return NewBatch(new)


def submit(state_dir: Path, tasks: int) -> int:
    """Bytes gained by accepting the batch."""
    with Runtime.open(state_dir, 4) as runtime:
        before = resident()
        runtime.engine.call(Call(SubmitBatch(batch_of(tasks)))).result(PATIENCE_S)
        return resident() - before


def recover(state_dir: Path, tasks: int) -> int:
    """Bytes gained by recovering them. The first opening loads the code, so that only the second is measured."""
    _open_empty(state_dir.with_name("empty"))
    before = resident()
    with Runtime.open(state_dir, 4) as runtime:
        _expect_open(runtime, tasks)
        return resident() - before


def traced(state_dir: Path, tasks: int) -> int:
    """Bytes of Python objects that an opening leaves."""
    _open_empty(state_dir.with_name("empty"))
    tracemalloc.start()
    with Runtime.open(state_dir, 4) as runtime:
        _expect_open(runtime, tasks)
        gc.collect()
        return tracemalloc.get_traced_memory()[0]


def resident() -> int:
    """Resident memory of this process in bytes, without what can be collected."""
    gc.collect()
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize()


MEASURES = {"submit": submit, "recover": recover, "traced": traced}


def main() -> None:
    """The command: a line for each measure, each from a child process."""
    parser = argparse.ArgumentParser(description="Bytes of memory for each open task.")
    parser.add_argument("--tasks", type=int, default=100_000)
    parser.add_argument("--measure", choices=MEASURES, help=argparse.SUPPRESS)
    parser.add_argument("--state-dir", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.measure:
        gained = MEASURES[arguments.measure](arguments.state_dir, arguments.tasks)
        figures = {"tasks": arguments.tasks, "bytes": gained, "bytes_per_task": round(gained / arguments.tasks)}
        print(json.dumps({"bench": f"memory_{arguments.measure}", **figures}))
        return
    home = Path(tempfile.mkdtemp(prefix="schedd-bench-"))
    try:
        for name in MEASURES:
            command = [sys.executable, __file__, "--tasks", str(arguments.tasks), "--measure", name]
            subprocess.run([*command, "--state-dir", str(home / "state")], check=True)
    finally:
        shutil.rmtree(home)


def _open_empty(state_dir: Path) -> None:
    with Runtime.open(state_dir, 4):
        pass


def _expect_open(runtime: Runtime, tasks: int) -> None:
    found = runtime.engine.ask(lambda machine: len(machine.open)).result(PATIENCE_S)
    assert found == tasks, f"{found} open tasks instead of {tasks}"


if __name__ == "__main__":
    main()
