"""The scripts of bench/ as modules. They are no package: they find one another because they lie side by side."""

import importlib
import sys
from pathlib import Path
from types import ModuleType

ROOT = Path(__file__).resolve().parents[2]
BENCH = ROOT / "bench"


def load(name: str) -> ModuleType:
    """The module of `bench/<name>.py`, imported as the script itself would import it."""
    if str(BENCH) not in sys.path:
        sys.path.insert(0, str(BENCH))
    module = importlib.import_module(name)
    assert Path(str(module.__file__)).parent == BENCH, f"{name} was found in {module.__file__}"
    return module
