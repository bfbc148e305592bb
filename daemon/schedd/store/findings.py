"""What a check can find: each kind with how bad it is and what to do, and the report that collects findings.

docs/operations.md has a line for each kind, which a test holds it to. Tests: tests/unit/store/test_check.py.
"""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

SHOWN: Final = 20
"""How many findings of one kind are kept; the others are only counted."""

ERROR: Final = "error"
"""What schedd never writes."""

NOTE: Final = "note"
"""Worth knowing, and can come about without a fault."""

_MAX_VALUE_CHARS = 240
_RESTORE = "stop schedd, keep a copy of the state directory, and restore a backup (docs/operations.md)"
_REPORT = "schedd does not write this: something else did, or it is a bug to report; docs/operations.md has what to do"
_ASIDE = "the next start of schedd sets it aside as failed and skips what depends on its success"

KINDS: Final[dict[str, tuple[str, str]]] = {  # kind -> severity, what to do
    "damaged": (ERROR, _RESTORE),
    "empty": (ERROR, "a schedd that starts on it begins with nothing: restore a backup if there should be tasks"),
    "missing_value": (ERROR, _REPORT),
    "dangling": (ERROR, _REPORT),
    "damaged_task": (ERROR, _ASIDE),
    "bad_status": (ERROR, _REPORT),
    "bad_settled_at": (ERROR, _REPORT),
    "running_without_attempt": (ERROR, "the next start of schedd counts it as crashed"),
    "stray_open_attempt": (ERROR, _REPORT),
    "bad_attempt": (ERROR, _REPORT),
    "attempt_numbers": (ERROR, _REPORT),
    "attempts_miscounted": (ERROR, _REPORT),
    "runs_miscounted": (ERROR, _REPORT),
    "bad_dependency": (ERROR, _REPORT),
    "waits_in_vain": (ERROR, "the next start of schedd skips it; `schedctl cancel` ends it now"),
    "started_too_early": (ERROR, _REPORT),
    "cycle": (ERROR, "none of them can ever start: `schedctl cancel` them and submit them anew"),
    "bad_id": (ERROR, _REPORT),
    "bad_counter": (ERROR, "submitting may be refused with a duplicate id: restore a backup"),
    "bad_json": (ERROR, _REPORT),
    "bad_setting": (ERROR, "`schedctl pause` or `schedctl resume` writes it anew"),
    "set_aside": (NOTE, "its row was damaged when schedd started; submit it again if it is still wanted"),
    "skipped_without_reason": (NOTE, "what it waited for may have been removed since"),
    "empty_batch": (NOTE, "its tasks may have been removed since"),
    "earlier_attempts_gone": (NOTE, "they may have been removed since"),
    "log_without_attempt": (NOTE, "it is left from before a backup was restored, or a power cut: it may be removed"),
    "attempt_without_log": (NOTE, "the file was removed, or a power cut took it; only its output is lost"),
    "foreign_file": (NOTE, "schedd did not make it there and does not look at it"),
    "log_unreadable": (NOTE, "run the check as the user of schedd to have the log files looked at"),
}


@dataclass(slots=True)
class Findings:
    """All findings of one kind: the first of them as (id of the task or None, sentence), and how many there are."""

    kind: str
    severity: str
    advice: str
    count: int = 0
    shown: list[tuple[str | None, str]] = field(default_factory=list)


@dataclass(slots=True)
class Report:
    """What a check found. `unjudged` says why the rows could not be judged, if they could not."""

    database: Path
    revision: str | None = None
    tasks: int = 0
    attempts: int = 0
    unjudged: str | None = None
    kinds: dict[str, Findings] = field(default_factory=dict)

    def add(self, kind: str, task: str | None, message: str) -> None:
        """One more finding of a kind of `KINDS`."""
        if kind not in self.kinds:
            self.kinds[kind] = Findings(kind, *KINDS[kind])
        found = self.kinds[kind]
        found.count += 1
        if found.count <= SHOWN:
            found.shown.append((task, message))

    def count(self, severity: str) -> int:
        """How many findings of this severity there are."""
        return sum(found.count for found in self.kinds.values() if found.severity == severity)

    def told(self) -> list[Findings]:
        """Faults first, in the order in which they were found."""
        return sorted(self.kinds.values(), key=lambda found: found.severity != ERROR)


def short(value: object) -> str:
    """A value of a row in a sentence: whatever it is, and not longer than a few lines."""
    text = value if isinstance(value, str) else repr(value)
    return text if len(text) <= _MAX_VALUE_CHARS else text[:_MAX_VALUE_CHARS] + "..."
