"""What a task does, on one line, for people. Tests: tests/api/test_what.py."""

import json
import shlex
from typing import Any

MAX_CHARS = 200


def what(payload: str) -> str:
    """The payload (JSON text, see `wire`) as one line of at most `MAX_CHARS`; the text itself where it is damaged."""
    try:
        work = json.loads(payload)
        return _one_line(_words(work) if isinstance(work, dict) else payload)
    except (ValueError, TypeError, AttributeError):
        return _one_line(payload)


def _words(work: dict[str, Any]) -> str:
    if "run" in work:
        return str(work["run"])
    if "command" in work:
        return shlex.join(str(word) for word in work["command"])
    positional = [json.dumps(value, ensure_ascii=False) for value in work.get("args", ())]
    named = [f"{name}={json.dumps(value, ensure_ascii=False)}" for name, value in work.get("kwargs", {}).items()]
    return f"{work.get('call', '?')}({', '.join(positional + named)})"


def _one_line(text: str) -> str:
    line = " ".join(text[: 20 * MAX_CHARS].split())
    return line if len(line) <= MAX_CHARS else line[: MAX_CHARS - 1] + "…"
