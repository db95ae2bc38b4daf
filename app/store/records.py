"""What came of attempts: answers and failures, recorded once each, and jobs that are handed back."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from sqlalchemy import text
from sqlalchemy.orm import Session

from app.store.answer_cache import KEEP
from app.store.jobs import Json
from app.store.journal import ENDED_BY_BATCH, FAILED, NOTE_RESULTS
from app.store.prepared import Prepared


@dataclass(frozen=True)
class AnswerRow:
    """An answer to record. It counts only while the job still runs as this very attempt."""

    job_id: int
    attempt: int
    text: str
    finish_reason: str
    prompt_tokens: int
    cached_tokens: int
    completion_tokens: int
    logprobs: Json = None
    notes: Sequence[str] = ()
    reasoning: str | None = None
    model_s: float = 0.0  # of the model's time
    confidence: float | None = None  # of the model that a cascade asks first


@dataclass(frozen=True)
class Keep:
    """Which answers go into the answer cache as well, and for how many seconds.

    `keys` has the key and the id of the question of each, by its job; `fingerprint` is the engine's.
    """

    keys: Mapping[int, tuple[bytes, bytes]] = field(default_factory=dict)
    fingerprint: str = ""
    ttl_s: float = 0.0


NOTHING = Keep()


@dataclass(frozen=True)
class EscalateRow:
    """A job that goes on to another model, as the one that was asked first was unsure."""

    job_id: int
    attempt: int
    model: str
    text: str
    confidence: float
    model_s: float


@dataclass(frozen=True)
class FailureRow:
    job_id: int
    attempt: int
    code: str
    message: str


@dataclass(frozen=True)
class ReturnRow:
    """A job to hand back to the dispatcher, due after `after_s` seconds."""

    job_id: int
    attempt: int
    after_s: float
    counts: bool  # whether this try counts as an attempt; a drained worker's does not


# Jobs are looked up by id alone: a plan that goes through the index of running jobs reads what it has of dead
# entries, which is every job since the last vacuum. Answers are kept between the locks on jobs and those on
# batches, for which others wait: where a part of a statement begins without being asked for, nobody promises.
RECORD = Prepared(
    "record_answers",
    f"""
    WITH given AS (
        SELECT * FROM unnest(:ids, :attempts, :texts, :reasons, :prompts, :cached, :completions, :logprobs,
                             :notes, :reasonings, :seconds, :confidences, :keys, :questions)
        AS g(id, attempt, answer, finish_reason, prompt_tokens, cached_tokens, completion_tokens,
             logprobs, notes, reasoning, model_s, confidence, key, question)),
    locked AS (
        SELECT id, state, attempt, tenant_id FROM jobs WHERE id = ANY(:ids) ORDER BY id FOR UPDATE),
    {KEEP},
    ended AS (
        UPDATE jobs SET state = 'completed', finished_at = now(), lease_until = NULL,
                        error_code = NULL, error_message = NULL
        FROM locked JOIN given USING (id, attempt)
        WHERE jobs.id = locked.id AND locked.state = 'running' AND (SELECT count(*) FROM kept) >= 0
        RETURNING jobs.id, jobs.batch_id, jobs.final_model, jobs.first_answer),
    stored AS (
        INSERT INTO answers (job_id, text, finish_reason, prompt_tokens, cached_tokens,
                             completion_tokens, model, revision, logprobs, notes, reasoning, model_s,
                             confidence)
        SELECT g.id, g.answer, g.finish_reason, g.prompt_tokens, g.cached_tokens,
               g.completion_tokens, :model, :revision, g.logprobs, g.notes, g.reasoning, g.model_s,
               g.confidence
        FROM given g JOIN ended ON ended.id = g.id),
    {ENDED_BY_BATCH},
    used AS (
        SELECT ended.batch_id, sum(g.prompt_tokens) AS prompt, sum(g.cached_tokens) AS cached,
               sum(g.completion_tokens) AS completion, sum(g.model_s) AS model_s,
               coalesce(sum(g.model_s) FILTER (WHERE ended.final_model IS NOT NULL), 0) AS first_s,
               count(ended.first_answer) AS large,
               count(*) FILTER (WHERE ended.first_answer->>'text' = g.answer) AS agreed
        FROM ended JOIN given g ON g.id = ended.id GROUP BY ended.batch_id),
    counted AS (
        UPDATE batches SET completed = completed + n, prompt_tokens = prompt_tokens + prompt,
            cached_tokens = cached_tokens + cached,
            completion_tokens = completion_tokens + completion, model_s = batches.model_s + used.model_s,
            first_model_s = first_model_s + used.first_s, agreed = batches.agreed + used.agreed,
            escalated_answered = escalated_answered + used.large
        FROM counts JOIN used USING (batch_id) WHERE batches.id = counts.batch_id
        RETURNING batches.id, completed + failed AS seq),
    {NOTE_RESULTS}
    SELECT id FROM ended
    """,  # noqa: S608 - pieces of our own
    {
        "ids": "bigint[]",
        "attempts": "int[]",
        "texts": "text[]",
        "reasons": "text[]",
        "prompts": "int[]",
        "cached": "int[]",
        "completions": "int[]",
        "logprobs": "json[]",
        "notes": "json[]",
        "reasonings": "text[]",
        "seconds": "float8[]",
        "confidences": "float8[]",
        "keys": "bytea[]",
        "questions": "bytea[]",
        "model": "text",
        "revision": "text",
        "fingerprint": "text",
        "ttl": "float8",
    },
)


def record_answers(
    session: Session, rows: Sequence[AnswerRow], *, model: str, revision: str, keep: Keep = NOTHING
) -> set[int]:
    """Store answers of jobs that still run as the attempt that made them, and count them; which ones.

    An answer to keep is kept whether or not its job waits for it still.
    """
    if not rows:
        return set()
    kept = [keep.keys.get(row.job_id, (None, None)) for row in rows]
    recorded = RECORD.execute(
        session,
        {
            "ids": [row.job_id for row in rows],
            "attempts": [row.attempt for row in rows],
            "texts": [row.text for row in rows],
            "reasons": [row.finish_reason for row in rows],
            "prompts": [row.prompt_tokens for row in rows],
            "cached": [row.cached_tokens for row in rows],
            "completions": [row.completion_tokens for row in rows],
            "logprobs": [json.dumps(row.logprobs) if row.logprobs is not None else None for row in rows],
            "notes": [json.dumps(list(row.notes)) if row.notes else None for row in rows],
            "reasonings": [row.reasoning for row in rows],
            "seconds": [row.model_s for row in rows],
            "confidences": [row.confidence for row in rows],
            "keys": [key for key, _ in kept],
            "questions": [question for _, question in kept],
            "model": model,
            "revision": revision,
            "fingerprint": keep.fingerprint,
            "ttl": keep.ttl_s,
        },
    )
    return set(recorded.scalars())


def escalate(session: Session, rows: Sequence[EscalateRow]) -> set[int]:
    """Hand running jobs on to their batches' large models; which ones were still ours to hand on.

    The try counts as none, and what the first model has said is kept for the report.
    """
    if not rows:
        return set()
    moved = session.execute(
        text(
            """
            WITH given AS (
                SELECT * FROM unnest(
                    CAST(:ids AS bigint[]), CAST(:attempts AS int[]), CAST(:models AS text[]),
                    CAST(:firsts AS json[]), CAST(:seconds AS float8[]))
                AS g(id, attempt, model, first_answer, model_s)),
            locked AS (
                SELECT jobs.id FROM jobs JOIN given USING (id, attempt)
                WHERE jobs.state = 'running' ORDER BY jobs.id FOR UPDATE OF jobs),
            moved AS (
                UPDATE jobs SET state = 'ready', worker = NULL, lease_until = NULL, not_before = NULL,
                                model = given.model, final_model = NULL, first_answer = given.first_answer,
                                returns = jobs.returns + 1
                FROM locked JOIN given USING (id) WHERE jobs.id = locked.id
                RETURNING jobs.id, jobs.batch_id, given.model_s),
            counts AS (
                SELECT batch_id, count(*) AS n, sum(model_s) AS model_s FROM moved
                WHERE batch_id IS NOT NULL GROUP BY batch_id ORDER BY batch_id),
            counted AS (
                UPDATE batches SET escalated = escalated + n, model_s = batches.model_s + counts.model_s,
                                   first_model_s = first_model_s + counts.model_s
                FROM counts WHERE batches.id = counts.batch_id)
            SELECT id FROM moved
            """
        ),
        {
            "ids": [row.job_id for row in rows],
            "attempts": [row.attempt for row in rows],
            "models": [row.model for row in rows],
            "firsts": [json.dumps({"text": row.text, "confidence": row.confidence}) for row in rows],
            "seconds": [row.model_s for row in rows],
        },
    )
    return set(moved.scalars())


def record_failures(session: Session, rows: Sequence[FailureRow]) -> set[int]:
    """End jobs as failed, if they still run as the attempt that failed, and count them; which ones."""
    if not rows:
        return set()
    recorded = session.execute(
        text(
            f"""
            WITH given AS (
                SELECT * FROM unnest(CAST(:ids AS bigint[]), CAST(:attempts AS int[]),
                    CAST(:codes AS text[]), CAST(:messages AS text[])) AS g(id, attempt, code, message)),
            locked AS (
                SELECT jobs.id, given.code, given.message
                FROM jobs JOIN given ON given.id = jobs.id AND given.attempt = jobs.attempt
                WHERE jobs.state = 'running' ORDER BY jobs.id FOR UPDATE OF jobs),
            ended AS (
                UPDATE jobs SET state = 'failed', finished_at = now(), lease_until = NULL,
                                error_code = locked.code, error_message = locked.message
                FROM locked WHERE jobs.id = locked.id
                RETURNING jobs.id, jobs.batch_id, jobs.line, jobs.error_code, jobs.error_message),
            {FAILED}
            SELECT id FROM ended
            """  # noqa: S608 - pieces of our own
        ),
        {
            "ids": [row.job_id for row in rows],
            "attempts": [row.attempt for row in rows],
            "codes": [row.code for row in rows],
            "messages": [row.message for row in rows],
        },
    )
    return set(recorded.scalars())


def hand_back(session: Session, rows: Sequence[ReturnRow]) -> set[int]:
    """Make running jobs ready again, each after its own delay; which ones were still ours to return."""
    if not rows:
        return set()
    returned = session.execute(
        text(
            """
            WITH given AS (
                SELECT * FROM unnest(CAST(:ids AS bigint[]), CAST(:attempts AS int[]),
                                     CAST(:delays AS float[]), CAST(:counts AS boolean[]))
                    AS g(id, attempt, after_s, counts)),
            locked AS (
                SELECT jobs.id FROM jobs JOIN given USING (id, attempt)
                WHERE jobs.state = 'running' ORDER BY jobs.id FOR UPDATE OF jobs)
            UPDATE jobs SET state = 'ready', worker = NULL, lease_until = NULL,
                            returns = jobs.returns + CASE WHEN given.counts THEN 0 ELSE 1 END,
                            not_before = now() + given.after_s * interval '1 second'
            FROM locked JOIN given USING (id) WHERE jobs.id = locked.id
            RETURNING jobs.id
            """
        ),
        {
            "ids": [row.job_id for row in rows],
            "attempts": [row.attempt for row in rows],
            "delays": [row.after_s for row in rows],
            "counts": [row.counts for row in rows],
        },
    )
    return set(returned.scalars())
