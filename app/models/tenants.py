"""Who may call, what they use, and what they did."""

from sqlalchemy import (
    ARRAY,
    BigInteger,
    CheckConstraint,
    Column,
    Date,
    Float,
    ForeignKey,
    Identity,
    Index,
    Integer,
    LargeBinary,
    Table,
    Text,
    text,
)
from sqlalchemy.dialects.postgresql import JSONB

from app.models.base import counter, metadata, moment

tenants = Table(
    "tenants",
    metadata,
    Column("id", Text, primary_key=True),
    Column("name", Text, nullable=False, unique=True),
    # Its part of a busy model, beside the weights of the others.
    Column(
        "weight",
        Float,
        CheckConstraint("weight > 0", name="weight_is_positive"),
        nullable=False,
        server_default=text("1"),
    ),
    # What it may use; where one is null, the settings' own limit holds.
    Column("requests_per_minute", Integer),
    Column("quota_queued_jobs", Integer),
    Column("quota_images_day", Integer),
    Column("quota_bytes", BigInteger),
    moment("created_at", nullable=False, now=True),
)

api_keys = Table(
    "api_keys",
    metadata,
    Column("id", Text, primary_key=True),
    Column("tenant_id", ForeignKey("tenants.id"), nullable=False),
    Column("name", Text, nullable=False),
    Column("prefix", Text, nullable=False),
    Column("key_hash", LargeBinary, nullable=False, unique=True),
    Column("scopes", ARRAY(Text), nullable=False, server_default=text("'{*}'")),
    moment("last_used_at"),
    moment("created_at", nullable=False, now=True),
    moment("expires_at"),
    moment("revoked_at"),
)

# What each key has used on a day (UTC), by model.
usage = Table(
    "usage",
    metadata,
    Column("tenant_id", Text, primary_key=True),
    Column("day", Date, primary_key=True),
    Column("key_id", Text, primary_key=True),
    Column("model", Text, primary_key=True),
    counter("completed", BigInteger),
    counter("failed", BigInteger),
    counter("prompt_tokens", BigInteger),
    counter("cached_tokens", BigInteger),
    counter("completion_tokens", BigInteger),
)

# Who did what; rows are only ever added, and removed by age.
audit_log = Table(
    "audit_log",
    metadata,
    Column("id", BigInteger, Identity(), primary_key=True),
    moment("at", nullable=False, now=True),
    Column("tenant_id", Text),
    Column("key_id", Text),
    Column("action", Text, nullable=False),
    Column("object_id", Text),
    Column("request_id", Text),
    Column("details", JSONB),
    Index("ix_audit_log_tenant_id_id", "tenant_id", "id"),
)

# What a client's Idempotency-Key has made: the same request with it makes nothing new for a day.
idempotency_keys = Table(
    "idempotency_keys",
    metadata,
    Column("tenant_id", Text, primary_key=True),
    Column("kind", Text, primary_key=True),  # file or job; batches keep their own
    Column("key", Text, primary_key=True),
    Column("request_hash", Text, nullable=False),
    Column("object_id", Text, nullable=False),
    moment("created_at", nullable=False, now=True),
    Index("ix_idempotency_keys_created_at", "created_at"),
)
