"""What the reaper takes back or ends: lapsed leases, lost messages, jobs past their deadline."""

from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import text
from sqlalchemy.orm import Session

from app.planner import Lane
from app.states import Priority
from app.store.chats import CALLER_LEFT
from app.store.journal import FAILED
from app.store.plans import IS_NEAR


@dataclass(frozen=True)
class Lapsed:
    """A job whose worker was not heard of until its lease ran out."""

    id: int
    attempt: int
    worker: str | None
    failed: bool  # it went down with too many processes and is ended


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


def take_back_held(session: Session, *, limit: int = 10_000) -> int:
    """Jobs of chunks that waited for their turn in the hands of a worker that is gone; how many."""
    rows = session.execute(
        text(
            """
            UPDATE jobs SET state = 'ready', lease_until = NULL WHERE id IN (
                SELECT id FROM jobs WHERE state = 'queued' AND lease_until < now()
                ORDER BY id LIMIT :limit FOR UPDATE SKIP LOCKED)
            RETURNING id
            """
        ),
        {"limit": limit},
    )
    return len(rows.all())


def take_back_sent(session: Session, lane: Lane, *, before: datetime, limit: int = 10_000) -> int:
    """Jobs of a lane that were sent before this moment and are in no worker's hands; how many."""
    rows = session.execute(
        text(
            """
            UPDATE jobs SET state = 'ready' WHERE id IN (
                SELECT id FROM jobs
                WHERE state = 'queued' AND model = :model AND priority = :priority AND sent_at < :before
                  AND lease_until IS NULL
                ORDER BY id LIMIT :limit FOR UPDATE SKIP LOCKED)
            RETURNING id
            """
        ),
        {"model": lane.model, "priority": lane.priority, "before": before, "limit": limit},
    )
    return len(rows.all())


def take_back_urgent(session: Session, *, limit: int = 10_000) -> int:
    """Jobs that were sent to the background while their batch had time, which it has no more; how many."""
    rows = session.execute(
        text(
            f"""
            UPDATE jobs SET state = 'ready' WHERE id IN (
                SELECT j.id FROM jobs j JOIN batches b ON b.id = j.batch_id
                WHERE j.state = 'queued' AND j.priority = 'background' AND j.lease_until IS NULL
                  AND {IS_NEAR}
                ORDER BY j.id LIMIT :limit FOR UPDATE OF j SKIP LOCKED)
            RETURNING id
            """  # noqa: S608 - a piece of our own
        ),
        {"limit": limit},
    )
    return len(rows.all())


def read_taken(session: Session) -> dict[Lane, datetime]:
    """When jobs were sent that run now, by lane: half of them before, half after that moment.

    The latest one would say more, but may have come by an older message of the same job.
    """
    rows = session.execute(
        text(
            """
            SELECT model, priority, percentile_disc(0.5) WITHIN GROUP (ORDER BY sent_at) AS moment
            FROM jobs WHERE state = 'running' AND sent_at IS NOT NULL GROUP BY model, priority
            """
        )
    )
    return {Lane(row.model, Priority(row.priority)): row.moment for row in rows}


def read_time(session: Session) -> datetime:
    """Now, by the database's clock."""
    return session.execute(text("SELECT clock_timestamp()")).scalar_one()


def expire_direct(session: Session, *, limit: int = 1000) -> int:
    """End direct jobs whose deadline passed before a worker took them; whose caller left is cancelled."""
    rows = session.execute(
        text(
            """
            UPDATE jobs SET finished_at = now(),
                state = CASE WHEN error_code = :left THEN 'cancelled' ELSE 'expired' END,
                error_code = CASE WHEN error_code = :left THEN error_code ELSE 'job_expired' END,
                error_message = CASE WHEN error_code = :left THEN error_message
                    ELSE 'The job could not be run before its deadline.' END
            WHERE id IN (
                SELECT id FROM jobs WHERE batch_id IS NULL AND state IN ('waiting', 'ready', 'queued')
                  AND deadline < now()
                ORDER BY id LIMIT :limit FOR UPDATE SKIP LOCKED)
            RETURNING id
            """
        ),
        {"limit": limit, "left": CALLER_LEFT},
    )
    return len(rows.all())
