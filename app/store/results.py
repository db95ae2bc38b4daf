"""Batches whose jobs have all ended: taken under a lease, their rows read in order, their files noted."""

from collections.abc import Sequence
from dataclasses import dataclass

from sqlalchemy import Row, text
from sqlalchemy.orm import Session

from app.results import AnsweredJob, UnansweredJob
from app.states import BatchStatus, JobState


@dataclass(frozen=True)
class FinalizeTask:
    """A batch whose files are to be written; `ending` is the status that it will end in."""

    id: str
    tenant_id: str
    endpoint: str
    ending: BatchStatus
    completed: int
    failed: int
    output_expires_after_s: int | None
    trace: str | None = None


@dataclass(frozen=True)
class ResultFile:
    """An output or error file in the object store; `expires_after_s` counts from now."""

    id: str
    tenant_id: str
    filename: str
    content_type: str
    bytes: int
    object_key: str
    expires_after_s: int | None


def take_ended(session: Session, *, lease_s: float, most_jobs: int | None = None) -> FinalizeTask | None:
    """Take one batch in which every job has ended; others skip it while the lease runs.

    A batch in progress becomes finalizing here. With `most_jobs`, larger ones are left to others.
    """
    row = session.execute(
        text(
            """
            UPDATE batches SET lease_until = now() + :lease * interval '1 second',
                ending = coalesce(ending, 'completed'),
                finalizing_at = CASE WHEN status = 'in_progress' THEN now() ELSE finalizing_at END,
                status = CASE WHEN status = 'in_progress' THEN 'finalizing' ELSE status END
            WHERE id = (
                SELECT id FROM batches
                WHERE status IN ('in_progress', 'cancelling', 'finalizing') AND ingested_at IS NOT NULL
                  AND completed + failed >= total AND total <= coalesce(:most, total)
                  AND (lease_until IS NULL OR lease_until <= now())
                ORDER BY expires_at LIMIT 1 FOR UPDATE SKIP LOCKED)
            RETURNING id, tenant_id, endpoint, ending, completed, failed, output_expires_after_s, trace
            """
        ),
        {"lease": lease_s, "most": most_jobs},
    ).one_or_none()
    if row is None:
        return None
    return FinalizeTask(
        id=row.id,
        tenant_id=row.tenant_id,
        endpoint=row.endpoint,
        ending=BatchStatus(row.ending),
        completed=row.completed,
        failed=row.failed,
        output_expires_after_s=row.output_expires_after_s,
        trace=row.trace,
    )


def renew_lease(session: Session, batch_id: str, *, lease_s: float) -> None:
    """Hold a batch for `lease_s` more seconds; 0 lets it go."""
    session.execute(
        text(
            """
            UPDATE batches SET lease_until = now() + :lease * interval '1 second'
            WHERE id = :id AND status IN ('finalizing', 'cancelling')
            """
        ),
        {"id": batch_id, "lease": lease_s},
    )


def read_answered(session: Session, batch_id: str, *, after_line: int, limit: int) -> list[AnsweredJob]:
    """A page of a batch's completed jobs with their answers, in the order of their lines."""
    rows = session.execute(
        text(
            """
            SELECT j.id, j.line, j.custom_id, j.model, j.finished_at, a.text, a.finish_reason,
                   a.prompt_tokens, a.cached_tokens, a.completion_tokens, a.revision, a.logprobs, a.notes,
                   a.reasoning, a.confidence
            FROM jobs j JOIN answers a ON a.job_id = j.id
            WHERE j.batch_id = :batch AND j.line > :after AND j.state = 'completed'
            ORDER BY j.line LIMIT :limit
            """
        ),
        {"batch": batch_id, "after": after_line, "limit": limit},
    )
    return [AnsweredJob(*row) for row in rows]


def read_unanswered(session: Session, batch_id: str, *, after_line: int, limit: int) -> list[UnansweredJob]:
    """A page of a batch's jobs that ended without an answer, in the order of their lines."""
    rows = session.execute(
        text(
            """
            SELECT id, line, custom_id, state, error_code, error_message, error_param FROM jobs
            WHERE batch_id = :batch AND line > :after AND state IN ('failed', 'cancelled', 'expired')
            ORDER BY line LIMIT :limit
            """
        ),
        {"batch": batch_id, "after": after_line, "limit": limit},
    ).mappings()
    return [UnansweredJob(**{**row, "state": JobState(row["state"])}) for row in rows]


def ended_job(row: Row[tuple[object, ...]]) -> AnsweredJob | UnansweredJob:
    """An ended job from a row that has the columns of both, those of the answer null where there is none."""
    return _answered(row) if row.state == JobState.COMPLETED else _unanswered(row)


def note_files(session: Session, files: Sequence[ResultFile]) -> None:
    """Register result files; one that was registered before stays as it was."""
    for file in files:
        session.execute(
            text(
                """
                INSERT INTO files (id, tenant_id, purpose, filename, content_type, bytes, object_key,
                                   expires_at)
                VALUES (:id, :tenant_id, 'batch_output', :filename, :content_type, :bytes, :object_key,
                        now() + CAST(:expires_after_s AS int) * interval '1 second')
                ON CONFLICT (id) DO NOTHING
                """
            ),
            vars(file),
        )


def end_batch(
    session: Session, task: FinalizeTask, *, output_file_id: str | None, error_file_id: str | None
) -> bool:
    """Bring a batch to its last status; False when somebody else has."""
    row = session.execute(
        text(
            """
            UPDATE batches SET status = ending, lease_until = NULL, output_file_id = :output,
                error_file_id = :error, ended_at = now(),
                completed_at = CASE WHEN ending = 'completed' THEN now() END,
                failed_at = CASE WHEN ending = 'failed' THEN now() END,
                expired_at = CASE WHEN ending = 'expired' THEN now() END,
                cancelled_at = CASE WHEN ending = 'cancelled' THEN now() END
            WHERE id = :id AND status IN ('finalizing', 'cancelling') AND ending = :ending RETURNING id
            """
        ),
        {"id": task.id, "ending": task.ending, "output": output_file_id, "error": error_file_id},
    )
    return row.one_or_none() is not None


def _answered(row: Row[tuple[object, ...]]) -> AnsweredJob:
    return AnsweredJob(
        row.id,
        row.line,
        row.custom_id,
        row.model,
        row.finished_at,
        row.text,
        row.finish_reason,
        row.prompt_tokens,
        row.cached_tokens,
        row.completion_tokens,
        row.revision,
        row.logprobs,
        row.notes,
        row.reasoning,
        row.confidence,
    )


def _unanswered(row: Row[tuple[object, ...]]) -> UnansweredJob:
    return UnansweredJob(
        row.id,
        row.line,
        row.custom_id,
        JobState(row.state),
        row.error_code,
        row.error_message,
        row.error_param,
    )
