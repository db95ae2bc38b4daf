"""Votes: what each person has said of an answer, and how often two of them say the same."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import text
from sqlalchemy.orm import Session

from app.store.labels import JOIN_REVIEWS, Filters, where_labels
from app.store.reviews import Review

# What a person says is right, as a text that is the same for the same: lists without regard to their order.
RIGHT = """CASE WHEN {v}.verdict = 'confirm' THEN (
        SELECT string_agg(x.value, E'\\n' ORDER BY x.value) FROM labels x
        WHERE x.job_id = {v}.job_id AND x.field = {v}.field)
    WHEN json_typeof({v}.label) = 'array' THEN coalesce((
        SELECT string_agg(coalesce(one, 'null'), E'\\n' ORDER BY coalesce(one, 'null'))
        FROM json_array_elements_text({v}.label) AS one), '[]')
    ELSE coalesce({v}.label #>> '{{}}', 'null') END"""
PAIRS = """
    FROM review_votes v JOIN review_votes w
        ON w.job_id = v.job_id AND w.field = v.field AND w.key_id > v.key_id
    JOIN labels l ON l.job_id = v.job_id AND l.field = v.field AND l.place = 0"""


@dataclass(frozen=True)
class PairCount:
    """How many answers there are of which one person says this is right, and another that."""

    question: str | None
    field: str
    one: str
    other: str
    one_says: str
    other_says: str
    answers: int


@dataclass(frozen=True)
class Difference:
    """An answer of which two people do not say the same."""

    job_id: int
    field: str
    question: str | None
    item: str | None
    value: str
    one: str
    other: str
    one_says: str
    other_says: str
    at: datetime


def put_vote(session: Session, tenant_id: str, vote: Review) -> bool:
    """Note what a person says, in place of what they said before; False where that was the same.

    Who has no key has no vote.
    """
    if vote.key_id is None:
        return False
    row = session.execute(
        text(
            """
            INSERT INTO review_votes AS known (job_id, field, key_id, tenant_id, verdict, label, note, at)
            VALUES (:job, :field, :key, :tenant, :verdict, CAST(:label AS json), :note, clock_timestamp())
            ON CONFLICT (job_id, field, key_id) DO UPDATE
            SET verdict = EXCLUDED.verdict, label = EXCLUDED.label, note = EXCLUDED.note, at = EXCLUDED.at
            WHERE (known.verdict, known.label::text, known.note)
                IS DISTINCT FROM (EXCLUDED.verdict, EXCLUDED.label::text, EXCLUDED.note)
            RETURNING job_id
            """
        ),
        {
            "job": vote.job_id,
            "field": vote.field,
            "key": vote.key_id,
            "tenant": tenant_id,
            "verdict": vote.verdict,
            "label": None if vote.verdict == "confirm" else json.dumps(vote.label),
            "note": vote.note,
        },
    )
    return row.one_or_none() is not None


def read_vote(session: Session, job_id: int, field: str, key_id: str | None) -> Review | None:
    """What a person says; without one, what was said last by anybody."""
    row = session.execute(
        text(
            """
            SELECT job_id, field, verdict, label, note, key_id, at FROM review_votes
            WHERE job_id = :job AND field = :field AND (CAST(:key AS text) IS NULL OR key_id = :key)
            ORDER BY at DESC LIMIT 1
            """
        ),
        {"job": job_id, "field": field, "key": key_id},
    ).one_or_none()
    return Review(*row) if row else None


def delete_votes(session: Session, job_id: int, field: str, key_ids: Sequence[str | None]) -> bool:
    """Take back what these people said; whether they had said anything."""
    rows = session.execute(
        text(
            """
            DELETE FROM review_votes WHERE job_id = :job AND field = :field AND key_id = ANY(:keys)
            RETURNING job_id
            """
        ),
        {"job": job_id, "field": field, "keys": [key for key in key_ids if key is not None]},
    )
    return bool(rows.all())


def count_pairs(session: Session, tenant_id: str, filters: Filters, *, limit: int) -> list[PairCount]:
    """Answers that two people have reviewed, by question, pair and what either says is right."""
    where, values = _where(tenant_id, filters)
    rows = session.execute(
        text(
            f"""
            SELECT l.question, l.field, v.key_id, w.key_id, {RIGHT.format(v="v")} AS one_says,
                   {RIGHT.format(v="w")} AS other_says, count(*)
            {PAIRS} {_join(filters)} WHERE {where}
            GROUP BY 1, 2, 3, 4, 5, 6 ORDER BY 1, 2, 3, 4, 5, 6 LIMIT :limit
            """
        ),
        {**values, "limit": limit},
    )
    return [PairCount(*row) for row in rows]


def list_differences(session: Session, tenant_id: str, filters: Filters, *, limit: int) -> list[Difference]:
    """What two people do not agree on, the newest first."""
    where, values = _where(tenant_id, filters)
    rows = session.execute(
        text(
            f"""
            SELECT * FROM (
                SELECT l.job_id, l.field, l.question, l.item, l.value, v.key_id AS one, w.key_id AS other,
                       {RIGHT.format(v="v")} AS one_says, {RIGHT.format(v="w")} AS other_says,
                       greatest(v.at, w.at) AS at
                {PAIRS} {_join(filters)} WHERE {where}) AS pairs
            WHERE one_says IS DISTINCT FROM other_says
            ORDER BY at DESC, job_id, field, one, other LIMIT :limit
            """  # noqa: S608 - constants
        ),
        {**values, "limit": limit},
    )
    return [Difference(*row) for row in rows]


def _where(tenant_id: str, filters: Filters) -> tuple[str, dict[str, Any]]:
    where, values = where_labels(tenant_id, filters)
    return f"v.tenant_id = :tenant AND {where}", values


def _join(filters: Filters) -> str:
    return JOIN_REVIEWS if filters.review is not None else ""
