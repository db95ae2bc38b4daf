"""Sweeps as the console lists them: their newest runs, those that stand still, their items' pictures."""

from collections.abc import Mapping, Sequence

from sqlalchemy import text
from sqlalchemy.orm import Session

from app.store.sweep_runs import RunRow, run_row
from app.store.sweeps import SweepRow, sweep_row

MOST_STUCK = 50


def newest_runs(session: Session, sweep_ids: Sequence[str]) -> Mapping[str, RunRow]:
    """Of each sweep the run that stands still, else the one begun last; none for one without any."""
    rows = session.execute(
        text(
            """
            SELECT r.* FROM unnest(CAST(:sweeps AS text[])) AS s(id) CROSS JOIN LATERAL (
                SELECT * FROM sweep_runs WHERE sweep_id = s.id
                  AND (started_at IS NOT NULL OR (stalled_at IS NOT NULL AND ended_at IS NULL))
                ORDER BY (stalled_at IS NOT NULL AND ended_at IS NULL) DESC, created_at DESC, id DESC
                LIMIT 1) AS r
            """
        ),
        {"sweeps": list(sweep_ids)},
    ).mappings()
    return {row["sweep_id"]: run_row(row) for row in rows}


def list_stuck(session: Session, tenant_id: str) -> Sequence[SweepRow]:
    """Sweeps of a tenant with a run that stands still, that first which does so for longest."""
    rows = session.execute(
        text(
            """
            SELECT s.* FROM sweeps s JOIN (
                SELECT sweep_id, min(stalled_at) AS since FROM sweep_runs
                WHERE stalled_at IS NOT NULL AND ended_at IS NULL GROUP BY sweep_id) r ON r.sweep_id = s.id
            WHERE s.tenant_id = :tenant AND s.deleted_at IS NULL ORDER BY r.since, s.id LIMIT :most
            """
        ),
        {"tenant": tenant_id, "most": MOST_STUCK},
    ).mappings()
    return [sweep_row(row) for row in rows]


def item_pictures(session: Session, sweep_id: str, keys: Sequence[str]) -> Mapping[str, str]:
    """The content hashes of those items whose image is stored."""
    rows = session.execute(
        text(
            """
            SELECT i.key, i.content_hash FROM sweep_items i JOIN sweeps s ON s.id = i.sweep_id
            WHERE i.sweep_id = :sweep AND i.key = ANY(:keys) AND EXISTS (
                SELECT FROM images m WHERE m.tenant_id = s.tenant_id AND m.content_hash = i.content_hash
                  AND m.state = 'stored')
            """
        ),
        {"sweep": sweep_id, "keys": list(keys)},
    )
    return {row.key: row.content_hash for row in rows}
