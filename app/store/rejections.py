"""Batches whose files do not pass: marked with the reason, cleared of their rows in blocks, and ended."""

import json
from collections.abc import Sequence

from sqlalchemy import text
from sqlalchemy.orm import Session

from app.errors import LineError
from app.store.ingest import IngestTask


def reject_batch(session: Session, task: IngestTask, errors: Sequence[LineError]) -> bool:
    """Decide that the file does not pass. The batch stays validating until its rows are gone."""
    row = session.execute(
        text(
            """
            UPDATE batches SET errors = CAST(:errors AS jsonb)
            WHERE id = :id AND status = 'validating' AND errors IS NULL AND ingested_bytes = :from_byte
            RETURNING id
            """
        ),
        {"id": task.id, "from_byte": task.bytes, "errors": json.dumps([vars(error) for error in errors])},
    )
    return row.one_or_none() is not None


def delete_jobs(session: Session, batch_id: str, *, limit: int, lease_s: float) -> int | None:
    """Remove rows of a rejected batch and count them out; how many.

    None if the batch is not validating any more: then the caller must roll back.
    """
    return session.execute(
        text(
            """
            WITH gone AS (
                DELETE FROM jobs WHERE id IN (
                    SELECT id FROM jobs WHERE batch_id = :batch ORDER BY line LIMIT :limit FOR UPDATE)
                RETURNING id, state, image_ids),
            waits AS (
                DELETE FROM job_waits WHERE (image_id, job_id) IN (
                    SELECT w.image_id, w.job_id FROM gone CROSS JOIN unnest(gone.image_ids) AS image
                    JOIN job_waits w ON w.image_id = image AND w.job_id = gone.id
                    FOR UPDATE OF w SKIP LOCKED)),
            counts AS (SELECT count(*) AS jobs, count(*) FILTER (WHERE state = 'failed') AS failed FROM gone)
            UPDATE batches SET total = total - counts.jobs, failed = batches.failed - counts.failed,
                lease_until = now() + :lease * interval '1 second'
            FROM counts WHERE id = :batch AND status = 'validating' AND errors IS NOT NULL
            RETURNING counts.jobs
            """
        ),
        {"batch": batch_id, "limit": limit, "lease": lease_s},
    ).scalar_one_or_none()


def fail_batch(session: Session, batch_id: str) -> bool:
    """End a rejected batch whose rows are gone."""
    row = session.execute(
        text(
            """
            WITH ended AS (
                UPDATE batches SET status = 'failed', failed_at = now(), ended_at = now(),
                    ingested_at = now(), lease_until = NULL, bad_lines = 0
                WHERE id = :id AND status = 'validating' AND errors IS NOT NULL RETURNING id),
            results AS (DELETE FROM results WHERE batch_id IN (SELECT id FROM ended)),
            explained AS (DELETE FROM batch_errors WHERE batch_id IN (SELECT id FROM ended))
            SELECT id FROM ended
            """
        ),
        {"id": batch_id},
    )
    return row.one_or_none() is not None


def find_lines(session: Session, batch_id: str, custom_ids: Sequence[str]) -> dict[str, int]:
    """In which line each of these custom_ids stands already."""
    rows = session.execute(
        text("SELECT custom_id, line FROM jobs WHERE batch_id = :batch AND custom_id = ANY(:ids)"),
        {"batch": batch_id, "ids": list(custom_ids)},
    )
    return {row.custom_id: row.line for row in rows}


def read_bad_lines(session: Session, batch_id: str, *, limit: int) -> list[LineError]:
    """The first lines that are no requests."""
    rows = session.execute(
        text(
            """
            SELECT error_code, error_message, line, error_param FROM jobs
            WHERE batch_id = :batch AND state = 'failed' ORDER BY line LIMIT :limit
            """
        ),
        {"batch": batch_id, "limit": limit},
    )
    return [LineError(*row) for row in rows]
