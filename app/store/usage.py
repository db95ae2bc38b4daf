"""What each key has used on a day, by model: counted once, whatever dies, and added up."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import date

from sqlalchemy import text
from sqlalchemy.orm import Session

COUNTS = ("completed", "failed", "prompt_tokens", "cached_tokens", "completion_tokens")
TODAY = "(now() AT TIME ZONE 'UTC')::date"
LIST, SUMS = ", ".join(COUNTS), ", ".join(f"sum({name})" for name in COUNTS)
ADDED = ", ".join(f"{name} = known.{name} + EXCLUDED.{name}" for name in COUNTS)
# Its rows are locked in the order of their key, behind the batches and jobs that they are counted of.
ADD = f"""
    INSERT INTO usage AS known (tenant_id, day, key_id, model, {LIST})
    SELECT tenant_id, day, key_id, model, {SUMS} FROM used
    GROUP BY tenant_id, day, key_id, model ORDER BY tenant_id, day, key_id, model
    ON CONFLICT (tenant_id, day, key_id, model) DO UPDATE SET {ADDED}"""  # noqa: S608 - constants

# What a batch's counters have grown by since they were last seen; as it is locked, nobody else sees the same.
SEEN = ", ".join(f"'{name}', moved.{name}" for name in COUNTS)
GROWN = ", ".join(f"{name} - coalesce((metered->>'{name}')::bigint, 0) AS {name}" for name in COUNTS)
METER_BATCHES = f"""
    noted AS (
        UPDATE batches SET metered = jsonb_build_object({SEEN}) FROM moved WHERE batches.id = moved.id
        RETURNING batches.id),
    used AS (
        SELECT tenant_id, {TODAY} AS day, coalesce(key_id, '') AS key_id, coalesce(model, '') AS model,
               {GROWN}
        FROM moved),
    added AS ({ADD})
    SELECT count(*) FROM noted"""  # noqa: S608 - constants
MOVED = f"SELECT id, tenant_id, key_id, model, metered, {LIST} FROM batches"  # noqa: S608 - constants

# What follows `gone`, direct jobs that have ended, in a statement that deletes them.
TOKENS = ", ".join(f"coalesce(a.{name}, 0) AS {name}" for name in COUNTS[2:])
OF_JOB = f"""
    tenant_id, (finished_at AT TIME ZONE 'UTC')::date AS day, coalesce(key_id, '') AS key_id, j.model,
    (state = 'completed')::int AS completed, (state <> 'completed')::int AS failed, {TOKENS}"""
METER_GONE = f"""
    used AS (SELECT {OF_JOB} FROM gone j LEFT JOIN answers a ON a.job_id = j.id WHERE NOT j.metered),
    added AS ({ADD})"""  # noqa: S608 - constants
# What `gone` returns for it.
GONE = "jobs.id, tenant_id, key_id, model, state, finished_at, metered"


@dataclass(frozen=True)
class Use:
    """What was used of a model; of the rest, what the report is not grouped by is None."""

    model: str
    tenant: str | None
    day: date | None
    key_id: str | None
    completed: int
    failed: int
    prompt_tokens: int
    cached_tokens: int
    completion_tokens: int


def meter_batches(session: Session, *, limit: int) -> int:
    """Count what open batches have moved on by, in so many of them; in how many.

    Not of those that are still validated: one that is rejected takes its counts back.
    """
    return session.execute(
        text(
            f"""
            WITH moved AS (
                {MOVED}
                WHERE status IN ('in_progress', 'finalizing', 'cancelling') AND NOT is_dry_run
                  AND (completed, failed) IS DISTINCT FROM (
                      coalesce((metered->>'completed')::int, 0), coalesce((metered->>'failed')::int, 0))
                ORDER BY id LIMIT :limit FOR UPDATE SKIP LOCKED),
            {METER_BATCHES}
            """
        ),
        {"limit": limit},
    ).scalar_one()


def meter_end(session: Session, batch_id: str) -> None:
    """Count the rest of a batch, in the transaction that ends it."""
    session.execute(
        text(f"WITH moved AS ({MOVED} WHERE id = :batch FOR UPDATE), {METER_BATCHES}"),
        {"batch": batch_id},
    )


def meter_jobs(session: Session, *, limit: int) -> int:
    """Count so many of the direct jobs that have ended; how many."""
    return session.execute(
        text(
            f"""
            WITH ended AS (
                UPDATE jobs SET metered = true FROM (
                    SELECT id FROM jobs
                    WHERE batch_id IS NULL AND finished_at IS NOT NULL AND NOT metered
                    ORDER BY id LIMIT :limit FOR UPDATE SKIP LOCKED) AS found
                WHERE jobs.id = found.id
                RETURNING {GONE}),
            used AS (SELECT {OF_JOB} FROM ended j LEFT JOIN answers a ON a.job_id = j.id),
            added AS ({ADD})
            SELECT count(*) FROM ended
            """  # noqa: S608 - pieces of our own
        ),
        {"limit": limit},
    ).scalar_one()


def read_usage(
    session: Session, tenant_id: str | None, *, start: date, end: date, by: Collection[str], limit: int
) -> Sequence[Use]:
    """What was used from one day to the other, by model and by what else of `tenant`, `day`, `key_id`."""
    parts = [name if name in by else f"NULL AS {name}" for name in ("tenant", "day", "key_id")]
    keys = ", ".join([*(name for name in ("tenant", "day", "key_id") if name in by), "model"])
    rows = session.execute(
        text(
            f"""
            SELECT model, {", ".join(parts)}, {", ".join(f"sum({name})::bigint" for name in COUNTS)}
            FROM (SELECT usage.*, t.name AS tenant FROM usage LEFT JOIN tenants t ON t.id = tenant_id
                  WHERE (CAST(:tenant AS text) IS NULL OR tenant_id = :tenant)
                    AND day BETWEEN :start AND :end) AS found
            GROUP BY {keys} ORDER BY {keys} LIMIT :limit
            """  # noqa: S608 - constants
        ),
        {"tenant": tenant_id, "start": start, "end": end, "limit": limit},
    )
    return [Use(*row) for row in rows]
