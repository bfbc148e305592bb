"""Resources, groups, deadlines, finer retries, retry by an operator, schedules.

The task table is built anew: its payload must stay the last column, so that reading any other needs no walk through
the pages that a long payload takes.

Revision ID: 0002
Revises: 0001
"""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None

OPEN = "status <> 'succeeded' AND status <> 'failed' AND status <> 'cancelled' AND status <> 'skipped'"
STORED = (
    "status = 'pending' OR status = 'running' OR status = 'succeeded' OR status = 'failed'"
    " OR status = 'cancelled' OR status = 'skipped'"
)
KEPT = (
    "seq, id, batch_seq, priority, max_attempts, base_delay, max_delay, delay, every, times, catch_up, status,"
    " attempts, number, runs, run_at, planned_at, held, cancel_requested, error, created_at, settled_at, payload"
)


def upgrade() -> None:
    _batch()
    _task()
    op.add_column("attempt", sa.Column("units", sa.Text, nullable=True))
    op.create_table(
        "schedule",
        sa.Column("seq", sa.Integer, nullable=False),
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("cron", sa.Text, nullable=True),
        sa.Column("timezone", sa.Text, nullable=True),
        sa.Column("every", sa.Float, nullable=True),
        sa.Column("catch_up", sa.Text, nullable=False),
        sa.Column("overlap", sa.Text, nullable=False),
        sa.Column("paused", sa.Integer, nullable=False),
        sa.Column("next_at", sa.Float, nullable=True),
        sa.Column("queued_at", sa.Float, nullable=True),
        sa.Column("last_slot", sa.Float, nullable=True),
        sa.Column("last_batch", sa.Integer, nullable=True),
        sa.Column("fired", sa.Integer, nullable=False),
        sa.Column("missed", sa.Integer, nullable=False),
        sa.Column("error", sa.Text, nullable=True),
        sa.Column("created_at", sa.Float, nullable=False),
        sa.Column("spec", sa.Text, nullable=False),
        sa.PrimaryKeyConstraint("seq", name="pk_schedule"),
        sa.UniqueConstraint("name", name="uq_schedule_name"),
        sqlite_autoincrement=True,
    )
    op.create_table(
        "resource",
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("capacity", sa.Integer, nullable=False),
        sa.Column("units", sa.Text, nullable=True),
        sa.PrimaryKeyConstraint("name", name="pk_resource"),
    )


def _batch() -> None:
    op.add_column("batch", sa.Column("base_name", sa.Text, nullable=True))
    op.add_column("batch", sa.Column("schedule_seq", sa.Integer, nullable=True))
    op.add_column("batch", sa.Column("slot", sa.Float, nullable=True))
    op.execute(
        "UPDATE batch SET base_name = substr(name, 1, length(rtrim(name, '0123456789')) - 1) WHERE name IS NOT NULL"
    )
    op.create_index("ix_batch_base_name_seq", "batch", ["base_name", "seq"])
    op.create_index("ix_batch_schedule_seq_slot", "batch", ["schedule_seq", "slot"], unique=True)


def _task() -> None:
    op.create_table(
        "task_new",
        sa.Column("seq", sa.Integer, nullable=False),
        sa.Column("id", sa.Text, nullable=False),
        sa.Column("batch_seq", sa.Integer, nullable=False),
        sa.Column("priority", sa.Integer, nullable=False),
        sa.Column("max_attempts", sa.Integer, nullable=False),
        sa.Column("base_delay", sa.Float, nullable=False),
        sa.Column("max_delay", sa.Float, nullable=False),
        sa.Column("jitter", sa.Text, nullable=False),
        sa.Column("retry_rules", sa.Text, nullable=True),
        sa.Column("delay", sa.Float, nullable=False),
        sa.Column("every", sa.Float, nullable=True),
        sa.Column("times", sa.Integer, nullable=True),
        sa.Column("catch_up", sa.Text, nullable=True),
        sa.Column("resources", sa.Text, nullable=True),
        sa.Column("group", sa.Text, nullable=True),
        sa.Column("allow_failure", sa.Integer, nullable=False),
        sa.Column("expected", sa.Float, nullable=True),
        sa.Column("status", sa.Text, nullable=False),
        sa.Column("attempts", sa.Integer, nullable=False),
        sa.Column("number", sa.Integer, nullable=False),
        sa.Column("base_number", sa.Integer, nullable=False),
        sa.Column("retries", sa.Integer, nullable=False),
        sa.Column("runs", sa.Integer, nullable=False),
        sa.Column("run_at", sa.Float, nullable=False),
        sa.Column("planned_at", sa.Float, nullable=True),
        sa.Column("start_before", sa.Float, nullable=True),
        sa.Column("deadline", sa.Float, nullable=True),
        sa.Column("wall", sa.Integer, nullable=False),
        sa.Column("held", sa.Integer, nullable=False),
        sa.Column("cancel_requested", sa.Integer, nullable=False),
        sa.Column("error", sa.Text, nullable=True),
        sa.Column("created_at", sa.Float, nullable=False),
        sa.Column("settled_at", sa.Float, nullable=True),
        sa.Column("payload", sa.Text, nullable=False),
        sa.PrimaryKeyConstraint("seq", name="pk_task"),
        sa.UniqueConstraint("id", name="uq_task_id"),
        sa.CheckConstraint(STORED, name=op.f("ck_task_status_is_stored")),
        sa.ForeignKeyConstraint(["batch_seq"], ["batch.seq"], name="fk_task_batch_seq_batch"),
        sqlite_autoincrement=True,
    )
    op.execute(
        f"INSERT INTO task_new ({KEPT}, jitter, allow_failure, base_number, retries, wall)"  # noqa: S608 - constants of ours
        f" SELECT {KEPT}, 'none', 0, 0, 0, 0 FROM task ORDER BY seq"
    )
    # The number given last outlives the rows: it is taken along before the table goes.
    op.execute(
        "INSERT INTO sqlite_sequence (name, seq) SELECT 'task_new', seq FROM sqlite_sequence WHERE name = 'task'"
        " AND NOT EXISTS (SELECT 1 FROM sqlite_sequence WHERE name = 'task_new')"
    )
    op.execute(
        "UPDATE sqlite_sequence SET seq = max(seq, coalesce((SELECT seq FROM sqlite_sequence WHERE name = 'task'), 0))"
        " WHERE name = 'task_new'"
    )
    op.drop_table("task")
    op.rename_table("task_new", "task")
    op.create_index("ix_task_open", "task", ["seq"], sqlite_where=sa.text(OPEN))
    op.create_index("ix_task_status", "task", ["status"])
    op.create_index("ix_task_failed", "task", ["settled_at"], sqlite_where=sa.text("status = 'failed'"))
    op.create_index("ix_task_batch_seq", "task", ["batch_seq"])
