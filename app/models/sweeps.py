"""Sweeps: what is gone through again and again, each time, and what was found."""

from sqlalchemy import ARRAY, BigInteger, Boolean, Column, ForeignKey, Index, Integer, Table, Text, text
from sqlalchemy.dialects.postgresql import JSON, JSONB

from app.models.base import counter, metadata, moment

# What is gone through again and again: a source, what to ask of each of its images, and when.
sweeps = Table(
    "sweeps",
    metadata,
    Column("id", Text, primary_key=True),
    Column("tenant_id", ForeignKey("tenants.id"), nullable=False),
    Column("key_id", Text),  # that made it: its batches are counted on it
    Column("name", Text, nullable=False),
    Column("source", JSON, nullable=False),
    Column("questions", JSON, nullable=False),
    Column("policy_version", Text, nullable=False),
    Column("model", Text, nullable=False),
    Column("body", JSON, nullable=False),  # what all its requests share
    Column("cron", Text),  # null: only when somebody says so
    Column("zone", Text, nullable=False),
    Column("destination", JSON),
    Column("completion_window", Text, nullable=False),
    Column("batch", JSON, nullable=False),  # further wishes for its batches
    Column("alert_after_s", Integer, nullable=False),
    moment("paused_at"),
    moment("next_due_at"),
    moment("created_at", nullable=False, now=True),
    moment("updated_at", nullable=False, now=True),
    moment("deleted_at"),
    Index("uq_sweeps_name", "tenant_id", "name", unique=True, postgresql_where=text("deleted_at IS NULL")),
    Index(
        "ix_sweeps_due",
        "next_due_at",
        postgresql_where=text("paused_at IS NULL AND deleted_at IS NULL"),
    ),
)

sweep_runs = Table(
    "sweep_runs",
    metadata,
    Column("id", Text, primary_key=True),
    Column("sweep_id", ForeignKey("sweeps.id"), nullable=False),
    Column("kind", Text, nullable=False),  # scheduled, backfill or manual
    moment("due_at", nullable=False),
    Column("state", Text, nullable=False),
    Column("policy_version", Text),
    Column("spec", JSON),  # what it asks: the sweep's questions, model and body when it began
    counter("attempt"),  # fences: grows whenever somebody takes it
    Column("parts", JSONB, nullable=False, server_default=text("'[]'")),  # its input files
    Column("batch_ids", ARRAY(Text), nullable=False, server_default=text("'{}'")),
    Column("cursor", JSONB),  # how far its answers are noted
    counter("listed"),
    counter("new"),
    counter("changed"),
    counter("unchanged"),
    counter("deleted"),
    counter("asked"),
    counter("completed"),
    counter("failed"),
    counter("differing"),
    Column("error_code", Text),
    Column("error_message", Text),
    # Grows with whatever it gets done, and when that was last seen to grow.
    counter("mark", BigInteger),
    moment("moved_at", nullable=False, now=True),
    moment("stalled_at"),
    moment("lease_until"),
    moment("created_at", nullable=False, now=True),
    moment("started_at"),
    moment("ended_at"),
    # Once per due time, whoever computes it.
    Index(
        "uq_sweep_runs_due",
        "sweep_id",
        "due_at",
        unique=True,
        postgresql_where=text("kind <> 'manual'"),
    ),
    Index("ix_sweep_runs_created_at", "sweep_id", "created_at", "id"),
    Index("ix_sweep_runs_open", "sweep_id", "due_at", postgresql_where=text("ended_at IS NULL")),
)

# The images of a sweep's source, and what is known of each.
sweep_items = Table(
    "sweep_items",
    metadata,
    Column("sweep_id", Text, primary_key=True),
    Column("key", Text(collation="C"), primary_key=True),
    Column("ref", Text, nullable=False),
    Column("version", Text, nullable=False),  # ETag, or hash of the row
    Column("cells", JSONB, nullable=False, server_default=text("'{}'")),  # column of a question: value
    Column("content_hash", Text),  # of what was asked about
    Column("asked", JSONB, nullable=False, server_default=text("'{}'")),  # question: hash, once answered
    Column("answers", JSONB, nullable=False, server_default=text("'{}'")),  # question: last text
    # Its version differs from that which `asked` is of.
    Column("stale", Boolean, nullable=False, server_default=text("false")),
    Column("change", Text, nullable=False),  # as the last run found it: new, changed or unchanged
    Column("seen_run", Text, nullable=False),
    Column("seen_attempt", Integer, nullable=False),
    moment("deleted_at"),
)

# Answers of a run that differ from those before.
sweep_changes = Table(
    "sweep_changes",
    metadata,
    Column("run_id", Text, primary_key=True),
    Column("key", Text(collation="C"), primary_key=True),
    Column("question", Text(collation="C"), primary_key=True),
    Column("before", Text, nullable=False),
    Column("after", Text, nullable=False),
)
