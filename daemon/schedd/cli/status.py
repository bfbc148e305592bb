"""`status`: the daemon at a glance, or everything about some tasks and batches.

Tests: tests/unit/cli/test_cli_status.py, tests/acceptance/test_schedctl_read.py.
"""

import signal
import time
from collections.abc import Iterator, Sequence
from typing import Annotated, Any, Final, cast

import typer

from schedd.answers import AttemptView, BatchView, EdgeView, StatusAnswer, TaskDetail, TaskView
from schedd.cli.errors import ExitCode, complain, explain
from schedd.cli.render import (
    Cell,
    Screen,
    compact,
    pairs,
    plural,
    size,
    span,
    stdout_screen,
    table,
    tally,
    write,
    write_json,
)
from schedd.cli.session import client_of
from schedd.client import Client, ProblemError

SHOWN_EDGES: Final = 20
SHOWN_RUNNING: Final = 20
SHOWN_TASKS: Final = 1_000

Rows = list[tuple[str, str | Cell]]


def status(
    context: typer.Context,
    ids: Annotated[list[str] | None, typer.Argument(metavar="[ID...]", help="Tasks or batches.")] = None,
    json: Annotated[
        bool, typer.Option("--json", help="As JSON: the overview, or a list with what each ID is.")
    ] = False,
) -> int:
    """Show the daemon at a glance, or tasks and batches in full.

    \b
    Examples:
      schedctl status
      schedctl status ci-1/test
      schedctl status ci-1 --json
    """
    client = client_of(context)
    if not ids:
        show_overview(client, json)
        return ExitCode.DONE
    return _show_each(client, ids, json)


def show_overview(client: Client, as_json: bool = False) -> None:
    """Print what the daemon does now."""
    answer = client.status()
    if as_json:
        write_json(answer)
    else:
        write(overview(answer, time.time(), stdout_screen()))


def _show_each(client: Client, ids: Sequence[str], as_json: bool) -> int:
    """Print each id; one that is unknown is told on stderr and does not keep the others."""
    found: list[TaskDetail | BatchView] = []
    code = ExitCode.DONE
    for name in ids:
        try:
            item = _look_up(client, name)
        except ProblemError as error:
            code, lines = explain(error)
            complain(lines)
            continue
        if not as_json:
            write([""] if found else [])
            _show(client, item)
        found.append(item)
    if as_json:
        write_json(found)
    return code


def _look_up(client: Client, name: str) -> TaskDetail | BatchView:
    """The task of this id, else the batch of this name. Raises ProblemError as for a task."""
    try:
        return client.task(name)
    except ProblemError as error:
        if error.code != "unknown_task":
            raise
        unknown = error
    try:
        return client.batch(name)
    except ProblemError:
        raise unknown from None


def _show(client: Client, item: TaskDetail | BatchView) -> None:
    now, screen = time.time(), stdout_screen()
    if "history" in item:
        write(detail(cast("TaskDetail", item), now, screen))
        return
    tasks = [*client.iter_tasks(batch=item["name"], limit=SHOWN_TASKS)]
    write([*batch(item, now, screen), "", *task_table(tasks, now, screen)])
    left = sum(item["counts"].values()) - len(tasks)
    if left > 0:
        complain([f"and {plural(left, 'more task')}; `schedctl list --all --batch {item['name']}` shows them"])


# --- the overview ---------------------------------------------------------------------------------------------------


def overview(answer: StatusAnswer, now: float, screen: Screen) -> Iterator[str]:
    """Lines about the daemon, what runs and what failed last."""
    yield from pairs(_daemon_rows(answer, now), screen)
    running = answer["running"]
    if running:
        yield ""
        yield from table(
            ("RUNNING", "ATTEMPT", "FOR", "WHAT"),
            (
                (task["id"], _attempt(task), _since(now, task["started_at"]), task["what"])
                for task in running[:SHOWN_RUNNING]
            ),
            screen,
            right=("ATTEMPT", "FOR"),
        )
        if len(running) > SHOWN_RUNNING:
            yield screen.paint(f"and {len(running) - SHOWN_RUNNING} more; `schedctl list --status running`", "dim")
    if answer["failed"]:
        yield ""
        yield from table(
            ("FAILED LAST", "AGO", "WHY"),
            (
                (task["id"], _since(now, task["settled_at"]), Cell(task["error"] or "-", "failed"))
                for task in answer["failed"]
            ),
            screen,
            right=("AGO",),
        )


def _daemon_rows(answer: StatusAnswer, now: float) -> Rows:
    up = _since(now, answer["started_at"])
    rows: Rows = [
        ("daemon", f"schedd {answer['version']}, pid {answer['pid']}, up {up}, state in {answer['state_dir']}")
    ]
    health = answer["health"]
    degraded = health["degraded"]
    if degraded:
        rows.append(("health", Cell(f"degraded for {_since(now, degraded['since'])}: {degraded['message']}", "failed")))
    elif not health["ready"] and not answer["draining"]:
        rows.append(("health", Cell("not ready", "failed")))
    else:
        rows.append(("health", Cell("ok", "succeeded")))
    if answer["draining"]:
        rows.append(("stopping", Cell("it starts nothing more and ends when what runs has ended", "interrupted")))
    if answer["paused"]:
        rows.append(("paused", Cell("nothing starts until `schedctl resume`", "interrupted")))
    rows.append(("workers", f"{answer['busy']} of {answer['workers']} busy"))
    rows.append(("tasks", tally(answer["counts"])))
    return rows


# --- one task or batch ----------------------------------------------------------------------------------------------


def detail(task: TaskDetail, now: float, screen: Screen) -> Iterator[str]:
    """Everything about a task."""
    rows: Rows = [("task", Cell(task["id"], "bold")), ("status", _status(task))]
    if task["error"]:
        rows.append(("error", Cell(task["error"], "failed")))
    rows += _work_rows(task["work"])
    rows += _time_rows(task, now)
    rows.append(("priority", str(task["priority"])))
    rows.append(("attempts", _attempts(task)))
    if task["times"] is not None:
        rows.append(("runs", f"{task['runs']} of {task['times']}, every {span(task['every'])}"))
    yield from pairs(rows, screen)
    yield from _edges("AFTER", task["deps"], screen)
    yield from _edges("BEFORE", task["dependents"], screen)
    if task["history"]:
        yield ""
        yield from _history(task["history"], now, screen)


def batch(view: BatchView, now: float, screen: Screen) -> Iterator[str]:
    """What a batch is and how far it has come."""
    yield from pairs(
        [
            ("batch", Cell(view["name"], "bold")),
            ("state", "done" if view["done"] else "open"),
            ("tasks", tally(view["counts"])),
            ("submitted", f"{_since(now, view['created_at'])} ago"),
        ],
        screen,
    )


def task_table(tasks: Sequence[TaskView], now: float, screen: Screen) -> Iterator[str]:
    """One line for each task."""
    return table(
        ("ID", "STATUS", "AGE", "TOOK", "ATTEMPT", "WHAT"),
        (
            (
                task["id"],
                Cell(f"{task['status']} (held)" if task["held"] else task["status"], task["status"]),
                _since(now, task["created_at"]),
                _took(task, now),
                _attempt(task),
                task["what"],
            )
            for task in tasks
        ),
        screen,
        right=("AGE", "TOOK", "ATTEMPT"),
    )


def _status(task: TaskView) -> Cell:
    marks = [mark for mark, is_on in (("held", task["held"]), ("being cancelled", task["cancel_requested"])) if is_on]
    if task["status"] not in ("pending", "ready", "running"):
        marks = []
    return Cell(f"{task['status']} ({', '.join(marks)})" if marks else task["status"], task["status"])


def _work_rows(work: dict[str, Any]) -> Rows:
    rows: Rows = []
    if "call" in work:
        arguments = [*map(compact, work.get("args", []))]
        arguments += [f"{name}={compact(value)}" for name, value in work.get("kwargs", {}).items()]
        rows.append(("call", f"{work['call']}({', '.join(arguments)})"))
        if "isolation" in work:
            rows.append(("isolation", str(work["isolation"])))
    elif "command" in work:
        import shlex

        rows.append(("command", shlex.join(work["command"])))
    else:
        rows.append(("run", str(work.get("run", ""))))
    if "cwd" in work:
        rows.append(("cwd", str(work["cwd"])))
    if work.get("env"):
        rows.append(("env", "\n".join(f"{name}={value}" for name, value in work["env"].items())))
    rows += [(name, span(work[name])) for name in ("timeout", "grace") if name in work]
    return rows


def _time_rows(task: TaskDetail, now: float) -> Rows:
    rows: Rows = [("submitted", f"{_since(now, task['created_at'])} ago")]
    if task["started_at"] is not None:
        rows.append(("started", f"{_since(now, task['started_at'])} ago"))
    if task["settled_at"] is not None:
        rows.append(("ended", f"{_since(now, task['settled_at'])} ago"))
    elif task["status"] == "pending" and task["run_at"] > now:
        rows.append(("earliest", f"in {span(task['run_at'] - now)}"))
    return rows


def _attempts(task: TaskDetail) -> str:
    retry = task["retry"]
    text = f"{task['attempts']} of {retry['max_attempts']}"
    if retry["max_attempts"] > 1:
        text += f", waiting {span(retry['base_delay'])} after the first failure, {span(retry['max_delay'])} at most"
    return text


def _edges(title: str, edges: Sequence[EdgeView], screen: Screen) -> Iterator[str]:
    if not edges:
        return
    yield ""
    yield from table(
        (title, "WHEN", "STATUS"),
        ((edge["id"], edge["when"], Cell(edge["status"], edge["status"])) for edge in edges[:SHOWN_EDGES]),
        screen,
    )
    if len(edges) > SHOWN_EDGES:
        yield screen.paint(f"and {len(edges) - SHOWN_EDGES} more, in --json", "dim")


def _history(history: Sequence[AttemptView], now: float, screen: Screen) -> Iterator[str]:
    several_runs = any(attempt["run"] != 1 for attempt in history)
    return table(
        ("ATTEMPT", "OUTCOME", "AGO", "TOOK", "CPU", "MEMORY", "HOW IT ENDED"),
        (
            (
                f"{attempt['number']} (run {attempt['run']})" if several_runs else str(attempt["number"]),
                Cell(attempt["outcome"] or "running", attempt["outcome"] or "running"),
                _since(now, attempt["started_at"]),
                span((now if attempt["ended_at"] is None else attempt["ended_at"]) - attempt["started_at"]),
                span(attempt["cpu_time"]),
                "-" if attempt["max_rss"] is None else size(attempt["max_rss"]),
                _how_it_ended(attempt),
            )
            for attempt in history
        ),
        screen,
        right=("AGO", "TOOK", "CPU", "MEMORY"),
    )


def _how_it_ended(attempt: AttemptView) -> str:
    """Why it failed, else its exit code; the signal and the result if there are any."""
    error = attempt["error"] or ""
    parts = [error] if error else []
    if attempt["outcome"] is None and attempt["pid"] is not None:
        parts.append(f"pid {attempt['pid']}")
    if attempt["exit_code"] is not None and not error:
        parts.append(f"exit code {attempt['exit_code']}")
    if attempt["signal"] is not None and (name := _signal_name(attempt["signal"])) not in error:
        parts.append(f"killed by {name}")
    if attempt["result"] is not None:
        parts.append(f"returned {compact(attempt['result'])}")
    return "; ".join(parts) or "-"


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


# --- columns --------------------------------------------------------------------------------------------------------


def _since(now: float, at: float | None) -> str:
    return span(None if at is None else now - at)


def _took(task: TaskView, now: float) -> str:
    """How long the last attempt took, or has taken so far."""
    if task["started_at"] is None:
        return "-"
    if task["status"] == "running":
        return span(now - task["started_at"])
    return "-" if task["settled_at"] is None else span(task["settled_at"] - task["started_at"])


def _attempt(task: TaskView) -> str:
    return f"{task['attempts']}/{task['max_attempts']}"
