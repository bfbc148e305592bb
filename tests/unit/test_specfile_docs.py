"""docs/spec.md is true: its examples are accepted, its tables name every key, its bounds are the code's."""

import io
import re
from pathlib import Path

import pytest

from schedd import specfile, wire
from schedd.core import limits
from schedd.durations import parse_duration
from schedd.wire import spec

PAGE = (Path(__file__).parents[2] / "docs" / "spec.md").read_text(encoding="utf-8")
EXAMPLES = re.findall(r"^```(yaml|toml|json|jsonl)\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize(
    ("format_", "text"), EXAMPLES, ids=[f"{format_}-{index}" for index, (format_, _) in enumerate(EXAMPLES)]
)
def test_examples_are_accepted(tmp_path: Path, format_: str, text: str) -> None:
    """Every example is a whole spec that is accepted as a file and on standard input."""
    path = tmp_path / f"example.{format_}"
    path.write_text(text, encoding="utf-8")
    from_file = specfile.load(str(path))
    assert specfile.load("-", io.BytesIO(text.encode())).data == from_file.data
    assert wire.parse_batch(specfile.with_base_dir(from_file.data, str(tmp_path))).tasks


def test_there_is_an_example_in_every_format() -> None:
    """The pattern above finds the examples; it would not notice if it found none."""
    assert {format_ for format_, _ in EXAMPLES} == {"yaml", "toml", "json", "jsonl"}
    assert PAGE.count("```") == 2 * len(EXAMPLES)


def test_every_key_has_a_row() -> None:
    """No key of any shape is missing from the tables."""
    rows = set(re.findall(r"^\| \[?`(\w+)`", PAGE, re.MULTILINE))
    assert rows >= spec.BATCH_KEYS | spec.TASK_KEYS | spec.RETRY_KEYS


def test_links_lead_to_headings() -> None:
    """Each link within the page has its heading."""
    headings = {
        re.sub(r"[^a-z0-9_ -]", "", heading.lower()).replace(" ", "-")
        for heading in re.findall(r"^#+ (.*)$", PAGE, re.MULTILINE)
    }
    assert set(re.findall(r"\]\(#([^)]*)\)", PAGE)) <= headings


def test_bounds_are_those_of_the_code() -> None:
    """Numbers on the page are the limits that hold."""
    for words in (
        f"{limits.MAX_TASKS_PER_BATCH:,} tasks",
        f"{limits.MAX_COMMAND_ARGS:,} entries",
        f"{limits.MAX_DEPS_PER_TASK:,} entries",
        f"{limits.MAX_ENV_VARS:,} variables",
        f"{limits.MAX_PATH_CHARS:,} characters",
        f"1 to {limits.MAX_ID_CHARS} printable characters",
        f"1 to {limits.MAX_BATCH_NAME_CHARS} characters",
        f"within {limits.MAX_PRIORITY} of zero",
        f"1 to {limits.MAX_TIMES:,}",
        f"1 to {limits.MAX_ATTEMPTS:,}",
        f"{limits.MAX_JSON_DEPTH} levels deep",
        f"up to {limits.MAX_SPEC_ERRORS}",
        f"{limits.MAX_DURATION_S:,.0f} seconds",
        f"{limits.MAX_PAYLOAD_CHARS // 2**20} MiB as JSON",
        f"at most {limits.MAX_BODY_BYTES // 2**20} MiB",
        f"`{limits.DEFAULT_GRACE_S:.0f}s`",
    ):
        assert words in PAGE
    assert parse_duration("1ms") == limits.MIN_EVERY_S


def test_the_refusal_shown_is_the_real_one() -> None:
    """The error in the text is what a file with that mistake gets."""
    read = specfile.load("-", io.BytesIO(b"name: ci\n\n\ntasks:\n\n  build:\n    comand: make\n    run: x\n"))
    with pytest.raises(wire.SpecError) as caught:
        wire.parse_batch(read.data)
    (line,) = specfile.render_errors("ci.yaml", caught.value.errors, read.locate)
    assert f"    {line}\n" in PAGE
