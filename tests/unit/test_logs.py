"""The journal: what was committed becomes log lines, in a thread of its own, without ever holding the engine up."""

import io
import json
from collections.abc import Iterator

import pytest
import structlog

from schedd import logs
from schedd.core.events import AttemptEnded, Logged
from schedd.core.model import Outcome
from schedd.engine.loop import Committed


@pytest.fixture(autouse=True)
def unconfigured() -> Iterator[None]:
    yield
    structlog.reset_defaults()


def lines(capsys: pytest.CaptureFixture[str]) -> list[dict[str, object]]:
    return [json.loads(line) for line in capsys.readouterr().err.splitlines()]


def test_one_canonical_line_per_attempt(capsys: pytest.CaptureFixture[str]):
    """With the task, the attempt, its outcome, how long it took and what is known of its end."""
    logs.configure("json", "info")
    journal = logs.Journal()
    ended = AttemptEnded(7, 2, Outcome.FAILED, 1.0, exit_code=3, error="boom", duration=1.5, task_id="ci-1/test")
    journal(Committed([Logged(1.0, 7, "ci-1/test", "failed", {"error": "boom"})], [ended]))
    journal.close()
    attempt, task = lines(capsys)
    assert {
        key: attempt[key] for key in ("event", "task", "attempt", "outcome", "duration_s", "exit_code", "error")
    } == {
        "event": "attempt_ended",
        "task": "ci-1/test",
        "attempt": 2,
        "outcome": "failed",
        "duration_s": 1.5,
        "exit_code": 3,
        "error": "boom",
    }
    assert (attempt["level"], task["level"], task["event"]) == ("warning", "warning", "task_failed")


def test_a_level_silences_what_is_below_it(capsys: pytest.CaptureFixture[str]):
    """At warning, success is not worth a line."""
    logs.configure("json", "warning")
    journal = logs.Journal()
    journal(Committed([Logged(1.0, 7, "a", "succeeded", None)], [AttemptEnded(7, 1, Outcome.SUCCEEDED, 1.0)]))
    journal(Committed([Logged(1.0, 7, "b", "skipped", None)], []))
    journal.close()
    assert [line["event"] for line in lines(capsys)] == ["task_skipped"]


def test_a_journal_that_cannot_keep_up_drops_and_says_so(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    """The engine is never held up; how many rounds are missing is logged."""
    logs.configure("json", "info")
    journal = logs.Journal()
    journal.close()  # its thread is gone: the queue can only fill
    monkeypatch.setattr(logs, "MAX_QUEUED", 2)
    for _ in range(logs.MAX_QUEUED + 3):
        journal._queue.maxsize = 2
        journal(Committed([Logged(1.0, 7, "a", "succeeded", None)], []))
    assert journal._dropped == 3
    journal._queue.maxsize = 0
    journal._queue.put(None)
    journal._run()
    assert lines(capsys)[0]["event"] == "log_lines_dropped"


class _Gone(io.StringIO):
    def write(self, text: str) -> int:
        raise BrokenPipeError


def test_a_reader_that_went_away_ends_nothing(monkeypatch: pytest.MonkeyPatch):
    """`schedd 2>&1 | tee log` loses its tee at Ctrl-C: the drain goes on, and so does the journal."""
    monkeypatch.setattr("sys.stderr", _Gone())
    logs.configure("json", "info")
    structlog.get_logger("schedd").info("draining")
    journal = logs.Journal()
    journal(Committed([Logged(1.0, 7, "a", "succeeded", None)], []))
    journal.close()
    assert not journal._thread.is_alive()
