"""Shadow batches: a share of an ended batch's jobs, asked of another model; and what came of them."""

from collections.abc import Sequence
from dataclasses import dataclass

from sqlalchemy import text
from sqlalchemy.orm import Session

from app.shadow_list import Shadow
from app.store.batches import cancel_batch
from app.store.console_compare import PLAIN

# A job is in the sample of every share that is larger than its own number, whoever asks.
IN_SAMPLE = """model = :model AND final_model IS NULL
    AND mod(abs(hashint8(id)::bigint), 1000000) < :share * 1000000"""
# Of a batch that ended longer ago nothing is asked any more.
LOOK_BACK = "interval '1 hour'"
# Both answers to one question; of jobs that another model has answered meanwhile there is no pair.
PAIRS = """
    jobs a JOIN jobs b ON b.batch_id = {of}shadow_batch_id AND b.line = a.line
    JOIN answers x ON x.job_id = a.id AND x.model = {of}model
    JOIN answers y ON y.job_id = b.id AND y.model = {of}other
    CROSS JOIN LATERAL (SELECT x.model_s > 0 AND y.model_s > 0 AS both) AS t
    WHERE a.batch_id = {of}batch_id"""
# Of a pairing that is given, and of each row of `shadows`.
PAIRS_GIVEN, PAIRS_OF_ROW = PAIRS.format(of=":"), PAIRS.format(of="s.")
MOST_UNREAD = 16
ORPHANS = """
    SELECT s.shadow_batch_id FROM shadows s LEFT JOIN batches b ON b.id = s.batch_id
    WHERE b.id IS NULL OR b.deleted_at IS NOT NULL"""
ALIKE = f"(x.text = y.text OR {PLAIN.format('x.text')} = {PLAIN.format('y.text')})"


@dataclass(frozen=True)
class Shadowed:
    """An ended batch of which a share is to be asked of another model; `sampled` is whether any job is."""

    id: str
    endpoint: str
    input_file_id: str
    sampled: bool


@dataclass(frozen=True)
class Pairing:
    """A shadow batch that has ended, and the one it shadows."""

    batch_id: str
    shadow_batch_id: str
    model: str
    other: str


@dataclass(frozen=True)
class Comparison:
    """What two models said to the same questions.

    `exact` are alike to the letter, `alike` also but for case and space. Model seconds are of the `timed`
    pairs, in which both models ran: no answer came from the answer cache.
    """

    pairs: int
    exact: int
    alike: int
    timed: int
    model_s: float
    other_s: float


@dataclass(frozen=True)
class Total:
    """All comparisons of two models; `open` batches are still being answered."""

    model: str
    other: str
    batches: int
    open: int
    found: Comparison


@dataclass(frozen=True)
class Differing:
    """One question that two models answered differently."""

    batch_id: str
    custom_id: str
    answer: str
    other_answer: str


def find_unshadowed(session: Session, shadow: Shadow, *, own_tenant: str) -> Shadowed | None:
    """The batch that ended first of those that have no shadow by this model yet, and are none themselves.

    `own_tenant` is the name of the tenant that has the shadows.
    """
    row = session.execute(
        text(
            f"""
            SELECT b.id, b.endpoint, b.input_file_id, EXISTS (
                SELECT FROM jobs WHERE batch_id = b.id AND state = 'completed' AND {IN_SAMPLE}) AS sampled
            FROM batches b
            WHERE b.ended_at > now() - {LOOK_BACK} AND b.model = :model AND b.completed > 0
                AND b.deleted_at IS NULL
                AND NOT EXISTS (SELECT FROM tenants t WHERE t.id = b.tenant_id AND t.name = :own)
                AND NOT EXISTS (SELECT FROM shadows s WHERE s.shadow_batch_id = b.id)
                AND NOT EXISTS (SELECT FROM shadows s WHERE s.batch_id = b.id AND s.other = :other)
            ORDER BY b.ended_at LIMIT 1
            """  # noqa: S608 - constants
        ),
        {**vars(shadow), "own": own_tenant},
    ).one_or_none()
    return Shadowed(*row) if row else None


def is_full(session: Session, *, most_open: int) -> bool:
    """Whether so many jobs of shadows are open, or MOST_UNREAD shadows of which nobody knows yet how many."""
    row = session.execute(
        text(
            """
            SELECT coalesce(sum(greatest(b.total - b.completed - b.failed, 0)), 0) AS jobs,
                   count(*) FILTER (WHERE b.ingested_at IS NULL) AS unread
            FROM shadows s JOIN batches b ON b.id = s.shadow_batch_id
            WHERE s.compared_at IS NULL AND b.ended_at IS NULL
            """
        )
    ).one()
    return row.jobs >= most_open or row.unread >= MOST_UNREAD


def is_customer(session: Session, tenant_id: str) -> bool:
    """Whether a tenant has work of its own: a batch that repeats no other, or an open job."""
    return session.execute(
        text(
            """
            SELECT EXISTS (SELECT FROM batches WHERE tenant_id = :tenant AND retry_of IS NULL)
                OR EXISTS (SELECT FROM jobs WHERE tenant_id = :tenant AND batch_id IS NULL
                    AND state IN ('waiting', 'ready', 'queued', 'running'))
            """
        ),
        {"tenant": tenant_id},
    ).scalar_one()


def is_shadowed(session: Session, batch_id: str, other: str) -> bool:
    found = session.execute(
        text("SELECT 1 FROM shadows WHERE batch_id = :batch AND other = :other"),
        {"batch": batch_id, "other": other},
    )
    return found.one_or_none() is not None


def insert_shadow(session: Session, shadow: Shadow, batch_id: str, shadow_batch_id: str | None) -> None:
    """Note a batch's shadow; one without a batch of its own has no job in the sample."""
    session.execute(
        text(
            """
            INSERT INTO shadows (batch_id, other, model, share, shadow_batch_id)
            VALUES (:batch, :other, :model, :share, :shadow)
            """
        ),
        {**vars(shadow), "batch": batch_id, "shadow": shadow_batch_id},
    )


def take_ended(session: Session) -> Pairing | None:
    """A shadow batch that has ended and was not compared; other dispatchers skip it meanwhile."""
    row = session.execute(
        text(
            """
            SELECT s.batch_id, s.shadow_batch_id, s.model, s.other
            FROM shadows s JOIN batches b ON b.id = s.shadow_batch_id
            WHERE s.compared_at IS NULL AND b.ended_at IS NOT NULL LIMIT 1 FOR UPDATE OF s SKIP LOCKED
            """
        )
    ).one_or_none()
    return Pairing(*row) if row else None


def compare(session: Session, pairing: Pairing) -> Comparison:
    """Count how the two models' answers compare."""
    row = session.execute(
        text(
            f"""
            SELECT count(*), count(*) FILTER (WHERE x.text = y.text), count(*) FILTER (WHERE {ALIKE}),
                   count(*) FILTER (WHERE t.both), coalesce(sum(x.model_s) FILTER (WHERE t.both), 0),
                   coalesce(sum(y.model_s) FILTER (WHERE t.both), 0)
            FROM {PAIRS_GIVEN}
            """  # noqa: S608 - constants
        ),
        vars(pairing),
    ).one()
    return Comparison(*row)


def note_compared(session: Session, pairing: Pairing, found: Comparison) -> None:
    session.execute(
        text(
            """
            UPDATE shadows SET compared_at = now(), pairs = :pairs, exact = :exact, alike = :alike,
                timed = :timed, model_s = :model_s, other_s = :other_s
            WHERE shadow_batch_id = :shadow
            """
        ),
        {**vars(found), "shadow": pairing.shadow_batch_id},
    )


def doom_orphans(session: Session) -> Sequence[str]:
    """Delete the shadows of batches that are deleted: what was asked and answered goes with its owner's."""
    rows = session.execute(
        text(
            f"""
            UPDATE batches SET deleted_at = now()
            WHERE deleted_at IS NULL AND ended_at IS NOT NULL AND id IN ({ORPHANS}) RETURNING id
            """  # noqa: S608 - a piece of our own
        )
    )
    return rows.scalars().all()


def stop_vain(session: Session) -> Sequence[str]:
    """Cancel the shadows of deleted batches, and those which would soon be of the class of customers' work.

    A batch of the background becomes one in the last quarter of its time; its answers until then count.
    """
    rows = session.execute(
        text(
            f"""
            SELECT b.id, b.tenant_id FROM shadows s JOIN batches b ON b.id = s.shadow_batch_id
            WHERE s.compared_at IS NULL AND b.status IN ('validating', 'in_progress') AND (
                b.id IN ({ORPHANS}) OR now() > b.expires_at - (b.expires_at - b.created_at) / 3)
            """  # noqa: S608 - a piece of our own
        )
    )
    return [row.id for row in rows.all() if cancel_batch(session, row.tenant_id, row.id)]


def read_totals(session: Session, *, days: int) -> Sequence[Total]:
    """Of each pair of models, over the shadows of the last days."""
    rows = session.execute(
        text(
            """
            SELECT model, other, count(shadow_batch_id) AS batches,
                   count(shadow_batch_id) FILTER (WHERE compared_at IS NULL) AS open,
                   coalesce(sum(pairs), 0)::bigint, coalesce(sum(exact), 0)::bigint,
                   coalesce(sum(alike), 0)::bigint, coalesce(sum(timed), 0)::bigint,
                   coalesce(sum(model_s), 0), coalesce(sum(other_s), 0)
            FROM shadows WHERE created_at > now() - :days * interval '1 day'
            GROUP BY model, other ORDER BY model, other
            """
        ),
        {"days": days},
    )
    return [Total(row.model, row.other, row.batches, row.open, Comparison(*row[4:])) for row in rows]


def read_differences(session: Session, *, days: int, limit: int) -> Sequence[Differing]:
    """Answers that differ by more than case and space, newest batches first."""
    rows = session.execute(
        text(
            f"""
            SELECT s.batch_id, d.custom_id, d.answer, d.other_answer FROM shadows s CROSS JOIN LATERAL (
                SELECT coalesce(a.custom_id, '') AS custom_id, x.text AS answer, y.text AS other_answer
                FROM {PAIRS_OF_ROW} AND NOT {ALIKE} ORDER BY a.line LIMIT :limit) AS d
            WHERE s.compared_at IS NOT NULL AND s.created_at > now() - :days * interval '1 day'
            ORDER BY s.created_at DESC LIMIT :limit
            """  # noqa: S608 - constants
        ),
        {"days": days, "limit": limit},
    )
    return [Differing(*row) for row in rows]
