"""Records what came of a chunk, in one transaction: answers, failures, returns, and answers to keep."""

from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from typing import NamedTuple

import structlog
from sqlalchemy.orm import Session

from app import telemetry
from app.answer_keys import fingerprint, last_words, question_id
from app.config import Settings
from app.db import Sessions, transaction
from app.images import NORMALISER_VERSION
from app.store import answer_cache, labels, records
from app.store.jobs import ClaimedJob, Held
from app.store.records import AnswerRow, EscalateRow, FailureRow, Keep, ReturnRow
from workers.answers import labels_of
from workers.engine.base import Note
from workers.pool import EnginePool, Resident
from workers.telling import Teller

log = structlog.get_logger()

Outcome = AnswerRow | EscalateRow | FailureRow | ReturnRow

# Answers with these are no one's but the job's own: features of another picture were used.
OWN = frozenset({Note.NEAR_DUPLICATE.value, Note.FEATURES_CACHED.value})


@dataclass(frozen=True)
class Outcomes:
    """What came of claimed jobs, kind by kind."""

    claimed: Mapping[int, ClaimedJob]
    answers: Sequence[AnswerRow]
    unsure: Sequence[EscalateRow]
    failures: Sequence[FailureRow]
    returns: Sequence[ReturnRow]

    @classmethod
    def of(cls, claimed: Sequence[ClaimedJob], outcomes: Sequence[Outcome]) -> "Outcomes":
        return cls(
            claimed={job.id: job for job in claimed},
            answers=[one for one in outcomes if isinstance(one, AnswerRow)],
            unsure=[one for one in outcomes if isinstance(one, EscalateRow)],
            failures=[one for one in outcomes if isinstance(one, FailureRow)],
            returns=[one for one in outcomes if isinstance(one, ReturnRow)],
        )

    def by_model(self) -> Iterator[tuple[str, list[AnswerRow]]]:
        """Answers with the model that gave them; a chunk has one, but its message does not say so."""
        for name in sorted({self.claimed[answer.job_id].model for answer in self.answers}):
            yield name, [answer for answer in self.answers if self.claimed[answer.job_id].model == name]

    def awaited(self, ended: Set[int]) -> tuple[set[bytes], set[bytes]]:
        """The keys by which others wait for these jobs, and those of them that have ended: without the jobs
        that go on to another model."""
        keys = {job.id: job.answer_key for job in self.claimed.values() if job.answer_key is not None}
        asked_on = {row.job_id for row in self.unsure}
        return (
            {key for job_id, key in keys.items() if job_id not in asked_on},
            {key for job_id, key in keys.items() if job_id in ended},
        )


class Recorded(NamedTuple):
    """The jobs whose outcomes were recorded: those that still ran as the attempts that were claimed."""

    answered: set[int]
    failed: set[int]
    returned: set[int]
    escalated: set[int]

    @property
    def ended(self) -> set[int]:
        return self.answered | self.failed


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
        found = Outcomes.of(claimed, outcomes)
        with transaction(self._sessions) as session:
            recorded = self._write(session, found)
        self._tell(found, recorded)
        count(found, recorded)
        total = sum(map(len, recorded))
        log.info(
            "chunk_recorded",
            completed=len(recorded.answered),
            failed=len(recorded.failed),
            returned=len(recorded.returned),
            escalated=len(recorded.escalated),
            dropped=len(outcomes) - total,
        )
        return total

    def _write(self, session: Session, found: Outcomes) -> Recorded:
        answered: set[int] = set()
        for name, rows in found.by_model():
            answered |= self._answer(session, name, rows, found.claimed)
        labels.note_labels(session, labels_of(found.claimed, found.answers, answered))
        recorded = Recorded(
            answered=answered,
            failed=records.record_failures(session, found.failures),
            returned=records.hand_back(session, found.returns),
            escalated=records.escalate(session, found.unsure),
        )
        keys, ended = found.awaited(recorded.ended)
        answer_cache.release(session, keys, ended=ended)
        return recorded

    def _answer(
        self, session: Session, model: str, rows: Sequence[AnswerRow], claimed: Mapping[int, ClaimedJob]
    ) -> set[int]:
        """Keep a model's answers and record them; the jobs that they were recorded of."""
        engine = self._pool.resident(model).engine
        keep = Keep(keys_of(claimed, rows), self._prints[model], self._ttl_s)
        return records.record_answers(session, rows, model=engine.model, revision=engine.revision, keep=keep)

    def _tell(self, found: Outcomes, recorded: Recorded) -> None:
        """Those who wait for the ends of their jobs."""
        if self._teller is None:
            return
        over = [job for job in found.claimed.values() if job.id in recorded.ended]
        self._teller.ended([Held(job.id, job.attempt) for job in over])


def count(found: Outcomes, recorded: Recorded) -> None:
    """In the metrics."""
    telemetry.JOBS_ENDED.labels("completed", "").inc(len(recorded.answered))
    for failure in found.failures:
        telemetry.JOBS_ENDED.labels("failed", failure.code).inc(failure.job_id in recorded.failed)
    telemetry.JOBS_ESCALATED.inc(len(recorded.escalated))
    telemetry.MODEL_SECONDS.inc(sum(row.model_s for row in (*found.answers, *found.unsure)))


def keys_of(claimed: Mapping[int, ClaimedJob], rows: Sequence[AnswerRow]) -> dict[int, tuple[bytes, bytes]]:
    """What the answers that may be kept are found and forgotten by, by job."""
    return {
        row.job_id: (key, question_id(last_words(claimed[row.job_id].prompt)))
        for row in rows
        if (key := claimed[row.job_id].answer_key) is not None and OWN.isdisjoint(row.notes)
    }


def engine_fingerprint(resident: Resident) -> str:
    """Of all that an engine's answers depend on beside the request."""
    settings = resident.settings
    return fingerprint(
        {
            "revision": resident.engine.revision,
            "number_format": resident.engine.number_format,
            "normaliser": NORMALISER_VERSION,
            **{
                name: getattr(settings, name)
                for name in (
                    "engine",
                    "max_pixels",
                    "max_new_tokens",
                    "feature_cache_format",
                    "vllm_kv_cache_dtype",
                )
            },
        }
    )
