"""The models that processes serve, and when those were last heard of."""

import json
from collections.abc import Mapping
from types import MappingProxyType

from sqlalchemy import text
from sqlalchemy.orm import Session


def register(session: Session, *, worker: str, role: str, model: str, revision: str) -> None:
    """Tell that a process serves a model: a row for each, named after both. A worker's name has no slash."""
    session.execute(
        text(
            """
            INSERT INTO workers (id, role, model, revision) VALUES (:id, :role, :model, :revision)
            ON CONFLICT (id) DO UPDATE SET heartbeat_at = now()
            """
        ),
        {"id": f"{worker}/{model}", "role": role, "model": model, "revision": revision},
    )


def heartbeat(
    session: Session,
    *,
    worker: str,
    reports: Mapping[str, Mapping[str, float]] = MappingProxyType({}),
) -> None:
    """The process lives. `reports` say by model what its engines do, as `workers.reports` words it."""
    session.execute(
        text(
            """
            UPDATE workers SET heartbeat_at = now(), report = CAST(:reports AS jsonb) -> model
            WHERE split_part(id, '/', 1) = :worker
            """
        ),
        {"worker": worker, "reports": json.dumps({model: dict(one) for model, one in reports.items()})},
    )


def leave(session: Session, *, worker: str) -> None:
    session.execute(text("DELETE FROM workers WHERE split_part(id, '/', 1) = :worker"), {"worker": worker})


def count_live(session: Session, *, within_s: float) -> dict[str, int]:
    """Processes heard of within this time, by the model that they serve."""
    rows = session.execute(
        text(
            """
            SELECT model, count(*) AS n FROM workers
            WHERE heartbeat_at >= now() - :within * interval '1 second' AND model IS NOT NULL GROUP BY model
            """
        ),
        {"within": within_s},
    )
    return {row.model: row.n for row in rows}


def forget_silent(session: Session, *, after_s: float) -> int:
    """Drop rows of processes not heard of for long; how many."""
    rows = session.execute(
        text("DELETE FROM workers WHERE heartbeat_at < now() - :after * interval '1 second' RETURNING id"),
        {"after": after_s},
    )
    return len(rows.all())
