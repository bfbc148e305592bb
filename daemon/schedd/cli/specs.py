"""Spec files as the verbs that take one need them: read, seen from the caller's directory, and complained about.

Tests: tests/unit/cli/test_cli_specs.py.
"""

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from schedd.answers import ErrorItem
from schedd.cli.errors import BadFile, WrongUse
from schedd.specfile import SpecFile, SpecFileError, load, render_errors, with_base_dir

if TYPE_CHECKING:
    from schedd.core.batch import NewBatch


def read(path: str) -> SpecFile:
    """The spec file at `path` (`-`: the standard input). Raises WrongUse with its place and what is wrong."""
    try:
        return load(path)
    except SpecFileError as error:
        hint = (
            []
            if "/" in path or os.path.lexists(path) or path == "-"
            else [f"for a command: `schedctl submit -- {path}`"]
        )
        raise BadFile(str(error)) if error.line else WrongUse(str(error), *hint) from None


def from_here(spec: SpecFile) -> Any:
    """The data of `spec` with the caller's directory as the default `cwd`, and relative ones seen from there."""
    return with_base_dir(spec.data, here())


def here() -> str:
    """The caller's directory. Raises WrongUse if it has been removed."""
    try:
        return os.getcwd()
    except OSError as error:
        raise WrongUse(f"cannot tell in which directory to run: the current one is gone ({error.strerror})") from None


def complaints(spec: SpecFile, errors: Sequence[ErrorItem], message: str) -> list[str]:
    """A line for each thing wrong with the data of `spec`, with its place in the file; else `message`."""
    return render_errors(spec.path, errors, spec.locate) if errors else [f"{spec.path}: {message}"]


def batch_of(spec: SpecFile) -> "NewBatch":
    """The batch that `spec` describes, checked to the last cycle. Raises BadFile with all that is wrong."""
    from schedd.core.errors import Refused
    from schedd.wire import SpecError, parse_batch

    try:
        return parse_batch(from_here(spec))
    except SpecError as error:
        raise BadFile(*complaints(spec, error.errors, str(error))) from None
    except Refused as refusal:
        raise BadFile(f"{spec.path}: {refusal}") from None
