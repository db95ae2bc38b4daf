"""The jobs of a preview as its page shows them: where each is, its answer, and its picture."""

from collections.abc import Sequence
from dataclasses import dataclass

from sqlalchemy import text
from sqlalchemy.orm import Session

from app.states import ENDED_JOB, JobState


@dataclass(frozen=True)
class Answered:
    """`content_hash` names the first of the job's images, once that is stored."""

    id: int
    state: JobState
    answer: str | None
    error_code: str | None
    error_message: str | None
    content_hash: str | None

    @property
    def has_ended(self) -> bool:
        return self.state in ENDED_JOB


def read_answered(session: Session, tenant_id: str, job_ids: Sequence[int]) -> list[Answered]:
    rows = session.execute(
        text(
            """
            SELECT j.id, j.state, a.text AS answer, j.error_code, j.error_message,
                   CASE WHEN i.state = 'stored' THEN i.content_hash END AS content_hash
            FROM jobs j
            LEFT JOIN answers a ON a.job_id = j.id
            LEFT JOIN images i ON i.id = j.image_ids[1] AND i.tenant_id = j.tenant_id
            WHERE j.id = ANY(:ids) AND j.tenant_id = :tenant AND j.batch_id IS NULL
            """
        ),
        {"ids": list(job_ids), "tenant": tenant_id},
    ).all()
    return [Answered(row.id, JobState(row.state), *row[2:]) for row in rows]
