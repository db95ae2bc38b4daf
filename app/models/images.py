"""Images that jobs refer to, how they look, and what holds their fetching up."""

from sqlalchemy import (
    BigInteger,
    Column,
    Date,
    ForeignKey,
    Index,
    Integer,
    LargeBinary,
    SmallInteger,
    Table,
    Text,
    text,
)

from app.models.base import ZERO, metadata, moment

images = Table(
    "images",
    metadata,
    Column("id", BigInteger, primary_key=True),
    Column("tenant_id", ForeignKey("tenants.id"), nullable=False),
    Column("ref_kind", Text, nullable=False),
    Column("ref_hash", Text, nullable=False),
    Column("ref", Text, nullable=False),
    # What the limit per host counts by; empty for what our own object store serves.
    Column("host", Text, nullable=False, server_default=text("''")),
    Column("state", Text, nullable=False),
    Column("attempt", SmallInteger, nullable=False, server_default=ZERO),
    Column("returns", SmallInteger, nullable=False, server_default=ZERO),
    # When somebody may take it: at once, after a retry's delay, or when the fetcher's lease has run out.
    moment("due_at", nullable=False, now=True),
    Column("content_hash", Text),
    Column("format", Text),
    Column("width", Integer),
    Column("height", Integer),
    Column("bytes", BigInteger),
    Column("error_code", Text),
    Column("error_message", Text),
    moment("created_at", nullable=False, now=True),
    moment("stored_at"),
    # When a job last referred to it: what retention counts from.
    moment("used_at", nullable=False, now=True),
    Index("ix_images_used_at", "used_at", postgresql_where=text("state IN ('stored', 'failed')")),
    Index(
        "ix_images_content", "tenant_id", "content_hash", postgresql_where=text("content_hash IS NOT NULL")
    ),
    Index(
        "uq_images_in_flight",
        "tenant_id",
        "ref_hash",
        unique=True,
        postgresql_where=text("state IN ('pending', 'fetching')"),
    ),
    Index("ix_images_failed", "tenant_id", "ref_hash", postgresql_where=text("state = 'failed'")),
    Index(
        "ix_images_stored", "tenant_id", "ref_hash", "stored_at", postgresql_where=text("state = 'stored'")
    ),
    # Claims look at one lane after the other: what a tenant wants of a host, or of our own store.
    Index(
        "ix_images_due",
        "host",
        "tenant_id",
        "ref_kind",
        "due_at",
        postgresql_where=text("state IN ('pending', 'fetching')"),
    ),
)

# How images look: a row once somebody wants to know, filled in by a fetcher (docs/near-duplicates.md).
image_looks = Table(
    "image_looks",
    metadata,
    Column("tenant_id", Text, primary_key=True),
    Column("content_hash", Text, primary_key=True),
    Column("phash", BigInteger),  # null also of those that have none: `error` says why
    *(Column(f"band{number}", Integer) for number in range(4)),  # its pieces of 16 bits
    Column("colours", LargeBinary),
    Column("leader", Text),  # the content hash of the image that its cluster began with
    Column("error", Text),
    Column("attempt", SmallInteger, nullable=False, server_default=ZERO),
    moment("wanted_at", nullable=False, now=True),
    moment("due_at", nullable=False, now=True),  # at once, or when the lease of who looks at it has run out
    moment("seen_at"),
    *(
        Index(
            f"ix_image_looks_band{number}",
            "tenant_id",
            f"band{number}",
            postgresql_where=text("phash IS NOT NULL"),
        )
        for number in range(4)
    ),
    Index("ix_image_looks_leader", "tenant_id", "leader", postgresql_where=text("phash IS NOT NULL")),
    Index("ix_image_looks_due", "due_at", postgresql_where=text("seen_at IS NULL")),
    Index("ix_image_looks_seen_at", "seen_at", postgresql_where=text("seen_at IS NOT NULL")),
)

# Images fetched on a tenant's last day (UTC), and how many it might have: only of those with a limit.
image_days = Table(
    "image_days",
    metadata,
    Column("tenant_id", Text, primary_key=True),
    Column("day", Date, nullable=False),
    Column("fetched", Integer, nullable=False),
    Column("allowed", Integer, nullable=False),
)

# Hosts that asked with Retry-After to be left alone for a while.
host_pauses = Table(
    "host_pauses",
    metadata,
    Column("host", Text, primary_key=True),
    moment("until", nullable=False),
)
