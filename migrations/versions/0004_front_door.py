"""Tables as input, checks before spending, scopes and quotas, usage, the audit log and webhooks."""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.postgresql import JSON, JSONB

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None

NOW = sa.text("now()")
ZERO = sa.text("0")
ON_THEIR_WAY = sa.text("state IN ('pending', 'fetching')")
ALL_SCOPES = sa.text("'{*}'")


def upgrade() -> None:
    _add_columns()
    _check_first()
    _count_use()
    _tell_of_events()
    _be_polite()
    _keep_to_quotas()
    op.create_index(
        "ix_batches_retry_of", "batches", ["retry_of"], postgresql_where=sa.text("retry_of IS NOT NULL")
    )


def downgrade() -> None:
    op.drop_index("ix_jobs_direct_open", table_name="jobs")
    op.drop_index("ix_jobs_direct_unmetered", table_name="jobs")
    op.drop_index("ix_images_failed", table_name="images")
    op.drop_index("ix_images_due", table_name="images")
    op.create_index("ix_images_due", "images", ["host", "due_at"], postgresql_where=ON_THEIR_WAY)
    op.drop_index("ix_batches_retry_of", table_name="batches")
    for table in (
        "image_days",
        "host_pauses",
        "idempotency_keys",
        "webhook_deliveries",
        "webhook_events",
        "webhook_endpoints",
        "audit_log",
        "usage",
        "checked",
    ):
        op.drop_table(table)
    for table, columns in (
        ("answers", ("reasoning",)),
        ("jobs", ("metered", "key_id")),
        (
            "batches",
            ("told_quarters", "metered", "report", "is_strict", "is_dry_run", "input_table", "key_id"),
        ),
        ("api_keys", ("last_used_at", "scopes")),
        ("tenants", ("quota_images_day", "quota_bytes", "quota_queued_jobs", "requests_per_minute")),
    ):
        for column in columns:
            op.drop_column(table, column)


def _add_columns() -> None:
    for column in ("requests_per_minute", "quota_queued_jobs", "quota_images_day"):
        op.add_column("tenants", sa.Column(column, sa.Integer))
    op.add_column("tenants", sa.Column("quota_bytes", sa.BigInteger))
    op.add_column(
        "api_keys", sa.Column("scopes", sa.ARRAY(sa.Text), nullable=False, server_default=ALL_SCOPES)
    )
    op.add_column("api_keys", sa.Column("last_used_at", sa.DateTime(timezone=True)))
    op.add_column("batches", sa.Column("key_id", sa.Text))
    op.add_column("batches", sa.Column("input_table", JSON))
    for column in ("is_dry_run", "is_strict"):
        op.add_column(
            "batches", sa.Column(column, sa.Boolean, nullable=False, server_default=sa.text("false"))
        )
    op.add_column("batches", sa.Column("report", JSON))
    op.add_column("batches", sa.Column("told_quarters", sa.SmallInteger, nullable=False, server_default=ZERO))
    op.add_column("batches", sa.Column("metered", JSONB))
    op.add_column("jobs", sa.Column("key_id", sa.Text))
    op.add_column("jobs", sa.Column("metered", sa.Boolean, nullable=False, server_default=sa.text("false")))
    op.add_column("answers", sa.Column("reasoning", sa.Text))


def _check_first() -> None:
    op.create_table(
        "checked",
        sa.Column("batch_id", sa.Text, nullable=False),
        sa.Column("kind", sa.Text, nullable=False),
        sa.Column("hash", sa.Text(collation="C"), nullable=False),
        sa.Column("line", sa.Integer, nullable=False),
        sa.PrimaryKeyConstraint("batch_id", "kind", "hash", name="pk_checked"),
    )
    op.create_index(
        "ix_images_failed",
        "images",
        ["tenant_id", "ref_hash"],
        postgresql_where=sa.text("state = 'failed'"),
    )


def _count_use() -> None:
    op.create_table(
        "usage",
        sa.Column("tenant_id", sa.Text, nullable=False),
        sa.Column("key_id", sa.Text, nullable=False),
        sa.Column("day", sa.Date, nullable=False),
        sa.Column("model", sa.Text, nullable=False),
        *(
            sa.Column(name, sa.BigInteger, nullable=False, server_default=ZERO)
            for name in ("completed", "failed", "prompt_tokens", "cached_tokens", "completion_tokens")
        ),
        sa.PrimaryKeyConstraint("tenant_id", "day", "key_id", "model", name="pk_usage"),
    )
    op.create_index(
        "ix_jobs_direct_unmetered",
        "jobs",
        ["id"],
        postgresql_where=sa.text("batch_id IS NULL AND finished_at IS NOT NULL AND NOT metered"),
    )
    op.create_table(
        "audit_log",
        sa.Column("id", sa.BigInteger, sa.Identity(), primary_key=True),
        sa.Column("at", sa.DateTime(timezone=True), nullable=False, server_default=NOW),
        sa.Column("tenant_id", sa.Text),
        sa.Column("key_id", sa.Text),
        sa.Column("action", sa.Text, nullable=False),
        sa.Column("object_id", sa.Text),
        sa.Column("request_id", sa.Text),
        sa.Column("details", JSONB),
    )
    op.create_index("ix_audit_log_tenant_id_id", "audit_log", ["tenant_id", "id"])


def _tell_of_events() -> None:
    op.create_table(
        "webhook_endpoints",
        sa.Column("id", sa.Text, primary_key=True),
        sa.Column("tenant_id", sa.Text, sa.ForeignKey("tenants.id"), nullable=False),
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("url", sa.Text, nullable=False),
        sa.Column("event_types", sa.ARRAY(sa.Text), nullable=False),
        sa.Column("secret", sa.Text, nullable=False),
        sa.Column("old_secret", sa.Text),
        sa.Column("old_secret_until", sa.DateTime(timezone=True)),
        sa.Column("failures", sa.Integer, nullable=False, server_default=ZERO),
        sa.Column("resting_until", sa.DateTime(timezone=True)),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False, server_default=NOW),
        sa.Column("updated_at", sa.DateTime(timezone=True), nullable=False, server_default=NOW),
    )
    op.create_index(
        "ix_webhook_endpoints_tenant_id_created_at_id",
        "webhook_endpoints",
        ["tenant_id", "created_at", "id"],
    )
    op.create_table(
        "webhook_events",
        sa.Column("id", sa.Text, primary_key=True),
        sa.Column("tenant_id", sa.Text, nullable=False),
        sa.Column("type", sa.Text, nullable=False),
        sa.Column("body", JSON, nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False, server_default=NOW),
    )
    op.create_index("ix_webhook_events_created_at", "webhook_events", ["created_at"])
    op.create_table(
        "webhook_deliveries",
        sa.Column("id", sa.Text, primary_key=True),
        sa.Column(
            "endpoint_id", sa.Text, sa.ForeignKey("webhook_endpoints.id", ondelete="CASCADE"), nullable=False
        ),
        sa.Column(
            "event_id", sa.Text, sa.ForeignKey("webhook_events.id", ondelete="CASCADE"), nullable=False
        ),
        sa.Column("state", sa.Text, nullable=False),
        sa.Column("attempt", sa.SmallInteger, nullable=False, server_default=ZERO),
        sa.Column("earlier", sa.SmallInteger, nullable=False, server_default=ZERO),
        sa.Column("due_at", sa.DateTime(timezone=True), nullable=False, server_default=NOW),
        sa.Column("status_code", sa.SmallInteger),
        sa.Column("error", sa.Text),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False, server_default=NOW),
        sa.Column("ended_at", sa.DateTime(timezone=True)),
    )
    op.create_index(
        "ix_webhook_deliveries_endpoint_id_created_at_id",
        "webhook_deliveries",
        ["endpoint_id", "created_at", "id"],
    )
    op.create_index("ix_webhook_deliveries_event_id", "webhook_deliveries", ["event_id"])
    op.create_index(
        "ix_webhook_deliveries_due_at",
        "webhook_deliveries",
        ["due_at"],
        postgresql_where=sa.text("state = 'pending'"),
    )


def _be_polite() -> None:
    """Nothing is made twice for a key, and no host is asked before it wants to be."""
    op.create_table(
        "idempotency_keys",
        sa.Column("tenant_id", sa.Text, nullable=False),
        sa.Column("kind", sa.Text, nullable=False),
        sa.Column("key", sa.Text, nullable=False),
        sa.Column("request_hash", sa.Text, nullable=False),
        sa.Column("object_id", sa.Text, nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False, server_default=NOW),
        sa.PrimaryKeyConstraint("tenant_id", "kind", "key", name="pk_idempotency_keys"),
    )
    op.create_index("ix_idempotency_keys_created_at", "idempotency_keys", ["created_at"])
    op.create_table(
        "host_pauses",
        sa.Column("host", sa.Text, primary_key=True),
        sa.Column("until", sa.DateTime(timezone=True), nullable=False),
    )


def _keep_to_quotas() -> None:
    op.create_table(
        "image_days",
        sa.Column("tenant_id", sa.Text, primary_key=True),
        sa.Column("day", sa.Date, nullable=False),
        sa.Column("fetched", sa.Integer, nullable=False),
        sa.Column("allowed", sa.Integer, nullable=False),
    )
    op.create_index(
        "ix_jobs_direct_open",
        "jobs",
        ["tenant_id"],
        postgresql_where=sa.text("batch_id IS NULL AND state IN ('waiting', 'ready', 'queued', 'running')"),
    )
    op.drop_index("ix_images_due", table_name="images")
    op.create_index(
        "ix_images_due",
        "images",
        ["host", "tenant_id", "ref_kind", "due_at"],
        postgresql_where=ON_THEIR_WAY,
    )
