"""Answers that are kept by what was asked, jobs that wait for the same one, and model seconds."""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.postgresql import JSON

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None

NOW = sa.text("now()")
ZERO = sa.text("0")


def upgrade() -> None:
    op.add_column("batches", sa.Column("cache", sa.Text(), nullable=False, server_default=sa.text("'off'")))
    op.add_column("batches", sa.Column("cached_answers", sa.Integer(), nullable=False, server_default=ZERO))
    for name in ("model_s", "saved_model_s"):
        op.add_column("batches", sa.Column(name, sa.Float(), nullable=False, server_default=ZERO))
    op.add_column("jobs", sa.Column("cache", sa.SmallInteger(), nullable=False, server_default=ZERO))
    op.add_column("jobs", sa.Column("question_hash", sa.LargeBinary()))
    op.add_column("jobs", sa.Column("answer_key", sa.LargeBinary()))
    op.add_column("answers", sa.Column("model_s", sa.Float()))
    op.create_index(
        "ix_jobs_answer_key",
        "jobs",
        ["answer_key"],
        postgresql_where=sa.text("answer_key IS NOT NULL AND state IN ('queued', 'running')"),
    )
    _keep_answers()


def _keep_answers() -> None:
    op.create_table(
        "answer_cache",
        sa.Column("key", sa.LargeBinary(), primary_key=True),
        sa.Column("fingerprint", sa.Text(), primary_key=True),
        sa.Column("tenant_id", sa.Text(), nullable=False),
        sa.Column("model", sa.Text(), nullable=False),
        sa.Column("question_id", sa.LargeBinary(), nullable=False),
        sa.Column("text", sa.Text(), nullable=False),
        sa.Column("finish_reason", sa.Text(), nullable=False),
        sa.Column("revision", sa.Text(), nullable=False),
        sa.Column("logprobs", JSON()),
        sa.Column("notes", JSON()),
        sa.Column("reasoning", sa.Text()),
        sa.Column("model_s", sa.Float(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False, server_default=NOW),
        sa.Column("expires_at", sa.DateTime(timezone=True), nullable=False),
    )
    op.create_index("ix_answer_cache_expires_at", "answer_cache", ["expires_at"])
    op.create_index(
        "ix_answer_cache_tenant_id_model_question_id", "answer_cache", ["tenant_id", "model", "question_id"]
    )
    op.create_table(
        "answer_waits",
        sa.Column("answer_key", sa.LargeBinary(), primary_key=True),
        sa.Column("job_id", sa.BigInteger(), primary_key=True),
    )
    op.create_table(
        "engines",
        sa.Column("model", sa.Text(), primary_key=True),
        sa.Column("fingerprint", sa.Text(), nullable=False),
        sa.Column("seen_at", sa.DateTime(timezone=True), nullable=False, server_default=NOW),
    )


def downgrade() -> None:
    for table in ("engines", "answer_waits", "answer_cache"):
        op.drop_table(table)
    op.drop_index("ix_jobs_answer_key", table_name="jobs")
    # Who waits for another's answer waits for nothing any more.
    op.execute(
        "UPDATE jobs SET state = 'ready', waiting_on = 0 WHERE state = 'waiting' AND answer_key IS NOT NULL"
    )
    for table, columns in (
        ("answers", ("model_s",)),
        ("jobs", ("answer_key", "question_hash", "cache")),
        ("batches", ("saved_model_s", "model_s", "cached_answers", "cache")),
    ):
        for column in columns:
            op.drop_column(table, column)
