"""A chunk's jobs in their traces: what the engine did for each, as far as it tells, and what came of it."""

import time
from collections.abc import Sequence
from concurrent.futures import Future

from app import tracing
from app.store.jobs import ClaimedJob
from app.store.records import AnswerRow, EscalateRow, FailureRow
from app.tracing import Past
from workers.engine.base import Answer, Times
from workers.recording import Outcome


def trace_answers(claimed: Sequence[ClaimedJob], answers: Sequence[Future[Answer]], *, begun: float) -> None:
    """For those that are followed; `begun` is when the first was asked, by `time.monotonic()`."""
    followed = tracing.followed()
    if not followed:
        return
    with tracing.harmless():
        for job, future in zip(claimed, answers, strict=True):
            if job.id in followed:
                _trace(job, future, Times(begun, time.monotonic()))


def trace_outcomes(outcomes: Sequence[Outcome]) -> None:
    """For those that are followed."""
    followed = tracing.followed()
    with tracing.harmless():
        for one in outcomes if followed else ():
            if one.job_id in followed:
                tracing.tell(one.job_id, attempt=one.attempt, outcome=_said(one))


def _trace(job: ClaimedJob, future: Future[Answer], about: Times) -> None:
    if (error := _error(future)) is not None:
        tracing.add(job.id, Past("engine", about.arrived, about.ended), error=error, model=job.model)
        return
    answer = future.result(timeout=0)
    times = answer.times or about
    tracing.add(
        job.id,
        Past("engine", times.arrived, times.ended, parts_of(times)),
        gen_ai__request__model=job.model,
        gen_ai__usage__input_tokens=answer.usage.prompt_tokens,
        gen_ai__usage__output_tokens=answer.usage.completion_tokens,
        cached_tokens=answer.usage.cached_tokens,
        images=len(job.image_ids),
        finish_reason=answer.finish_reason,
    )


def parts_of(times: Times) -> list[Past]:
    """One after the other, as far as the engine tells of them."""
    marks = [("prepare", times.joined), ("first step", times.first), ("answer", times.ended)]
    parts: list[Past] = []
    begun = times.arrived
    for name, ended in marks:
        if ended is not None:
            parts.append(Past(name, begun, ended))
            begun = ended
    return parts if len(parts) > 1 else []


def _error(future: Future[Answer]) -> str | None:
    if not future.done():
        return "job_timeout"
    if future.cancelled():
        return "cancelled"
    error = future.exception(timeout=0)
    return None if error is None else str(getattr(error, "code", None) or type(error).__name__)


def _said(outcome: Outcome) -> str:
    match outcome:
        case AnswerRow():
            return "completed"
        case EscalateRow():
            return "escalated"
        case FailureRow(code=code):
            return f"failed: {code}"
        case _:
            return "returned"
