"""Webhooks: where events go, what they say, and how they got there."""

from sqlalchemy import ARRAY, Column, ForeignKey, Index, SmallInteger, Table, Text, text
from sqlalchemy.dialects.postgresql import JSON

from app.models.base import ZERO, counter, metadata, moment

webhook_endpoints = Table(
    "webhook_endpoints",
    metadata,
    Column("id", Text, primary_key=True),
    Column("tenant_id", ForeignKey("tenants.id"), nullable=False),
    Column("name", Text, nullable=False),
    Column("url", Text, nullable=False),
    Column("event_types", ARRAY(Text), nullable=False),
    Column("secret", Text, nullable=False),
    # Signs beside the new one until then.
    Column("old_secret", Text),
    moment("old_secret_until"),
    # Tries that failed one after the other, and until when nothing is sent because of that.
    counter("failures"),
    moment("resting_until"),
    moment("created_at", nullable=False, now=True),
    moment("updated_at", nullable=False, now=True),
    Index("ix_webhook_endpoints_tenant_id_created_at_id", "tenant_id", "created_at", "id"),
)

webhook_events = Table(
    "webhook_events",
    metadata,
    Column("id", Text, primary_key=True),
    Column("tenant_id", Text, nullable=False),
    Column("type", Text, nullable=False),
    Column("body", JSON, nullable=False),
    moment("created_at", nullable=False, now=True),
    Index("ix_webhook_events_created_at", "created_at"),
)

# An event on its way to an endpoint, and then the log of that.
webhook_deliveries = Table(
    "webhook_deliveries",
    metadata,
    Column("id", Text, primary_key=True),
    Column("endpoint_id", ForeignKey("webhook_endpoints.id", ondelete="CASCADE"), nullable=False),
    Column("event_id", ForeignKey("webhook_events.id", ondelete="CASCADE"), nullable=False),
    Column("state", Text, nullable=False),
    Column("attempt", SmallInteger, nullable=False, server_default=ZERO),
    Column("earlier", SmallInteger, nullable=False, server_default=ZERO),  # tries before it was sent again
    moment("due_at", nullable=False, now=True),
    Column("status_code", SmallInteger),
    Column("error", Text),
    moment("created_at", nullable=False, now=True),
    moment("ended_at"),
    Index("ix_webhook_deliveries_endpoint_id_created_at_id", "endpoint_id", "created_at", "id"),
    Index("ix_webhook_deliveries_event_id", "event_id"),
    Index("ix_webhook_deliveries_due_at", "due_at", postgresql_where=text("state = 'pending'")),
)
