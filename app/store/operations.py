"""The whole installation at a glance: lanes, workers, processes. Numbers only, nothing of any tenant."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import text
from sqlalchemy.orm import Session

from app.states import Priority


@dataclass(frozen=True)
class LaneCount:
    """Jobs of a model and class: on the broker, and under a worker's lease."""

    model: str
    priority: Priority
    queued: int
    running: int
    oldest_sent_at: datetime | None


@dataclass(frozen=True)
class WorkerRow:
    """A model that a process serves, and how many jobs of it that process runs."""

    worker: str
    model: str
    revision: str | None
    started_at: datetime
    silent_s: float
    running: int


def count_lanes(session: Session, tenant_id: str | None = None) -> list[LaneCount]:
    """Of all tenants, or of one. Reads the jobs on the broker and on workers: as many as these may hold."""
    rows = session.execute(
        text(
            """
            SELECT model, priority, count(*) FILTER (WHERE state = 'queued') AS queued,
                   count(*) FILTER (WHERE state = 'running') AS running,
                   min(sent_at) FILTER (WHERE state = 'queued') AS oldest
            FROM jobs WHERE state IN ('queued', 'running')
              AND (CAST(:tenant AS text) IS NULL OR tenant_id = :tenant)
            GROUP BY model, priority ORDER BY model, priority
            """
        ),
        {"tenant": tenant_id},
    ).all()
    return [LaneCount(row.model, Priority(row.priority), *row[2:]) for row in rows]


def list_workers(session: Session) -> Sequence[WorkerRow]:
    rows = session.execute(
        text(
            """
            SELECT split_part(w.id, '/', 1) AS worker, w.model, w.revision, w.started_at,
                   CAST(extract(epoch FROM now() - w.heartbeat_at) AS float8) AS silent_s,
                   coalesce(r.running, 0) AS running
            FROM workers w LEFT JOIN (
                SELECT worker, model, count(*) AS running FROM jobs WHERE state = 'running'
                GROUP BY worker, model) r ON r.worker = split_part(w.id, '/', 1) AND r.model = w.model
            WHERE w.model IS NOT NULL ORDER BY w.model, w.started_at, w.id
            """
        )
    ).all()
    return [WorkerRow(*row) for row in rows]


def count_processes(session: Session) -> Mapping[str, int]:
    """Connections to this database by our kinds of processes: one that is up has one at least."""
    rows = session.execute(
        text(
            """
            SELECT substr(application_name, 8) AS kind, count(*) AS n FROM pg_stat_activity
            WHERE datname = current_database() AND application_name LIKE 'vqueue-%' GROUP BY 1
            """
        )
    ).all()
    return {row.kind: row.n for row in rows}
