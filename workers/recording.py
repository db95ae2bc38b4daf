"""Records what came of a chunk, in one transaction: answers, failures, returns, and answers to keep."""

from collections.abc import Iterator, Mapping, Sequence, Set

import structlog

from app import telemetry
from app.answer_keys import fingerprint, last_words, question_id
from app.config import Settings
from app.db import Sessions, transaction
from app.images import NORMALISER_VERSION
from app.store import answer_cache, labels, records
from app.store.answer_cache import Kept
from app.store.jobs import ClaimedJob, Held
from app.store.records import AnswerRow, EscalateRow, FailureRow, ReturnRow
from workers.answers import labels_of
from workers.engine.base import Note
from workers.pool import EnginePool, Resident
from workers.telling import Teller

log = structlog.get_logger()

Outcome = AnswerRow | EscalateRow | FailureRow | ReturnRow

# Answers with these are no one's but the job's own: features of another picture were used.
OWN = frozenset({Note.NEAR_DUPLICATE.value, Note.FEATURES_CACHED.value})


class Recorder:
    def __init__(
        self, *, sessions: Sessions, pool: EnginePool, settings: Settings, teller: Teller | None
    ) -> None:
        self._sessions = sessions
        self._pool = pool
        self._prints = {name: engine_fingerprint(one) for name, one in pool.residents.items()}
        self._ttl_s = settings.answer_cache_ttl_s
        self._teller = teller

    def record(self, claimed: Sequence[ClaimedJob], outcomes: Sequence[Outcome]) -> int:
        """How many outcomes were recorded: those of jobs that still run as the attempts that were claimed."""
        answers = [outcome for outcome in outcomes if isinstance(outcome, AnswerRow)]
        failures = [outcome for outcome in outcomes if isinstance(outcome, FailureRow)]
        returns = [outcome for outcome in outcomes if isinstance(outcome, ReturnRow)]
        unsure = [outcome for outcome in outcomes if isinstance(outcome, EscalateRow)]
        by_id = {job.id: job for job in claimed}
        with transaction(self._sessions) as session:
            answered: set[int] = set()
            for name, rows in _by_model(by_id, answers):
                engine = self._pool.resident(name).engine
                answer_cache.keep_answers(
                    session,
                    [kept(by_id[row.job_id], row) for row in rows if may_be_kept(by_id[row.job_id], row)],
                    model=engine.model,
                    revision=engine.revision,
                    fingerprint=self._prints[name],
                    ttl_s=self._ttl_s,
                )
                answered |= records.record_answers(
                    session, rows, model=engine.model, revision=engine.revision
                )
            labels.note_labels(session, labels_of(claimed, answers, answered))
            failed = records.record_failures(session, failures)
            returned = records.hand_back(session, returns)
            escalated = records.escalate(session, unsure)
            keys, ended = _awaited(claimed, ended=answered | failed, asked_on={row.job_id for row in unsure})
            answer_cache.release(session, keys, ended=ended)
        if self._teller is not None:
            over = answered | failed
            self._teller.ended([Held(job.id, job.attempt) for job in claimed if job.id in over])
        self._tell(answers, answered, failures, failed)
        telemetry.JOBS_ESCALATED.inc(len(escalated))
        telemetry.MODEL_SECONDS.inc(sum(row.model_s for row in unsure))
        recorded = len(answered) + len(failed) + len(returned) + len(escalated)
        log.info(
            "chunk_recorded",
            completed=len(answered),
            failed=len(failed),
            returned=len(returned),
            escalated=len(escalated),
            dropped=len(outcomes) - recorded,
        )
        return recorded

    def _tell(
        self,
        answers: Sequence[AnswerRow],
        answered: set[int],
        failures: Sequence[FailureRow],
        failed: set[int],
    ) -> None:
        telemetry.JOBS_ENDED.labels("completed", "").inc(len(answered))
        telemetry.MODEL_SECONDS.inc(sum(row.model_s for row in answers))
        for failure in failures:
            telemetry.JOBS_ENDED.labels("failed", failure.code).inc(failure.job_id in failed)


def _awaited(
    claimed: Sequence[ClaimedJob], *, ended: Set[int], asked_on: Set[int]
) -> tuple[set[bytes], set[bytes]]:
    """The keys by which others wait for these jobs, and those of them that have ended: without the jobs that
    go on to another model."""
    keys = {job.id: job.answer_key for job in claimed if job.answer_key is not None}
    return (
        {key for job_id, key in keys.items() if job_id not in asked_on},
        {key for job_id, key in keys.items() if job_id in ended},
    )


def _by_model(
    by_id: Mapping[int, ClaimedJob], answers: Sequence[AnswerRow]
) -> Iterator[tuple[str, list[AnswerRow]]]:
    """Answers with the model that gave them; a chunk has one, but its message does not say so."""
    for name in sorted({by_id[answer.job_id].model for answer in answers}):
        yield name, [answer for answer in answers if by_id[answer.job_id].model == name]


def may_be_kept(job: ClaimedJob, row: AnswerRow) -> bool:
    return job.answer_key is not None and not OWN & set(row.notes)


def kept(job: ClaimedJob, row: AnswerRow) -> Kept:
    assert job.answer_key is not None
    return Kept(
        key=job.answer_key,
        tenant_id=job.tenant_id,
        question_id=question_id(last_words(job.prompt)),
        answer=row,
    )


def engine_fingerprint(resident: Resident) -> str:
    """Of all that an engine's answers depend on beside the request."""
    settings = resident.settings
    return fingerprint(
        {
            "revision": resident.engine.revision,
            "normaliser": NORMALISER_VERSION,
            **{
                name: getattr(settings, name)
                for name in (
                    "engine",
                    "device",
                    "dtype",
                    "max_pixels",
                    "max_new_tokens",
                    "feature_cache_format",
                    "vllm_kv_cache_dtype",
                )
            },
        }
    )
