"""Priorities and weights, the order of results, errors by code, retention, retries and brakes of batches."""

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None

READY_BATCH = sa.text("state = 'ready' AND batch_id IS NOT NULL")
READY_DIRECT = sa.text("state = 'ready' AND batch_id IS NULL")
OPEN_INTERACTIVE = sa.text("priority = 'interactive' AND state IN ('waiting', 'ready', 'queued', 'running')")
ENDED = "('completed', 'failed', 'cancelled', 'expired')"
ENDED_AT = "greatest(completed_at, failed_at, expired_at, cancelled_at)"


def upgrade() -> None:
    _add_columns()
    _create_tables()
    _index_ready_jobs("model", "priority")
    op.create_index("ix_jobs_interactive", "jobs", ["model"], postgresql_where=OPEN_INTERACTIVE)
    op.create_index(
        "ix_jobs_ready_alone", "jobs", ["id"], postgresql_where=sa.text("state = 'ready' AND alone")
    )
    _index_ages()
    # By default a million rows are vacuumed after 200,000 dead ones: the indexes of ready and queued jobs,
    # through which every job passes, would hold mostly dead entries by then.
    op.execute(
        "ALTER TABLE jobs SET (autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_threshold = 10000, "
        "autovacuum_analyze_scale_factor = 0.02, autovacuum_vacuum_insert_scale_factor = 0.05, "
        "autovacuum_vacuum_cost_delay = 0)"
    )
    # Their rows are updated with every chunk: room for the new version beside the old one spares the indexes.
    op.execute(
        "ALTER TABLE batches SET (fillfactor = 40, autovacuum_vacuum_scale_factor = 0, "
        "autovacuum_vacuum_threshold = 500, autovacuum_vacuum_cost_delay = 0)"
    )
    _fill()


def downgrade() -> None:
    op.execute(
        "ALTER TABLE batches RESET (fillfactor, autovacuum_vacuum_scale_factor, autovacuum_vacuum_threshold, "
        "autovacuum_vacuum_cost_delay)"
    )
    op.execute(
        "ALTER TABLE jobs RESET (autovacuum_vacuum_scale_factor, autovacuum_vacuum_threshold, "
        "autovacuum_analyze_scale_factor, autovacuum_vacuum_insert_scale_factor, "
        "autovacuum_vacuum_cost_delay)"
    )
    for index, table in (
        ("ix_jobs_ready_alone", "jobs"),
        ("ix_jobs_interactive", "jobs"),
        ("ix_jobs_direct_finished_at", "jobs"),
        ("ix_images_content", "images"),
        ("ix_images_used_at", "images"),
        ("ix_files_expires_at", "files"),
        ("ix_files_tenant_id_purpose_created_at_id", "files"),
        ("ix_batches_deleted_at", "batches"),
        ("ix_batches_ended_at", "batches"),
    ):
        op.drop_index(index, table_name=table)
    _index_ready_jobs()
    for table in ("doomed_objects", "batch_errors", "results"):
        op.drop_table(table)
    for name in (
        "deleted_at",
        "ended_at",
        "pace_ended",
        "pace_at",
        "pace",
        "brake_after",
        "brake_share",
        "bad_lines",
        "image_failures",
        "ingested_at",
        "retry_states",
        "retry_of",
        "priority",
    ):
        op.drop_column("batches", name)
    op.drop_column("jobs", "priority")
    op.drop_column("images", "used_at")
    op.drop_column("tenants", "weight")


def _add_columns() -> None:
    now, standard = sa.text("now()"), sa.text("'standard'")
    op.add_column("tenants", sa.Column("weight", sa.Float(), server_default=sa.text("1"), nullable=False))
    op.create_check_constraint("weight_is_positive", "tenants", "weight > 0")
    op.add_column(
        "images", sa.Column("used_at", sa.DateTime(timezone=True), server_default=now, nullable=False)
    )
    op.add_column("jobs", sa.Column("priority", sa.Text(), server_default=standard, nullable=False))
    op.add_column("batches", sa.Column("priority", sa.Text(), server_default=standard, nullable=False))
    op.add_column("batches", sa.Column("retry_of", sa.Text()))
    op.add_column("batches", sa.Column("retry_states", sa.ARRAY(sa.Text())))
    for counter in ("bad_lines", "image_failures"):
        op.add_column(
            "batches", sa.Column(counter, sa.Integer(), server_default=sa.text("0"), nullable=False)
        )
    op.add_column("batches", sa.Column("ingested_at", sa.DateTime(timezone=True)))
    op.add_column("batches", sa.Column("brake_share", sa.Float()))
    op.add_column("batches", sa.Column("brake_after", sa.Integer()))
    op.add_column("batches", sa.Column("pace", sa.Float()))
    op.add_column("batches", sa.Column("pace_at", sa.DateTime(timezone=True)))
    op.add_column("batches", sa.Column("pace_ended", sa.Integer()))
    op.add_column("batches", sa.Column("ended_at", sa.DateTime(timezone=True)))
    op.add_column("batches", sa.Column("deleted_at", sa.DateTime(timezone=True)))


def _create_tables() -> None:
    op.create_table(
        "results",
        sa.Column("batch_id", sa.Text(), nullable=False),
        sa.Column("seq", sa.Integer(), nullable=False),
        sa.Column("job_ids", sa.ARRAY(sa.BigInteger()), nullable=False),
        sa.PrimaryKeyConstraint("batch_id", "seq", name=op.f("pk_results")),
    )
    op.create_table(
        "batch_errors",
        sa.Column("batch_id", sa.Text(), nullable=False),
        sa.Column("code", sa.Text(), nullable=False),
        sa.Column("jobs", sa.Integer(), nullable=False),
        sa.Column("line", sa.Integer()),
        sa.Column("message", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("batch_id", "code", name=op.f("pk_batch_errors")),
    )
    op.create_table(
        "doomed_objects",
        sa.Column("key", sa.Text(), nullable=False),
        sa.Column("doomed_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.Column("tried_at", sa.DateTime(timezone=True)),
        sa.PrimaryKeyConstraint("key", name=op.f("pk_doomed_objects")),
    )
    op.create_index("ix_doomed_objects_doomed_at", "doomed_objects", ["doomed_at"])


def _index_ready_jobs(*further: str) -> None:
    """Ready jobs of a batch, or direct ones of a tenant, by image; `further` columns come before it."""
    op.drop_index("ix_jobs_ready_batch", table_name="jobs")
    op.drop_index("ix_jobs_ready_direct", table_name="jobs")
    op.create_index(
        "ix_jobs_ready_batch",
        "jobs",
        ["batch_id", *further[:1], "image_group", "id"],
        postgresql_where=READY_BATCH,
    )
    op.create_index(
        "ix_jobs_ready_direct",
        "jobs",
        ["tenant_id", *further, "image_group", "id"],
        postgresql_where=READY_DIRECT,
    )


def _index_ages() -> None:
    """What retention looks for; and lists of files of one purpose, which read all others without it."""
    op.create_index(
        "ix_files_tenant_id_purpose_created_at_id", "files", ["tenant_id", "purpose", "created_at", "id"]
    )
    op.create_index(
        "ix_batches_ended_at", "batches", ["ended_at"], postgresql_where=sa.text("ended_at IS NOT NULL")
    )
    op.create_index(
        "ix_batches_deleted_at", "batches", ["deleted_at"], postgresql_where=sa.text("deleted_at IS NOT NULL")
    )
    op.create_index(
        "ix_files_expires_at", "files", ["expires_at"], postgresql_where=sa.text("expires_at IS NOT NULL")
    )
    op.create_index(
        "ix_images_used_at",
        "images",
        ["used_at"],
        postgresql_where=sa.text("state IN ('stored', 'failed')"),
    )
    op.create_index(
        "ix_images_content",
        "images",
        ["tenant_id", "content_hash"],
        postgresql_where=sa.text("content_hash IS NOT NULL"),
    )
    op.create_index(
        "ix_jobs_direct_finished_at",
        "jobs",
        ["finished_at"],
        postgresql_where=sa.text("batch_id IS NULL AND finished_at IS NOT NULL"),
    )


def _fill() -> None:
    """What the rows that are there already say."""
    op.execute(
        f"UPDATE batches SET ended_at = {ENDED_AT} "  # noqa: S608 - the constants above
        f"WHERE status IN ('completed', 'failed', 'expired', 'cancelled')"
    )
    op.execute(
        "UPDATE batches SET ingested_at = coalesce(in_progress_at, ended_at, now()) "
        "WHERE status <> 'validating'"
    )
    # A line that is no request has no prompt.
    op.execute(
        """
        UPDATE batches SET bad_lines = bad.n
        FROM (SELECT batch_id, count(*) AS n FROM jobs
              WHERE batch_id IS NOT NULL AND state = 'failed' AND prompt::text = '{}'
              GROUP BY batch_id) AS bad
        WHERE batches.id = bad.batch_id
        """
    )
    op.execute(
        f"""
        INSERT INTO results (batch_id, seq, job_ids)
        SELECT batch_id, max(place), array_agg(id ORDER BY place)
        FROM (SELECT id, batch_id,
                     row_number() OVER (PARTITION BY batch_id ORDER BY finished_at, line) AS place
              FROM jobs WHERE batch_id IS NOT NULL AND state IN {ENDED}) AS ended
        GROUP BY batch_id, (place - 1) / 1000
        """  # noqa: S608 - the constants above
    )
    op.execute(
        """
        INSERT INTO batch_errors (batch_id, code, jobs, line, message)
        SELECT batch_id, error_code, count(*), min(line),
               (array_agg(coalesce(error_message, '') ORDER BY line))[1]
        FROM jobs WHERE batch_id IS NOT NULL AND state = 'failed' AND error_code IS NOT NULL
        GROUP BY batch_id, error_code
        """
    )
