"""The first schema: tasks, their dependencies and attempts, batches, keyed requests, the event log, settings.

Revision ID: 0001
Revises:
"""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

OPEN = "status <> 'succeeded' AND status <> 'failed' AND status <> 'cancelled' AND status <> 'skipped'"
STORED = (
    "status = 'pending' OR status = 'running' OR status = 'succeeded' OR status = 'failed'"
    " OR status = 'cancelled' OR status = 'skipped'"
)


def upgrade() -> None:
    op.create_table(
        "batch",
        sa.Column("seq", sa.Integer, nullable=False),
        sa.Column("name", sa.Text, nullable=True),
        sa.Column("created_at", sa.Float, nullable=False),
        sa.PrimaryKeyConstraint("seq", name="pk_batch"),
        sa.UniqueConstraint("name", name="uq_batch_name"),
        sqlite_autoincrement=True,
    )
    op.create_table(
        "batch_counter",
        sa.Column("base_name", sa.Text, nullable=False),
        sa.Column("last", sa.Integer, nullable=False),
        sa.PrimaryKeyConstraint("base_name", name="pk_batch_counter"),
    )
    op.create_table(
        "task",
        sa.Column("seq", sa.Integer, nullable=False),
        sa.Column("id", sa.Text, nullable=False),
        sa.Column("batch_seq", sa.Integer, nullable=False),
        sa.Column("priority", sa.Integer, nullable=False),
        sa.Column("max_attempts", sa.Integer, nullable=False),
        sa.Column("base_delay", sa.Float, nullable=False),
        sa.Column("max_delay", sa.Float, nullable=False),
        sa.Column("delay", sa.Float, nullable=False),
        sa.Column("every", sa.Float, nullable=True),
        sa.Column("times", sa.Integer, nullable=True),
        sa.Column("catch_up", sa.Text, nullable=True),
        sa.Column("status", sa.Text, nullable=False),
        sa.Column("attempts", sa.Integer, nullable=False),
        sa.Column("number", sa.Integer, nullable=False),
        sa.Column("runs", sa.Integer, nullable=False),
        sa.Column("run_at", sa.Float, nullable=False),
        sa.Column("planned_at", sa.Float, nullable=True),
        sa.Column("held", sa.Integer, nullable=False),
        sa.Column("cancel_requested", sa.Integer, nullable=False),
        sa.Column("error", sa.Text, nullable=True),
        sa.Column("created_at", sa.Float, nullable=False),
        sa.Column("settled_at", sa.Float, nullable=True),
        sa.Column("payload", sa.Text, nullable=False),
        sa.PrimaryKeyConstraint("seq", name="pk_task"),
        sa.UniqueConstraint("id", name="uq_task_id"),
        sa.CheckConstraint(STORED, name="status_is_stored"),
        sa.ForeignKeyConstraint(["batch_seq"], ["batch.seq"], name="fk_task_batch_seq_batch"),
        sqlite_autoincrement=True,
    )
    op.create_index("ix_task_open", "task", ["seq"], sqlite_where=sa.text(OPEN))
    op.create_index("ix_task_status", "task", ["status"])
    op.create_index("ix_task_failed", "task", ["settled_at"], sqlite_where=sa.text("status = 'failed'"))
    op.create_index("ix_task_batch_seq", "task", ["batch_seq"])
    op.create_table(
        "dependency",
        sa.Column("task_seq", sa.Integer, nullable=False),
        sa.Column("on_seq", sa.Integer, nullable=False),
        sa.Column("when", sa.Text, nullable=False),
        sa.PrimaryKeyConstraint("task_seq", "on_seq", name="pk_dependency"),
        sa.ForeignKeyConstraint(["task_seq"], ["task.seq"], name="fk_dependency_task_seq_task", ondelete="CASCADE"),
        sa.ForeignKeyConstraint(["on_seq"], ["task.seq"], name="fk_dependency_on_seq_task", ondelete="CASCADE"),
        sqlite_with_rowid=False,
    )
    op.create_index("ix_dependency_on_seq", "dependency", ["on_seq"])
    op.create_table(
        "attempt",
        sa.Column("task_seq", sa.Integer, nullable=False),
        sa.Column("number", sa.Integer, nullable=False),
        sa.Column("run", sa.Integer, nullable=False),
        sa.Column("outcome", sa.Text, nullable=True),
        sa.Column("started_at", sa.Float, nullable=False),
        sa.Column("ended_at", sa.Float, nullable=True),
        sa.Column("exit_code", sa.Integer, nullable=True),
        sa.Column("signal", sa.Integer, nullable=True),
        sa.Column("error", sa.Text, nullable=True),
        sa.Column("result", sa.Text, nullable=True),
        sa.Column("max_rss", sa.Integer, nullable=True),
        sa.Column("cpu_time", sa.Float, nullable=True),
        sa.Column("pid", sa.Integer, nullable=True),
        sa.Column("pid_started", sa.Integer, nullable=True),
        sa.PrimaryKeyConstraint("task_seq", "number", name="pk_attempt"),
        sa.ForeignKeyConstraint(["task_seq"], ["task.seq"], name="fk_attempt_task_seq_task", ondelete="CASCADE"),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "request",
        sa.Column("key", sa.Text, nullable=False),
        sa.Column("digest", sa.Text, nullable=False),
        sa.Column("answer", sa.Text, nullable=False),
        sa.Column("at", sa.Float, nullable=False),
        sa.PrimaryKeyConstraint("key", name="pk_request"),
    )
    op.create_table(
        "event",
        sa.Column("id", sa.Integer, nullable=False),
        sa.Column("at", sa.Float, nullable=False),
        sa.Column("task_seq", sa.Integer, nullable=True),
        sa.Column("kind", sa.Text, nullable=False),
        sa.Column("detail", sa.Text, nullable=True),
        sa.PrimaryKeyConstraint("id", name="pk_event"),
        sqlite_autoincrement=True,
    )
    op.create_table(
        "setting",
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("value", sa.Text, nullable=False),
        sa.PrimaryKeyConstraint("name", name="pk_setting"),
    )
