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
class Unsent:
    """Jobs that no message carries yet; the oldest of a batch counts from when the batch was made.

    Up to `ready_cap` jobs of batches were counted that are ready: `waiting` is None if there may be more.
    """

    jobs: int
    ready: int
    oldest_at: datetime | None
    is_capped: bool

    @property
    def waiting(self) -> int | None:
        """For an image, or for the answer to the same question."""
        return None if self.is_capped else self.jobs - self.ready


@dataclass(frozen=True)
class WorkerRow:
    """A model that a process serves, and how many jobs of it that process runs.

    `step_fill` (a share) and `feature_s_saved` are what it told with its last heartbeat, None where nothing.
    """

    worker: str
    model: str
    revision: str | None
    started_at: datetime
    silent_s: float
    running: int
    step_fill: float | None
    feature_s_saved: float | None


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


def count_unsent(session: Session, tenant_id: str | None = None, *, cap: int) -> Unsent:
    """Of all tenants, or of one. Those of batches by the batches' counts, less what is under way.

    Ready ones of batches are counted by index up to `cap`, direct ones are looked at up to `cap`.
    """
    row = session.execute(
        text(
            """
            WITH sent AS (
                SELECT batch_id, count(*) AS jobs FROM jobs
                WHERE state IN ('queued', 'running') AND batch_id IS NOT NULL GROUP BY batch_id),
            unsent AS (
                SELECT b.id, b.created_at, b.total - b.completed - b.failed - coalesce(sent.jobs, 0) AS jobs
                FROM batches b LEFT JOIN sent ON sent.batch_id = b.id
                WHERE b.status IN ('validating', 'in_progress') AND NOT b.is_dry_run AND b.deleted_at IS NULL
                  AND (CAST(:tenant AS text) IS NULL OR b.tenant_id = :tenant)),
            ready AS (
                SELECT FROM jobs WHERE state = 'ready'
                AND batch_id = ANY(ARRAY(SELECT id FROM unsent WHERE jobs > 0)) LIMIT :cap),
            direct AS (
                SELECT state, created_at FROM jobs WHERE batch_id IS NULL AND state IN ('waiting', 'ready')
                AND (CAST(:tenant AS text) IS NULL OR tenant_id = :tenant) LIMIT :cap)
            SELECT CAST((SELECT coalesce(sum(jobs), 0) FROM unsent WHERE jobs > 0) AS bigint) AS of_batches,
                   (SELECT count(*) FROM ready) AS ready_of_batches,
                   (SELECT count(*) FROM direct) AS direct,
                   (SELECT count(*) FROM direct WHERE state = 'ready') AS ready_direct,
                   least((SELECT min(created_at) FROM unsent WHERE jobs > 0),
                         (SELECT min(created_at) FROM direct)) AS oldest_at
            """
        ),
        {"tenant": tenant_id, "cap": cap},
    ).one()
    return Unsent(
        jobs=row.of_batches + row.direct,
        ready=row.ready_of_batches + row.ready_direct,
        oldest_at=row.oldest_at,
        is_capped=max(row.ready_of_batches, row.direct) >= cap,
    )


def list_workers(session: Session) -> Sequence[WorkerRow]:
    rows = session.execute(
        text(
            """
            SELECT split_part(w.id, '/', 1) AS worker, w.model, w.revision, w.started_at,
                   CAST(extract(epoch FROM now() - w.heartbeat_at) AS float8) AS silent_s,
                   coalesce(r.running, 0) AS running,
                   CAST(w.report->>'step_fill' AS float8) AS step_fill,
                   CAST(w.report->>'feature_s_saved' AS float8) AS feature_s_saved
            FROM workers w LEFT JOIN (
                SELECT worker, model, count(*) AS running FROM jobs WHERE state = 'running'
                GROUP BY worker, model) r ON r.worker = split_part(w.id, '/', 1) AND r.model = w.model
            WHERE w.model IS NOT NULL ORDER BY w.model, w.started_at, w.id
            """
        )
    ).all()
    return [WorkerRow(*row) for row in rows]


def read_silence(session: Session) -> Mapping[str, float]:
    """For how many seconds our processes have said nothing to this database, by their kind.

    One that is up asks it something every few seconds, whereas one that hangs keeps its connections and says
    nothing. Of processes under another database role Postgres does not tell when: they count as just heard.
    """
    rows = session.execute(
        text(
            """
            SELECT substr(application_name, 8) AS kind,
                   CAST(min(coalesce(extract(epoch FROM now() - state_change), 0)) AS float8) AS silent_s
            FROM pg_stat_activity
            WHERE datname = current_database() AND application_name LIKE 'vqueue-%' GROUP BY 1
            """
        )
    ).all()
    return {row.kind: row.silent_s for row in rows}
