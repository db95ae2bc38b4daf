"""Jobs: inserted, read, claimed under a lease that is renewed. One statement per move."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from sqlalchemy import text
from sqlalchemy.orm import Session

from app.states import JobState, Priority
from app.store.prepared import Prepared

# JSON as clients gave it and as it is stored: any depth, so no closer type would be true.
Json = Any
# The `custom_id` of a direct job whose answer is only a try: no client can give one to a direct job.
PREVIEW = "vqueue_preview"


@dataclass(frozen=True)
class NewJob:
    """A job of its own, outside any batch. `waiting_on` counts the images that are not stored yet."""

    tenant_id: str
    model: str
    prompt: Mapping[str, Json]
    params: Mapping[str, Json]
    image_ids: Sequence[int] = ()
    waiting_image_ids: Sequence[int] = ()
    custom_id: str | None = None
    deadline: datetime | None = None
    priority: Priority = Priority.STANDARD
    key_id: str | None = None
    cache: int = 0  # bits of app.answer_keys
    question_hash: bytes | None = None
    trace: str | None = None


@dataclass(frozen=True)
class ClaimedJob:
    id: int
    attempt: int  # fences the result: grows with every claim
    tries: int  # what the retry policy counts: attempts less those that were handed back undone
    tenant_id: str
    batch_id: str | None
    model: str
    prompt: Mapping[str, Json]
    params: Mapping[str, Json]
    image_ids: Sequence[int]
    waited_s: float  # from created to claimed
    tenant_name: str = ""
    near_duplicates: bool = False  # its batch lets pictures that look the same stand in for each other
    warm: bool = False  # its batch is there to fill caches
    priority: Priority = Priority.STANDARD
    left_s: float | None = None  # from claimed to its own deadline
    answer_key: bytes | None = None  # to keep its answer by
    final_model: str | None = None  # whom a cascade asks if this model is unsure
    cascade: Mapping[str, Json] | None = None
    first_confidence: float | None = None  # how sure the model was that a cascade has asked before this one


@dataclass(frozen=True)
class Held:
    """One try at a job, which a worker holds under a lease."""

    job_id: int
    attempt: int


@dataclass(frozen=True)
class JobView:
    """A job as its owner sees it."""

    id: int
    model: str
    state: JobState
    attempt: int
    error_code: str | None
    error_message: str | None
    created_at: datetime
    started_at: datetime | None
    finished_at: datetime | None
    answer: str | None = None
    finish_reason: str | None = None
    prompt_tokens: int | None = None
    cached_tokens: int | None = None
    completion_tokens: int | None = None
    revision: str | None = None
    logprobs: Json = None
    notes: Sequence[str] | None = None
    reasoning: str | None = None
    params: Mapping[str, Json] = field(default_factory=dict)


def insert_job(session: Session, job: NewJob) -> int:
    """Add one direct job; ready at once unless it waits for images."""
    state = JobState.WAITING if job.waiting_image_ids else JobState.READY
    job_id = session.execute(
        text(
            """
            INSERT INTO jobs (tenant_id, key_id, custom_id, model, priority, state, prompt, params, image_ids,
                              image_group, waiting_on, deadline, cache, question_hash,
                              trace)
            VALUES (:tenant_id, :key_id, :custom_id, :model, :priority, :state, CAST(:prompt AS json),
                    CAST(:params AS json), CAST(:image_ids AS bigint[]), :image_group, :waiting_on, :deadline,
                    :cache, :question_hash, :trace)
            RETURNING id
            """
        ),
        {
            "tenant_id": job.tenant_id,
            "key_id": job.key_id,
            "custom_id": job.custom_id,
            "model": job.model,
            "priority": job.priority,
            "state": state,
            "prompt": json.dumps(job.prompt),
            "params": json.dumps(job.params),
            "image_ids": list(job.image_ids),
            "image_group": job.image_ids[0] if job.image_ids else 0,
            "waiting_on": len(set(job.waiting_image_ids)),
            "deadline": job.deadline,
            "cache": job.cache,
            "question_hash": job.question_hash,
            "trace": job.trace,
        },
    ).scalar_one()
    insert_waits(session, [(image_id, job_id) for image_id in set(job.waiting_image_ids)])
    return job_id


def insert_waits(session: Session, pairs: Sequence[tuple[int, int]]) -> None:
    """Note which job waits for which image: pairs (image id, job id)."""
    session.execute(
        text(
            """
            INSERT INTO job_waits (image_id, job_id)
            SELECT * FROM unnest(CAST(:images AS bigint[]), CAST(:jobs AS bigint[]))
            """
        ),
        {"images": [image for image, _ in pairs], "jobs": [job for _, job in pairs]},
    )


def read_job(session: Session, tenant_id: str, job_id: int) -> JobView | None:
    row = (
        session.execute(
            text(
                """
                SELECT j.id, j.model, j.state, j.attempt, j.error_code, j.error_message, j.created_at,
                       j.started_at, j.finished_at, j.params, a.text AS answer, a.finish_reason,
                       a.prompt_tokens, a.cached_tokens, a.completion_tokens, a.revision, a.logprobs, a.notes,
                       a.reasoning
                FROM jobs j LEFT JOIN answers a ON a.job_id = j.id
                WHERE j.id = :id AND j.tenant_id = :tenant AND NOT EXISTS (
                    SELECT FROM batches b WHERE b.id = j.batch_id AND b.deleted_at IS NOT NULL)
                """
            ),
            {"id": job_id, "tenant": tenant_id},
        )
        .mappings()
        .one_or_none()
    )
    return JobView(**{**row, "state": JobState(row["state"])}) if row else None


def must_travel_alone(session: Session, job_ids: Sequence[int]) -> bool:
    """Whether one of them was on board when a worker died."""
    found = session.execute(
        text("SELECT count(*) FROM jobs WHERE id = ANY(:ids) AND alone"), {"ids": list(job_ids)}
    )
    return found.scalar_one() > 0


CLAIM = Prepared(
    "claim_jobs",
    """
    UPDATE jobs SET state = 'running', attempt = attempt + 1, worker = :worker, started_at = now(),
                    lease_until = now() + :lease * interval '1 second'
    FROM (
        SELECT j.id, b.metadata, b.cascade, t.name AS tenant_name
        FROM jobs j LEFT JOIN batches b ON b.id = j.batch_id LEFT JOIN tenants t ON t.id = j.tenant_id
        WHERE j.id = ANY(:ids) AND j.state IN ('ready', 'queued')
          AND (j.batch_id IS NULL OR (
              b.status = 'in_progress' AND b.expires_at > now() AND b.deleted_at IS NULL))
          AND (j.deadline IS NULL OR j.deadline > now())
          AND (NOT j.alone OR cardinality(:ids) = 1)
        ORDER BY j.id FOR UPDATE OF j) AS found
    WHERE jobs.id = found.id
    RETURNING jobs.id, attempt, attempt - returns AS tries, tenant_id, batch_id, model, prompt,
              params, image_ids,
              CAST(extract(epoch FROM now() - created_at) AS float8) AS waited_s,
              coalesce(tenant_name, '') AS tenant_name,
              coalesce(found.metadata->>'vqueue_near_duplicates' = 'on', false) AS near_duplicates,
              coalesce(found.metadata->>'vqueue_warm' = 'on', false) AS warm, priority,
              CAST(extract(epoch FROM deadline - now()) AS float8) AS left_s, answer_key,
              final_model, CASE WHEN final_model IS NOT NULL THEN found.cascade END AS cascade,
              CAST(first_answer->>'confidence' AS float8) AS first_confidence
    """,
    {"ids": "bigint[]", "worker": "text", "lease": "float8"},
)


def claim(session: Session, job_ids: Sequence[int], *, worker: str, lease_s: float) -> list[ClaimedJob]:
    """Take those of the jobs that wait for a worker; a message delivered twice claims nothing.

    A job that must travel alone is left to a message of its own: the broker may still hold the chunk in which
    it went down, with others that would go down again with it.
    """
    rows: Sequence[Any] = CLAIM.execute(
        session, {"ids": list(job_ids), "worker": worker, "lease": lease_s}
    ).all()
    return sorted((_claimed(*row) for row in rows), key=lambda job: job.id)


def _claimed(*values: Any) -> ClaimedJob:
    """By place, as to read a row's columns by their names cost more than half of a claim."""
    *others, priority, left_s, key, final_model, cascade, first_confidence = values
    return ClaimedJob(
        *others,
        priority=Priority(priority),
        left_s=left_s,
        answer_key=None if key is None else bytes(key),
        final_model=final_model,
        cascade=cascade,
        first_confidence=first_confidence,
    )


def awaited_images(
    session: Session,
    image_ids: Sequence[int],
    *,
    models: Sequence[str],
    batch_ids: Sequence[str],
    tenant_ids: Sequence[str],
) -> set[int]:
    """Which of these images are the first of a job that waits for one of these models: one that was sent, or
    a ready one of these batches or of these tenants' direct jobs. Each part has its index, and reads little
    of it."""
    rows = session.execute(
        text(
            """
            SELECT image_group FROM jobs
            WHERE state = 'queued' AND image_group = ANY(:images) AND model = ANY(:models)
            UNION
            SELECT i.id FROM unnest(CAST(:images AS bigint[])) AS i(id) WHERE EXISTS (
                SELECT FROM jobs WHERE state = 'ready' AND batch_id IS NOT NULL
                    AND batch_id = ANY(:batches) AND image_group = i.id AND model = ANY(:models))
            UNION
            SELECT i.id FROM unnest(CAST(:images AS bigint[])) AS i(id) WHERE EXISTS (
                SELECT FROM jobs WHERE state = 'ready' AND batch_id IS NULL
                    AND tenant_id = ANY(:tenants) AND image_group = i.id AND model = ANY(:models))
            """
        ),
        {
            "images": list(image_ids),
            "models": list(models),
            "batches": list(batch_ids),
            "tenants": list(tenant_ids),
        },
    )
    return set(rows.scalars())


def renew(session: Session, held: Sequence[Held], *, worker: str, lease_s: float) -> set[Held]:
    """Heartbeat: renew the leases of the attempts that are still this worker's; which ones those are."""
    rows = session.execute(
        text(
            """
            WITH held AS (
                SELECT * FROM unnest(CAST(:ids AS bigint[]), CAST(:attempts AS int[])) AS h(id, attempt)),
            ours AS (
                SELECT jobs.id FROM jobs JOIN held ON held.id = jobs.id AND held.attempt = jobs.attempt
                WHERE jobs.state = 'running' AND jobs.worker = :worker
                ORDER BY jobs.id FOR UPDATE OF jobs)
            UPDATE jobs SET lease_until = now() + :lease * interval '1 second'
            FROM ours WHERE jobs.id = ours.id RETURNING jobs.id, jobs.attempt
            """
        ),
        {
            "ids": [attempt.job_id for attempt in held],
            "attempts": [attempt.attempt for attempt in held],
            "worker": worker,
            "lease": lease_s,
        },
    ).all()
    return {Held(row.id, row.attempt) for row in rows}
