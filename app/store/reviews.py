"""Reviews: what people say of answers, and what they make of them as a calibration set."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import text
from sqlalchemy.orm import Session

from app.store.labels import Filters, where_labels


@dataclass(frozen=True)
class Review:
    """`label` is the right value where the answer was overturned, as JSON; it may be null itself."""

    job_id: int
    field: str
    verdict: str
    label: Any
    note: str | None
    key_id: str | None
    at: datetime | None = None  # once it is stored


@dataclass(frozen=True)
class Reviewable:
    """A labelled answer, held until the transaction ends: its batch cannot be deleted meanwhile."""

    constraint: Mapping[str, Any]
    text: str
    fields: Sequence[str]


@dataclass(frozen=True)
class Correction:
    """A review with all that its job was asked."""

    job_id: int
    field: str
    verdict: str
    label: Any
    note: str | None
    at: datetime
    batch_id: str | None
    question: str | None
    item: str | None
    policy_version: str | None
    model: str
    created_at: datetime
    custom_id: str | None
    prompt: Mapping[str, Any]
    constraint: Mapping[str, Any]
    image_ids: Sequence[int]
    text: str
    revision: str


@dataclass(frozen=True)
class Picture:
    """How a job named an image."""

    id: int
    kind: str
    ref: str
    content_hash: str | None


def hold_answer(session: Session, tenant_id: str, job_id: int) -> Reviewable | None:
    """A labelled answer of a tenant; None where there is none."""
    held = session.execute(
        text("SELECT batch_id FROM labels WHERE job_id = :job AND tenant_id = :tenant LIMIT 1"),
        {"tenant": tenant_id, "job": job_id},
    ).one_or_none()
    if held is None or (held.batch_id is not None and not _hold_batch(session, held.batch_id)):
        return None
    row = session.execute(
        text(
            """
            SELECT j.params->'constraint' AS "constraint", a.text,
                   ARRAY(SELECT DISTINCT field FROM labels WHERE job_id = j.id ORDER BY field) AS fields
            FROM jobs j JOIN answers a ON a.job_id = j.id WHERE j.id = :job FOR SHARE OF j
            """
        ),
        {"job": job_id},
    ).one_or_none()
    return Reviewable(row.constraint, row.text, row.fields) if row else None


def put_review(session: Session, tenant_id: str, review: Review) -> bool:
    """Note a review in place of an earlier one; False where that said the same."""
    row = session.execute(
        text(
            """
            INSERT INTO reviews AS known (job_id, field, tenant_id, verdict, label, note, key_id, at)
            VALUES (:job, :field, :tenant, :verdict, CAST(:label AS json), :note, :key, now())
            ON CONFLICT (job_id, field) DO UPDATE SET verdict = EXCLUDED.verdict, label = EXCLUDED.label,
                note = EXCLUDED.note, key_id = EXCLUDED.key_id, at = EXCLUDED.at
            WHERE (known.verdict, known.label::text, known.note)
                IS DISTINCT FROM (EXCLUDED.verdict, EXCLUDED.label::text, EXCLUDED.note)
            RETURNING job_id
            """
        ),
        {
            "job": review.job_id,
            "field": review.field,
            "tenant": tenant_id,
            "verdict": review.verdict,
            "label": None if review.verdict == "confirm" else json.dumps(review.label),
            "note": review.note,
            "key": review.key_id,
        },
    )
    return row.one_or_none() is not None


def read_review(session: Session, job_id: int, field: str) -> Review | None:
    row = session.execute(
        text(
            """
            SELECT job_id, field, verdict, label, note, key_id, at FROM reviews
            WHERE job_id = :job AND field = :field
            """
        ),
        {"job": job_id, "field": field},
    ).one_or_none()
    return Review(*row) if row else None


def delete_review(session: Session, job_id: int, field: str) -> bool:
    row = session.execute(
        text("DELETE FROM reviews WHERE job_id = :job AND field = :field RETURNING job_id"),
        {"job": job_id, "field": field},
    )
    return row.one_or_none() is not None


def read_corrections(
    session: Session, tenant_id: str, filters: Filters, *, after: tuple[int, str], limit: int
) -> list[Correction]:
    """A page of reviews with their jobs, in the order of jobs and fields, behind those of `after`."""
    where, values = where_labels(tenant_id, filters)
    rows = session.execute(
        text(
            f"""
            SELECT r.job_id, r.field, r.verdict, r.label, r.note, r.at, l.batch_id, l.question, l.item,
                   l.policy_version, l.model, l.created_at, j.custom_id, j.prompt,
                   j.params->'constraint' AS "constraint", j.image_ids, a.text, a.revision
            FROM reviews r JOIN labels l ON l.job_id = r.job_id AND l.field = r.field AND l.place = 0
            JOIN jobs j ON j.id = r.job_id JOIN answers a ON a.job_id = r.job_id
            WHERE r.tenant_id = :tenant AND (r.job_id, r.field) > (:job, :at_field) AND {where}
            ORDER BY r.job_id, r.field LIMIT :limit
            """  # noqa: S608 - constants
        ),
        {**values, "job": after[0], "at_field": after[1], "limit": limit},
    )
    return [Correction(*row) for row in rows]


def read_pictures(session: Session, image_ids: Sequence[int]) -> dict[int, Picture]:
    """How these images were named, those whose rows are gone left out."""
    rows = session.execute(
        text("SELECT id, ref_kind, ref, content_hash FROM images WHERE id = ANY(:ids)"),
        {"ids": list(image_ids)},
    )
    return {row.id: Picture(*row) for row in rows}


def _hold_batch(session: Session, batch_id: str) -> bool:
    """Whoever deletes it waits for us, and whoever has is seen."""
    row = session.execute(
        text("SELECT id FROM batches WHERE id = :id AND deleted_at IS NULL FOR SHARE"), {"id": batch_id}
    )
    return row.one_or_none() is not None
