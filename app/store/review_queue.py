"""The queue of answers to review: which comes next, who looks at it, and how many wait."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import text
from sqlalchemy.orm import Session

from app.store.labels import Filters, where_labels

# Nobody else looks at it now, and nobody has reviewed it.
FREE = """NOT EXISTS (SELECT FROM review_claims c WHERE c.job_id = l.job_id AND c.field = l.field
        AND c.until > now() AND c.holder <> :holder)"""
UNREVIEWED = "NOT EXISTS (SELECT FROM reviews r WHERE r.job_id = l.job_id AND r.field = l.field)"
# Somebody else has, and this person has not; of these a share, the same for everybody.
SECOND = """EXISTS (SELECT FROM review_votes v WHERE v.job_id = l.job_id AND v.field = l.field
            AND v.tenant_id = :tenant AND v.key_id <> :key)
        AND NOT EXISTS (SELECT FROM review_votes v WHERE v.job_id = l.job_id AND v.field = l.field
            AND v.key_id = :key)
        AND mod(abs(CAST(hashint8(l.job_id) AS bigint)), 100) < :share"""
# The least sure first; then those of which nobody knows how sure they are, the newest first.
UNSURE = "l.confidence, l.job_id, l.field"
NEWEST = "l.created_at DESC, l.job_id DESC, l.field DESC"
BY_JOB = "l.job_id, l.field"


@dataclass(frozen=True)
class Spot:
    """A field of an answer, as it stands in the queue."""

    job_id: int
    field: str
    confidence: float | None
    created_at: datetime


@dataclass(frozen=True)
class Searcher:
    """Who asks for the next answer. `holder` is a session, `key_id` a person."""

    tenant_id: str
    key_id: str
    holder: str


@dataclass(frozen=True)
class QueuedAnswer:
    """All that a reviewer sees of an answer."""

    job_id: int
    field: str
    batch_id: str | None
    question: str | None
    item: str | None
    policy_version: str | None
    model: str
    created_at: datetime
    confidence: float | None
    prompt: Mapping[str, Any]
    constraint: Mapping[str, Any]
    image_ids: Sequence[int]
    text: str
    notes: Sequence[str] | None
    batch_name: str | None  # as its owner calls it


def find_unsure(
    session: Session, who: Searcher, filters: Filters, *, after: Spot | None, limit: int
) -> list[Spot]:
    """Answers that nobody has reviewed and of which it is known how sure they are, the least sure first."""
    behind = "(l.confidence, l.job_id, l.field) > (:confidence, :job, :at_field)" if after else "true"
    return _find(
        session, who, filters, f"l.confidence IS NOT NULL AND {UNREVIEWED}", UNSURE, behind, after, limit
    )


def find_unknown(
    session: Session, who: Searcher, filters: Filters, *, after: Spot | None, limit: int
) -> list[Spot]:
    """Those of which it is not known, the newest first."""
    behind = "(l.created_at, l.job_id, l.field) < (:at, :job, :at_field)" if after else "true"
    return _find(
        session, who, filters, f"l.confidence IS NULL AND {UNREVIEWED}", NEWEST, behind, after, limit
    )


def find_reviewed(
    session: Session, who: Searcher, filters: Filters, *, share: int, after: Spot | None, limit: int
) -> list[Spot]:
    """A share in percent of the answers that somebody else has reviewed, in the order of jobs."""
    behind = "(l.job_id, l.field) > (:job, :at_field)" if after else "true"
    return _find(session, who, filters, SECOND, BY_JOB, behind, after, limit, share=share)


def claim(session: Session, who: Searcher, spot: Spot, *, for_s: float) -> bool:
    """Have an answer for oneself for a while; False where somebody else was faster. Ends old claims."""
    session.execute(text("DELETE FROM review_claims WHERE until <= now()"))
    return hold(session, who.holder, spot.job_id, spot.field, for_s=for_s)


def hold(session: Session, holder: str, job_id: int, field: str, *, for_s: float) -> bool:
    """Take or keep an answer, unless somebody else has it."""
    row = session.execute(
        text(
            """
            INSERT INTO review_claims AS known (job_id, field, holder, until)
            VALUES (:job, :field, :holder, now() + :for * interval '1 second')
            ON CONFLICT (job_id, field) DO UPDATE SET holder = EXCLUDED.holder, until = EXCLUDED.until
            WHERE known.holder = EXCLUDED.holder OR known.until <= now()
            RETURNING job_id
            """
        ),
        {"job": job_id, "field": field, "holder": holder, "for": for_s},
    )
    return row.one_or_none() is not None


def release(session: Session, holder: str, job_id: int, field: str) -> None:
    session.execute(
        text("DELETE FROM review_claims WHERE job_id = :job AND field = :field AND holder = :holder"),
        {"job": job_id, "field": field, "holder": holder},
    )


def is_held_by_others(session: Session, holder: str, job_id: int, field: str) -> bool:
    return session.execute(
        text(
            """
            SELECT EXISTS (SELECT FROM review_claims WHERE job_id = :job AND field = :field
                           AND holder <> :holder AND until > now())
            """
        ),
        {"job": job_id, "field": field, "holder": holder},
    ).scalar_one()


def read_spot(session: Session, tenant_id: str, job_id: int, field: str) -> Spot | None:
    row = session.execute(
        text(
            """
            SELECT job_id, field, confidence, created_at FROM labels
            WHERE job_id = :job AND field = :field AND place = 0 AND tenant_id = :tenant
            """
        ),
        {"job": job_id, "field": field, "tenant": tenant_id},
    ).one_or_none()
    return Spot(*row) if row else None


def read_queued(session: Session, tenant_id: str, job_id: int, field: str | None) -> QueuedAnswer | None:
    """A field of an answer, without one its first; None where there is none."""
    where, values = where_labels(tenant_id, Filters(field=field))
    row = session.execute(
        text(
            f"""
            SELECT l.job_id, l.field, l.batch_id, l.question, l.item, l.policy_version, l.model,
                   l.created_at, l.confidence, j.prompt, j.params->'constraint' AS "constraint",
                   j.image_ids, a.text, a.notes, coalesce(b.metadata->>'name', b.metadata->>'description')
            FROM labels l JOIN jobs j ON j.id = l.job_id JOIN answers a ON a.job_id = l.job_id
            LEFT JOIN batches b ON b.id = l.batch_id
            WHERE l.job_id = :job AND l.place = 0 AND {where} ORDER BY l.field LIMIT 1
            """  # noqa: S608 - constants
        ),
        {**values, "job": job_id},
    ).one_or_none()
    return QueuedAnswer(*row) if row else None


def list_questions(session: Session, tenant_id: str, *, limit: int) -> list[str]:
    """The names of questions that have labels: one look into the index for each."""
    return _distinct(session, "question", "tenant_id = :tenant", {"tenant": tenant_id}, limit)


def list_values(session: Session, tenant_id: str, question: str, *, limit: int) -> list[str]:
    """The labels of a question."""
    where, values = (
        "tenant_id = :tenant AND question = :question",
        {"tenant": tenant_id, "question": question},
    )
    return _distinct(session, "value", where, values, limit)


def _find(
    session: Session,
    who: Searcher,
    filters: Filters,
    which: str,
    order: str,
    behind: str,
    after: Spot | None,
    limit: int,
    **more: object,
) -> list[Spot]:
    where, values = where_labels(who.tenant_id, filters)
    values |= {"holder": who.holder, "key": who.key_id, "limit": limit, **more}
    if after is not None:
        values |= {
            "confidence": after.confidence,
            "at": after.created_at,
            "job": after.job_id,
            "at_field": after.field,
        }
    # Of a list a label stands at any place, but only once.
    first = "true" if filters.label is not None else "l.place = 0"
    rows = session.execute(
        text(
            f"""
            SELECT l.job_id, l.field, l.confidence, l.created_at FROM labels l
            WHERE {where} AND {first} AND {which} AND {FREE} AND {behind} ORDER BY {order} LIMIT :limit
            """  # noqa: S608 - constants
        ),
        values,
    )
    return [Spot(*row) for row in rows]


def _distinct(
    session: Session, column: str, where: str, values: Mapping[str, object], limit: int
) -> list[str]:
    rows = session.execute(
        text(
            f"""
            WITH RECURSIVE found AS (
                (SELECT {column} FROM labels WHERE {where} AND {column} IS NOT NULL ORDER BY {column} LIMIT 1)
                UNION ALL
                SELECT (SELECT l.{column} FROM labels l WHERE {where} AND l.{column} > found.{column}
                        ORDER BY l.{column} LIMIT 1)
                FROM found WHERE found.{column} IS NOT NULL)
            SELECT {column} FROM found WHERE {column} IS NOT NULL LIMIT :limit
            """  # noqa: S608 - names of our own
        ),
        {**values, "limit": limit},
    )
    return [row[0] for row in rows]
