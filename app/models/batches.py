"""Batches, and what is gathered of their jobs."""

from sqlalchemy import (
    ARRAY,
    BigInteger,
    Boolean,
    Column,
    Float,
    ForeignKey,
    Index,
    Integer,
    SmallInteger,
    Table,
    Text,
    text,
)
from sqlalchemy.dialects.postgresql import JSON, JSONB

from app.models.base import STANDARD, ZERO, counter, metadata, moment

batches = Table(
    "batches",
    metadata,
    Column("id", Text, primary_key=True),
    Column("tenant_id", ForeignKey("tenants.id"), nullable=False),
    Column("key_id", Text),  # that submitted it
    Column("status", Text, nullable=False),
    Column("ending", Text),  # completed, cancelled or expired, once it is decided
    Column("endpoint", Text, nullable=False),
    Column("input_file_id", Text, nullable=False),
    Column("cache", Text, nullable=False, server_default=text("'off'")),  # use of the answer cache
    Column("input_table", JSON),  # how rows of a table become requests; null for lines that are requests
    Column("is_dry_run", Boolean, nullable=False, server_default=text("false")),
    Column("is_strict", Boolean, nullable=False, server_default=text("false")),
    Column("report", JSON),  # of a dry run
    counter("told_quarters", SmallInteger),  # of its progress, to those who want to be told
    Column("metered", JSONB),  # the counters as usage last saw them
    Column("completion_window", Text, nullable=False),
    Column("metadata", JSONB),
    Column("model", Text),
    Column("priority", Text, nullable=False, server_default=STANDARD),
    # The batch whose jobs these are, once more.
    Column("retry_of", Text),
    Column("retry_states", ARRAY(Text)),  # which of its jobs
    # Stop when so large a share of the jobs that ended has failed, looked at from so many on.
    Column("brake_share", Float),
    Column("brake_after", Integer),
    Column("errors", JSONB),
    Column("request_hash", Text, nullable=False),
    Column("idempotency_key", Text),
    counter("total"),
    counter("completed"),
    counter("failed"),
    # Of the failed: lines that are no request, and jobs that never ran for want of an image.
    counter("bad_lines"),
    counter("image_failures"),
    counter("prompt_tokens", BigInteger),
    counter("cached_tokens", BigInteger),
    counter("completion_tokens", BigInteger),
    counter("cached_answers"),
    # What its answers took of a model's time, and what those from the answer cache once did.
    Column("model_s", Float, nullable=False, server_default=ZERO),
    Column("saved_model_s", Float, nullable=False, server_default=ZERO),
    # Which model is asked first, as app.cascade reads it, and what came of that: jobs that went on to the
    # large one, those of them that it has answered, and alike; and the first model's seconds.
    Column("cascade", JSON),
    counter("escalated"),
    counter("escalated_answered"),
    counter("agreed"),
    Column("first_model_s", Float, nullable=False, server_default=ZERO),
    # In how many bits of 64 a picture may differ whose answer stands in; null where none may.
    Column("near_distance", SmallInteger),
    counter("near_answers"),
    # Ingest and finalize are taken under a lease; ingest goes on where the last committed block ended.
    counter("ingested_bytes", BigInteger),
    counter("ingested_lines", BigInteger),
    moment("lease_until"),
    moment("ingested_at"),  # all of its lines are there, also of one that was closed meanwhile
    moment("swept_at"),
    # Jobs that end per second, as last measured, and the count of ended ones at that time.
    Column("pace", Float),
    moment("pace_at"),
    Column("pace_ended", Integer),
    Column("output_file_id", Text),
    Column("error_file_id", Text),
    Column("output_expires_after_s", Integer),
    moment("created_at", nullable=False, now=True),
    moment("expires_at", nullable=False),
    moment("in_progress_at"),
    moment("finalizing_at"),
    moment("completed_at"),
    moment("failed_at"),
    moment("expired_at"),
    moment("cancelling_at"),
    moment("cancelled_at"),
    moment("ended_at"),  # whichever way
    Column("trace", Text),  # the W3C traceparent of its creation, where it is followed
    # Gone for its owner; its rows and files are being removed.
    moment("deleted_at"),
    Index("ix_batches_tenant_id_created_at_id", "tenant_id", "created_at", "id"),
    Index("ix_batches_ended_at", "ended_at", postgresql_where=text("ended_at IS NOT NULL")),
    Index("ix_batches_deleted_at", "deleted_at", postgresql_where=text("deleted_at IS NOT NULL")),
    Index("ix_batches_retry_of", "retry_of", postgresql_where=text("retry_of IS NOT NULL")),
    Index(
        "ix_batches_open",
        "expires_at",
        postgresql_where=text("status IN ('validating', 'in_progress', 'finalizing', 'cancelling')"),
    ),
    Index(
        "uq_batches_idempotency_key",
        "tenant_id",
        "idempotency_key",
        unique=True,
        postgresql_where=text("idempotency_key IS NOT NULL"),
    ),
)

# Which share of an ended batch was asked of another model, and how the answers compare once they are there.
shadows = Table(
    "shadows",
    metadata,
    Column("batch_id", Text, primary_key=True),
    Column("other", Text, primary_key=True),
    Column("model", Text, nullable=False),
    Column("share", Float, nullable=False),
    Column("shadow_batch_id", Text, unique=True),  # null where the share came to no job
    moment("created_at", nullable=False, now=True),
    moment("compared_at"),
    counter("pairs"),
    counter("exact"),
    counter("alike"),
    counter("timed"),  # pairs in which both models ran
    Column("model_s", Float, nullable=False, server_default=ZERO),
    Column("other_s", Float, nullable=False, server_default=ZERO),
    Index("ix_shadows_created_at", "created_at"),
)

# A batch's jobs in the order in which they ended: a row's jobs are its results up to number `seq`.
results = Table(
    "results",
    metadata,
    Column("batch_id", Text, primary_key=True),
    Column("seq", Integer, primary_key=True),
    Column("job_ids", ARRAY(BigInteger), nullable=False),
)

# What a batch's jobs failed of: how many of each code, and the first one's message.
batch_errors = Table(
    "batch_errors",
    metadata,
    Column("batch_id", Text, primary_key=True),
    Column("code", Text, primary_key=True),
    Column("jobs", Integer, nullable=False),
    Column("line", Integer),
    Column("message", Text, nullable=False),
)

# What a dry run has seen by now: its images and custom_ids, each once.
checked = Table(
    "checked",
    metadata,
    Column("batch_id", Text, primary_key=True),
    Column("kind", Text, primary_key=True),
    Column("hash", Text(collation="C"), primary_key=True),
    Column("line", Integer, nullable=False),
)
