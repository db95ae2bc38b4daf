"""Two batches by item (`custom_id`): how each of one's jobs was answered, beside the other's."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from sqlalchemy import text
from sqlalchemy.orm import Session

from app.store.console_results import patterns

SAME, DIFFERING, ONLY_A, ONLY_B, NEITHER, MISSING = (
    "same",
    "differing",
    "only_a",
    "only_b",
    "neither",
    "missing",
)
# As app.agreement has it: case, and the amount of space between words, do not count.
PLAIN = r"lower(btrim(regexp_replace({0}, '\s+', ' ', 'g')))"
KIND = f"""CASE WHEN o.id IS NULL THEN '{MISSING}'
    WHEN x.text IS NULL AND y.text IS NULL THEN '{NEITHER}'
    WHEN y.text IS NULL THEN '{ONLY_A}' WHEN x.text IS NULL THEN '{ONLY_B}'
    WHEN x.text = y.text OR {PLAIN.format("x.text")} = {PLAIN.format("y.text")} THEN '{SAME}'
    ELSE '{DIFFERING}' END"""
# Each by its key, however many jobs and answers there are of others.
PAIRS = """
    (SELECT id, line, custom_id FROM jobs WHERE batch_id = :a AND line {beyond} :at
     ORDER BY line {order} LIMIT :piece) AS j
    LEFT JOIN LATERAL (
        SELECT id FROM jobs WHERE batch_id = :b AND custom_id = j.custom_id OFFSET 0) AS o ON true
    LEFT JOIN LATERAL (SELECT text FROM answers WHERE job_id = j.id OFFSET 0) AS x ON true
    LEFT JOIN LATERAL (SELECT text FROM answers WHERE job_id = o.id OFFSET 0) AS y ON true
    CROSS JOIN LATERAL (SELECT KIND AS kind) AS k""".replace("KIND", KIND)
FORWARDS = PAIRS.format(beyond=">", order="ASC")
BACKWARDS = PAIRS.format(beyond="<", order="DESC")
WORDS = "(x.text ILIKE :like OR y.text ILIKE :like OR j.custom_id ILIKE :like)"
LABEL = """EXISTS (SELECT FROM labels l WHERE l.job_id IN (j.id, o.id) AND l.field = :label_field
    AND l.value = :label)"""


@dataclass(frozen=True)
class PairFilters:
    """Which items; `label` is a field and a value that either answer has."""

    kinds: Sequence[str]
    text: str | None = None
    label: tuple[str, str] | None = None


@dataclass(frozen=True)
class Pair:
    """An item's job in each batch, and which of the kinds it is; `b` is None where it is missing there."""

    a: int
    b: int | None
    line: int
    kind: str


@dataclass(frozen=True)
class PairPiece:
    """Pairs that fit among the items looked at; `line` is that of the last of these."""

    pairs: Sequence[Pair]
    scanned: int
    line: int | None


@dataclass(frozen=True)
class TallyPiece:
    """How many of the items looked at are of which kind."""

    counts: Mapping[str, int]
    scanned: int
    line: int | None


def find_pairs(
    session: Session, a: str, b: str, filters: PairFilters, *, at: int, backwards: bool, piece: int
) -> PairPiece:
    """Look at the next `piece` items of batch `a` behind line `at`, or before it: the nearest first."""
    field, value = filters.label or (None, None)
    checks = ["k.kind = ANY(:kinds)"]
    checks += [WORDS] if filters.text is not None else []
    checks += [LABEL] if filters.label is not None else []
    rows = session.execute(
        text(
            f"""
            WITH looked AS (
                SELECT j.id, o.id AS other, j.line, k.kind, {" AND ".join(checks)} AS fits
                FROM {BACKWARDS if backwards else FORWARDS})
            SELECT id, other, line, kind, fits FROM looked WHERE fits
            UNION ALL (SELECT NULL, count(*), {"min" if backwards else "max"}(line), NULL, false FROM looked)
            """  # noqa: S608 - constants
        ),
        {
            "a": a,
            "b": b,
            "at": at,
            "piece": piece,
            "kinds": list(filters.kinds),
            "like": patterns(filters.text or "")[0],
            "label_field": field,
            "label": value,
        },
    ).all()
    end = next(row for row in rows if row.id is None)
    pairs = [Pair(row.id, row.other, row.line, row.kind) for row in rows if row.id is not None]
    return PairPiece(sorted(pairs, key=lambda pair: pair.line, reverse=backwards), end.other, end.line)


def tally_pairs(session: Session, a: str, b: str, *, after: int, piece: int) -> TallyPiece:
    """Count the next `piece` items of batch `a` behind a line by their kinds."""
    rows = session.execute(
        text(f"SELECT k.kind, count(*) AS items, max(j.line) AS line FROM {FORWARDS} GROUP BY 1"),  # noqa: S608 - constants
        {"a": a, "b": b, "at": after, "piece": piece},
    ).all()
    lines = [row.line for row in rows]
    return TallyPiece(
        {row.kind: row.items for row in rows}, sum(row.items for row in rows), max(lines, default=None)
    )
