"""schedd: a persistent, restart-safe task scheduler for one machine.

The names of the library are imported when they are first used, so that `import schedd` stays cheap for `schedctl`
and for the processes of tasks.
"""

import importlib
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from schedd.core.errors import CycleError
    from schedd.core.model import RetryPolicy, Status
    from schedd.library import Scheduler, Task

__all__ = ["CycleError", "RetryPolicy", "Scheduler", "Status", "Task", "__version__"]


def __getattr__(name: str) -> Any:
    if name in __all__:
        return getattr(importlib.import_module("schedd.library"), name)
    raise AttributeError(f"module 'schedd' has no attribute {name!r}")
