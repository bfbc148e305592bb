"""The environment that an attempt starts with: small, the same at every start, and documented.

In this order, later over earlier:

1. the base: PATH, HOME, USER, LOGNAME, SHELL, LANG, each from the daemon's own environment, else a sane default;
   LC_* and TZ where the daemon has them
2. the task's own `env`
3. SCHEDD_TASK_ID, SCHEDD_ATTEMPT, SCHEDD_RUN, SCHEDD_RUN_KEY (the same for every attempt of one run of the task, and
   another after `schedctl retry`: a key for making repeated work harmless) and SCHEDD_MARKER (by which recovery finds
   what is left of an attempt)
4. of each resource whose units have names SCHEDD_RESOURCE_NAME, the units that the attempt holds, separated by commas;
   for `gpu` CUDA_VISIBLE_DEVICES as well

Nothing else comes through, so no NOTIFY_SOCKET, LISTEN_*, WATCHDOG_* or INVOCATION_ID: a task must not speak to the
service manager in the daemon's name. Tests: tests/unit/workers/test_environment.py.
"""

import os
import pwd
from collections.abc import Mapping

from schedd.core.events import StartAttempt
from schedd.workers.identity import MARKER_VARIABLE, Marker

RESOURCE_PREFIX = "SCHEDD_RESOURCE_"
GPU = "gpu"
DEFAULT_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


def base(own: Mapping[str, str]) -> dict[str, str]:
    """The part that every attempt shares, from the daemon's `own` environment."""
    name, home = _account()
    defaults = {
        "PATH": DEFAULT_PATH,
        "HOME": home,
        "USER": name,
        "LOGNAME": name,
        "SHELL": "/bin/sh",
        "LANG": "C.UTF-8",
    }
    clean = {variable: own.get(variable) or default for variable, default in defaults.items()}
    clean |= {variable: value for variable, value in own.items() if variable.startswith("LC_") or variable == "TZ"}
    return clean


def for_attempt(
    shared: Mapping[str, str], task: Mapping[str, str], order: StartAttempt, marker: Marker | None
) -> dict[str, str]:
    """The whole environment of one attempt."""
    environment = {
        **shared,
        **task,
        "SCHEDD_TASK_ID": order.id,
        "SCHEDD_ATTEMPT": str(order.number),
        "SCHEDD_RUN": str(order.run),
        "SCHEDD_RUN_KEY": _run_key(order, marker),
    }
    for name, units in (order.units or {}).items():
        environment[f"{RESOURCE_PREFIX}{_as_variable(name)}"] = ",".join(units)
        if name == GPU:
            environment["CUDA_VISIBLE_DEVICES"] = ",".join(units)
    if marker is not None:
        environment[MARKER_VARIABLE] = marker.value(order.seq, order.number)
    return environment


def _run_key(order: StartAttempt, marker: Marker | None) -> str:
    key = f"{marker.identity if marker else 'memory'}-{order.seq}-{order.run}"
    return f"{key}-{order.base_number}" if order.base_number else key


def _as_variable(name: str) -> str:
    """The name of a resource as part of the name of a variable: `tape-drive` is TAPE_DRIVE."""
    return "".join(char if char.isalnum() else "_" for char in name).upper()


def _account() -> tuple[str, str]:
    """Name and home of who runs the daemon; a uid without an account has its number and the root directory."""
    try:
        entry = pwd.getpwuid(os.geteuid())
    except KeyError:
        return str(os.geteuid()), "/"
    return entry.pw_name, entry.pw_dir
