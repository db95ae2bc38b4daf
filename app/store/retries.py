"""Ended batches as a retry sees them: what they were asked with, and how many of their jobs failed."""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from sqlalchemy import text
from sqlalchemy.orm import Session

from app.answer_keys import CacheMode
from app.states import BatchStatus, Priority


@dataclass(frozen=True)
class EndedBatch:
    """A batch to retry. Of its `failed` jobs, `explained` have errors, and `bad_lines` are no requests."""

    id: str
    status: BatchStatus
    endpoint: str
    input_file_id: str
    input_table: Mapping[str, Any] | None
    completion_window: str
    window_s: int
    metadata: Mapping[str, str] | None
    output_expires_after_s: int | None
    priority: Priority
    brake_share: float | None
    brake_after: int | None
    failed: int
    bad_lines: int
    explained: int
    cache: CacheMode
    cascade: Mapping[str, Any] | None
    near_distance: int | None


def lock_batch(session: Session, tenant_id: str, batch_id: str) -> EndedBatch | None:
    """A batch of this tenant, kept from being deleted until the transaction ends."""
    row = (
        session.execute(
            text(
                """
                SELECT *, extract(epoch FROM expires_at - created_at)::int AS window_s,
                       (SELECT coalesce(sum(jobs), 0) FROM batch_errors
                        WHERE batch_id = batches.id)::int AS explained
                FROM batches WHERE id = :id AND tenant_id = :tenant AND deleted_at IS NULL FOR SHARE
                """
            ),
            {"id": batch_id, "tenant": tenant_id},
        )
        .mappings()
        .one_or_none()
    )
    if row is None:
        return None
    values = {field.name: row[field.name] for field in fields(EndedBatch)}
    chosen = {
        "status": BatchStatus(row["status"]),
        "priority": Priority(row["priority"]),
        "cache": CacheMode(row["cache"]),
    }
    return EndedBatch(**{**values, **chosen})
