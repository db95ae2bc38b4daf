"""Jobs, and what they wait for."""

from sqlalchemy import (
    ARRAY,
    BigInteger,
    Boolean,
    Column,
    Index,
    Integer,
    LargeBinary,
    SmallInteger,
    Table,
    Text,
    UniqueConstraint,
    text,
)
from sqlalchemy.dialects.postgresql import JSON

from app.models.base import STANDARD, ZERO, metadata, moment

jobs = Table(
    "jobs",
    metadata,
    Column("id", BigInteger, primary_key=True),
    Column("tenant_id", Text, nullable=False),
    Column("key_id", Text),  # of a direct job; a batch's are its batch's
    Column("batch_id", Text),
    Column("line", Integer),
    Column("custom_id", Text(collation="C")),
    Column("model", Text, nullable=False),
    Column("priority", Text, nullable=False, server_default=STANDARD),
    Column("state", Text, nullable=False),
    # json, not jsonb: the text is kept byte for byte, and a NUL inside a string is legal JSON.
    Column("prompt", JSON, nullable=False),
    Column("params", JSON, nullable=False),
    Column("image_ids", ARRAY(BigInteger), nullable=False),
    # Jobs of one image lie together in the ready index: the first image's id, 0 for text alone.
    Column("image_group", BigInteger, nullable=False, server_default=ZERO),
    Column("waiting_on", SmallInteger, nullable=False, server_default=ZERO),
    Column("attempt", SmallInteger, nullable=False, server_default=ZERO),
    # Attempts that a drained worker handed back undone; the retry policy does not count them.
    Column("returns", SmallInteger, nullable=False, server_default=ZERO),
    Column("crashes", SmallInteger, nullable=False, server_default=ZERO),
    Column("alone", Boolean, nullable=False, server_default=text("false")),
    Column("worker", Text),
    moment("lease_until"),
    moment("not_before"),
    moment("deadline"),
    Column("error_code", Text),
    Column("error_message", Text),
    Column("error_param", Text),
    moment("created_at", nullable=False, now=True),
    moment("sent_at"),
    moment("started_at"),
    moment("finished_at"),
    # Whether usage has counted a direct job; those of batches are counted by their batches.
    Column("metered", Boolean, nullable=False, server_default=text("false")),
    # How it uses the answer cache (bits of app.answer_keys), what is asked, and of which images, once known.
    Column("cache", SmallInteger, nullable=False, server_default=ZERO),
    Column("question_hash", LargeBinary),
    Column("answer_key", LargeBinary),
    # Of a cascade's job: whom to ask if the first model is unsure, and what that one had said.
    Column("final_model", Text),
    Column("first_answer", JSON),
    Column("trace", Text),  # the W3C traceparent of its creation, where it is followed
    Index(
        "ix_jobs_answer_key",
        "answer_key",
        postgresql_where=text("answer_key IS NOT NULL AND state IN ('queued', 'running', 'ready')"),
    ),
    Index("uq_jobs_batch_id_line", "batch_id", "line", unique=True),
    UniqueConstraint("batch_id", "custom_id"),
    Index(
        "ix_jobs_ready_batch",
        "batch_id",
        "model",
        "image_group",
        "id",
        postgresql_where=text("state = 'ready' AND batch_id IS NOT NULL"),
    ),
    Index(
        "ix_jobs_ready_direct",
        "tenant_id",
        "model",
        "priority",
        "image_group",
        "id",
        postgresql_where=text("state = 'ready' AND batch_id IS NULL"),
    ),
    # What the console's pages find; each has a job once at most, when it has ended so.
    Index(
        "ix_jobs_unanswered",
        "batch_id",
        "line",
        "error_code",
        postgresql_where=text("state IN ('failed', 'cancelled', 'expired') AND batch_id IS NOT NULL"),
    ),
    Index(
        "ix_jobs_image",
        "image_group",
        postgresql_where=text(
            "state IN ('completed', 'failed', 'cancelled', 'expired') AND image_group <> 0"
        ),
    ),
    Index(
        "ix_jobs_images",
        "image_ids",
        postgresql_using="gin",
        postgresql_where=text(
            "state IN ('completed', 'failed', 'cancelled', 'expired') AND cardinality(image_ids) > 1"
        ),
    ),
    Index("ix_jobs_lease_until", "lease_until", postgresql_where=text("state = 'running'")),
    Index("ix_jobs_sent_at", "sent_at", postgresql_where=text("state = 'queued'")),
    # Few at any time: counted before one more is let in.
    Index("ix_jobs_ready_alone", "id", postgresql_where=text("state = 'ready' AND alone")),
    Index(
        "ix_jobs_interactive",
        "model",
        postgresql_where=text(
            "priority = 'interactive' AND state IN ('waiting', 'ready', 'queued', 'running')"
        ),
    ),
    Index(
        "ix_jobs_direct_deadline",
        "deadline",
        postgresql_where=text("batch_id IS NULL AND state IN ('waiting', 'ready', 'queued')"),
    ),
    # Counted where a tenant may have only so many.
    Index(
        "ix_jobs_direct_open",
        "tenant_id",
        postgresql_where=text("batch_id IS NULL AND state IN ('waiting', 'ready', 'queued', 'running')"),
    ),
    Index(
        "ix_jobs_direct_unmetered",
        "id",
        postgresql_where=text("batch_id IS NULL AND finished_at IS NOT NULL AND NOT metered"),
    ),
    Index(
        "ix_jobs_direct_finished_at",
        "finished_at",
        postgresql_where=text("batch_id IS NULL AND finished_at IS NOT NULL"),
    ),
)

job_waits = Table(
    "job_waits",
    metadata,
    Column("image_id", BigInteger, primary_key=True),
    Column("job_id", BigInteger, primary_key=True),
)

# Jobs that wait for the answer to the same question, which another job has asked.
answer_waits = Table(
    "answer_waits",
    metadata,
    Column("answer_key", LargeBinary, primary_key=True),
    Column("job_id", BigInteger, primary_key=True),
)
