"""`validate`: everything that can be said about a spec without a daemon.

Tests: tests/unit/cli/test_cli_validate.py, tests/acceptance/test_schedctl_validate.py.
"""

from collections.abc import Sequence
from typing import Annotated

import typer

from schedd.cli import specs
from schedd.cli.errors import ExitCode
from schedd.cli.render import plural, printable, write, write_json


def validate(
    file: Annotated[str, typer.Argument(metavar="FILE|-", help="A spec: YAML, TOML, JSON or JSON Lines; - is stdin.")],
    json: Annotated[bool, typer.Option("--json", help="What it holds, as JSON.")] = False,
) -> int:
    """Check a spec as the daemon would, without one.

    Every key and value is looked at, and the graph for cycles; exit code 2 if something is wrong. What it
    cannot know is whether the tasks exist that the spec depends on and does not hold; it names them.

    \b
    Example:
      schedctl validate ci.yaml
    """
    spec = specs.read(file)
    batch = specs.batch_of(spec)
    levels = count_levels([[parent for parent, _ in of_task] for of_task in batch.parents])
    needed = sorted({dependency.on for of_task in batch.external.values() for dependency in of_task})
    if json:
        write_json({"name": batch.name, "tasks": len(batch.tasks), "levels": levels, "needs": needed})
        return ExitCode.DONE
    named = f"batch {batch.name}: " if batch.name else ""
    write([printable(f"{spec.path}: {named}{plural(len(batch.tasks), 'task')} in {plural(levels, 'level')}")])
    if needed:
        write([printable(f"{spec.path}: depends on existing tasks: {', '.join(needed)}")])
    return ExitCode.DONE


def count_levels(parents: Sequence[Sequence[int]]) -> int:
    """How many tasks the longest chain of an acyclic graph has; `parents[i]` lists what task i depends on."""
    level = [0] * len(parents)
    unmet = [len(of_task) for of_task in parents]
    children: list[list[int]] = [[] for _ in parents]
    for index, of_task in enumerate(parents):
        for parent in of_task:
            children[parent].append(index)
    free = [index for index, count in enumerate(unmet) if not count]
    for index in free:  # grows while it is walked
        for child in children[index]:
            level[child] = max(level[child], level[index] + 1)
            unmet[child] -= 1
            if not unmet[child]:
                free.append(child)
    return max(level) + 1
