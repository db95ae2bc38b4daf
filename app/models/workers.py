"""Workers that are up."""

from sqlalchemy import Column, Table, Text
from sqlalchemy.dialects.postgresql import JSONB

from app.models.base import metadata, moment

workers = Table(
    "workers",
    metadata,
    Column("id", Text, primary_key=True),
    Column("role", Text, nullable=False),
    Column("model", Text),
    Column("revision", Text),
    moment("started_at", nullable=False, now=True),
    moment("heartbeat_at", nullable=False, now=True),
    # As app.store.workers.heartbeat says; null of a worker of a version that tells nothing.
    Column("report", JSONB),
)
