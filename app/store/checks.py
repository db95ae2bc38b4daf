"""What a dry run sees, block by block, and what is known that its report estimates from."""

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import text
from sqlalchemy.orm import Session

from app.store.ingest import AT_THIS_BYTE, IngestTask

IMAGES, CUSTOM_IDS = "image", "custom_id"
# Batches of the last days say how fast a model is, and how long its answers are.
LATELY = "interval '7 days'"
LATEST = 20


@dataclass(frozen=True)
class Known:
    """An image as the tables know it: stored with its size, or failed lately."""

    state: str
    width: int | None
    height: int | None


@dataclass(frozen=True)
class Probe:
    """A sampled image: stored with its size, failed with a code, or on its way."""

    ref_hash: str
    state: str
    width: int | None
    height: int | None
    code: str | None
    message: str | None


@dataclass(frozen=True)
class Rates:
    """How a model's batches went lately; None where there were none."""

    batches: int
    jobs_per_second: float | None
    output_tokens: float | None  # of an answer


def add_seen(session: Session, batch_id: str, kind: str, lines: Mapping[str, int]) -> set[str]:
    """Note hashes with the line they stand in; those that were there already."""
    new = session.execute(
        text(
            """
            INSERT INTO checked (batch_id, kind, hash, line)
            SELECT :batch, :kind, given.* FROM unnest(CAST(:hashes AS text[]), CAST(:lines AS int[])) AS given
            ON CONFLICT DO NOTHING RETURNING hash
            """
        ),
        {"batch": batch_id, "kind": kind, "hashes": list(lines), "lines": list(lines.values())},
    ).scalars()
    return set(lines) - set(new)


def find_seen(session: Session, batch_id: str, kind: str, hashes: Collection[str]) -> dict[str, int]:
    """The lines in which these hashes were seen first."""
    rows = session.execute(
        text(
            "SELECT hash, line FROM checked WHERE batch_id = :batch AND kind = :kind AND hash = ANY(:hashes)"
        ),
        {"batch": batch_id, "kind": kind, "hashes": list(hashes)},
    )
    return {row.hash: row.line for row in rows}


def advance(
    session: Session,
    task: IngestTask,
    *,
    size: int,
    lines: int,
    jobs: int,
    tally: Mapping[str, Any],
    lease_s: float,
) -> bool:
    """Note a block as counted; False if the batch is not at this byte any more: then roll back."""
    row = session.execute(
        text(
            f"""
            UPDATE batches SET ingested_bytes = ingested_bytes + :bytes,
                ingested_lines = ingested_lines + :lines, total = total + :jobs,
                report = CAST(:tally AS json), lease_until = now() + :lease * interval '1 second'
            WHERE id = :id AND {AT_THIS_BYTE} RETURNING id
            """  # noqa: S608 - a piece of our own
        ),
        {
            "id": task.id,
            "from_byte": task.bytes,
            "bytes": size,
            "lines": lines,
            "jobs": jobs,
            "tally": json.dumps(tally),
            "lease": lease_s,
        },
    )
    return row.one_or_none() is not None


def find_known(
    session: Session, tenant_id: str, hashes: Collection[str], *, reuse_s: int
) -> dict[str, Known]:
    """What is known of these images. One that could be used again is stored, whatever became of it later."""
    rows = session.execute(
        text(
            f"""
            SELECT DISTINCT ON (ref_hash) ref_hash, state, width, height FROM (
                SELECT ref_hash, state, width, height FROM images
                WHERE tenant_id = :tenant AND ref_hash = ANY(:hashes) AND state = 'stored'
                    AND (ref_kind IN ('data', 'file') OR stored_at > now() - :reuse * interval '1 second')
                UNION ALL
                SELECT ref_hash, state, NULL, NULL FROM images
                WHERE tenant_id = :tenant AND ref_hash = ANY(:hashes) AND state = 'failed'
                    AND used_at > now() - {LATELY}) AS found
            ORDER BY ref_hash, state DESC
            """  # noqa: S608 - a constant
        ),
        {"tenant": tenant_id, "hashes": list(hashes), "reuse": reuse_s},
    )
    return {row.ref_hash: Known(row.state, row.width, row.height) for row in rows}


def read_probes(session: Session, image_ids: Sequence[int]) -> list[Probe]:
    rows = session.execute(
        text(
            """
            SELECT ref_hash, state, width, height, error_code AS code, error_message AS message FROM images
            WHERE id = ANY(:ids) ORDER BY id
            """
        ),
        {"ids": list(image_ids)},
    )
    return [Probe(*row) for row in rows]


def read_rates(session: Session, model: str) -> Rates:
    """By batches of at least 100 answers; those that waited for others look slower than the model is."""
    row = session.execute(
        text(
            f"""
            SELECT count(*) AS batches, sum(completed) / nullif(sum(seconds), 0) AS pace,
                   sum(completion_tokens)::float / nullif(sum(completed), 0) AS tokens
            FROM (SELECT completed, completion_tokens,
                         extract(epoch FROM finalizing_at - in_progress_at)::float AS seconds
                  FROM batches
                  WHERE ended_at > now() - {LATELY} AND model = :model AND completed >= 100
                    AND finalizing_at > in_progress_at
                  ORDER BY ended_at DESC LIMIT :latest) AS late
            """  # noqa: S608 - a constant
        ),
        {"model": model, "latest": LATEST},
    ).one()
    return Rates(row.batches, row.pace, row.tokens)


def hold(session: Session, task: IngestTask, tally: Mapping[str, Any], *, seconds: float) -> bool:
    """Keep what was counted, and look again after a while."""
    row = session.execute(
        text(
            f"""
            UPDATE batches SET report = CAST(:tally AS json),
                lease_until = now() + :seconds * interval '1 second'
            WHERE id = :id AND {AT_THIS_BYTE} RETURNING id
            """  # noqa: S608 - a piece of our own
        ),
        {"id": task.id, "from_byte": task.bytes, "tally": json.dumps(tally), "seconds": seconds},
    )
    return row.one_or_none() is not None


def end_check(session: Session, task: IngestTask, report: Mapping[str, Any]) -> bool:
    """End a dry run with its report; False where it was closed or taken by somebody else meanwhile."""
    row = session.execute(
        text(
            f"""
            UPDATE batches SET status = 'completed', ending = 'completed', report = CAST(:report AS json),
                total = 0, lease_until = NULL, in_progress_at = now(), finalizing_at = now(),
                completed_at = now(), ended_at = now(), ingested_at = now(), model = :model
            WHERE id = :id AND status = 'validating' AND {AT_THIS_BYTE} RETURNING id
            """  # noqa: S608 - a piece of our own
        ),
        {
            "id": task.id,
            "from_byte": task.bytes,
            "report": json.dumps(report),
            "model": max(report["models"], key=report["models"].get, default=None),
        },
    )
    return row.one_or_none() is not None


def forget_seen(session: Session, batch_id: str) -> None:
    """The notes of a dry run that is over; and what it counted, unless that is its report."""
    session.execute(text("DELETE FROM checked WHERE batch_id = :batch"), {"batch": batch_id})
    session.execute(
        text(
            """
            UPDATE batches SET report = NULL, total = 0
            WHERE id = :batch AND is_dry_run AND status <> 'completed'
            """
        ),
        {"batch": batch_id},
    )
