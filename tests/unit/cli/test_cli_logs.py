"""`logs`."""

import io
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from schedd.cli import app
from schedd.cli.logs import write_tail

Make = Callable[..., Any]


@pytest.fixture
def logs(capfdbinary: pytest.CaptureFixture[bytes]) -> Callable[..., tuple[int, bytes, bytes]]:
    """`logs("-f", "a")` runs `schedctl logs -f a`."""

    def run(*arguments: str) -> tuple[int, bytes, bytes]:
        code = app.run(["logs", *arguments])
        return (code, *capfdbinary.readouterr())

    return run


@pytest.mark.parametrize("sizes", [1, 3, 1000])
@pytest.mark.parametrize(
    ("text", "lines", "tail"),
    [
        (b"a\nb\nc\n", 2, b"b\nc\n"),
        (b"a\nb\nc", 2, b"b\nc"),
        (b"a\n\n\n", 2, b"\n\n"),
        (b"a\nb\n", 9, b"a\nb\n"),
        (b"a\nb\n", 0, b""),
        (b"", 5, b""),
        (b"\xff\x00\r\nlong line without an end", 1, b"long line without an end"),
    ],
)
def test_the_tail_is_the_same_however_the_log_is_cut(text: bytes, lines: int, tail: bytes, sizes: int) -> None:
    """Lines end with a newline and nothing else, and the answer counts every byte."""
    chunks = [text[start : start + sizes] for start in range(0, len(text), sizes)]
    out = io.BytesIO()
    assert write_tail(out, chunks, lines) == len(text)
    assert out.getvalue() == tail


def test_bytes_come_as_they_are(logs: Any, client: Any, detail: Make) -> None:
    """No decoding on the way; the last attempt unless told otherwise."""
    client.answers |= {"task": detail(number=3), "log": iter([b"\xff\x00", b"\x1b[31m\n"])}
    assert logs("a") == (0, b"\xff\x00\x1b[31m\n", b"")
    assert client.calls[-1] == ("log", ("a", 3, 0, False), {})


def test_an_attempt_by_its_number(logs: Any, client: Any) -> None:
    """The task itself is not asked for then."""
    client.answers["log"] = iter([b"x"])
    assert logs("--attempt", "1", "a") == (0, b"x", b"")
    assert client.calls == [("log", ("a", 1, 0, False), {})]


def test_last_lines_and_then_what_follows(logs: Any, client: Any, detail: Make) -> None:
    """With -n and -f nothing is shown twice and nothing is left out: it goes on from the byte where the tail ended."""
    parts: dict[int, Sequence[bytes]] = {0: [b"a\nb\nc"], 5: [b"d\n"]}
    client.answers |= {"task": detail(number=1), "log": lambda name, number, offset=0, follow=False: parts[offset]}
    assert logs("-n", "1", "-f", "a") == (0, b"cd\n", b"")


@pytest.mark.parametrize(("status", "error"), [("pending", None), ("skipped", "build failed")])
def test_a_task_without_an_attempt_has_no_log(
    logs: Any, client: Any, detail: Make, status: str, error: str | None
) -> None:
    """That is said on stderr and is no failure."""
    client.answers["task"] = detail(id="a", status=status, error=error)
    code, out, err = logs("a")
    assert (code, out) == (0, b"")
    state = f"{status} ({error})" if error else status
    assert err.decode() == f"schedctl: a has not been started and has no log: it is {state}\n"


def test_follow_waits_for_the_first_attempt(logs: Any, client: Any, detail: Make) -> None:
    """And then shows it from its first byte."""
    seen = iter([detail(id="a"), detail(id="a"), detail(id="a", number=1, status="running")])
    client.answers |= {"task": lambda name: next(seen), "wait": {}, "log": iter([b"x\n"])}
    assert logs("-f", "a") == (0, b"x\n", b"schedctl: a has not been started; waiting for it\n")


def test_follow_ends_when_the_task_will_never_start(logs: Any, client: Any, detail: Make) -> None:
    """It was cancelled before it could."""
    seen = iter([detail(id="a"), detail(id="a", status="cancelled")])
    client.answers |= {"task": lambda name: next(seen), "wait": {}}
    code, out, err = logs("-f", "a")
    assert (code, out) == (0, b"")
    assert err.endswith(b"has no log: it is cancelled\n")
