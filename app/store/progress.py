"""What a batch's clients read while it runs: its results in the order in which they ended, errors by code."""

from collections.abc import Sequence
from dataclasses import dataclass

from sqlalchemy import text
from sqlalchemy.orm import Session

from app.results import AnsweredJob, UnansweredJob
from app.store.batches import ErrorCount
from app.store.results import ended_job


@dataclass(frozen=True)
class Place:
    """The job that is a batch's result number `seq`."""

    seq: int
    job_id: int


@dataclass(frozen=True)
class OpenCounts:
    """Jobs of a batch that workers run, and those that wait for one on the broker."""

    running: int
    queued: int


def read_places(session: Session, batch_id: str, *, after: int, limit: int) -> list[Place]:
    """The results behind number `after`, at most `limit`.

    Reads the rows that hold these numbers and no others, whatever the batch's size: the last of them is the
    first one that reaches the last number.
    """
    rows = session.execute(
        text(
            """
            SELECT r.seq - cardinality(r.job_ids) + jobs.place AS seq, jobs.id AS job_id
            FROM results r CROSS JOIN LATERAL unnest(r.job_ids) WITH ORDINALITY AS jobs(id, place)
            WHERE r.batch_id = :batch AND r.seq > :after AND r.seq <= coalesce(
                    (SELECT seq FROM results WHERE batch_id = :batch AND seq >= :last ORDER BY seq LIMIT 1),
                    :last)
              AND r.seq - cardinality(r.job_ids) + jobs.place > :after
            ORDER BY 1 LIMIT :limit
            """
        ),
        {"batch": batch_id, "after": after, "last": after + limit, "limit": limit},
    )
    return [Place(row.seq, row.job_id) for row in rows]


def read_ended(
    session: Session, job_ids: Sequence[int], *, answered: bool | None = None
) -> dict[int, AnsweredJob | UnansweredJob]:
    """Ended jobs by id; only those with an answer or only those without, where `answered` says so."""
    rows = session.execute(
        text(
            """
            SELECT j.id, j.line, j.custom_id, j.state, j.error_code, j.error_message, j.error_param,
                   j.finished_at, a.model, a.text, a.finish_reason, a.prompt_tokens, a.cached_tokens,
                   a.completion_tokens, a.revision, a.logprobs, a.notes, a.reasoning,
                   a.confidence
            FROM jobs j LEFT JOIN answers a ON a.job_id = j.id AND a.job_id = ANY(:ids)
            WHERE j.id = ANY(:ids)
              AND (CAST(:answered AS boolean) IS NULL OR (j.state = 'completed') = :answered)
            """
        ),
        {"ids": list(job_ids), "answered": answered},
    )
    return {row.id: ended_job(row) for row in rows}


def read_sizes(session: Session, job_ids: Sequence[int]) -> dict[int, int]:
    """About how many bytes the answers of these jobs have, without reading them."""
    rows = session.execute(
        text(
            """
            SELECT job_id, octet_length(text) + coalesce(octet_length(reasoning), 0)
                           + 4 * coalesce(pg_column_size(logprobs), 0) FROM answers
            WHERE job_id = ANY(:ids)
            """
        ),
        {"ids": list(job_ids)},
    )
    return {job_id: size for job_id, size in rows}  # noqa: C416 - rows are no pairs to the type checker


def read_errors(session: Session, batch_id: str) -> list[ErrorCount]:
    rows = session.execute(
        text(
            """
            SELECT code, jobs, line, message FROM batch_errors WHERE batch_id = :batch
            ORDER BY jobs DESC, code
            """
        ),
        {"batch": batch_id},
    )
    return [ErrorCount(*row) for row in rows]


def count_open(session: Session, batch_id: str) -> OpenCounts:
    """Jobs of a batch that are under way. Few are at any time, in all batches together."""
    row = session.execute(
        text(
            """
            SELECT (SELECT count(*) FROM jobs WHERE batch_id = :batch AND state = 'running') AS running,
                   (SELECT count(*) FROM jobs WHERE batch_id = :batch AND state = 'queued') AS queued
            """
        ),
        {"batch": batch_id},
    ).one()
    return OpenCounts(running=row.running, queued=row.queued)
