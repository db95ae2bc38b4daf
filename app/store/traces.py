"""Which of the jobs that wait for something are followed by traces."""

from collections.abc import Sequence

from sqlalchemy import text
from sqlalchemy.orm import Session

# A picture that a million jobs show is fetched in the traces of its first ones.
WAITING_SEEN = 64


def read_waiting(session: Session, image_ids: Sequence[int]) -> dict[int, dict[int, str]]:
    """By image and job, the traces of the jobs that wait for an image; of the first of them only."""
    rows = session.execute(
        text(
            """
            SELECT waiting.image_id, j.id, j.trace
            FROM unnest(CAST(:images AS bigint[])) AS i(id) CROSS JOIN LATERAL (
                SELECT image_id, job_id FROM job_waits WHERE image_id = i.id
                ORDER BY job_id LIMIT :seen) AS waiting
            JOIN jobs j ON j.id = waiting.job_id
            WHERE j.trace IS NOT NULL
            """
        ),
        {"images": list(image_ids), "seen": WAITING_SEEN},
    )
    found: dict[int, dict[int, str]] = {}
    for image_id, job_id, trace in rows:
        found.setdefault(image_id, {})[job_id] = trace
    return found
