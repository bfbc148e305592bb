"""The tables, as SQLAlchemy Core metadata. Alembic owns the schema; this is what the program expects of it.

`make check` compares the two. Times are UTC seconds, durations seconds, sizes bytes. Tests: tests/migration.
"""

from sqlalchemy import (
    CheckConstraint,
    Column,
    Float,
    ForeignKey,
    Index,
    Integer,
    MetaData,
    PrimaryKeyConstraint,
    Table,
    Text,
    UniqueConstraint,
    text,
)

HEAD = "0002"
"""The newest revision of the schema: what this program reads and writes. A test holds it against the scripts."""

metadata = MetaData(
    naming_convention={
        "ix": "ix_%(table_name)s_%(column_0_N_name)s",
        "uq": "uq_%(table_name)s_%(column_0_N_name)s",
        "ck": "ck_%(table_name)s_%(constraint_name)s",
        "fk": "fk_%(table_name)s_%(column_0_N_name)s_%(referred_table_name)s",
        "pk": "pk_%(table_name)s",
    }
)

OPEN = "status <> 'succeeded' AND status <> 'failed' AND status <> 'cancelled' AND status <> 'skipped'"
"""What is not known to have ended; a status that nobody knows is open, so that recovery meets it.

Spelled out, like the check of `status`: for an IN with a list SQLite builds a table each time a row is written, which
made up a third of the time that it took to write one.
"""

_STORED = " OR ".join(
    f"status = '{status}'" for status in ("pending", "running", "succeeded", "failed", "cancelled", "skipped")
)

batch = Table(
    "batch",
    metadata,
    Column("seq", Integer, primary_key=True),
    Column("name", Text, nullable=True, comment="the full name, ci-3; NULL for a batch without one"),
    Column("created_at", Float, nullable=False),
    Column("base_name", Text, nullable=True, comment="the name without its number, ci"),
    Column("schedule_seq", Integer, nullable=True, comment="what submitted it; it may have been removed since"),
    Column("slot", Float, nullable=True, comment="the fire time of the schedule that it stands for"),
    UniqueConstraint("name"),
    Index("ix_batch_base_name_seq", "base_name", "seq"),
    Index("ix_batch_schedule_seq_slot", "schedule_seq", "slot", unique=True),
    sqlite_autoincrement=True,
)

batch_counter = Table(
    "batch_counter",
    metadata,
    Column("base_name", Text, primary_key=True, nullable=False),
    Column("last", Integer, nullable=False, comment="the number given last; never given again"),
)

task = Table(
    "task",
    metadata,
    Column("seq", Integer, primary_key=True),
    Column("id", Text, nullable=False),
    Column("batch_seq", Integer, ForeignKey("batch.seq"), nullable=False),
    Column("priority", Integer, nullable=False),
    Column("max_attempts", Integer, nullable=False),
    Column("base_delay", Float, nullable=False),
    Column("max_delay", Float, nullable=False),
    Column("jitter", Text, nullable=False),
    Column("retry_rules", Text, nullable=True, comment="JSON: which failures are tried again; NULL for all"),
    Column("delay", Float, nullable=False),
    Column("every", Float, nullable=True),
    Column("times", Integer, nullable=True),
    Column("catch_up", Text, nullable=True),
    Column("resources", Text, nullable=True, comment="JSON: name -> amount held while it runs"),
    Column("group", Text, nullable=True, comment="whose limit it counts against"),
    Column("allow_failure", Integer, nullable=False),
    Column("expected", Float, nullable=True, comment="how long an attempt is expected to take"),
    Column("status", Text, nullable=False),
    Column("attempts", Integer, nullable=False),
    Column("number", Integer, nullable=False),
    Column("base_number", Integer, nullable=False, comment="the number at the last retry by an operator; 0 before"),
    Column("retries", Integer, nullable=False, comment="how often an operator has retried it"),
    Column("runs", Integer, nullable=False),
    Column("run_at", Float, nullable=False),
    Column("planned_at", Float, nullable=True),
    Column("start_before", Float, nullable=True),
    Column("deadline", Float, nullable=True),
    Column("wall", Integer, nullable=False, comment="which of its times are dates (core.model.Wall)"),
    Column("held", Integer, nullable=False),
    Column("cancel_requested", Integer, nullable=False),
    Column("error", Text, nullable=True),
    Column("created_at", Float, nullable=False),
    Column("settled_at", Float, nullable=True),
    Column("payload", Text, nullable=False, comment="JSON: what the task does; last, so that no other is behind it"),
    UniqueConstraint("id"),
    CheckConstraint(_STORED, name="status_is_stored"),
    Index("ix_task_open", "seq", sqlite_where=text(OPEN)),
    Index("ix_task_status", "status"),  # and by seq within each status: what a page of `list --status` reads
    Index("ix_task_failed", "settled_at", sqlite_where=text("status = 'failed'")),
    Index("ix_task_batch_seq", "batch_seq"),
    sqlite_autoincrement=True,
)

dependency = Table(
    "dependency",
    metadata,
    Column("task_seq", Integer, ForeignKey("task.seq", ondelete="CASCADE"), nullable=False),
    Column("on_seq", Integer, ForeignKey("task.seq", ondelete="CASCADE"), nullable=False),
    Column("when", Text, nullable=False),
    PrimaryKeyConstraint("task_seq", "on_seq"),
    Index("ix_dependency_on_seq", "on_seq"),
    sqlite_with_rowid=False,
)

attempt = Table(
    "attempt",
    metadata,
    Column("task_seq", Integer, ForeignKey("task.seq", ondelete="CASCADE"), nullable=False),
    Column("number", Integer, nullable=False),
    Column("run", Integer, nullable=False),
    Column("outcome", Text, nullable=True, comment="NULL while it runs"),
    Column("started_at", Float, nullable=False),
    Column("ended_at", Float, nullable=True),
    Column("exit_code", Integer, nullable=True),
    Column("signal", Integer, nullable=True),
    Column("error", Text, nullable=True),
    Column("result", Text, nullable=True, comment="JSON"),
    Column("max_rss", Integer, nullable=True),
    Column("cpu_time", Float, nullable=True),
    Column("pid", Integer, nullable=True),
    Column("pid_started", Integer, nullable=True, comment="clock ticks since boot"),
    Column("units", Text, nullable=True, comment="JSON: resource -> the named units it held"),
    PrimaryKeyConstraint("task_seq", "number"),
    sqlite_with_rowid=False,
)

request = Table(
    "request",
    metadata,
    Column("key", Text, primary_key=True, nullable=False),
    Column("digest", Text, nullable=False),
    Column("answer", Text, nullable=False, comment="JSON"),
    Column("at", Float, nullable=False),
)

event = Table(
    "event",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("at", Float, nullable=False),
    Column("task_seq", Integer, nullable=True),
    Column("kind", Text, nullable=False),
    Column("detail", Text, nullable=True, comment="JSON"),
    sqlite_autoincrement=True,
)

setting = Table(
    "setting",
    metadata,
    Column("name", Text, primary_key=True, nullable=False),
    Column("value", Text, nullable=False),
)

schedule = Table(
    "schedule",
    metadata,
    Column("seq", Integer, primary_key=True),
    Column("name", Text, nullable=False),
    Column("cron", Text, nullable=True, comment="this or `every`"),
    Column("timezone", Text, nullable=True, comment="of `cron`; NULL for that of the machine"),
    Column("every", Float, nullable=True),
    Column("catch_up", Text, nullable=False),
    Column("overlap", Text, nullable=False),
    Column("paused", Integer, nullable=False),
    Column("next_at", Float, nullable=True, comment="the next slot; it only advances. NULL: there is none any more"),
    Column("queued_at", Float, nullable=True, comment="the slot that waits for the end of the last batch"),
    Column("last_slot", Float, nullable=True),
    Column("last_batch", Integer, nullable=True, comment="the seq of the batch that it submitted last"),
    Column("fired", Integer, nullable=False),
    Column("missed", Integer, nullable=False, comment="slots that were left out"),
    Column("error", Text, nullable=True, comment="why the last fire was refused"),
    Column("created_at", Float, nullable=False),
    Column("spec", Text, nullable=False, comment="JSON: the batch that is submitted"),
    UniqueConstraint("name"),
    sqlite_autoincrement=True,
)

resource = Table(
    "resource",
    metadata,
    Column("name", Text, primary_key=True, nullable=False, comment="`group/NAME` holds the limit of a group"),
    Column("capacity", Integer, nullable=False),
    Column("units", Text, nullable=True, comment="JSON: the names of its units, if they have any"),
)
