"""Files of tenants, and objects of the store to be deleted."""

from sqlalchemy import BigInteger, Column, ForeignKey, Index, Table, Text, text

from app.models.base import metadata, moment

files = Table(
    "files",
    metadata,
    Column("id", Text, primary_key=True),
    Column("tenant_id", ForeignKey("tenants.id"), nullable=False),
    Column("purpose", Text, nullable=False),
    Column("filename", Text, nullable=False),
    Column("content_type", Text, nullable=False),
    Column("bytes", BigInteger, nullable=False),
    Column("object_key", Text, nullable=False),
    moment("created_at", nullable=False, now=True),
    moment("expires_at"),
    Index("ix_files_tenant_id_created_at_id", "tenant_id", "created_at", "id"),
    Index("ix_files_tenant_id_purpose_created_at_id", "tenant_id", "purpose", "created_at", "id"),
    Index("ix_files_expires_at", "expires_at", postgresql_where=text("expires_at IS NOT NULL")),
)

# Objects of the store that nothing needs any more, until they are deleted.
doomed_objects = Table(
    "doomed_objects",
    metadata,
    Column("key", Text, primary_key=True),
    moment("doomed_at", nullable=False, now=True),  # from when on they may be deleted
    # Since when somebody may be deleting it: nobody stores it again before that is over.
    moment("tried_at"),
    Index("ix_doomed_objects_doomed_at", "doomed_at"),
)
