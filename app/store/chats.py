"""Interactive jobs whose callers hold the line: how many are open, which have ended, who has hung up."""

from collections.abc import Sequence
from dataclasses import dataclass

from sqlalchemy import text
from sqlalchemy.orm import Session

from app.results import AnsweredJob, UnansweredJob
from app.states import JobState
from app.store.results import ended_job

CALLER_LEFT = "caller_left"


@dataclass(frozen=True)
class OpenJobs:
    """Interactive jobs of a model that wait or run: of all tenants, and of one."""

    all: int
    own: int
    is_alone: bool  # there is no other tenant


def count_open(session: Session, model: str, tenant_id: str, *, cap: int) -> OpenJobs:
    """Counted up to `cap` of all."""
    row = session.execute(
        text(
            """
            SELECT count(*), count(*) FILTER (WHERE tenant_id = :tenant),
                   NOT EXISTS (SELECT FROM tenants WHERE id <> :tenant)
            FROM (
                SELECT tenant_id FROM jobs
                WHERE priority = 'interactive' AND state IN ('waiting', 'ready', 'queued', 'running')
                  AND model = :model LIMIT :cap) AS open
            """
        ),
        {"model": model, "tenant": tenant_id, "cap": cap},
    ).one()
    return OpenJobs(*row)


def read_ended(session: Session, job_ids: Sequence[int]) -> list[AnsweredJob | UnansweredJob]:
    """Those of the jobs that have ended, with their answers or why they have none. They stand in no file."""
    rows = session.execute(
        text(
            """
            SELECT j.id, 0 AS line, '' AS custom_id, j.state, j.model, j.finished_at, j.error_code,
                   j.error_message, j.error_param,
                   a.text, a.finish_reason, a.prompt_tokens, a.cached_tokens, a.completion_tokens, a.revision,
                   a.logprobs, a.notes, a.reasoning, a.confidence
            FROM jobs j LEFT JOIN answers a ON a.job_id = j.id
            WHERE j.id = ANY(:ids) AND j.state IN ('completed', 'failed', 'cancelled', 'expired')
            """
        ),
        {"ids": list(job_ids)},
    ).all()
    return [ended_job(row) for row in rows]


def find_left(session: Session, job_ids: Sequence[int]) -> set[int]:
    """Those of the jobs that run although nobody waits for them: `hang_up` has ended their time."""
    rows = session.execute(
        text("SELECT id FROM jobs WHERE id = ANY(:ids) AND state = 'running' AND deadline <= now()"),
        {"ids": list(job_ids)},
    )
    return set(rows.scalars())


def hang_up(session: Session, job_id: int) -> JobState | None:
    """Nobody waits for this job any more: cancelled, unless it runs; its state, None if it had ended.

    One that runs may end before its worker has heard of it, but is not begun again: the reaper cancels it.
    """
    state = session.execute(
        text(
            """
            UPDATE jobs SET deadline = now(), waiting_on = 0, error_code = :code, error_message = :message,
                            state = CASE WHEN state = 'running' THEN state ELSE 'cancelled' END,
                            finished_at = CASE WHEN state = 'running' THEN NULL ELSE now() END
            WHERE id = :id AND state IN ('waiting', 'ready', 'queued', 'running') RETURNING state
            """
        ),
        {"id": job_id, "code": CALLER_LEFT, "message": "The caller hung up before the answer was there."},
    ).scalar_one_or_none()
    return None if state is None else JobState(state)
