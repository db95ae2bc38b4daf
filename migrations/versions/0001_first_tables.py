"""First tables."""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "answers",
        sa.Column("job_id", sa.BigInteger(), nullable=False),
        sa.Column("text", sa.Text(), nullable=False),
        sa.Column("finish_reason", sa.Text(), nullable=False),
        sa.Column("prompt_tokens", sa.Integer(), nullable=False),
        sa.Column("cached_tokens", sa.Integer(), server_default=sa.text("0"), nullable=False),
        sa.Column("completion_tokens", sa.Integer(), nullable=False),
        sa.Column("model", sa.Text(), nullable=False),
        sa.Column("revision", sa.Text(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.PrimaryKeyConstraint("job_id", name=op.f("pk_answers")),
    )
    op.create_table(
        "job_waits",
        sa.Column("image_id", sa.BigInteger(), nullable=False),
        sa.Column("job_id", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("image_id", "job_id", name=op.f("pk_job_waits")),
    )
    op.create_table(
        "jobs",
        sa.Column("id", sa.BigInteger(), nullable=False),
        sa.Column("tenant_id", sa.Text(), nullable=False),
        sa.Column("batch_id", sa.Text(), nullable=True),
        sa.Column("line", sa.Integer(), nullable=True),
        sa.Column("custom_id", sa.Text(collation="C"), nullable=True),
        sa.Column("model", sa.Text(), nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("prompt", postgresql.JSON(astext_type=sa.Text()), nullable=False),
        sa.Column("params", postgresql.JSON(astext_type=sa.Text()), nullable=False),
        sa.Column("image_ids", sa.ARRAY(sa.BigInteger()), nullable=False),
        sa.Column("image_group", sa.BigInteger(), server_default=sa.text("0"), nullable=False),
        sa.Column("waiting_on", sa.SmallInteger(), server_default=sa.text("0"), nullable=False),
        sa.Column("attempt", sa.SmallInteger(), server_default=sa.text("0"), nullable=False),
        sa.Column("returns", sa.SmallInteger(), server_default=sa.text("0"), nullable=False),
        sa.Column("crashes", sa.SmallInteger(), server_default=sa.text("0"), nullable=False),
        sa.Column("alone", sa.Boolean(), server_default=sa.text("false"), nullable=False),
        sa.Column("worker", sa.Text(), nullable=True),
        sa.Column("lease_until", sa.DateTime(timezone=True), nullable=True),
        sa.Column("not_before", sa.DateTime(timezone=True), nullable=True),
        sa.Column("deadline", sa.DateTime(timezone=True), nullable=True),
        sa.Column("error_code", sa.Text(), nullable=True),
        sa.Column("error_message", sa.Text(), nullable=True),
        sa.Column("error_param", sa.Text(), nullable=True),
        sa.Column("created_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.Column("sent_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("started_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("finished_at", sa.DateTime(timezone=True), nullable=True),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_jobs")),
        sa.UniqueConstraint("batch_id", "custom_id", name=op.f("uq_jobs_batch_id_custom_id")),
    )
    op.create_index(
        "ix_jobs_direct_deadline",
        "jobs",
        ["deadline"],
        unique=False,
        postgresql_where=sa.text("batch_id IS NULL AND state IN ('waiting', 'ready', 'queued')"),
    )
    op.create_index(
        "ix_jobs_lease_until",
        "jobs",
        ["lease_until"],
        unique=False,
        postgresql_where=sa.text("state = 'running'"),
    )
    op.create_index(
        "ix_jobs_ready_batch",
        "jobs",
        ["batch_id", "image_group", "id"],
        unique=False,
        postgresql_where=sa.text("state = 'ready' AND batch_id IS NOT NULL"),
    )
    op.create_index(
        "ix_jobs_ready_direct",
        "jobs",
        ["tenant_id", "image_group", "id"],
        unique=False,
        postgresql_where=sa.text("state = 'ready' AND batch_id IS NULL"),
    )
    op.create_index(
        "ix_jobs_sent_at", "jobs", ["sent_at"], unique=False, postgresql_where=sa.text("state = 'queued'")
    )
    op.create_index("uq_jobs_batch_id_line", "jobs", ["batch_id", "line"], unique=True)
    op.create_table(
        "tenants",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_tenants")),
        sa.UniqueConstraint("name", name=op.f("uq_tenants_name")),
    )
    op.create_table(
        "workers",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("role", sa.Text(), nullable=False),
        sa.Column("model", sa.Text(), nullable=True),
        sa.Column("revision", sa.Text(), nullable=True),
        sa.Column("started_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.Column(
            "heartbeat_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_workers")),
    )
    op.create_table(
        "api_keys",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("tenant_id", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("prefix", sa.Text(), nullable=False),
        sa.Column("key_hash", sa.LargeBinary(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.Column("expires_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("revoked_at", sa.DateTime(timezone=True), nullable=True),
        sa.ForeignKeyConstraint(["tenant_id"], ["tenants.id"], name=op.f("fk_api_keys_tenant_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_api_keys")),
        sa.UniqueConstraint("key_hash", name=op.f("uq_api_keys_key_hash")),
    )
    op.create_table(
        "batches",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("tenant_id", sa.Text(), nullable=False),
        sa.Column("status", sa.Text(), nullable=False),
        sa.Column("ending", sa.Text(), nullable=True),
        sa.Column("endpoint", sa.Text(), nullable=False),
        sa.Column("input_file_id", sa.Text(), nullable=False),
        sa.Column("completion_window", sa.Text(), nullable=False),
        sa.Column("metadata", postgresql.JSONB(astext_type=sa.Text()), nullable=True),
        sa.Column("model", sa.Text(), nullable=True),
        sa.Column("errors", postgresql.JSONB(astext_type=sa.Text()), nullable=True),
        sa.Column("request_hash", sa.Text(), nullable=False),
        sa.Column("idempotency_key", sa.Text(), nullable=True),
        sa.Column("total", sa.Integer(), server_default=sa.text("0"), nullable=False),
        sa.Column("completed", sa.Integer(), server_default=sa.text("0"), nullable=False),
        sa.Column("failed", sa.Integer(), server_default=sa.text("0"), nullable=False),
        sa.Column("prompt_tokens", sa.BigInteger(), server_default=sa.text("0"), nullable=False),
        sa.Column("cached_tokens", sa.BigInteger(), server_default=sa.text("0"), nullable=False),
        sa.Column("completion_tokens", sa.BigInteger(), server_default=sa.text("0"), nullable=False),
        sa.Column("ingested_bytes", sa.BigInteger(), server_default=sa.text("0"), nullable=False),
        sa.Column("ingested_lines", sa.BigInteger(), server_default=sa.text("0"), nullable=False),
        sa.Column("lease_until", sa.DateTime(timezone=True), nullable=True),
        sa.Column("swept_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("output_file_id", sa.Text(), nullable=True),
        sa.Column("error_file_id", sa.Text(), nullable=True),
        sa.Column("output_expires_after_s", sa.Integer(), nullable=True),
        sa.Column("created_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.Column("expires_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("in_progress_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("finalizing_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("completed_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("failed_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("expired_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("cancelling_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("cancelled_at", sa.DateTime(timezone=True), nullable=True),
        sa.ForeignKeyConstraint(["tenant_id"], ["tenants.id"], name=op.f("fk_batches_tenant_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_batches")),
    )
    op.create_index(
        "ix_batches_open",
        "batches",
        ["expires_at"],
        unique=False,
        postgresql_where=sa.text("status IN ('validating', 'in_progress', 'finalizing', 'cancelling')"),
    )
    op.create_index(
        "ix_batches_tenant_id_created_at_id", "batches", ["tenant_id", "created_at", "id"], unique=False
    )
    op.create_index(
        "uq_batches_idempotency_key",
        "batches",
        ["tenant_id", "idempotency_key"],
        unique=True,
        postgresql_where=sa.text("idempotency_key IS NOT NULL"),
    )
    op.create_table(
        "files",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("tenant_id", sa.Text(), nullable=False),
        sa.Column("purpose", sa.Text(), nullable=False),
        sa.Column("filename", sa.Text(), nullable=False),
        sa.Column("content_type", sa.Text(), nullable=False),
        sa.Column("bytes", sa.BigInteger(), nullable=False),
        sa.Column("object_key", sa.Text(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.Column("expires_at", sa.DateTime(timezone=True), nullable=True),
        sa.ForeignKeyConstraint(["tenant_id"], ["tenants.id"], name=op.f("fk_files_tenant_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_files")),
    )
    op.create_index(
        "ix_files_tenant_id_created_at_id", "files", ["tenant_id", "created_at", "id"], unique=False
    )
    op.create_table(
        "images",
        sa.Column("id", sa.BigInteger(), nullable=False),
        sa.Column("tenant_id", sa.Text(), nullable=False),
        sa.Column("ref_kind", sa.Text(), nullable=False),
        sa.Column("ref_hash", sa.Text(), nullable=False),
        sa.Column("ref", sa.Text(), nullable=False),
        sa.Column("host", sa.Text(), server_default=sa.text("''"), nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("attempt", sa.SmallInteger(), server_default=sa.text("0"), nullable=False),
        sa.Column("returns", sa.SmallInteger(), server_default=sa.text("0"), nullable=False),
        sa.Column("due_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.Column("content_hash", sa.Text(), nullable=True),
        sa.Column("format", sa.Text(), nullable=True),
        sa.Column("width", sa.Integer(), nullable=True),
        sa.Column("height", sa.Integer(), nullable=True),
        sa.Column("bytes", sa.BigInteger(), nullable=True),
        sa.Column("error_code", sa.Text(), nullable=True),
        sa.Column("error_message", sa.Text(), nullable=True),
        sa.Column("created_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.Column("stored_at", sa.DateTime(timezone=True), nullable=True),
        sa.ForeignKeyConstraint(["tenant_id"], ["tenants.id"], name=op.f("fk_images_tenant_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_images")),
    )
    op.create_index(
        "ix_images_due",
        "images",
        ["host", "due_at"],
        unique=False,
        postgresql_where=sa.text("state IN ('pending', 'fetching')"),
    )
    op.create_index(
        "ix_images_stored",
        "images",
        ["tenant_id", "ref_hash", "stored_at"],
        unique=False,
        postgresql_where=sa.text("state = 'stored'"),
    )
    op.create_index(
        "uq_images_in_flight",
        "images",
        ["tenant_id", "ref_hash"],
        unique=True,
        postgresql_where=sa.text("state IN ('pending', 'fetching')"),
    )


def downgrade() -> None:
    op.drop_index(
        "uq_images_in_flight",
        table_name="images",
        postgresql_where=sa.text("state IN ('pending', 'fetching')"),
    )
    op.drop_index("ix_images_stored", table_name="images", postgresql_where=sa.text("state = 'stored'"))
    op.drop_index(
        "ix_images_due", table_name="images", postgresql_where=sa.text("state IN ('pending', 'fetching')")
    )
    op.drop_table("images")
    op.drop_index("ix_files_tenant_id_created_at_id", table_name="files")
    op.drop_table("files")
    op.drop_index(
        "uq_batches_idempotency_key",
        table_name="batches",
        postgresql_where=sa.text("idempotency_key IS NOT NULL"),
    )
    op.drop_index("ix_batches_tenant_id_created_at_id", table_name="batches")
    op.drop_index(
        "ix_batches_open",
        table_name="batches",
        postgresql_where=sa.text("status IN ('validating', 'in_progress', 'finalizing', 'cancelling')"),
    )
    op.drop_table("batches")
    op.drop_table("api_keys")
    op.drop_table("workers")
    op.drop_table("tenants")
    op.drop_index("uq_jobs_batch_id_line", table_name="jobs")
    op.drop_index("ix_jobs_sent_at", table_name="jobs", postgresql_where=sa.text("state = 'queued'"))
    op.drop_index(
        "ix_jobs_ready_direct",
        table_name="jobs",
        postgresql_where=sa.text("state = 'ready' AND batch_id IS NULL"),
    )
    op.drop_index(
        "ix_jobs_ready_batch",
        table_name="jobs",
        postgresql_where=sa.text("state = 'ready' AND batch_id IS NOT NULL"),
    )
    op.drop_index("ix_jobs_lease_until", table_name="jobs", postgresql_where=sa.text("state = 'running'"))
    op.drop_index(
        "ix_jobs_direct_deadline",
        table_name="jobs",
        postgresql_where=sa.text("batch_id IS NULL AND state IN ('waiting', 'ready', 'queued')"),
    )
    op.drop_table("jobs")
    op.drop_table("job_waits")
    op.drop_table("answers")
