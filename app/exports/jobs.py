"""Jobs as the rows of an export: the newest try of each line, and what is told of it. Pure."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from app.exports.columns import Cells, Column, Kind
from app.results import AnsweredJob, UnansweredJob, error_line, output_line, why_unanswered
from app.states import JobState
from app.store.exports import Place

COLUMNS = (
    Column("custom_id"),
    Column("line", Kind.INTEGER),
    Column("status"),
    Column("answer"),
    Column("finish_reason"),
    Column("error_code"),
    Column("error_message"),
    Column("prompt_tokens", Kind.INTEGER),
    Column("completion_tokens", Kind.INTEGER),
)


@dataclass(frozen=True)
class ExportedJob:
    """A job, and how it ended if it has."""

    line: int
    custom_id: str | None
    state: JobState
    ended: AnsweredJob | UnansweredJob | None


def job_cells(job: ExportedJob) -> Cells:
    answer = job.ended if isinstance(job.ended, AnsweredJob) else None
    code, message = why_unanswered(job.ended) if isinstance(job.ended, UnansweredJob) else (None, None)
    return (
        job.custom_id,
        job.line,
        job.state.value,
        answer and answer.text,
        answer and answer.finish_reason,
        code,
        message,
        answer and answer.prompt_tokens,
        answer and answer.completion_tokens,
    )


def result_lines(jobs: Iterable[ExportedJob], endpoint: str) -> Iterator[bytes]:
    """As they stand in a batch's output and error files; a job that has not ended has no line."""
    for job in jobs:
        if isinstance(job.ended, AnsweredJob):
            yield output_line(job.ended, endpoint)
        elif job.ended is not None:
            yield error_line(job.ended)


def newest(places: Sequence[Place], retries: Iterable[Place]) -> list[Place]:
    """Of each line the newest answer, else the newest try; `retries` come oldest first."""
    chosen: dict[int, Place] = {place.line: place for place in places}
    for place in retries:
        if _is_answered(place) or not _is_answered(chosen[place.line]):
            chosen[place.line] = place
    return list(chosen.values())


def _is_answered(place: Place) -> bool:
    return place.state is JobState.COMPLETED
