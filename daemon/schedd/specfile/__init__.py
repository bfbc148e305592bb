"""Spec files: YAML, TOML, JSON and JSON Lines become plain objects, and a place in them becomes a line.

For the command line, so it loads only the reader it needs, and nothing of the server. It refuses to know what a spec
may hold: that is `wire`, here or in the daemon, whose findings `render_errors` shows with the lines of the file.
Tests: tests/unit/test_specfile*.py.
"""

import json
import os
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from types import ModuleType
from typing import Any, BinaryIO, Final

from schedd.answers import ErrorItem, dotted
from schedd.core import limits
from schedd.specfile.failure import Loc, Misread, Places, SpecFileError

__all__ = ["SpecFile", "SpecFileError", "load", "render_errors", "with_base_dir"]

Locate = Callable[[Sequence[str | int]], int | None]

_FORMATS: Final = {
    ".yaml": "yaml",
    ".yml": "yaml",
    ".toml": "toml",
    ".json": "json",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
}
_WORK_KEYS: Final = frozenset({"run", "command", "call"})
_TOML_LINE: Final = re.compile(r"""\s*(?:\[{1,2}[\w."' -]+\]{1,2}\s*(?:#.*)?$|[\w."'-]+\s*=)""")


@dataclass(frozen=True, slots=True)
class SpecFile:
    """A file that was read: its name for messages, its data, and the line where a `loc` of the data stands.

    `locate` gives the line of the nearest thing around a `loc` whose own is not known, or None. The data is not to be
    changed in place: parts that a YAML alias repeats are shared.
    """

    path: str
    data: Any
    locate: Locate


def load(path: str, stream: BinaryIO | None = None) -> SpecFile:
    """Read the spec file `path`; `-` reads `stream`, by default the standard input.

    The format is that of the file's extension, else it is recognized by the text. Raises SpecFileError.
    """
    shown = "<stdin>" if path == "-" else path
    try:
        text = _read(path, stream)
        format_ = _FORMATS.get(os.path.splitext(path)[1].lower()) or _recognize(text)
        data = _parse(text, format_)
    except OSError as error:
        raise SpecFileError(shown, error.strerror or str(error)) from None
    except Misread as error:
        raise SpecFileError(shown, error.message, error.line, error.column) from None
    if data is None:
        raise SpecFileError(shown, "the file is empty; a spec needs the key `tasks`")
    return SpecFile(shown, data, _locator(text, format_))


def with_base_dir(data: Any, base: str) -> Any:
    """`data` with `base` (an absolute path) as the default working directory, and relative ones made absolute to it.

    A leading `~` becomes the home directory. What is not shaped like a spec is handed back for `wire` to refuse.
    """
    if not isinstance(data, dict):
        return data
    defaults = data.get("defaults", {})
    if isinstance(defaults, dict):
        defaults = _with_absolute_cwd({"cwd": base, **defaults}, base)
    tasks = data.get("tasks")
    if isinstance(tasks, dict):
        tasks = {key: _with_absolute_cwd(task, base) for key, task in tasks.items()}
    elif isinstance(tasks, list):
        tasks = [_with_absolute_cwd(task, base) for task in tasks]
    changed = {**data, "defaults": defaults}
    if "tasks" in data:
        changed["tasks"] = tasks
    return changed


def render_errors(path: str, errors: Sequence[ErrorItem], locate: Locate) -> list[str]:
    """A line for each error, in the order of the file: `ci.yaml:7: tasks.build.comand: unknown key ...`.

    `errors` are those of `wire.SpecError`, or of an answer's problem, about data of the file at `path`.
    """
    found = [(locate(error["loc"]) or 0, error) for error in errors]
    found.sort(key=lambda pair: pair[0])
    rendered = []
    for line, error in found:
        parts = [f"{path}:{line}" if line else path, dotted(error["loc"]), error["message"]]
        rendered.append(": ".join(part for part in parts if part))
    return rendered


def _read(path: str, stream: BinaryIO | None) -> str:
    if path == "-":
        raw = (stream or sys.stdin.buffer).read(limits.MAX_BODY_BYTES + 1)
    else:
        with open(path, "rb") as file:
            raw = file.read(limits.MAX_BODY_BYTES + 1)
    if len(raw) > limits.MAX_BODY_BYTES:
        raise Misread(
            f"is larger than {limits.MAX_BODY_BYTES} bytes, the most that one submission may have; submit it in parts"
        )
    try:
        return raw.decode("utf-8").removeprefix("\ufeff")
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        raise Misread(f"is not UTF-8 text: {error.reason} at byte {error.start}", line) from None


def _reader(format_: str) -> ModuleType:
    if format_ == "yaml":
        from schedd.specfile import yaml_text

        return yaml_text
    if format_ == "toml":
        from schedd.specfile import toml_text

        return toml_text
    from schedd.specfile import json_text

    return json_text


def _parse(text: str, format_: str) -> Any:
    if not text.strip():
        return None
    reader = _reader(format_)
    return reader.parse_lines(text) if format_ == "jsonl" else reader.parse(text)


def _locator(text: str, format_: str) -> Locate:
    @cache
    def places() -> Places:
        reader = _reader(format_)
        found: Places = reader.places_of_lines(text) if format_ == "jsonl" else reader.places(text)
        return found

    def locate(loc: Sequence[str | int]) -> int | None:
        whole: Loc = tuple(loc)
        known: Mapping[Loc, int] = places()
        return next((known[whole[:end]] for end in range(len(whole), 0, -1) if whole[:end] in known), None)

    return locate


def _recognize(text: str) -> str:
    """The format of a text without an extension. YAML is what is left, and the one whose errors explain most."""
    significant = [line for line in text.split("\n") if line.strip() and not line.lstrip().startswith("#")]
    if not significant:
        return "yaml"
    if text.lstrip().startswith("{"):
        return _recognize_json(text, significant)
    return "toml" if _TOML_LINE.match(significant[0]) else "yaml"


def _recognize_json(text: str, significant: list[str]) -> str:
    try:
        first = json.loads(significant[0])
    except (ValueError, RecursionError):
        try:
            json.loads(text)
        except (ValueError, RecursionError):
            return "json" if text.lstrip()[1:].lstrip().startswith('"') else "yaml"
        return "json"
    is_task = isinstance(first, dict) and "tasks" not in first and not _WORK_KEYS.isdisjoint(first)
    return "jsonl" if len(significant) > 1 or is_task else "json"


def _with_absolute_cwd(holder: Any, base: str) -> Any:
    """A task or `defaults` with its `cwd`, if it has one, made absolute."""
    if not isinstance(holder, dict) or not isinstance(holder.get("cwd"), str) or not holder["cwd"]:
        return holder
    return {**holder, "cwd": _absolute(holder["cwd"], base)}


def _absolute(path: str, base: str) -> str:
    """`path` seen from `base`. `..` stays where it is: what it means depends on symbolic links."""
    joined = os.path.join(base, os.path.expanduser(path))
    return joined if ".." in joined.split("/") else os.path.normpath(joined)
