"""Chunks that wait for their turn in a worker's hands: their jobs stay queued, under a lease."""

from collections.abc import Collection, Sequence

from sqlalchemy import text
from sqlalchemy.orm import Session


def hold(session: Session, job_ids: Sequence[int], *, worker: str, lease_s: float) -> list[int]:
    """Tell that a worker has the message of these jobs, and will run them later; which ones.

    Those that another message of theirs holds already are left to that.
    """
    rows = session.execute(
        text(
            """
            UPDATE jobs SET worker = :worker, lease_until = now() + :lease * interval '1 second'
            FROM (SELECT id FROM jobs
                  WHERE id = ANY(:ids) AND state = 'queued' AND (lease_until IS NULL OR lease_until < now())
                  ORDER BY id FOR UPDATE) AS free
            WHERE jobs.id = free.id RETURNING jobs.id
            """
        ),
        {"ids": list(job_ids), "worker": worker, "lease": lease_s},
    )
    return sorted(rows.scalars())


def renew_holds(session: Session, job_ids: Collection[int], *, worker: str, lease_s: float) -> None:
    session.execute(
        text(
            """
            UPDATE jobs SET lease_until = now() + :lease * interval '1 second'
            FROM (SELECT id FROM jobs
                  WHERE id = ANY(:ids) AND state = 'queued' AND worker = :worker AND lease_until IS NOT NULL
                  ORDER BY id FOR UPDATE) AS ours
            WHERE jobs.id = ours.id
            """
        ),
        {"ids": list(job_ids), "worker": worker, "lease": lease_s},
    )


def give_back(session: Session, job_ids: Sequence[int], *, worker: str) -> int:
    """Make held jobs ready again, unclaimed; how many were still held."""
    rows = session.execute(
        text(
            """
            UPDATE jobs SET state = 'ready', worker = NULL, lease_until = NULL
            FROM (SELECT id FROM jobs
                  WHERE id = ANY(:ids) AND state = 'queued' AND worker = :worker AND lease_until IS NOT NULL
                  ORDER BY id FOR UPDATE) AS ours
            WHERE jobs.id = ours.id RETURNING jobs.id
            """
        ),
        {"ids": list(job_ids), "worker": worker},
    )
    return len(rows.all())
