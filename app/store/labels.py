"""Labels of answers: noted with the answer, found and counted by index, gone with the job."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from typing import Any

from sqlalchemy import text
from sqlalchemy.orm import Session

from app.labels import Label
from app.store.jobs import PREVIEW
from app.store.prepared import Prepared

# The state of a review, where r may be none.
REVIEW = "CASE r.verdict WHEN 'confirm' THEN 'confirmed' WHEN 'overturn' THEN 'overturned' ELSE 'none' END"
# What follows `gone`, jobs by `id`, in a statement that deletes them.
LABELS_GONE = """
    unlabelled AS (DELETE FROM labels USING gone WHERE labels.job_id = gone.id),
    unreviewed AS (DELETE FROM reviews USING gone WHERE reviews.job_id = gone.id),
    unvoted AS (DELETE FROM review_votes USING gone WHERE review_votes.job_id = gone.id),
    unclaimed AS (DELETE FROM review_claims USING gone WHERE review_claims.job_id = gone.id)"""
# Of a batch that its owner has deleted nothing is seen, though its rows may still be there.
SEEN = "NOT EXISTS (SELECT FROM batches d WHERE d.id = l.batch_id AND d.deleted_at IS NOT NULL)"
FILTERS: Mapping[str, str] = {
    "batch_id": "l.batch_id = :batch_id",
    "question": "l.question = :question",
    "item": "l.item = :item",
    "label": "l.value = :label",
    "field": "l.field = :field",
    "policy_version": "l.policy_version = :policy_version",
    "model": "l.model = :model",
    "review": f"{REVIEW} = :review",
    "since": "l.created_at >= :since",
    "until": "l.created_at < :until",
    "at_least": "l.confidence >= :at_least",
    "below": "l.confidence < :below",
    # One that was deleted is known by its id only.
    "sweep": """l.batch_id IN (
        SELECT id FROM batches WHERE tenant_id = :tenant AND metadata->>'vqueue_sweep' IN (
            SELECT CAST(:sweep AS text) UNION ALL
            SELECT id FROM sweeps WHERE tenant_id = :tenant AND name = :sweep AND deleted_at IS NULL))""",
}
GROUPS: Mapping[str, str] = {
    "label": "l.value",
    "field": "l.field",
    "question": "l.question",
    "policy_version": "l.policy_version",
    "day": "(l.created_at AT TIME ZONE 'UTC')::date",
    "model": "l.model",
    "review": REVIEW,
}
JOIN_REVIEWS = "LEFT JOIN reviews r ON r.job_id = l.job_id AND r.field = l.field"
NEWEST = "l.created_at DESC, l.job_id DESC, l.field DESC, l.place DESC"
# How sure an answer is: as its cascade says, else by its tokens' probabilities, where they are kept.
# What is less likely than e^-700 is no number to Postgres.
CONFIDENCE = """coalesce(a.confidence, CASE
        WHEN json_typeof(a.logprobs) = 'array' AND json_array_length(a.logprobs) > 0
        THEN exp(least(0, greatest(-700, (
            SELECT sum(CAST(token->>1 AS float8)) FROM json_array_elements(a.logprobs) AS token)))) END)"""
QUESTION_CHARS = 64  # of a table's; what is longer behind a colon is none

# A preview's answers are tries, which are neither reviewed nor counted.
# A line of a table asks the question whose turn it is; a sweep's jobs say theirs behind the last colon.
NOTE = Prepared(
    "note_labels",
    f"""
    WITH given AS (
        SELECT * FROM unnest(:ids, :fields, :places, :values) AS g(job_id, field, place, value)),
    answered AS MATERIALIZED (
        SELECT j.id, j.tenant_id, j.batch_id, j.line, j.custom_id, a.model, a.created_at,
               {CONFIDENCE} AS confidence
        FROM jobs j JOIN answers a ON a.job_id = j.id
        WHERE j.id = ANY(:ids) AND (j.batch_id IS NOT NULL OR j.custom_id IS DISTINCT FROM '{PREVIEW}')),
    asked AS MATERIALIZED (
        SELECT b.id, b.metadata->>'vqueue_policy_version' AS policy_version,
               b.metadata ? 'vqueue_sweep' AS is_sweep,
               CASE WHEN b.input_table IS NULL THEN ARRAY[]::text[]
                    WHEN json_typeof(b.input_table->'questions') = 'array'
                    THEN ARRAY(SELECT q->>'name' FROM json_array_elements(b.input_table->'questions') AS q)
                    ELSE ARRAY['answer'] END AS names
        FROM batches b WHERE b.id IN (SELECT batch_id FROM answered)),
    named AS (
        SELECT one.*, asked.policy_version, asked.is_sweep, cardinality(asked.names) AS questions,
               CASE WHEN cardinality(asked.names) > 0
                    THEN asked.names[mod(one.line - 1, cardinality(asked.names)) + 1]
                    WHEN asked.is_sweep THEN substring(one.custom_id FROM ':([^:]{{1,{QUESTION_CHARS}}})$')
               END AS question
        FROM answered one LEFT JOIN asked ON asked.id = one.batch_id)
    INSERT INTO labels (job_id, field, place, value, tenant_id, batch_id, question, item, policy_version,
                        model, created_at, confidence)
    SELECT g.job_id, g.field, g.place, g.value, n.tenant_id, n.batch_id, n.question,
           CASE WHEN n.question IS NOT NULL AND (n.questions > 1 OR n.is_sweep)
                     AND right(n.custom_id, length(n.question) + 1) = ':' || n.question
                THEN left(n.custom_id, -length(n.question) - 1) ELSE n.custom_id END,
           n.policy_version, n.model, n.created_at, n.confidence
    FROM given g JOIN named n ON n.id = g.job_id
    ON CONFLICT DO NOTHING
    """,  # noqa: S608 - pieces of our own
    {"ids": "bigint[]", "fields": "text[]", "places": "smallint[]", "values": "text[]"},
)


@dataclass(frozen=True)
class Filters:
    """Which labels; None asks for any. `until` is exclusive, `review` one of none, confirmed, overturned."""

    batch_id: str | None = None
    question: str | None = None
    item: str | None = None
    label: str | None = None
    field: str | None = None
    policy_version: str | None = None
    model: str | None = None
    review: str | None = None
    since: datetime | None = None
    until: datetime | None = None
    below: float | None = None  # its confidence; those without one are left out
    sweep: str | None = None
    at_least: float | None = None


@dataclass(frozen=True)
class Cursor:
    """A label's place in the order of all."""

    created_at: datetime
    job_id: int
    field: str
    place: int


@dataclass(frozen=True)
class LabelRow:
    """A label with the answer that it is of, and its review if there is one."""

    job_id: int
    field: str
    place: int
    value: str
    batch_id: str | None
    question: str | None
    item: str | None
    policy_version: str | None
    model: str
    created_at: datetime
    text: str
    revision: str
    notes: Sequence[str] | None
    verdict: str | None
    right_label: Any
    note: str | None
    key_id: str | None
    reviewed_at: datetime | None
    confidence: float | None


@dataclass(frozen=True)
class Count:
    """How many labels; `group` has the values that were grouped by."""

    group: Sequence[str | date | None]
    labels: int


def note_labels(session: Session, labels: Mapping[int, Sequence[Label]]) -> None:
    """Note the labels of recorded answers, by job, in the transaction that records these.

    A job that has no answer gets none, and noting them again changes nothing.
    """
    rows = [(job_id, label) for job_id, several in labels.items() for label in several]
    if not rows:
        return
    NOTE.execute(
        session,
        {
            "ids": [job_id for job_id, _ in rows],
            "fields": [label.field for _, label in rows],
            "places": [label.place for _, label in rows],
            "values": [label.value for _, label in rows],
        },
    )


def read_cursor(session: Session, tenant_id: str, job_id: int, field: str, place: int) -> Cursor | None:
    row = session.execute(
        text(
            """
            SELECT created_at, job_id, field, place FROM labels
            WHERE job_id = :job AND field = :field AND place = :place AND tenant_id = :tenant
            """
        ),
        {"tenant": tenant_id, "job": job_id, "field": field, "place": place},
    ).one_or_none()
    return Cursor(*row) if row else None


def list_labels(
    session: Session, tenant_id: str, filters: Filters, *, after: Cursor | None, limit: int
) -> list[LabelRow]:
    """The newest first, those behind `after`."""
    where, values = where_labels(tenant_id, filters)
    if after is not None:
        where += " AND (l.created_at, l.job_id, l.field, l.place) < (:at, :job, :at_field, :at_place)"
        values |= {
            "at": after.created_at,
            "job": after.job_id,
            "at_field": after.field,
            "at_place": after.place,
        }
    rows = session.execute(
        text(
            f"""
            SELECT l.job_id, l.field, l.place, l.value, l.batch_id, l.question, l.item, l.policy_version,
                   l.model, l.created_at, a.text, a.revision, a.notes, l.verdict, l.label, l.note, l.key_id,
                   l.at, l.confidence
            FROM (SELECT l.*, r.verdict, r.label, r.note, r.key_id, r.at FROM labels l {JOIN_REVIEWS}
                  WHERE {where} ORDER BY {NEWEST} LIMIT :limit) AS l
            JOIN answers a ON a.job_id = l.job_id ORDER BY {NEWEST}
            """  # noqa: S608 - constants
        ),
        {**values, "limit": limit},
    )
    return [LabelRow(*row) for row in rows]


def count_labels(
    session: Session, tenant_id: str, filters: Filters, *, by: Sequence[str], limit: int
) -> list[Count]:
    """How many labels there are of each group, in the order of the groups; `by` names some of GROUPS."""
    where, values = where_labels(tenant_id, filters)
    join = JOIN_REVIEWS if filters.review is not None or "review" in by else ""
    groups = "".join(f"{GROUPS[name]}, " for name in by)
    places = ", ".join(str(place) for place in range(1, len(by) + 1))
    grouped = f"GROUP BY {places} ORDER BY {places}" if by else ""
    rows = session.execute(
        text(
            f"""
            SELECT {groups} count(*) FROM labels l {join} WHERE {where} {grouped} LIMIT :limit
            """  # noqa: S608 - constants
        ),
        {**values, "limit": limit},
    )
    return [Count(row[:-1], row[-1]) for row in rows]


def where_labels(tenant_id: str, filters: Filters) -> tuple[str, dict[str, Any]]:
    """The condition on labels l, beside reviews r where `review` is asked for, and its values."""
    given = {name: value for name, value in vars(filters).items() if value is not None}
    parts = ["l.tenant_id = :tenant", SEEN, *(FILTERS[name] for name in given)]
    return " AND ".join(parts), {"tenant": tenant_id, **given}
