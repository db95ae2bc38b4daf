"""From the engine's answer to the row that is stored. Pure."""

from app.results import StoredLogprobs
from app.store.jobs import ClaimedJob
from app.store.records import AnswerRow
from workers.engine.base import Answer, TokenLogprob

LEAST_LOGPROB = -9999.0  # OpenAI's word for a token that could not be; JSON has no infinity


def answer_row(job: ClaimedJob, answer: Answer) -> AnswerRow:
    return AnswerRow(
        job.id,
        job.attempt,
        storable(answer.text),
        answer.finish_reason,
        answer.usage.prompt_tokens,
        answer.usage.cached_tokens,
        answer.usage.completion_tokens,
        logprobs=None if answer.logprobs is None else _logprobs(answer.logprobs),
        notes=tuple(note.value for note in answer.notes),
    )


def storable(text: str) -> str:
    """Text as Postgres can hold it: no NUL, no lone surrogate; both become U+FFFD."""
    return text.replace("\0", "\ufffd").encode("utf-16", "surrogatepass").decode("utf-16", "replace")


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
