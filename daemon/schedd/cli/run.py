"""`run`: a spec in the foreground, without a daemon. Tests: tests/acceptance/test_schedctl_run.py.

What does it is in `foreground`, which is imported when it is needed: it brings the whole engine along.
"""

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer

from schedd.cli import specs
from schedd.cli.errors import complain
from schedd.core import limits


def run(
    file: Annotated[str, typer.Argument(metavar="FILE|-", help="A spec: YAML, TOML, JSON or JSON Lines; - is stdin.")],
    workers: Annotated[
        int | None,
        typer.Option("--workers", "-w", min=1, max=limits.MAX_WORKERS, help="How many tasks run at once; one per CPU."),
    ] = None,
    state_dir: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Keep the state here, and recover what is there.")
    ] = None,
    keep: Annotated[bool, typer.Option("--keep", help="Do not remove the temporary state directory.")] = False,
) -> int:
    """Run a spec here and now, without a daemon. Exit code 0 if every task succeeded, 1 if not.

    Retries, times, priorities and dependencies work as in the daemon. Ctrl-C cancels what runs; again kills it.

    \b
    Examples:
      schedctl run ci.yaml
      schedctl run --workers 8 --state-dir ./state ci.yaml
    """
    from schedd.cli.foreground import Foreground, News, signals_into

    batch = specs.batch_of(specs.read(file))
    news = News()
    with signals_into(news), _state(state_dir, keep) as directory:
        return Foreground(directory, workers or os.cpu_count() or 1, news).run(batch)


@contextmanager
def _state(given: Path | None, keep: bool) -> Iterator[Path]:
    """The state directory: the one given, else a temporary one that is removed afterwards unless it is kept."""
    if given is not None:
        yield given
        return
    made = Path(tempfile.mkdtemp(prefix="schedctl-run-"))
    try:
        yield made
    finally:
        if keep:
            complain([f"the state is kept in {made}"])
        else:
            shutil.rmtree(made, ignore_errors=True)
