"""What `run` shows while it runs: a line for each end, and on a terminal what runs now, below them.

It is told what became durable and refuses to know how to run anything. rich is imported for a terminal only.
Tests: tests/unit/cli/test_cli_progress.py.
"""

import re
import sys
import time
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final

from schedd.cli.render import Screen, cut, ending, plural, printable, span, stdout_screen, tally
from schedd.core.events import AttemptEnded, Logged

ENDS: Final = ("succeeded", "failed", "cancelled", "skipped")
_NEXT_ATTEMPT: Final = ("retry", "start_postponed")
SHOWN_RUNNING: Final = 10
REFRESHES_PER_S: Final = 8
_BAR_COLUMNS: Final = 30
_TAIL_BYTES: Final = 65_536
_COLOUR: Final = re.compile(r"\x1b\[[0-9;]*m")


class Board:
    """How far the tasks have come, from the events about them. Events about other tasks are not looked at."""

    def __init__(self, ids: Collection[str], batch: str | None = None) -> None:
        self.open = set(ids)
        self.total = len(self.open)
        self.running: dict[str, float] = {}
        """The tasks that run, and since when (UTC seconds)."""

        self.ended: dict[str, str] = {}
        self.failures: dict[str, AttemptEnded | None] = {}
        """The tasks that failed, in order, with the attempt that was their last; None if none was made."""

        self._prefix = f"{batch}/" if batch else ""

    def take(self, events: Iterable[Logged], ended: Iterable[AttemptEnded]) -> Iterator[tuple[str, str]]:
        """Note what happened; a style and a line for each thing that people want to be told."""
        attempts = {attempt.task_id: attempt for attempt in ended}
        for event in events:
            if event.task_id not in self.open:
                continue
            told = self._take(event.task_id, event, attempts.get(event.task_id))
            if told:
                yield event.kind, told

    def counts(self) -> Counter[str]:
        """How many ended in which way, those that run, and those that wait."""
        counts = Counter(dict.fromkeys(ENDS, 0))
        counts.update(self.ended.values())
        counts["running"] = len(self.running)
        counts["waiting"] = len(self.open) - len(self.running)
        return counts

    @property
    def all_succeeded(self) -> bool:
        """Whether every task has ended, and well."""
        return not self.open and all(status == "succeeded" for status in self.ended.values())

    def name(self, task_id: str) -> str:
        """The id without the batch, which is the same for all."""
        return printable(task_id.removeprefix(self._prefix))

    def _take(self, task_id: str, event: Logged, attempt: AttemptEnded | None) -> str | None:
        if event.kind == "started":
            self.running[task_id] = event.at
            return None
        if event.kind not in (*ENDS, *_NEXT_ATTEMPT, "run", "interrupted"):
            return None
        self.running.pop(task_id, None)
        detail = event.detail or {}
        name = self.name(task_id)
        took = f" after {span(attempt.duration)}" if attempt is not None and attempt.duration is not None else ""
        error = printable(detail["error"]) if detail.get("error") else None
        if event.kind in _NEXT_ATTEMPT:
            return f"{name} is tried again in {span(detail['delay'])}: {error}"
        if event.kind == "run":
            return f"{name} has done run {detail['run']}{took}"
        if event.kind in ENDS:
            self.open.discard(task_id)
            self.ended[task_id] = event.kind
            if event.kind == "failed":
                self.failures[task_id] = attempt
        return f"{name} {ending(event.kind, error, took)}"


class PlainView:
    """A line for each end, for pipes and files."""

    def __init__(self, board: Board) -> None:
        self._board = board
        self._screen = stdout_screen()

    def __enter__(self) -> "PlainView":
        return self

    def __exit__(self, *error: object) -> None:
        sys.stdout.flush()

    def tell(self, style: str, line: str) -> None:
        """Show that something happened."""
        sys.stdout.write(f"{self._screen.paint(line, style)}\n")
        sys.stdout.flush()


class LiveView(PlainView):
    """The same lines, with a bar and what runs now below them, redrawn by a thread of rich."""

    def __init__(self, board: Board) -> None:
        super().__init__(board)
        from rich.console import Console
        from rich.live import Live

        self._console = Console(highlight=False)
        self._live = Live(
            console=self._console,
            get_renderable=self._renderable,
            refresh_per_second=REFRESHES_PER_S,
            transient=True,
            redirect_stdout=False,
            redirect_stderr=False,
        )

    def __enter__(self) -> "LiveView":
        self._live.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._live.stop()

    def tell(self, style: str, line: str) -> None:
        """Show that something happened, above the bar."""
        from rich.text import Text

        self._console.print(Text.from_ansi(self._screen.paint(line, style)), soft_wrap=True)

    def _renderable(self) -> Any:
        from rich.text import Text

        return Text.from_ansi("\n".join(live_lines(self._board, time.time(), self._screen)))


def view_of(board: Board) -> PlainView:
    """What fits stdout."""
    return LiveView(board) if stdout_screen().colour or stdout_screen().width else PlainView(board)


def live_lines(board: Board, now: float, screen: Screen) -> Iterator[str]:
    """The bar, and the tasks that run. Called from another thread than the one that changes `board`."""
    columns = screen.width or 80
    running = sorted(dict(board.running).items(), key=lambda item: item[1])
    for task_id, since in running[:SHOWN_RUNNING]:
        yield cut(f"  {screen.paint('running', 'running')}  {board.name(task_id)}  {span(now - since)}", columns)
    if len(running) > SHOWN_RUNNING:
        yield f"  and {len(running) - SHOWN_RUNNING} more"
    done = board.total - len(board.open)
    filled = _BAR_COLUMNS * done // max(board.total, 1)
    bar = "█" * filled + "░" * (_BAR_COLUMNS - filled)
    yield cut(f"{bar} {done} of {plural(board.total, 'task')}  {tally(board.counts())}", columns)


def tail_of(path: Path, lines: int) -> Sequence[str]:
    """The last lines of a log, fit to be shown; nothing if there is no log."""
    try:
        with path.open("rb") as file:
            file.seek(0, 2)
            file.seek(max(file.tell() - _TAIL_BYTES, 0))
            text = file.read().decode("utf-8", "replace")
    except OSError:
        return []
    last = text.rstrip("\n").split("\n")[-lines:] if text.strip("\n") else []
    return [printable(_COLOUR.sub("", line.rstrip("\r").expandtabs())) for line in last]
