"""Failed jobs as operators look at them, whosever they are: batches, codes, an example of each."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import text
from sqlalchemy.orm import Session

from app.states import BatchStatus


@dataclass(frozen=True)
class FailedBatch:
    """A batch with failed jobs; of these, `bad_lines` were no requests, and `explained` have errors.

    `retried_as` is the newest batch that retries it, unless that one failed before it had any job.
    """

    id: str
    tenant_id: str
    tenant: str
    status: BatchStatus
    created_at: datetime
    total: int
    failed: int
    bad_lines: int
    explained: int
    retried_as: str | None = None


@dataclass(frozen=True)
class FailedCode:
    """How many jobs of a batch have failed with a code, and the first one that was noted."""

    batch_id: str
    code: str
    jobs: int
    line: int | None
    message: str
    job_id: int | None
    attempt: int | None
    crashes: int | None
    worker: str | None
    finished_at: datetime | None


def read_recent(session: Session, *, within_s: float) -> list[FailedBatch]:
    """Batches with failed jobs, the newest first."""
    return _read(
        session,
        "b.failed > 0 AND b.created_at > now() - :within * interval '1 second'",
        {"within": within_s},
    )


def read_batches(session: Session, batch_ids: Sequence[str]) -> list[FailedBatch]:
    """These, failed jobs or not."""
    return _read(session, "b.id = ANY(:ids)", {"ids": list(batch_ids)})


def read_codes(session: Session, batch_ids: Sequence[str]) -> list[FailedCode]:
    """What jobs of these batches failed of, the commonest first."""
    rows = session.execute(
        text(
            """
            SELECT e.batch_id, e.code, e.jobs, e.line, e.message, j.id, j.attempt, j.crashes, j.worker,
                   j.finished_at
            FROM batch_errors e LEFT JOIN jobs j ON j.batch_id = e.batch_id AND j.line = e.line
            WHERE e.batch_id = ANY(:ids) ORDER BY e.jobs DESC, e.batch_id, e.code
            """
        ),
        {"ids": list(batch_ids)},
    )
    return [FailedCode(*row) for row in rows]


def _read(session: Session, where: str, values: dict[str, object]) -> list[FailedBatch]:
    rows = session.execute(
        text(
            f"""
            SELECT b.id, b.tenant_id, t.name AS tenant, b.status, b.created_at, b.total, b.failed,
                   b.bad_lines, (SELECT coalesce(sum(jobs), 0) FROM batch_errors
                                 WHERE batch_id = b.id)::int AS explained,
                   r.id AS retried_as
            FROM batches b JOIN tenants t ON t.id = b.tenant_id
                 LEFT JOIN (SELECT DISTINCT ON (retry_of) retry_of, id FROM batches
                            WHERE retry_of IS NOT NULL AND deleted_at IS NULL
                                  AND NOT (status = 'failed' AND total = 0)
                                  AND NOT EXISTS (SELECT FROM shadows s WHERE s.shadow_batch_id = batches.id)
                            ORDER BY retry_of, created_at DESC) r ON r.retry_of = b.id
            WHERE {where} AND b.deleted_at IS NULL ORDER BY b.created_at DESC, b.id
            """  # noqa: S608 - one of two fixed conditions
        ),
        values,
    ).mappings()
    return [FailedBatch(**{**row, "status": BatchStatus(row["status"])}) for row in rows]
