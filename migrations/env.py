"""Runs the migration scripts: on the daemon's own connection, or for developers on `-x db=PATH`."""

from pathlib import Path

from alembic import context
from sqlalchemy import Connection

from schedd.store.connect import writing_engine
from schedd.store.tables import metadata


def run(connection: Connection) -> None:
    """Everything in the transaction that the caller has begun."""
    context.configure(
        connection=connection,
        target_metadata=metadata,
        transactional_ddl=True,  # SQLite can, and Alembic's default for it is no
        render_as_batch=True,
        compare_type=True,
        include_object=_is_compared,
    )
    with context.begin_transaction():
        context.run_migrations()


def _is_compared(entry: object, name: str | None, kind: str, reflected: bool, compare_to: object) -> bool:
    """Whether `alembic check` looks at it: SQLite cannot reflect the condition of a partial index."""
    return not (kind == "index" and name in ("ix_task_open", "ix_task_failed"))


def main() -> None:
    """Find the connection and run."""
    given = context.config.attributes.get("connection")
    if given is not None:
        run(given)
        return
    path = context.get_x_argument(as_dictionary=True).get("db")
    if path is None:
        raise SystemExit("name a database: alembic -x db=PATH ...")
    engine = writing_engine(Path(path), migrating=True)
    with engine.begin() as connection:
        run(connection)
    engine.dispose()


main()
