"""YAML: what all readers agree on is read, the rest is refused at its place; both of PyYAML's parsers do the same."""

import json
from typing import Any

import pytest
import yaml

from schedd.core import limits
from schedd.specfile import yaml_text
from schedd.specfile.failure import Misread

needs_c = pytest.mark.skipif(not hasattr(yaml, "CSafeLoader"), reason="PyYAML was built without libyaml")


@pytest.fixture(params=[pytest.param("CSafeLoader", marks=needs_c), "SafeLoader"], autouse=True)
def loader(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every test runs with libyaml's parser and with the one in Python."""
    monkeypatch.setattr(yaml_text, "_Loader", getattr(yaml, request.param))


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("make all", "make all"),
        ("'5'", "5"),
        ('"yes"', "yes"),
        ("!!str 5", "5"),
        ("! yes", "yes"),
        ("true", True),
        ("FALSE", False),
        ("null", None),
        ("~", None),
        ("0", 0),
        ("-17", -17),
        ("+3", 3),
        ("0x1F", 31),
        ("1.5", 1.5),
        ("-.5", -0.5),
        ("1e3", 1_000.0),
        ("1.5E-3", 0.0015),
        ("10s", "10s"),
        ("1h30m", "1h30m"),
        ("1.2.3", "1.2.3"),
        ("--prod", "--prod"),
        ("-", [None]),
        ("./deploy", "./deploy"),
        ("y", "y"),
        ("nothing", "nothing"),
        ("|\n  a\n  b\n", "a\nb\n"),
        ("[a, {b: c}]", ["a", {"b": "c"}]),
    ],
)
def test_scalars_mean_what_all_readers_take_them_for(text: str, value: Any) -> None:
    """Plain words are resolved as JSON's kinds, quotes and `!!str` make text."""
    assert yaml_text.parse(text) == value
    assert type(yaml_text.parse(text)) is type(value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("x: on", "`on` is true to some readers of YAML and text to others; write true, or put it in quotes"),
        ("x: No", "`No` is false to some readers of YAML and text to others; write false, or put it in quotes"),
        ("x: 0755", "`0755` may be an octal number or a decimal one"),
        ("x: 0o17", "`0o17` may be a number or text"),
        ("x: 0b11", "`0b11` may be a number or text"),
        ("x: 1_000", "`1_000` may be a number or text"),
        ("x: 12:30", "`12:30` may be a number to base 60 or text"),
        ("x: 2024-01-01", "`2024-01-01` may be a date or text"),
        ("x: 2024-01-01 10:00:00", "`2024-01-01 10:00:00` may be a date or text"),
        ("x: .inf", "`.inf` may be a number that is not finite"),
        ("x: 1e400", "the number 1e400 is too large"),
        ("x: !!binary aGk=", "the tag tag:yaml.org,2002:binary is not supported"),
        ("x: !!set {a}", "the tag tag:yaml.org,2002:set is not supported"),
        ("x: !!python/name:os.system ''", "the tag tag:yaml.org,2002:python/name:os.system is not supported"),
    ],
)
def test_what_readers_disagree_on_is_refused(text: str, message: str) -> None:
    """A word that may mean two things is refused at its place and not guessed."""
    with pytest.raises(Misread) as caught:
        yaml_text.parse(f"a: b\n{text}")
    assert caught.value.message.startswith(message)
    assert (caught.value.line, caught.value.column) == (2, 4)


@pytest.mark.parametrize(
    ("key", "message"),
    [
        ("on", "`on` is true to some readers of YAML and text to others; put it in quotes"),
        ("true", "the key `true` is read as true, not as text; put it in quotes"),
        ("8080", "the key `8080` is read as a number, not as text; put it in quotes"),
        ("1.5", "the key `1.5` is read as a number, not as text; put it in quotes"),
        ("~", "the key `~` is read as null, not as text; put it in quotes"),
        ("2024-01-01", "`2024-01-01` may be a date or text; put it in quotes, or write it in another way"),
        ("? [a]\n ", "a key must be text, not a list or a mapping"),
    ],
)
def test_keys_must_be_text(key: str, message: str) -> None:
    """An id that YAML reads as something else is refused, and quotes make it an id."""
    with pytest.raises(Misread) as caught:
        yaml_text.parse(f"tasks:\n  {key}: {{run: x}}")
    assert caught.value.message == message
    assert caught.value.line == 2


@pytest.mark.parametrize(
    ("text", "message", "line"),
    [
        ("a: 1\nb:\n  c: 1\n  d: 2\n  c: 3\n", "the key 'c' is here twice; the first is in line 3", 5),
        ("a: 1\n'a': 2\n", "the key 'a' is here twice; the first is in line 1", 2),
        ("{a: 1,\n b: {a: 1, a: 2}}", "the key 'a' is here twice; the first is in line 2", 2),
        ("a: [1, 2\nb: 3\n", "not valid YAML: ", 2),
        ("a:\n\t- b\n", "not valid YAML: ", 2),
        ("a: b: c\n", "not valid YAML: ", 1),
        ("a: \x07\n", r"the character '\x07' is not allowed in YAML", 1),
        ("a: 1\n---\nb: 2\n", "a second document begins here; a spec is one document", 2),
        ("a: &x 1\nb: *y\n", "there is no anchor &y before the alias *y", 2),
        ("a: &x\n  b: *x\n", "the alias *x stands within what it repeats, which would never end", 2),
        ("a: &x [*x]\n", "the alias *x stands within what it repeats, which would never end", 1),
        ("a: &x b\n*x : c\n", "an alias cannot be a key; write the key out", 2),
        ("a: {<<: b}\n", "`<<` takes a mapping or a list of mappings", 1),
        ("a: {<<: [{b: 1}, 2]}\n", "`<<` takes a mapping or a list of mappings", 1),
    ],
)
def test_broken_documents_are_refused_with_their_line(text: str, message: str, line: int) -> None:
    """What is not YAML, or not one plain document, is refused where it stops being that."""
    with pytest.raises(Misread) as caught:
        yaml_text.parse(text)
    assert caught.value.message.startswith(message)
    assert caught.value.line == line


def test_a_tab_is_named() -> None:
    """The most common mistake that cannot be seen is named."""
    with pytest.raises(Misread, match="a tab; YAML is indented with spaces"):
        yaml_text.parse("a:\n\t- b\n")


@pytest.mark.parametrize("text", ["{", "[", "a: {", "'", "&", "*"])
def test_documents_that_break_off_are_refused(text: str) -> None:
    """An error at the very end, whose mark lies behind the last line, is reported like any other."""
    with pytest.raises(Misread, match="not valid YAML") as caught:
        yaml_text.parse(text)
    assert caught.value.line in (1, 2)


def test_aliases_and_merge_keys_repeat() -> None:
    """An alias repeats what its anchor marks; merged keys give way to a mapping's own, the first source wins."""
    text = """
    base: &base {run: make, priority: 1, env: &env {A: "1"}}
    own: {<<: *base, priority: 2}
    two: {<<: [{priority: 3}, *base], env: *env}
    name: &name text
    again: *name
    key: {&k word: 1, value: *k}
    inline: {<<: {a: 1}, b: 2}
    """
    assert yaml_text.parse(text) == {
        "base": {"run": "make", "priority": 1, "env": {"A": "1"}},
        "own": {"run": "make", "priority": 2, "env": {"A": "1"}},
        "two": {"run": "make", "priority": 3, "env": {"A": "1"}},
        "name": "text",
        "again": "text",
        "key": {"word": 1, "value": "word"},
        "inline": {"a": 1, "b": 2},
    }


def test_a_quoted_merge_key_is_a_key() -> None:
    """Only the plain `<<` merges."""
    assert yaml_text.parse('{"<<": {a: 1}}') == {"<<": {"a": 1}}


def test_an_alias_means_the_anchor_before_it() -> None:
    """An anchor may be used anew, and the last one counts."""
    assert yaml_text.parse("[&a 1, *a, &a 2, *a]") == [1, 1, 2, 2]


def test_alias_bombs_are_refused() -> None:
    """Aliases may not write a small file out into more than a request may hold."""
    lines = ["a0: &a0 [xxxxxxxxx]"]
    lines += [f"a{level}: &a{level} [{', '.join([f'*a{level - 1}'] * 10)}]" for level in range(1, 12)]
    with pytest.raises(Misread, match=f"with its aliases written out, the document is over {limits.MAX_BODY_BYTES}"):
        yaml_text.parse("\n".join(lines))


def test_depth_through_aliases_is_bounded() -> None:
    """Levels that aliases add count as levels."""
    lines = ["a0: &a0 x"]
    lines += [f"a{level}: &a{level} [*a{level - 1}]" for level in range(1, limits.MAX_JSON_DEPTH + 5)]
    with pytest.raises(Misread, match="nested too deeply"):
        yaml_text.parse("\n".join(lines))


def test_depth_is_bounded_at_the_bound() -> None:
    """As many levels as allowed are read, and one more is not."""
    deep = "[" * limits.MAX_JSON_DEPTH + "]" * limits.MAX_JSON_DEPTH
    json.dumps(yaml_text.parse(deep))
    with pytest.raises(Misread, match="nested too deeply"):
        yaml_text.parse(f"[{deep}]")


def test_places_are_lines_of_keys_and_items() -> None:
    """Every key and item has its line; what an alias repeats has none of its own."""
    text = "name: ci\ntasks:\n  a: &a\n    run: x\n    deps: [b,\n      {task: c}]\n"
    text += "  b:\n    <<: *a\n    run: y\n  c: *a\n"
    assert yaml_text.places(text) == {
        ("name",): 1,
        ("tasks",): 2,
        ("tasks", "a"): 3,
        ("tasks", "a", "run"): 4,
        ("tasks", "a", "deps"): 5,
        ("tasks", "a", "deps", 0): 5,
        ("tasks", "a", "deps", 1): 6,
        ("tasks", "a", "deps", 1, "task"): 6,
        ("tasks", "b"): 7,
        ("tasks", "b", "run"): 9,
        ("tasks", "c"): 10,
    }
