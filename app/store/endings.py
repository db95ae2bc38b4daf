"""Batches that end before their jobs do: past their deadline, cancelled or stopped, and swept of the rest."""

from collections.abc import Collection
from dataclasses import dataclass

from sqlalchemy import text
from sqlalchemy.orm import Session

from app.states import BATCH_FAILED
from app.store.journal import COUNT_FAILED, ENDED_BY_BATCH, NOTE_RESULTS


@dataclass(frozen=True)
class SweepTask:
    """A batch to sweep; `ending` is what its open jobs become: cancelled, expired or failed."""

    id: str
    ending: str


@dataclass(frozen=True)
class Swept:
    """How many jobs a block moved, and the line of the last one."""

    jobs: int
    last_line: int


def expire_batches(session: Session) -> list[str]:
    """Close the batches whose deadline has passed; which ones. One that did not pass fails by itself."""
    rows = session.execute(
        text(
            """
            UPDATE batches SET status = 'finalizing', ending = 'expired', finalizing_at = now()
            WHERE id IN (
                SELECT id FROM batches
                WHERE status IN ('validating', 'in_progress') AND expires_at <= now() AND errors IS NULL
                ORDER BY id FOR UPDATE SKIP LOCKED)
            RETURNING id
            """
        )
    )
    return list(rows.scalars())


def find_to_sweep(
    session: Session, *, again_after_s: float, without: Collection[str] = ()
) -> SweepTask | None:
    """A closed batch with open jobs, or one never swept.

    Jobs that ran when it was closed may come back to ready, and its file may still be read, so a batch is
    swept again and again while it has open jobs, but only after `again_after_s` seconds.
    """
    row = session.execute(
        text(
            """
            SELECT id, ending FROM batches
            WHERE (status = 'cancelling' OR (status = 'finalizing' AND ending IN ('expired', 'failed')))
              AND (swept_at IS NULL
                   OR (completed + failed < total AND swept_at < now() - :again * interval '1 second'))
              AND id <> ALL(:without)
            ORDER BY swept_at NULLS FIRST LIMIT 1
            """
        ),
        {"again": again_after_s, "without": list(without)},
    ).one_or_none()
    return SweepTask(row.id, row.ending) if row else None


def sweep_jobs(session: Session, task: SweepTask, *, after_line: int, limit: int) -> Swept:
    """End a block of a closed batch's jobs that no worker has taken, and count them as failed.

    Locks jobs before the batch, as everybody does. Waits that a fetcher holds are left to it: it finds
    no waiting job behind them.
    """
    row = session.execute(
        text(
            f"""
            WITH picked AS (
                SELECT id, line, image_ids FROM jobs
                WHERE batch_id = :batch AND line > :after AND state IN ('waiting', 'ready', 'queued')
                ORDER BY line LIMIT :limit FOR UPDATE),
            ended AS (
                UPDATE jobs SET state = :ending, finished_at = now(), waiting_on = 0,
                    error_code = CASE WHEN :ending = 'failed' THEN :code END, error_message = NULL
                FROM picked WHERE jobs.id = picked.id RETURNING jobs.id, jobs.batch_id),
            waits AS (
                DELETE FROM job_waits WHERE (image_id, job_id) IN (
                    SELECT w.image_id, w.job_id FROM picked CROSS JOIN unnest(picked.image_ids) AS image
                    JOIN job_waits w ON w.image_id = image AND w.job_id = picked.id
                    FOR UPDATE OF w SKIP LOCKED)),
            {ENDED_BY_BATCH},
            {COUNT_FAILED},
            {NOTE_RESULTS}
            SELECT count(*) AS jobs, coalesce(max(line), 0) AS last_line FROM picked
            """  # noqa: S608 - pieces of our own
        ),
        {"batch": task.id, "after": after_line, "limit": limit, "ending": task.ending, "code": BATCH_FAILED},
    ).one()
    return Swept(row.jobs, row.last_line)


def mark_swept(session: Session, task: SweepTask) -> None:
    """Note that a sweep went through."""
    session.execute(
        text(
            """
            UPDATE batches SET swept_at = now() WHERE id = :id AND status IN ('cancelling', 'finalizing')
            """
        ),
        {"id": task.id},
    )
