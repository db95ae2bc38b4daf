"""Kept answers: found, given to jobs, added, forgotten; and the jobs that wait for one on its way."""

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from sqlalchemy import text
from sqlalchemy.orm import Session

from app.answer_keys import MOST_VAIN, VAIN
from app.states import Priority
from app.store.arrays import array
from app.store.jobs import Json
from app.store.journal import ENDED_BY_BATCH, NOTE_RESULTS
from app.store.prepared import Prepared

# What a reader of an answer is told where it was kept (docs/answer-cache.md).
CACHED = "answer_cached"
NEAR = "near_duplicate"
NEAR_OF = "near_duplicate_of:"  # and the content hash of the image that was asked about
# Jobs by `answer_key` whose answers are on their way: also those that go on to a cascade's large model.
ASKED = "state IN ('queued', 'running', 'ready') AND (state <> 'ready' OR first_answer IS NOT NULL)"


@dataclass(frozen=True)
class Known:
    """A job, and where its answer is kept; `about` is the content hash of the image that looks the same,
    where it is not about the job's own."""

    job_id: int
    key: bytes
    fingerprint: str
    about: str | None = None


@dataclass(frozen=True)
class Given:
    """What jobs were given from the cache: how many, and what it once took a model."""

    job_ids: frozenset[int]
    saved_s: float
    near: int = 0  # of these, by answers about images that look the same
    constrained: Mapping[int, tuple[Json, str]] = field(default_factory=dict)  # constraint and answer, by job


def note_engine(session: Session, *, model: str, fingerprint: str) -> None:
    """Tell which engine answers for a model from now on: other engines' answers are not given any more."""
    session.execute(
        text(
            """
            INSERT INTO engines (model, fingerprint) VALUES (:model, :fingerprint)
            ON CONFLICT (model) DO UPDATE SET fingerprint = EXCLUDED.fingerprint, seen_at = now()
            """
        ),
        {"model": model, "fingerprint": fingerprint},
    )


def read_engines(session: Session) -> dict[str, str]:
    """The fingerprint of the engine that answered for each model last."""
    rows = session.execute(text("SELECT model, fingerprint FROM engines"))
    return {row.model: row.fingerprint for row in rows}


def find_sharing(session: Session, names: Collection[str]) -> set[str]:
    """The ids of the tenants with these names or ids."""
    rows = session.execute(
        text("SELECT id FROM tenants WHERE id = ANY(:names) OR name = ANY(:names)"), {"names": list(names)}
    )
    return set(rows.scalars())


def find_kept(session: Session, wanted: Sequence[tuple[bytes, str]]) -> dict[bytes, str]:
    """Which of these answers (key and fingerprint) are kept, by their keys."""
    rows = session.execute(
        text(
            """
            SELECT key, fingerprint
            FROM unnest(CAST(:keys AS bytea[]), CAST(:prints AS text[])) AS w(key, fingerprint)
            JOIN answer_cache USING (key, fingerprint) WHERE expires_at > now()
            """
        ),
        {"keys": array(key for key, _ in wanted), "prints": array(fingerprint for _, fingerprint in wanted)},
    )
    return {bytes(row.key): row.fingerprint for row in rows}


def find_asked(session: Session, keys: Sequence[bytes]) -> dict[bytes, set[Priority]]:
    """Which of these questions jobs on the broker or in a worker ask, and of which class those are."""
    rows = session.execute(
        text(
            f"""
            SELECT answer_key, priority FROM jobs
            WHERE answer_key = ANY(CAST(:keys AS bytea[])) AND {ASKED}
            """  # noqa: S608 - a piece of our own
        ),
        {"keys": array(keys)},
    )
    found: dict[bytes, set[Priority]] = {}
    for key, priority in rows:
        found.setdefault(bytes(key), set()).add(Priority(priority))
    return found


def await_answers(session: Session, waiting: Sequence[tuple[int, bytes]]) -> None:
    """Let ready jobs wait for answers that others have asked for."""
    values = {"ids": [job_id for job_id, _ in waiting], "keys": [key for _, key in waiting]}
    session.execute(
        text(
            """
            WITH given AS (
                SELECT * FROM unnest(CAST(:ids AS bigint[]), CAST(:keys AS bytea[])) AS g(id, key)),
            moved AS (
                UPDATE jobs SET state = 'waiting', answer_key = given.key
                FROM given WHERE jobs.id = given.id AND jobs.state = 'ready' RETURNING jobs.id, answer_key)
            INSERT INTO answer_waits (answer_key, job_id) SELECT answer_key, id FROM moved
            ON CONFLICT DO NOTHING
            """
        ),
        values,
    )


def give_answers(session: Session, known: Sequence[Known]) -> Given:
    """End ready jobs with the answers that are kept for them.

    Such an answer has used no tokens and no model; what it says of itself has one note more, and two
    others where it is about an image that looks the same.
    """
    rows = session.execute(
        text(
            f"""
            WITH given AS (
                SELECT * FROM unnest(CAST(:ids AS bigint[]), CAST(:keys AS bytea[]), CAST(:prints AS text[]),
                                     CAST(:notes AS jsonb[]), CAST(:near AS int[]))
                AS g(id, key, fingerprint, more, near)),
            found AS (
                SELECT given.id, given.more, given.near, c.*
                FROM given JOIN answer_cache c USING (key, fingerprint)
                WHERE c.expires_at > now()),
            ended AS (
                UPDATE jobs SET state = 'completed', finished_at = now(), answer_key = NULL,
                                model = found.model, final_model = NULL,
                                error_code = NULL, error_message = NULL
                FROM found WHERE jobs.id = found.id AND jobs.state = 'ready'
                RETURNING jobs.id, jobs.batch_id, found.model_s, found.near, found.text,
                          jobs.params->'constraint' AS "constraint"),
            stored AS (
                INSERT INTO answers (job_id, text, finish_reason, prompt_tokens, cached_tokens,
                                     completion_tokens, model, revision, logprobs, notes, reasoning, model_s,
                                     confidence)
                SELECT f.id, f.text, f.finish_reason, 0, 0, 0, f.model, f.revision, f.logprobs,
                       CAST(coalesce(CAST(f.notes AS jsonb), '[]') || f.more AS json),
                       f.reasoning, 0, f.confidence
                FROM found f JOIN ended ON ended.id = f.id),
            {ENDED_BY_BATCH},
            saved AS (
                SELECT batch_id, sum(model_s) AS model_s, sum(near) AS near FROM ended GROUP BY batch_id),
            counted AS (
                UPDATE batches SET completed = completed + n, cached_answers = cached_answers + n,
                                   saved_model_s = saved_model_s + saved.model_s,
                                   near_answers = near_answers + saved.near
                FROM counts JOIN saved USING (batch_id) WHERE batches.id = counts.batch_id
                RETURNING batches.id, completed + failed AS seq),
            {NOTE_RESULTS}
            SELECT id, model_s, near, "constraint",
                   CASE WHEN json_typeof("constraint") = 'object' THEN text END AS text FROM ended
            """  # noqa: S608 - pieces of our own
        ),
        {
            "ids": [one.job_id for one in known],
            "keys": [one.key for one in known],
            "prints": [one.fingerprint for one in known],
            "notes": [json.dumps(_notes_of(one)) for one in known],
            "near": [int(one.about is not None) for one in known],
        },
    ).all()
    return Given(
        frozenset(row.id for row in rows),
        sum(row.model_s for row in rows),
        sum(row.near for row in rows),
        {row.id: (row.constraint, row.text) for row in rows if row.text is not None},
    )


def _notes_of(one: Known) -> list[str]:
    return [CACHED] if one.about is None else [CACHED, NEAR, f"{NEAR_OF}{one.about}"]


# For a statement that records answers: keeps those of `given` that have a key, of jobs that are `locked`.
# In the order of the keys, as two that keep the same answers must wait for each other in one order.
KEEP = """
    kept AS (
        INSERT INTO answer_cache AS known (
            key, fingerprint, tenant_id, model, question_id, text, finish_reason, revision, logprobs, notes,
            reasoning, model_s, confidence, expires_at)
        SELECT DISTINCT ON (g.key) g.key, :fingerprint, locked.tenant_id, :model, g.question, g.answer,
               g.finish_reason, :revision, g.logprobs, g.notes, g.reasoning, g.model_s, g.confidence,
               now() + :ttl * interval '1 second'
        FROM given g JOIN locked ON locked.id = g.id WHERE g.key IS NOT NULL
        ORDER BY g.key, g.id DESC
        ON CONFLICT (key, fingerprint) DO UPDATE SET
            tenant_id = EXCLUDED.tenant_id, text = EXCLUDED.text, finish_reason = EXCLUDED.finish_reason,
            revision = EXCLUDED.revision, logprobs = EXCLUDED.logprobs, notes = EXCLUDED.notes,
            reasoning = EXCLUDED.reasoning, model_s = EXCLUDED.model_s, confidence = EXCLUDED.confidence,
            created_at = now(), expires_at = EXCLUDED.expires_at
        RETURNING 1)"""


RELEASE = Prepared(
    "release_answers",
    f"""
    WITH waits AS (
        DELETE FROM answer_waits WHERE (answer_key, job_id) IN (
            SELECT w.answer_key, w.job_id FROM answer_waits w JOIN jobs ON jobs.id = w.job_id
            WHERE w.answer_key = ANY(:keys) AND jobs.state = 'waiting'
            ORDER BY w.job_id FOR UPDATE OF w, jobs SKIP LOCKED)
        RETURNING job_id)
    UPDATE jobs SET state = 'ready', answer_key = NULL,
                    cache = cache + CASE WHEN answer_key = ANY(:ended) AND cache < {MOST_VAIN * VAIN}
                                         THEN {VAIN} ELSE 0 END
    FROM waits WHERE jobs.id = waits.job_id AND jobs.state = 'waiting' RETURNING jobs.id
    """,  # noqa: S608 - numbers
    {"keys": "bytea[]", "ended": "bytea[]"},
)


def release(session: Session, keys: Collection[bytes], *, ended: Collection[bytes] = ()) -> int:
    """Make the jobs ready that wait for these answers, whatever came of them; how many.

    Of the keys `ended` somebody was answered or has failed: who is not given that answer has waited in vain.
    What others hold is left to `release_forsaken`: nothing is waited for here, as other locks are held.
    """
    if not keys:
        return 0
    return len(RELEASE.execute(session, {"keys": list(keys), "ended": list(ended)}).all())


def release_forsaken(session: Session, *, limit: int) -> int:
    """Make the jobs ready that wait for an answer which nobody is asked for any more; how many.

    Whoever was asked has answered in the moment in which they began to wait, or has failed, went back or was
    cancelled. One jump through the index for each answer that is waited for.
    """
    keys = session.execute(
        text(
            f"""
            WITH RECURSIVE awaited AS (
                (SELECT answer_key FROM answer_waits ORDER BY answer_key LIMIT 1)
                UNION ALL
                SELECT (SELECT w.answer_key FROM answer_waits w WHERE w.answer_key > a.answer_key
                        ORDER BY w.answer_key LIMIT 1)
                FROM awaited a WHERE a.answer_key IS NOT NULL)
            SELECT answer_key FROM awaited a
            WHERE answer_key IS NOT NULL AND NOT EXISTS (
                SELECT FROM jobs WHERE jobs.answer_key = a.answer_key AND {ASKED})
            LIMIT :limit
            """  # noqa: S608 - a piece of our own
        ),
        {"limit": limit},
    )
    forsaken = [bytes(key) for key in keys.scalars()]
    if not forsaken:
        return 0
    released = release(session, forsaken)
    session.execute(
        text(
            """
            DELETE FROM answer_waits w USING jobs
            WHERE w.answer_key = ANY(CAST(:keys AS bytea[])) AND jobs.id = w.job_id
              AND jobs.state <> 'waiting'
            """
        ),
        {"keys": forsaken},
    )
    return released


def forget(session: Session, tenant_id: str, *, model: str | None, question_id: bytes | None) -> int:
    """Drop a tenant's kept answers: of a model, to a question, or all; how many."""
    dropped = session.execute(
        text(
            """
            DELETE FROM answer_cache
            WHERE tenant_id = :tenant AND model = coalesce(:model, model)
              AND question_id = coalesce(CAST(:question AS bytea), question_id)
            RETURNING 1
            """
        ),
        {"tenant": tenant_id, "model": model, "question": question_id},
    )
    return len(dropped.all())


def delete_expired(session: Session, *, limit: int) -> int:
    """Drop answers that were kept for long enough; how many."""
    dropped = session.execute(
        text(
            """
            DELETE FROM answer_cache WHERE (key, fingerprint) IN (
                SELECT key, fingerprint FROM answer_cache WHERE expires_at <= now()
                ORDER BY expires_at LIMIT :limit FOR UPDATE SKIP LOCKED)
            RETURNING 1
            """
        ),
        {"limit": limit},
    )
    return len(dropped.all())


def count_kept(session: Session, tenant_id: str) -> Mapping[str, tuple[int, float]]:
    """A tenant's kept answers by model, and the seconds that they once took."""
    rows = session.execute(
        text(
            """
            SELECT model, count(*) AS n, sum(model_s) AS seconds FROM answer_cache
            WHERE tenant_id = :tenant AND expires_at > now() GROUP BY model ORDER BY model
            """
        ),
        {"tenant": tenant_id},
    )
    return {row.model: (row.n, row.seconds) for row in rows}
