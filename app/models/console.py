"""What the console keeps: sessions, and the secret that signs its links."""

from sqlalchemy import Column, ForeignKey, Index, LargeBinary, Table, Text

from app.models.base import metadata, moment

# A key that is closed closes its sessions.
console_sessions = Table(
    "console_sessions",
    metadata,
    Column("token_hash", LargeBinary, primary_key=True),
    Column("key_id", ForeignKey("api_keys.id"), nullable=False),
    Column("csrf", Text, nullable=False),
    moment("created_at", nullable=False, now=True),
    moment("expires_at", nullable=False),
    Index("ix_console_sessions_expires_at", "expires_at"),
)

# What the API's processes sign with, made by the first of them.
secrets = Table(
    "secrets",
    metadata,
    Column("name", Text, primary_key=True),
    Column("value", LargeBinary, nullable=False),
)
