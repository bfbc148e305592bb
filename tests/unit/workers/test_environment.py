"""The environment of attempts."""

from schedd.core.events import StartAttempt
from schedd.workers import environment
from schedd.workers.identity import Marker

ORDER = StartAttempt(7, "ci-1/build", 3, 2)


def test_base_lets_only_known_names_through() -> None:
    """What speaks to the service manager, and all else that is not documented, stays behind."""
    own = {
        "PATH": "/mine",
        "HOME": "/h",
        "LC_ALL": "C",
        "TZ": "UTC",
        "NOTIFY_SOCKET": "x",
        "LISTEN_FDS": "1",
        "WATCHDOG_USEC": "1",
        "INVOCATION_ID": "1",
        "SECRET": "s",
    }
    shared = environment.base(own)
    assert shared.keys() == {"PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "LC_ALL", "TZ"}
    assert (shared["PATH"], shared["HOME"], shared["LC_ALL"], shared["TZ"]) == ("/mine", "/h", "C", "UTC")


def test_base_has_defaults() -> None:
    """A daemon without an environment gives its tasks a sane one."""
    shared = environment.base({"PATH": ""})
    assert shared["PATH"] == environment.DEFAULT_PATH
    assert shared["SHELL"] == "/bin/sh"
    assert shared["USER"]
    assert shared["HOME"].startswith("/")


def test_order_of_precedence() -> None:
    """A task's own variables beat the base, and schedd's beat the task's."""
    marker = Marker("id", "start")
    seen = environment.for_attempt({"PATH": "/a", "LANG": "C"}, {"PATH": "/b", "SCHEDD_TASK_ID": "x"}, ORDER, marker)
    assert seen == {
        "PATH": "/b",
        "LANG": "C",
        "SCHEDD_TASK_ID": "ci-1/build",
        "SCHEDD_ATTEMPT": "3",
        "SCHEDD_RUN": "2",
        "SCHEDD_RUN_KEY": "id-7-2",
        "SCHEDD_MARKER": "id:start:7:3",
    }


def test_without_a_marker() -> None:
    """In memory there is nothing to recover, so there is no marker."""
    assert "SCHEDD_MARKER" not in environment.for_attempt({}, {}, ORDER, None)
