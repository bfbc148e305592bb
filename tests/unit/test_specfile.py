"""Spec files as the command line meets them: formats, files that cannot be read, base directories, lines of errors."""

import io
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from schedd import specfile, wire
from schedd.core import limits

EXPECTED = {"name": "ci", "tasks": {"a": {"run": "make"}}}
YAML = "name: ci\ntasks:\n  a: {run: make}\n"
TOML = 'name = "ci"\n[tasks.a]\nrun = "make"\n'
JSON = '{"name": "ci",\n "tasks": {"a": {"run": "make"}}}'


def write(directory: Path, name: str, text: str | bytes) -> str:
    """The path of a new file."""
    path = directory / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return str(path)


def from_stdin(text: str) -> specfile.SpecFile:
    """What a text on standard input is read as."""
    return specfile.load("-", io.BytesIO(text.encode()))


@pytest.mark.parametrize(
    ("name", "text"),
    [("a.yaml", YAML), ("a.YML", YAML), ("a.toml", TOML), ("a.json", JSON), ("a.yaml", JSON), ("spec", TOML)],
)
def test_the_extension_decides_the_format(tmp_path: Path, name: str, text: str) -> None:
    """Each format is read by its extension, JSON is YAML too, and an unknown extension is no obstacle."""
    read = specfile.load(write(tmp_path, name, text))
    assert read.data == EXPECTED
    assert read.path == str(tmp_path / name)


@pytest.mark.parametrize(
    ("text", "data"),
    [
        (YAML, EXPECTED),
        (TOML, EXPECTED),
        ("# a comment\n\n[tasks.a]\nrun = 'x'\n", {"tasks": {"a": {"run": "x"}}}),
        ("[[tasks]] # one\nrun = 'x'\n", {"tasks": [{"run": "x"}]}),
        (JSON, EXPECTED),
        ('{"tasks": {"a": {"run": "x"}}}', {"tasks": {"a": {"run": "x"}}}),
        ('{"run": "x"}', {"tasks": [{"run": "x"}]}),
        ('{"run": "x"}\n\n{"run": "y"}\n', {"tasks": [{"run": "x"}, {"run": "y"}]}),
        ("{tasks: {a: {run: x}}}", {"tasks": {"a": {"run": "x"}}}),
        ("\ufeff---\ntasks: {a: {run: x=1}}\n", {"tasks": {"a": {"run": "x=1"}}}),
    ],
)
def test_standard_input_is_recognized_by_its_text(text: str, data: Any) -> None:
    """Every format is told from the others without an extension."""
    read = from_stdin(text)
    assert read.data == data
    assert read.path == "<stdin>"


def test_broken_json_on_standard_input_is_reported_as_json() -> None:
    """A document that begins as JSON gets JSON's error and not YAML's."""
    with pytest.raises(specfile.SpecFileError, match="not valid JSON"):
        from_stdin('{"tasks": {"a": }}')


@pytest.mark.parametrize("text", ["", " \n\n", "# nothing\n", "---\n", "null"])
def test_an_empty_file_says_so(text: str) -> None:
    """No document is not a document."""
    with pytest.raises(specfile.SpecFileError, match="<stdin>: the file is empty"):
        from_stdin(text)


def test_files_that_cannot_be_read_are_refused_with_the_reason(tmp_path: Path) -> None:
    """A missing file and a directory get the system's words and the name."""
    missing = str(tmp_path / "missing.yaml")
    with pytest.raises(specfile.SpecFileError) as caught:
        specfile.load(missing)
    assert str(caught.value) == f"{missing}: No such file or directory"
    assert (caught.value.path, caught.value.line, caught.value.column) == (missing, None, None)
    with pytest.raises(specfile.SpecFileError, match="Is a directory"):
        specfile.load(str(tmp_path))


@pytest.mark.parametrize("name", ["a.yaml", "a.toml", "a.json", "a.jsonl", "spec"])
def test_text_must_be_utf_8(tmp_path: Path, name: str) -> None:
    """In every format the offset of the first wrong byte is named."""
    with pytest.raises(specfile.SpecFileError) as caught:
        specfile.load(write(tmp_path, name, b'a: "ok"\nb: \xff\n'))
    assert caught.value.message == "is not UTF-8 text: invalid start byte at byte 11"
    assert caught.value.line == 2


def test_size_is_bounded(tmp_path: Path) -> None:
    """A file over the bound is refused with the bound, without being read whole."""
    path = write(tmp_path, "big.yaml", "a: b\n")
    os.truncate(path, limits.MAX_BODY_BYTES + 1)
    with pytest.raises(specfile.SpecFileError, match=r"is larger than 67108864 bytes.*submit it in parts"):
        specfile.load(path)


@pytest.mark.parametrize(
    ("name", "text"),
    [("a.json", '{"a":' * 150 + "1" + "}" * 150), ("a.yaml", "{a: " * 150 + "1" + "}" * 150),
     ("a.toml", "a = " + "[" * 150 + "]" * 150), ("a.json", "[" * 100_000), ("a.toml", "a = " + "[" * 100_000)],
)  # fmt: skip
def test_depth_is_bounded(tmp_path: Path, name: str, text: str) -> None:
    """Deep nesting is refused in every format, however deep it is."""
    with pytest.raises(specfile.SpecFileError, match="nested too deeply; 100 levels are allowed"):
        specfile.load(write(tmp_path, name, text))


@pytest.mark.parametrize(
    ("name", "text"),
    [("a.json", '{"a": ' + "9" * 5_000 + "}"), ("a.yaml", "a: " + "9" * 5_000), ("a.toml", "a = " + "9" * 5_000)],
)
def test_endless_numbers_are_refused(tmp_path: Path, name: str, text: str) -> None:
    """A number beyond what Python converts is an error in the file and not a crash."""
    with pytest.raises(specfile.SpecFileError, match="a number has too many digits"):
        specfile.load(write(tmp_path, name, text))


def test_base_directory_is_the_default_and_what_is_relative_is_relative_to_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Tasks run in the base directory unless they say otherwise, and `~` is the user's home."""
    monkeypatch.setenv("HOME", "/home/me")
    data = {
        "tasks": {
            "a": {"run": "x"},
            "b": {"run": "x", "cwd": "src/./lib"},
            "c": {"run": "x", "cwd": "/abs"},
            "d": {"run": "x", "cwd": "~/work"},
            "e": {"run": "x", "cwd": "../up"},
            "f": {"run": "x", "cwd": "."},
        }
    }
    based = specfile.with_base_dir(data, "/base")
    assert based["defaults"] == {"cwd": "/base"}
    assert {key: task.get("cwd") for key, task in based["tasks"].items()} == {
        "a": None,
        "b": "/base/src/lib",
        "c": "/abs",
        "d": "/home/me/work",
        "e": "/base/../up",
        "f": "/base",
    }
    assert data["tasks"]["b"]["cwd"] == "src/./lib"
    assert "defaults" not in data


def test_base_directory_leaves_a_given_default() -> None:
    """A `cwd` among the defaults stays, made absolute; tasks in a list are treated as those in a mapping."""
    based = specfile.with_base_dir({"defaults": {"cwd": "sub", "priority": 1}, "tasks": [{"cwd": "x"}]}, "/base")
    assert based == {"defaults": {"cwd": "/base/sub", "priority": 1}, "tasks": [{"cwd": "/base/x"}]}


@pytest.mark.parametrize(
    "data",
    [[], "x", None, {"tasks": "x"}, {"tasks": ["x", None, {"cwd": 5}, {"cwd": ""}]}, {"defaults": [], "tasks": {}},
     {"defaults": None}, {}],
)  # fmt: skip
def test_base_directory_leaves_what_is_no_spec_to_the_parser(data: Any) -> None:
    """Wrong shapes go through as they are, and the parser refuses them."""
    with pytest.raises(wire.SpecError):
        wire.parse_batch(specfile.with_base_dir(data, "/base"))


WRONG = {
    "a.yaml": "name: ci\ntasks:\n  build:\n    comand: x\n    run: y\n  test: {run: z, deps: [build,\n   7]}\n",
    "a.toml": 'name = "ci"\n\n[tasks.build]\ncomand = "x"\nrun = "y"\n[tasks.test]\nrun = "z"\ndeps = ["build", 7]\n',
    "a.json": '{"tasks": {"build":\n {"run": "y",\n\n"comand": "x"},\n"test": {"run": "z", "deps": ["build", 7]\n}}}',
}  # fmt: skip


@pytest.mark.parametrize(("name", "lines"), [("a.yaml", (4, 7)), ("a.toml", (4, 8)), ("a.json", (4, 5))])
def test_errors_are_shown_with_the_lines_of_the_file(tmp_path: Path, name: str, lines: tuple[int, int]) -> None:
    """The parser's findings come out with file, line and place, in the order of the file."""
    read = specfile.load(write(tmp_path, name, WRONG[name]))
    with pytest.raises(wire.SpecError) as caught:
        wire.parse_batch(read.data)
    assert specfile.render_errors("ci", caught.value.errors, read.locate) == [
        f"ci:{lines[0]}: tasks.build.comand: unknown key 'comand'; did you mean 'command'?",
        f"ci:{lines[1]}: tasks.test.deps[1]: must be text, not the number 7; put it in quotes",
    ]


def test_errors_without_a_line_have_the_file_and_the_place() -> None:
    """What stands nowhere in the file is shown without a line, and what is about the whole without a place."""
    read = from_stdin("nam: x\n")
    assert specfile.render_errors(
        read.path, [{"loc": ["nam", "x"], "message": "b"}, {"loc": [], "message": "a"}], read.locate
    ) == ["<stdin>: a", "<stdin>:1: nam.x: b"]


def test_an_unknown_place_has_the_line_of_what_is_around_it() -> None:
    """`locate` falls back to the nearest place that it knows."""
    read = from_stdin("tasks:\n  a:\n    run: x\n")
    assert read.locate(["tasks", "a", "run"]) == 3
    assert read.locate(["tasks", "a", "missing", 5]) == 2
    assert read.locate(["nothing"]) is None


def test_the_server_is_not_loaded() -> None:
    """Reading a file loads one format's reader and neither pydantic nor the parser of specs."""
    code = (
        "import sys, io; from schedd import specfile; specfile.load('-', io.BytesIO(b'[tasks.a]\\nrun = \"x\"'));"
        "print([name for name in ('pydantic', 'yaml', 'schedd.wire', 'sqlalchemy') if name in sys.modules])"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout == "[]\n"
