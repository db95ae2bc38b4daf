"""What the dispatcher reads and moves: ready jobs, the window on the broker, lapsed leases."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from sqlalchemy import text
from sqlalchemy.orm import Session

from app.planner import Source
from app.states import Priority
from app.store.journal import FAILED


@dataclass(frozen=True)
class Candidate:
    """A ready job, locked until the transaction ends."""

    id: int
    model: str
    image_ids: Sequence[int]
    alone: bool
    priority: Priority = Priority.STANDARD


@dataclass(frozen=True)
class Lapsed:
    """A job whose worker was not heard of until its lease ran out."""

    id: int
    attempt: int
    worker: str | None
    failed: bool  # it went down with too many processes and is ended


@dataclass(frozen=True)
class Backlog:
    """Open jobs by state; those that wait for images or the dispatcher are one number."""

    waiting_or_ready: int
    queued: int
    running: int


def read_open_batches(session: Session) -> list[str]:
    """Batches in progress that have jobs left and time to run them."""
    rows = session.execute(
        text(
            """
            SELECT id FROM batches
            WHERE status = 'in_progress' AND completed + failed < total AND expires_at > now()
            """
        )
    )
    return list(rows.scalars())


def read_models(session: Session, batch_ids: Sequence[str]) -> dict[str, frozenset[str]]:
    """The models of these batches' jobs; they never change once a batch is in progress."""
    rows = session.execute(
        text(
            """
            SELECT batch_id, array_agg(DISTINCT model) AS models FROM jobs
            WHERE batch_id = ANY(:ids) GROUP BY batch_id
            """
        ),
        {"ids": list(batch_ids)},
    ).all()
    return {row.batch_id: frozenset(row.models) for row in rows}


def read_sources(
    session: Session, room: Mapping[str, int], batches: Mapping[str, frozenset[str]]
) -> list[Source]:
    """What has jobs ready now for the models in `room`: of these batches, and tenants' direct jobs.

    `batches` tells each one's models, since to look for jobs of another is to read all that it has ready.
    Each source is counted up to the room that there is for its model.
    """
    return [*_in_batches(session, room, batches), *_direct(session, room)]


def _in_batches(
    session: Session, room: Mapping[str, int], batches: Mapping[str, frozenset[str]]
) -> list[Source]:
    pairs = [(batch_id, model) for batch_id, models in batches.items() for model in models & room.keys()]
    rows = session.execute(
        text(
            """
            SELECT b.tenant_id, b.id AS batch_id, m.model, b.expires_at AS deadline, found.ready
            FROM unnest(CAST(:batches AS text[]), CAST(:models AS text[]), CAST(:caps AS int[]))
                AS m(batch_id, model, cap)
            JOIN batches b ON b.id = m.batch_id
            CROSS JOIN LATERAL (
                SELECT count(*) AS ready FROM (
                    SELECT 1 FROM jobs
                    WHERE batch_id = b.id AND model = m.model AND state = 'ready'
                      AND (not_before IS NULL OR not_before <= now())
                    LIMIT m.cap) AS counted) AS found
            WHERE found.ready > 0
            """
        ),
        {
            "batches": [batch_id for batch_id, _ in pairs],
            "models": [model for _, model in pairs],
            "caps": [room[model] for _, model in pairs],
        },
    )
    return [Source(*row) for row in rows]


def _direct(session: Session, room: Mapping[str, int]) -> list[Source]:
    rows = session.execute(
        text(
            """
            SELECT t.id AS tenant_id, CAST(NULL AS text) AS batch_id, m.model, found.deadline, found.ready
            FROM tenants t
            CROSS JOIN unnest(CAST(:models AS text[]), CAST(:caps AS int[])) AS m(model, cap)
            CROSS JOIN LATERAL (
                SELECT min(coalesce(counted.deadline, counted.created_at)) AS deadline, count(*) AS ready
                FROM (
                    SELECT deadline, created_at FROM jobs
                    WHERE batch_id IS NULL AND state = 'ready' AND tenant_id = t.id AND model = m.model
                      AND (not_before IS NULL OR not_before <= now())
                    LIMIT m.cap) AS counted) AS found
            WHERE found.ready > 0
            """
        ),
        {"models": list(room), "caps": list(room.values())},
    )
    return [Source(*row) for row in rows]


def lock_ready(session: Session, source: Source, *, limit: int) -> list[Candidate]:
    """Ready jobs of one source, image by image; other dispatchers skip them until we commit."""
    where = "batch_id = :batch" if source.batch_id else "batch_id IS NULL AND tenant_id = :tenant"
    rows = session.execute(
        text(
            f"""
            SELECT id, model, image_ids, alone, priority FROM jobs
            WHERE {where} AND model = :model AND state = 'ready'
              AND (not_before IS NULL OR not_before <= now())
            ORDER BY image_group, id LIMIT :limit FOR UPDATE SKIP LOCKED
            """  # noqa: S608 - one of two fixed conditions
        ),
        {"batch": source.batch_id, "tenant": source.tenant_id, "model": source.model, "limit": limit},
    ).all()
    return [Candidate(row.id, row.model, row.image_ids, row.alone, Priority(row.priority)) for row in rows]


def mark_queued(session: Session, job_ids: Sequence[int]) -> None:
    """Note jobs as sent. Only after the broker has confirmed their chunk."""
    session.execute(
        text("UPDATE jobs SET state = 'queued', sent_at = now() WHERE id = ANY(:ids) AND state = 'ready'"),
        {"ids": list(job_ids)},
    )


def count_queued(session: Session) -> dict[str, int]:
    """Jobs on the broker by model: what the window is measured against."""
    rows = session.execute(
        text("SELECT model, count(*) AS n FROM jobs WHERE state = 'queued' GROUP BY model")
    ).all()
    return {row.model: row.n for row in rows}


def take_back_lapsed(session: Session, *, crash_attempts: int, limit: int = 1000) -> list[Lapsed]:
    """Jobs whose lease ran out: back to ready, to travel alone; ended after too many such deaths."""
    rows = session.execute(
        text(
            f"""
            WITH lapsed AS (
                SELECT id FROM jobs WHERE state = 'running' AND lease_until < now()
                ORDER BY id LIMIT :limit FOR UPDATE SKIP LOCKED),
            moved AS (
                UPDATE jobs SET crashes = crashes + 1, alone = true, lease_until = NULL,
                    state = CASE WHEN crashes + 1 >= :most THEN 'failed' ELSE 'ready' END,
                    not_before = NULL,
                    error_code = CASE WHEN crashes + 1 >= :most THEN 'engine_crash' END,
                    error_message = CASE WHEN crashes + 1 >= :most
                        THEN 'The process that ran this job died ' || (crashes + 1) || ' times.' END,
                    finished_at = CASE WHEN crashes + 1 >= :most THEN now() END
                FROM lapsed WHERE jobs.id = lapsed.id
                RETURNING jobs.id, jobs.attempt, jobs.worker, jobs.batch_id, jobs.line, jobs.state,
                          jobs.error_code, jobs.error_message),
            ended AS (SELECT * FROM moved WHERE state = 'failed'),
            {FAILED}
            SELECT id, attempt, worker, state = 'failed' AS failed FROM moved
            """  # noqa: S608 - pieces of our own
        ),
        {"most": crash_attempts, "limit": limit},
    ).all()
    return [Lapsed(row.id, row.attempt, row.worker, row.failed) for row in rows]


def take_back_unheard(
    session: Session, model: str, *, after_s: float, queue_is_empty: bool, limit: int = 10_000
) -> int:
    """Jobs of a model whose message is lost: sent long ago while the queue is empty, or overtaken.

    Queues keep their order. A job that was sent `after_s` later than this one and runs already says that this
    one's message is gone, or waits in a worker's hands, where a second message does no harm.
    """
    rows = session.execute(
        text(
            """
            UPDATE jobs SET state = 'ready' WHERE id IN (
                SELECT id FROM jobs
                WHERE state = 'queued' AND model = :model AND sent_at < CASE
                    WHEN :empty THEN now()
                    ELSE (SELECT max(sent_at) FROM jobs WHERE state = 'running' AND model = :model)
                    END - :after * interval '1 second'
                ORDER BY id LIMIT :limit FOR UPDATE SKIP LOCKED)
            RETURNING id
            """
        ),
        {"model": model, "after": after_s, "empty": queue_is_empty, "limit": limit},
    )
    return len(rows.all())


def expire_direct(session: Session, *, limit: int = 1000) -> int:
    """End direct jobs whose deadline passed before a worker took them."""
    rows = session.execute(
        text(
            """
            UPDATE jobs SET state = 'expired', finished_at = now(), error_code = 'job_expired',
                            error_message = 'The job could not be run before its deadline.'
            WHERE id IN (
                SELECT id FROM jobs WHERE batch_id IS NULL AND state IN ('waiting', 'ready', 'queued')
                  AND deadline < now()
                ORDER BY id LIMIT :limit FOR UPDATE SKIP LOCKED)
            RETURNING id
            """
        ),
        {"limit": limit},
    )
    return len(rows.all())


def count_backlog(session: Session, *, cap: int) -> Backlog:
    """Open jobs by state, from the batches' own counts; direct jobs are counted up to `cap`."""
    row = session.execute(
        text(
            """
            SELECT
              (SELECT coalesce(sum(greatest(total, ingested_lines) - completed - failed), 0) FROM batches
               WHERE status IN ('validating', 'in_progress'))
              + (SELECT count(*) FROM (
                    SELECT 1 FROM jobs WHERE batch_id IS NULL AND state IN ('waiting', 'ready', 'queued')
                    LIMIT :cap) AS found) AS open,
              (SELECT count(*) FROM jobs WHERE state = 'queued') AS queued,
              (SELECT count(*) FROM jobs WHERE state = 'running') AS running
            """
        ),
        {"cap": cap},
    ).one()
    return Backlog(max(0, int(row.open) - row.queued - row.running), row.queued, row.running)


def count_batches(session: Session) -> dict[str, int]:
    rows = session.execute(
        text(
            """
            SELECT status, count(*) AS n FROM batches
            WHERE status IN ('validating', 'in_progress', 'finalizing', 'cancelling') GROUP BY status
            """
        )
    ).all()
    return {row.status: row.n for row in rows}
