"""`backup`: a copy of the database, while the daemon runs or not. Tests: tests/acceptance/test_admin_tools.py."""

from pathlib import Path
from typing import Annotated

import typer

from schedd.cli.check import CheckCode
from schedd.cli.errors import ExitCode, WrongUse, complain
from schedd.cli.place import StateDir, state_dir_of
from schedd.cli.render import printable, write


def backup(
    context: typer.Context,
    file: Annotated[str, typer.Argument(metavar="FILE", help="Where to put it; it must not exist.")],
    *,
    state_dir: StateDir = None,
) -> int:
    """Copy the database to a file.

    While schedd runs or not; it prints the path of the copy, which is consistent, checked and durable before
    it has its name. It is made by schedctl itself, which must be allowed to read the database. Logs of tasks are not
    in it. Exit code 2: not made, 3: the database cannot be read.

    \b
    Example:
      schedctl backup "/backup/schedd-$(date +%F).db"
    """
    from schedd.checkup import NotAStateDir, database_of
    from schedd.store.backup import BackupRefused, copy_database
    from schedd.store.base import StoreBroken, StoreUnavailable

    target = Path(file).absolute()
    directory = state_dir_of(context, state_dir)
    try:
        copy_database(database_of(directory), target)
    except (BackupRefused, NotAStateDir) as refusal:
        raise WrongUse(str(refusal)) from None
    except (StoreBroken, StoreUnavailable) as error:
        complain([str(error)])
        return CheckCode.UNREADABLE
    except PermissionError as error:
        complain([f"{error.filename or directory} may not be read by you; run it as the user of schedd, or as root"])
        return CheckCode.UNREADABLE
    write([printable(str(target))])
    return ExitCode.DONE
