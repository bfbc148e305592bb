"""TOML: what JSON has no word for, and the lines of tables and keys."""

import pytest

from schedd.specfile import toml_text
from schedd.specfile.failure import Misread


@pytest.mark.parametrize(
    ("text", "message", "line", "column"),
    [
        ("[tasks.a]\nrun = \n", "not valid TOML: Invalid value", 2, 7),
        ('[tasks.a]\nrun = """\n', "not valid TOML: Unterminated string", 3, 1),
        ('a = "x"\na = "y"\n', "not valid TOML: Cannot overwrite a value", 2, 8),
        ("[a]\n[b]\n[a]\n", "not valid TOML: Cannot declare ('a',) twice", 3, 3),
        ("[a]\nx = 2024-01-01\n",
         "TOML reads 2024-01-01 as a date or time, which JSON has not; put it in quotes", 2, None),
        ("a = [\n 12:30:00]\n", "TOML reads 12:30:00 as a date or time, which JSON has not; put it in quotes", 1, None),
        ("[a.b]\n\nx = inf\n", "numbers must be finite, not inf", 3, None),
    ],
)  # fmt: skip
def test_what_is_not_fit_is_refused_with_its_place(text: str, message: str, line: int, column: int | None) -> None:
    """Broken TOML, keys that are there twice, dates and infinities are refused where they stand."""
    with pytest.raises(Misread) as caught:
        toml_text.parse(text)
    assert (caught.value.message, caught.value.line, caught.value.column) == (message, line, column)


DOCUMENT = '''\
name = "ci"  # [not.a.table]
[defaults.retry]
max_attempts = 2

[tasks.build]
run = """
[tasks.fake]
fake = 1 \\""" still
"""
command = [
  "x",  # a = b
  "[y]",
]
after = 'it = "x"'
[tasks."a.b".env]
"C D" = "x"
'E' = "y"
one.two = 1
[[jobs]]
id = "a"
[[jobs]]
id = "b"
[jobs.env]
X = "1"
[[jobs.steps]]
[[jobs.steps]]
run = 1
'''


def test_tables_and_keys_have_their_lines() -> None:
    """Headers, dotted and quoted keys and arrays of tables are found; strings and comments are not taken for them."""
    parsed = toml_text.parse(DOCUMENT)
    places = toml_text.places(DOCUMENT)
    expected = {
        ("name",): 1,
        ("defaults",): 2,
        ("defaults", "retry"): 2,
        ("defaults", "retry", "max_attempts"): 3,
        ("tasks",): 5,
        ("tasks", "build"): 5,
        ("tasks", "build", "run"): 6,
        ("tasks", "build", "command"): 10,
        ("tasks", "build", "after"): 14,
        ("tasks", "a.b"): 15,
        ("tasks", "a.b", "env"): 15,
        ("tasks", "a.b", "env", "C D"): 16,
        ("tasks", "a.b", "env", "E"): 17,
        ("tasks", "a.b", "env", "one"): 18,
        ("tasks", "a.b", "env", "one", "two"): 18,
        ("jobs",): 19,
        ("jobs", 0): 19,
        ("jobs", 0, "id"): 20,
        ("jobs", 1): 21,
        ("jobs", 1, "id"): 22,
        ("jobs", 1, "env"): 23,
        ("jobs", 1, "env", "X"): 24,
        ("jobs", 1, "steps"): 25,
        ("jobs", 1, "steps", 0): 25,
        ("jobs", 1, "steps", 1): 26,
        ("jobs", 1, "steps", 1, "run"): 27,
    }
    assert places == expected
    for loc in expected:
        value = parsed
        for part in loc:
            value = value[part]  # raises if the place does not exist
