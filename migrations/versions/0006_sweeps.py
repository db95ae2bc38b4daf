"""Sweeps: sources gone through again and again, and what was asked of each of their images."""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.postgresql import JSON, JSONB

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None

NOW = sa.text("now()")
ZERO = sa.text("0")
EMPTY = sa.text("'{}'")
COUNTS = ("listed", "new", "changed", "unchanged", "deleted", "asked", "completed", "failed", "differing")
OPEN = sa.text("ended_at IS NULL")


def _moment(name: str, *, now: bool = False) -> sa.Column[object]:
    return sa.Column(name, sa.DateTime(timezone=True), nullable=not now, server_default=NOW if now else None)


def upgrade() -> None:
    op.create_table(
        "sweeps",
        sa.Column("id", sa.Text, nullable=False),
        sa.Column("tenant_id", sa.Text, nullable=False),
        sa.Column("key_id", sa.Text),
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("source", JSON, nullable=False),
        sa.Column("questions", JSON, nullable=False),
        sa.Column("policy_version", sa.Text, nullable=False),
        sa.Column("model", sa.Text, nullable=False),
        sa.Column("body", JSON, nullable=False),
        sa.Column("cron", sa.Text),
        sa.Column("zone", sa.Text, nullable=False),
        sa.Column("destination", JSON),
        sa.Column("completion_window", sa.Text, nullable=False),
        sa.Column("batch", JSON, nullable=False),
        sa.Column("alert_after_s", sa.Integer, nullable=False),
        _moment("paused_at"),
        _moment("next_due_at"),
        _moment("created_at", now=True),
        _moment("updated_at", now=True),
        _moment("deleted_at"),
        sa.PrimaryKeyConstraint("id", name="pk_sweeps"),
        sa.ForeignKeyConstraint(["tenant_id"], ["tenants.id"], name="fk_sweeps_tenant_id"),
    )
    op.create_index(
        "uq_sweeps_name",
        "sweeps",
        ["tenant_id", "name"],
        unique=True,
        postgresql_where=sa.text("deleted_at IS NULL"),
    )
    op.create_index(
        "ix_sweeps_due",
        "sweeps",
        ["next_due_at"],
        postgresql_where=sa.text("paused_at IS NULL AND deleted_at IS NULL"),
    )
    _add_runs()
    _add_items()


def _add_runs() -> None:
    op.create_table(
        "sweep_runs",
        sa.Column("id", sa.Text, nullable=False),
        sa.Column("sweep_id", sa.Text, nullable=False),
        sa.Column("kind", sa.Text, nullable=False),
        sa.Column("due_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("state", sa.Text, nullable=False),
        sa.Column("policy_version", sa.Text),
        sa.Column("spec", JSON),
        sa.Column("attempt", sa.Integer, nullable=False, server_default=ZERO),
        sa.Column("parts", JSONB, nullable=False, server_default=sa.text("'[]'")),
        sa.Column("batch_ids", sa.ARRAY(sa.Text), nullable=False, server_default=EMPTY),
        sa.Column("cursor", JSONB),
        *(sa.Column(name, sa.Integer, nullable=False, server_default=ZERO) for name in COUNTS),
        sa.Column("error_code", sa.Text),
        sa.Column("error_message", sa.Text),
        sa.Column("mark", sa.BigInteger, nullable=False, server_default=ZERO),
        _moment("moved_at", now=True),
        _moment("stalled_at"),
        _moment("lease_until"),
        _moment("created_at", now=True),
        _moment("started_at"),
        _moment("ended_at"),
        sa.PrimaryKeyConstraint("id", name="pk_sweep_runs"),
        sa.ForeignKeyConstraint(["sweep_id"], ["sweeps.id"], name="fk_sweep_runs_sweep_id"),
    )
    op.create_index(
        "uq_sweep_runs_due",
        "sweep_runs",
        ["sweep_id", "due_at"],
        unique=True,
        postgresql_where=sa.text("kind <> 'manual'"),
    )
    op.create_index("ix_sweep_runs_created_at", "sweep_runs", ["sweep_id", "created_at", "id"])
    op.create_index("ix_sweep_runs_open", "sweep_runs", ["sweep_id", "due_at"], postgresql_where=OPEN)


def _add_items() -> None:
    op.create_table(
        "sweep_items",
        sa.Column("sweep_id", sa.Text, nullable=False),
        sa.Column("key", sa.Text(collation="C"), nullable=False),
        sa.Column("ref", sa.Text, nullable=False),
        sa.Column("version", sa.Text, nullable=False),
        sa.Column("content_hash", sa.Text),
        sa.Column("asked", JSONB, nullable=False, server_default=EMPTY),
        sa.Column("answers", JSONB, nullable=False, server_default=EMPTY),
        sa.Column("stale", sa.Boolean, nullable=False, server_default=sa.text("false")),
        sa.Column("change", sa.Text, nullable=False),
        sa.Column("seen_run", sa.Text, nullable=False),
        sa.Column("seen_attempt", sa.Integer, nullable=False),
        _moment("deleted_at"),
        sa.PrimaryKeyConstraint("sweep_id", "key", name="pk_sweep_items"),
    )
    op.create_table(
        "sweep_changes",
        sa.Column("run_id", sa.Text, nullable=False),
        sa.Column("key", sa.Text(collation="C"), nullable=False),
        sa.Column("question", sa.Text(collation="C"), nullable=False),
        sa.Column("before", sa.Text, nullable=False),
        sa.Column("after", sa.Text, nullable=False),
        sa.PrimaryKeyConstraint("run_id", "key", "question", name="pk_sweep_changes"),
    )


def downgrade() -> None:
    for table in ("sweep_changes", "sweep_items", "sweep_runs", "sweeps"):
        op.drop_table(table)
