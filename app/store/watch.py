"""Batches in progress as the dispatcher watches them: how fast their jobs end, and how many fail."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import text
from sqlalchemy.orm import Session

from app.errors import LineError
from app.standing import OpenBatch


@dataclass(frozen=True)
class Sample:
    """How many jobs of a batch have ended, beside what the last measurement found `seconds` ago."""

    batch_id: str
    ended: int
    seconds: float
    pace: float | None
    pace_at: datetime
    pace_ended: int


@dataclass(frozen=True)
class Failing:
    """A batch whose brake is due: of the jobs that have run, or of all of them, too many have failed.

    Lines that are no request are no jobs here.
    """

    batch_id: str
    ran: int
    ran_failed: int
    jobs: int
    failed: int
    share: float


@dataclass(frozen=True)
class Commonest:
    """What most of a batch's requests failed of, and what the first of them was told."""

    code: str
    jobs: int
    message: str


def read_samples(session: Session, *, older_than_s: float) -> list[Sample]:
    """Batches in progress that were not measured lately, by this dispatcher or another."""
    rows = session.execute(
        text(
            """
            SELECT id, completed + failed AS ended, extract(epoch FROM now() - pace_at)::float AS seconds,
                   pace, pace_at, pace_ended
            FROM batches
            WHERE status = 'in_progress' AND pace_at <= now() - :older * interval '1 second'
            """
        ),
        {"older": older_than_s},
    )
    return [Sample(*row) for row in rows]


def note_paces(session: Session, found: Sequence[tuple[Sample, float | None]]) -> None:
    """Keep what was measured in this transaction, unless another dispatcher has measured meanwhile."""
    session.execute(
        text(
            """
            WITH given AS (
                SELECT * FROM unnest(CAST(:ids AS text[]), CAST(:paces AS float[]), CAST(:ended AS int[]),
                    CAST(:before AS timestamptz[])) AS g(id, pace, ended, before)),
            locked AS (
                SELECT b.id, given.pace, given.ended FROM batches b
                JOIN given ON given.id = b.id AND given.before = b.pace_at
                ORDER BY b.id FOR UPDATE OF b)
            UPDATE batches SET pace = locked.pace, pace_ended = locked.ended, pace_at = now()
            FROM locked WHERE batches.id = locked.id
            """
        ),
        {
            "ids": [sample.batch_id for sample, _ in found],
            "paces": [pace for _, pace in found],
            "ended": [sample.ended for sample, _ in found],
            "before": [sample.pace_at for sample, _ in found],
        },
    )


def find_failing(session: Session) -> list[Failing]:
    """Batches with a brake, and jobs left to spare, in which too large a share has failed.

    Jobs without their image end long before the first answer: they say nothing until their share is that of
    the whole batch.
    """
    rows = session.execute(
        text(
            """
            SELECT id, ran, ran_failed, jobs, failed, brake_share
            FROM (SELECT id, completed + failed - bad_lines - image_failures AS ran,
                         failed - bad_lines - image_failures AS ran_failed,
                         total - bad_lines AS jobs, failed - bad_lines AS failed, brake_share, brake_after
                  FROM batches
                  WHERE status = 'in_progress' AND brake_share IS NOT NULL
                    AND completed + failed < total) AS braked
            WHERE (ran >= brake_after AND ran_failed >= brake_share * ran)
               OR (failed >= brake_after AND failed >= brake_share * jobs)
            """
        )
    )
    return [Failing(*row) for row in rows]


def read_commonest(session: Session, batch_id: str) -> Commonest:
    """Of a batch in which requests have failed. Reads its jobs: once, when it is stopped."""
    row = session.execute(
        text(
            """
            SELECT error_code, count(*) AS jobs, (array_agg(error_message ORDER BY line))[1] AS message
            FROM jobs WHERE batch_id = :batch AND state = 'failed' AND prompt::text <> '{}'
            GROUP BY error_code ORDER BY count(*) DESC, error_code LIMIT 1
            """
        ),
        {"batch": batch_id},
    ).one()
    return Commonest(row.error_code, row.jobs, row.message)


def read_open(session: Session) -> tuple[datetime, list[OpenBatch]]:
    """The database's time, and every batch that has not ended as it stands then; nobody waits for a shadow.

    Who has its turn is told by the jobs that are sent, which a window bounds, not by those of each batch.
    """
    now: datetime = session.execute(text("SELECT now()")).scalar_one()
    rows = session.execute(
        text(
            """
            WITH sent AS (
                SELECT batch_id FROM jobs WHERE state = 'queued'
                UNION SELECT batch_id FROM jobs WHERE state = 'running')
            SELECT id, status, ingested_lines, completed + failed AS ended, total,
                   id IN (SELECT batch_id FROM sent WHERE batch_id IS NOT NULL) AS has_turn,
                   pace, pace_at, created_at, expires_at
            FROM batches
            WHERE status IN ('validating', 'in_progress', 'finalizing', 'cancelling') AND deleted_at IS NULL
                AND NOT EXISTS (SELECT FROM shadows s WHERE s.shadow_batch_id = batches.id)
            """
        )
    )
    return now, [OpenBatch(*row) for row in rows]


def stop_batch(session: Session, batch_id: str, error: LineError) -> bool:
    """Close a batch in progress, which will end as failed: what has not begun is swept."""
    row = session.execute(
        text(
            """
            UPDATE batches SET status = 'finalizing', ending = 'failed', finalizing_at = now(),
                errors = CAST(:errors AS jsonb)
            WHERE id = :id AND status = 'in_progress' RETURNING id
            """
        ),
        {"id": batch_id, "errors": json.dumps([vars(error)])},
    )
    return row.one_or_none() is not None
