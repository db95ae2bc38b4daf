"""What tenants may have, and what they have of it: open jobs, bytes of files, images fetched today."""

from dataclasses import dataclass

from sqlalchemy import text
from sqlalchemy.orm import Session

_OPEN_JOBS = """
    (SELECT coalesce(sum(greatest(total - completed - failed, 0)), 0) FROM batches
     WHERE tenant_id = :tenant AND NOT is_dry_run AND id IS DISTINCT FROM CAST(:without AS text)
       AND status IN ('validating', 'in_progress', 'finalizing', 'cancelling'))
    + (SELECT count(*) FROM jobs
       WHERE tenant_id = :tenant AND batch_id IS NULL
         AND state IN ('waiting', 'ready', 'queued', 'running'))
"""


@dataclass(frozen=True)
class Quota:
    """What a tenant may have; 0 sets no limit."""

    queued_jobs: int = 0
    bytes: int = 0
    images_day: int = 0


@dataclass(frozen=True)
class QuotaUse:
    """How much a tenant has of what it may have."""

    used: int
    allowed: int

    def has_room(self, more: int) -> bool:
        return self.used + more <= self.allowed


def read_quota(session: Session, tenant_id: str, default: Quota) -> Quota:
    """A tenant's own limits, and the default's where it has none."""
    row = session.execute(
        text(
            """
            SELECT coalesce(quota_queued_jobs, :queued_jobs), coalesce(quota_bytes, :bytes),
                   coalesce(quota_images_day, :images_day)
            FROM tenants WHERE id = :tenant
            """
        ),
        {"tenant": tenant_id, **vars(default)},
    ).one()
    return Quota(*row)


def lock_tenant(session: Session, tenant_id: str) -> None:
    """Let in one transaction of those that lock this tenant at a time, until it ends."""
    session.execute(text("SELECT FROM tenants WHERE id = :tenant FOR NO KEY UPDATE"), {"tenant": tenant_id})


def count_open_jobs(session: Session, tenant_id: str, *, without_batch: str | None = None) -> int:
    """A tenant's jobs that have not ended: those of batches by the batches' counts."""
    return session.execute(
        text(f"SELECT {_OPEN_JOBS}"),
        {"tenant": tenant_id, "without": without_batch},
    ).scalar_one()


def sum_bytes(session: Session, tenant_id: str) -> int:
    """Of the files that a tenant has uploaded; what its batches have written is not counted."""
    return session.execute(
        text(
            """
            SELECT coalesce(sum(bytes), 0) FROM files
            WHERE tenant_id = :tenant AND purpose <> 'batch_output'
              AND (expires_at IS NULL OR expires_at > now())
            """
        ),
        {"tenant": tenant_id},
    ).scalar_one()


def count_fetch(session: Session, tenant_id: str, *, default: int) -> None:
    """Count an image fetched today (UTC), if its tenant has a limit. The caller commits soon: others wait."""
    session.execute(
        text(
            """
            INSERT INTO image_days AS counted (tenant_id, day, fetched, allowed)
            SELECT id, (now() AT TIME ZONE 'UTC')::date, 1, coalesce(quota_images_day, :default)
            FROM tenants WHERE id = :tenant AND coalesce(quota_images_day, :default) > 0
            ON CONFLICT (tenant_id) DO UPDATE SET
                day = excluded.day, allowed = excluded.allowed,
                fetched = 1 + CASE WHEN counted.day = excluded.day THEN counted.fetched ELSE 0 END
            """
        ),
        {"tenant": tenant_id, "default": default},
    )


def count_fetched_today(session: Session, tenant_id: str) -> int:
    return session.execute(
        text(
            """
            SELECT coalesce(sum(fetched), 0) FROM image_days
            WHERE tenant_id = :tenant AND day = (now() AT TIME ZONE 'UTC')::date
            """
        ),
        {"tenant": tenant_id},
    ).scalar_one()
