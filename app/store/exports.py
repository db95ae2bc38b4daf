"""Batches as exports read them: their jobs in the order of the lines, whatever has become of them."""

from collections.abc import Sequence
from dataclasses import dataclass

from sqlalchemy import text
from sqlalchemy.orm import Session

from app.states import JobState


@dataclass(frozen=True)
class Place:
    """The job of a line."""

    job_id: int
    line: int
    custom_id: str | None
    state: JobState


def read_retries(session: Session, batch_id: str) -> list[str]:
    """The batches that are retries of this one, and theirs, oldest first."""
    rows = session.execute(
        text(
            """
            WITH RECURSIVE family AS (
                SELECT id, tenant_id, created_at FROM batches WHERE id = :id
                UNION
                SELECT b.id, b.tenant_id, b.created_at FROM batches b
                JOIN family f ON b.retry_of = f.id AND b.tenant_id = f.tenant_id
                WHERE b.deleted_at IS NULL)
            SELECT id FROM family WHERE id <> :id ORDER BY created_at, id
            """
        ),
        {"id": batch_id},
    )
    return [row.id for row in rows]


def read_places(
    session: Session, batch_id: str, *, after: int, limit: int, states: Sequence[JobState]
) -> list[Place]:
    """A page of a batch's jobs that are in one of these states, in the order of their lines."""
    rows = session.execute(
        text(
            """
            SELECT id, line, custom_id, state FROM jobs
            WHERE batch_id = :batch AND line > :after AND state = ANY(:states) ORDER BY line LIMIT :limit
            """
        ),
        {"batch": batch_id, "after": after, "limit": limit, "states": list(states)},
    )
    return [_place(*row) for row in rows]


def read_places_again(session: Session, batch_ids: Sequence[str], *, after: int, last: int) -> list[Place]:
    """What several batches have of the lines behind `after` up to `last`, in the order of these batches."""
    rows = session.execute(
        text(
            """
            SELECT id, line, custom_id, state FROM jobs
            WHERE batch_id = ANY(:batches) AND line > :after AND line <= :last
            ORDER BY array_position(:batches, batch_id), line
            """
        ),
        {"batches": list(batch_ids), "after": after, "last": last},
    )
    return [_place(*row) for row in rows]


def is_there(session: Session, batch_id: str) -> bool:
    """Whether a batch, and so each of its jobs, has been there until now."""
    row = session.execute(
        text("SELECT 1 FROM batches WHERE id = :id AND deleted_at IS NULL"), {"id": batch_id}
    )
    return row.one_or_none() is not None


def _place(job_id: int, line: int, custom_id: str | None, state: str) -> Place:
    return Place(job_id, line, custom_id, JobState(state))
