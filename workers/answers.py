"""From the engine's answer to the row that is stored. Pure."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from app.cascade import Cascade
from app.labels import Label, read_labels
from app.results import StoredLogprobs
from app.store.jobs import ClaimedJob
from app.store.records import AnswerRow, EscalateRow
from workers.engine.base import Answer, Note, TokenLogprob
from workers.reasoning import split_reasoning

LEAST_LOGPROB = -9999.0  # OpenAI's word for a token that could not be; JSON has no infinity


def outcome_of(job: ClaimedJob, answer: Answer, *, model_s: float) -> AnswerRow | EscalateRow:
    """The answer, or that the job goes on to the large model of its cascade."""
    row = answer_row(job, answer, model_s=model_s)
    if job.cascade is None or job.final_model is None:
        return replace(row, confidence=job.first_confidence)
    cascade = Cascade.of(job.cascade)
    confidence = cascade.confidence(row.logprobs)
    if not cascade.is_sure(confidence):
        return EscalateRow(job.id, job.attempt, job.final_model, row.text, confidence, model_s)
    wanted = job.params.get("logprobs") is not None
    return replace(row, confidence=confidence, logprobs=row.logprobs if wanted else None)


def answer_row(job: ClaimedJob, answer: Answer, *, model_s: float = 0.0) -> AnswerRow:
    reasoning, text = split_reasoning(storable(answer.text))
    notes = [note.value for note in answer.notes]
    if reasoning is not None and not text and Note.EMPTY not in notes:
        notes.append(Note.EMPTY.value)
    return AnswerRow(
        job.id,
        job.attempt,
        text,
        answer.finish_reason,
        answer.usage.prompt_tokens,
        answer.usage.cached_tokens,
        answer.usage.completion_tokens,
        logprobs=logprobs_of(answer),
        notes=tuple(notes),
        reasoning=reasoning or None,
        model_s=model_s,
    )


def labels_of(
    claimed: Mapping[int, ClaimedJob], answers: Sequence[AnswerRow], recorded: Collection[int]
) -> dict[int, list[Label]]:
    """What those of the answers say that were recorded, by job."""
    return {
        answer.job_id: read_labels(claimed[answer.job_id].params.get("constraint"), answer.text)
        for answer in answers
        if answer.job_id in recorded
    }


def storable(text: str) -> str:
    """Text as Postgres can hold it: no NUL, no lone surrogate; both become U+FFFD."""
    if text.isascii() and "\0" not in text:
        return text
    return text.replace("\0", "\ufffd").encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def logprobs_of(answer: Answer) -> StoredLogprobs | None:
    """As they are stored; None where none were asked for."""
    return None if answer.logprobs is None else _logprobs(answer.logprobs)


def _logprobs(tokens: tuple[TokenLogprob, ...]) -> StoredLogprobs:
    return [
        (
            storable(token.token),
            _finite(token.logprob),
            [(storable(name), _finite(p)) for name, p in token.top],
        )
        for token in tokens
    ]


def _finite(logprob: float) -> float:
    """At six digits, which is more than a number format tells."""
    return round(max(logprob, LEAST_LOGPROB), 6)
