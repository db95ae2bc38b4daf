"""What the dispatcher reads and moves: the window on the broker, who wants what, ready jobs."""

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from operator import itemgetter
from types import MappingProxyType
from typing import Any

from sqlalchemy import text
from sqlalchemy.orm import Session

from app.planner import Chunk, Demand, DirectJobs, Lane, OpenBatches
from app.states import Priority
from app.store.batches import estimate_open_jobs
from app.store.prepared import Prepared

TURN_LOCK = 0x7671  # "vq": the advisory lock of the dispatcher that sends
DIRECT_SEEN = 100  # direct jobs that are looked at for a deadline

# A batch b of the background whose window is three quarters over: it waits no longer.
IS_NEAR = "(b.priority = 'background' AND now() > b.expires_at - (b.expires_at - b.created_at) / 4)"

# Pieces of statements. A demand's batches stand in the order of their deadlines; the null among them stands
# for direct jobs. An array is unnested in its order, and a batch is read when those before it are used up.
WANTED = """jsonb_to_recordset(CAST(:wanted AS jsonb))
                AS w(place int, tenant text, model text, priority text, batches text[], cap int)"""
DUE = "state = 'ready' AND (not_before IS NULL OR not_before <= now())"
OF_BATCH = f"batch_id = source.batch_id AND model = w.model AND {DUE}"
DIRECT = f"""source.batch_id IS NULL AND batch_id IS NULL AND tenant_id = w.tenant
                        AND model = w.model AND priority = w.priority AND {DUE}"""
ORDERED = """image_group, id, image_ids, alone, cache, question_hash, final_model,
             first_answer IS NOT NULL AS escalated, trace"""
NEXT = "ORDER BY image_group, id LIMIT w.cap FOR UPDATE SKIP LOCKED"


@dataclass(frozen=True)
class Candidate:
    """A ready job, locked until the transaction ends."""

    id: int
    lane: Lane
    image_ids: Sequence[int]
    alone: bool
    tenant_id: str = ""
    cache: int = 0  # bits of app.answer_keys
    question_hash: bytes | None = None
    final_model: str | None = None  # where its model is the one that a cascade asks first
    escalated: bool = False  # where that one was unsure
    trace: str | None = None  # that follows it

    @property
    def models(self) -> tuple[str, ...]:
        """Those whose answer may be the job's, the one that it is kept for last."""
        return (self.lane.model,) if self.final_model is None else (self.lane.model, self.final_model)


@dataclass(frozen=True)
class Backlog:
    """Open jobs by state; those that wait for images or the dispatcher are one number."""

    waiting_or_ready: int
    queued: int
    running: int


def take_turn(session: Session) -> bool:
    """Let one dispatcher send at a time, until the transaction ends; whether it is our turn.

    Two at once would fill the window twice. Postgres ends the turn of a process that is frozen in it, as it
    does with every transaction that says nothing.
    """
    return session.execute(text("SELECT pg_try_advisory_xact_lock(:lock)"), {"lock": TURN_LOCK}).scalar_one()


def count_queued(session: Session) -> dict[Lane, dict[str, int]]:
    """Jobs on the broker by lane and tenant: what the window and the shares are measured against."""
    rows = session.execute(
        text(
            """
            SELECT model, priority, array_agg(tenant_id) AS tenants, array_agg(n) AS jobs
            FROM (SELECT model, priority, tenant_id, count(*)::int AS n FROM jobs
                  WHERE state = 'queued' GROUP BY model, priority, tenant_id) AS counted
            GROUP BY model, priority
            """
        )
    )
    return {
        Lane(row.model, Priority(row.priority)): dict(zip(row.tenants, row.jobs, strict=True)) for row in rows
    }


def read_weights(session: Session) -> dict[str, float]:
    """The weights of the tenants that have another than 1."""
    rows = session.execute(text("SELECT id, weight FROM tenants WHERE weight <> 1"))
    return {row.id: row.weight for row in rows}


def read_open_batches(session: Session) -> list[OpenBatches]:
    """Batches with jobs left and time to run them, by tenant and by their class as it counts now."""
    rows = session.execute(
        text(
            f"""
            SELECT tenant_id, CASE WHEN {IS_NEAR} THEN 'standard' ELSE priority END AS class,
                   array_agg(id ORDER BY expires_at, id) AS ids,
                   array_agg(extract(epoch FROM expires_at)::float8 ORDER BY expires_at, id) AS deadlines
            FROM batches b
            WHERE status = 'in_progress' AND completed + failed < total AND expires_at > now()
              AND deleted_at IS NULL
            GROUP BY 1, 2
            """  # noqa: S608 - a piece of our own
        )
    )
    return [OpenBatches(tenant, Priority(priority), ids, times) for tenant, priority, ids, times in rows]


def read_direct(session: Session) -> list[DirectJobs]:
    """One jump through the index for each tenant, model and class that has direct jobs ready.

    Jobs without a deadline are due since they came; a look at some of them tells.
    """
    rows = session.execute(
        text(
            """
            WITH RECURSIVE found AS (
                (SELECT tenant_id, model, priority FROM jobs WHERE state = 'ready' AND batch_id IS NULL
                 ORDER BY tenant_id, model, priority LIMIT 1)
                UNION ALL
                SELECT further.* FROM found f CROSS JOIN LATERAL (
                    SELECT tenant_id, model, priority FROM jobs
                    WHERE state = 'ready' AND batch_id IS NULL
                      AND (tenant_id, model, priority) > (f.tenant_id, f.model, f.priority)
                    ORDER BY tenant_id, model, priority LIMIT 1) AS further)
            SELECT tenant_id, model, priority, (
                SELECT extract(epoch FROM min(coalesce(deadline, created_at)))::float8 FROM (
                    SELECT deadline, created_at FROM jobs
                    WHERE state = 'ready' AND batch_id IS NULL AND tenant_id = f.tenant_id
                      AND model = f.model AND priority = f.priority
                    LIMIT :some) AS seen) AS deadline
            FROM found f
            """
        ),
        {"some": DIRECT_SEEN},
    )
    return [DirectJobs(tenant, Lane(model, Priority(p)), deadline) for tenant, model, p, deadline in rows]


def count_ready(session: Session, wanted: Sequence[tuple[Demand, int]]) -> list[int]:
    """How many jobs of each demand are ready now, counted no further than to its number."""
    rows = session.execute(
        text(
            f"""
            SELECT w.place, found.ready FROM {WANTED} CROSS JOIN LATERAL (
                SELECT count(*) AS ready FROM (
                    SELECT FROM unnest(w.batches) AS source(batch_id) CROSS JOIN LATERAL (
                        SELECT FROM jobs WHERE {OF_BATCH} UNION ALL SELECT FROM jobs WHERE {DIRECT}) AS one
                    LIMIT w.cap) AS counted) AS found
            """  # noqa: S608 - pieces of our own
        ),
        {"wanted": _as_json(wanted)},
    )
    counts = {row.place: row.ready for row in rows}
    return [counts[place] for place in range(len(wanted))]


def lock_ready(session: Session, granted: Sequence[tuple[Demand, int]]) -> list[list[Candidate]]:
    """The first jobs of each demand, as many as granted; others skip them until we commit.

    Source by source in their order, none looked at before it is needed; image by image in each.
    """
    rows = session.execute(
        text(
            f"""
            SELECT w.place, found.* FROM {WANTED} CROSS JOIN LATERAL (
                SELECT source.n, one.*
                FROM unnest(w.batches) WITH ORDINALITY AS source(batch_id, n) CROSS JOIN LATERAL (
                    SELECT * FROM (SELECT {ORDERED} FROM jobs WHERE {OF_BATCH} {NEXT}) AS of_batch
                    UNION ALL
                    SELECT * FROM (SELECT {ORDERED} FROM jobs WHERE {DIRECT} {NEXT}) AS direct) AS one
                LIMIT w.cap) AS found
            """  # noqa: S608 - pieces of our own
        ),
        {"wanted": _as_json(granted)},
    ).all()
    piles: list[list[Candidate]] = [[] for _ in granted]
    for place, _, _, *of_job in sorted(rows, key=itemgetter(0, 1, 2, 3)):
        demand = granted[place][0]
        piles[place].append(_candidate(of_job, demand.lane, demand.tenant_id))
    return piles


def lock_saved(session: Session, lanes: Collection[Lane], *, limit: int) -> list[Candidate]:
    """Ready jobs that were on board at a death, whoever's they are: others skip them until we commit.

    They go first, since they had their turn: one with a late deadline would wait for all others again.
    """
    rows = session.execute(
        text(
            f"""
            SELECT j.tenant_id, j.model,
                   CASE WHEN {IS_NEAR} THEN 'standard' ELSE j.priority END AS priority,
                   j.id, j.image_ids, j.alone, j.cache, j.question_hash, j.final_model,
                   j.first_answer IS NOT NULL AS escalated, j.trace
            FROM jobs j LEFT JOIN batches b ON b.id = j.batch_id
            WHERE j.state = 'ready' AND j.alone AND (j.not_before IS NULL OR j.not_before <= now())
              AND (j.batch_id IS NULL
                   OR (b.status = 'in_progress' AND b.expires_at > now() AND b.deleted_at IS NULL))
            ORDER BY j.id LIMIT :limit FOR UPDATE OF j SKIP LOCKED
            """  # noqa: S608 - a piece of our own
        ),
        {"limit": limit},
    ).all()
    found = [(of_job, Lane(model, Priority(given)), tenant) for tenant, model, given, *of_job in rows]
    return [_candidate(of_job, lane, tenant) for of_job, lane, tenant in found if lane in lanes]


# The state comes from a row, lest it be planned by how many jobs were ready when somebody last counted: where
# that were hardly any, all that are sent were gone through for each that is ready, 0.4 ms a job.
MARK_QUEUED = Prepared(
    "mark_queued",
    """
    UPDATE jobs SET state = 'queued', priority = sent.priority, answer_key = sent.key,
                    sent_at = clock.moment + sent.place * interval '1 microsecond'
    FROM (SELECT clock_timestamp() AS moment, 'ready' AS state) AS clock,
         unnest(:ids, :priorities, :places, :keys) AS sent(id, priority, place, key)
    WHERE jobs.id = sent.id AND jobs.state = clock.state
    """,
    {"ids": "bigint[]", "priorities": "text[]", "places": "int[]", "keys": "bytea[]"},
)


def mark_queued(
    session: Session, chunks: Sequence[Chunk], keys: Mapping[int, bytes] = MappingProxyType({})
) -> None:
    """Note jobs as sent, in the order of their chunks, and the keys of answers that are to be kept.

    Only after the broker has confirmed them.
    """
    jobs = [(job_id, chunk.priority, place) for place, chunk in enumerate(chunks) for job_id in chunk.job_ids]
    MARK_QUEUED.execute(
        session,
        {
            "ids": [job_id for job_id, _, _ in jobs],
            "priorities": [priority for _, priority, _ in jobs],
            "places": [place for _, _, place in jobs],
            "keys": [keys.get(job_id) for job_id, _, _ in jobs],
        },
    )


def _candidate(of_job: Sequence[Any], lane: Lane, tenant_id: str) -> Candidate:
    """By place, in the order of ORDERED: to read columns by their names costs as much as the rest."""
    job_id, image_ids, alone, cache, question, final_model, escalated, trace = of_job
    return Candidate(
        job_id, lane, image_ids, alone, tenant_id, cache, _bytes(question), final_model, escalated, trace
    )


def _bytes(value: memoryview | None) -> bytes | None:
    return None if value is None else bytes(value)


def _as_json(wanted: Sequence[tuple[Demand, int]]) -> str:
    return json.dumps(
        [
            {
                "place": place,
                "tenant": demand.tenant_id,
                "model": demand.lane.model,
                "priority": demand.lane.priority,
                "batches": demand.batch_ids,
                "cap": cap,
            }
            for place, (demand, cap) in enumerate(wanted)
        ]
    )


def count_backlog(session: Session, *, cap: int) -> Backlog:
    """Open jobs by state; direct ones are counted up to `cap`."""
    row = session.execute(
        text(
            """
            SELECT (SELECT count(*) FROM jobs WHERE state = 'queued') AS queued,
                   (SELECT count(*) FROM jobs WHERE state = 'running') AS running
            """
        )
    ).one()
    open_jobs = estimate_open_jobs(session, cap=cap)
    return Backlog(max(0, open_jobs - row.queued - row.running), row.queued, row.running)


def count_batches(session: Session) -> dict[str, int]:
    rows = session.execute(
        text(
            """
            SELECT status, count(*) AS n FROM batches
            WHERE status IN ('validating', 'in_progress', 'finalizing', 'cancelling') GROUP BY status
            """
        )
    ).all()
    return {row.status: row.n for row in rows}
