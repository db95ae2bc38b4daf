"""What belongs to jobs that the console shows: labels with reviews, images, and the jobs of an image."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import text
from sqlalchemy.orm import Session

MOST_SHOWN = 3  # images of a job
MOST_LABELS = 8  # of a job
MOST_ROWS_OF_IMAGE = 1_000  # that one content came by: each is an address
ENDED = "j.state IN ('completed', 'failed', 'cancelled', 'expired')"


@dataclass(frozen=True)
class LabelRow:
    """A label and what was said of it; `verdict` is None where nobody has said anything."""

    job_id: int
    field: str
    value: str
    verdict: str | None
    right: Any


@dataclass(frozen=True)
class ImageRow:
    id: int
    state: str
    content_hash: str | None
    ref: str


@dataclass(frozen=True)
class ImageFacts:
    """An image of a tenant by its content; `refs` are addresses that it came by."""

    format: str | None
    width: int | None
    height: int | None
    bytes: int | None
    stored_at: datetime | None
    refs: Sequence[str]
    ids: Sequence[int]


@dataclass(frozen=True)
class AskedRow:
    """A job about an image, newest first, and the batch that it is of."""

    id: int
    batch_id: str | None
    batch_name: str | None
    policy_version: str | None
    custom_id: str | None
    state: str
    model: str
    error_code: str | None
    error_message: str | None
    prompt: Any
    text: str | None
    chars: int | None
    revision: str | None
    notes: Sequence[str] | None
    confidence: float | None
    escalated: bool
    at: datetime
    images: int


@dataclass(frozen=True)
class NearRow:
    content_hash: str
    ref: str | None


def read_labels(session: Session, job_ids: Sequence[int]) -> list[LabelRow]:
    """The labels of jobs, so many of each, with their reviews."""
    rows = session.execute(
        text(
            """
            SELECT l.job_id, l.field, l.value, r.verdict, r.label
            FROM unnest(CAST(:ids AS bigint[])) AS given(id) CROSS JOIN LATERAL (
                SELECT job_id, field, place, value FROM labels WHERE job_id = given.id
                ORDER BY field, place LIMIT :most) AS l
            LEFT JOIN reviews r ON r.job_id = l.job_id AND r.field = l.field
            ORDER BY l.job_id, l.field, l.place
            """
        ),
        {"ids": list(job_ids), "most": MOST_LABELS},
    )
    return [LabelRow(*row) for row in rows]


def read_images(session: Session, tenant_id: str, image_ids: Sequence[int]) -> Mapping[int, ImageRow]:
    """Those whose rows are gone are missing."""
    rows = session.execute(
        text(
            """
            SELECT id, state, content_hash, left(ref, 300) FROM images
            WHERE id = ANY(:ids) AND tenant_id = :tenant
            """
        ),
        {"ids": list(image_ids), "tenant": tenant_id},
    )
    return {row.id: ImageRow(*row) for row in rows}


def read_image(session: Session, tenant_id: str, content_hash: str) -> ImageFacts | None:
    """None where the tenant has no such image."""
    rows = session.execute(
        text(
            """
            SELECT id, format, width, height, bytes, stored_at, ref_kind, left(ref, 500) AS ref FROM images
            WHERE tenant_id = :tenant AND content_hash = :hash AND state = 'stored'
            ORDER BY id DESC LIMIT :most
            """
        ),
        {"tenant": tenant_id, "hash": content_hash, "most": MOST_ROWS_OF_IMAGE},
    ).all()
    if not rows:
        return None
    refs = dict.fromkeys(row.ref for row in rows if row.ref and row.ref_kind != "data")
    newest = rows[0]
    return ImageFacts(
        newest.format,
        newest.width,
        newest.height,
        newest.bytes,
        rows[-1].stored_at,
        list(refs),
        [row.id for row in rows],
    )


def list_asked(
    session: Session,
    tenant_id: str,
    image_ids: Sequence[int],
    *,
    before: int | None,
    limit: int,
    most_chars: int,
    most_prompt_bytes: int,
) -> list[AskedRow]:
    """The ended jobs about these images, the newest first, from behind job `before` on."""
    rows = session.execute(
        text(
            f"""
            SELECT j.id, j.batch_id, coalesce(b.metadata->>'name', b.metadata->>'description'),
                   b.metadata->>'vqueue_policy_version', j.custom_id, j.state, coalesce(a.model, j.model),
                   j.error_code, left(j.error_message, :chars),
                   CASE WHEN octet_length(j.prompt::text) <= :bytes THEN j.prompt END,
                   left(a.text, :chars), length(a.text), a.revision, a.notes, a.confidence,
                   j.first_answer IS NOT NULL, coalesce(a.created_at, j.finished_at, j.created_at),
                   cardinality(j.image_ids)
            FROM (SELECT id FROM (
                    SELECT id FROM jobs j
                    WHERE j.image_group = ANY(:images) AND j.image_group <> 0 AND {ENDED}
                    UNION
                    SELECT id FROM jobs j WHERE j.image_ids && CAST(:images AS bigint[])
                        AND cardinality(j.image_ids) > 1 AND {ENDED}) AS either
                  WHERE CAST(:before AS bigint) IS NULL OR id < :before
                  ORDER BY id DESC LIMIT :limit) AS asked
            JOIN jobs j ON j.id = asked.id AND j.tenant_id = :tenant
            LEFT JOIN answers a ON a.job_id = j.id LEFT JOIN batches b ON b.id = j.batch_id
            WHERE b.deleted_at IS NULL ORDER BY j.id DESC
            """  # noqa: S608 - constants
        ),
        {
            "images": list(image_ids),
            "tenant": tenant_id,
            "before": before,
            "limit": limit,
            "chars": most_chars,
            "bytes": most_prompt_bytes,
        },
    )
    return [AskedRow(*row) for row in rows]


def list_near(session: Session, tenant_id: str, content_hash: str, *, limit: int) -> list[NearRow]:
    """The other images of an image's cluster, that which it began with first."""
    rows = session.execute(
        text(
            """
            SELECT l.content_hash, (SELECT left(ref, 300) FROM images i
                    WHERE i.tenant_id = :tenant AND i.content_hash = l.content_hash AND i.state = 'stored'
                    ORDER BY i.id LIMIT 1)
            FROM image_looks me JOIN image_looks l ON l.tenant_id = me.tenant_id AND l.leader = me.leader
            WHERE me.tenant_id = :tenant AND me.content_hash = :hash AND l.content_hash <> :hash
              AND l.phash IS NOT NULL AND EXISTS (SELECT FROM images i WHERE i.tenant_id = :tenant
                    AND i.content_hash = l.content_hash AND i.state = 'stored')
            ORDER BY l.content_hash <> l.leader, l.seen_at, l.content_hash LIMIT :limit
            """
        ),
        {"tenant": tenant_id, "hash": content_hash, "limit": limit},
    )
    return [NearRow(*row) for row in rows]
