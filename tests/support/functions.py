"""Functions that a scheduler on a file can import."""

import threading

calls: list[str] = []
release = threading.Event()


def note(name: str) -> str:
    """Write down that it ran."""
    calls.append(name)
    return name


def block() -> None:
    """Run until the test lets go."""
    release.wait(30)


def fail() -> None:
    """Fail."""
    raise RuntimeError("no luck")
