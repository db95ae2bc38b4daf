"""Batches: submitted once, read, listed, cancelled."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from datetime import datetime
from typing import Any

from sqlalchemy import Result, RowMapping, text
from sqlalchemy.orm import Session

from app.answer_keys import CacheMode
from app.errors import LineError
from app.pace import completion_at
from app.states import ENDED_BATCH, BatchStatus, Priority
from app.store.paging import read_page

# How many codes a batch tells at every poll; the rest is asked for.
COMMONEST = 5
ERRORS_BY_CODE = f"""(
    SELECT coalesce(json_agg(known ORDER BY jobs DESC, code), '[]') FROM (
        SELECT code, jobs, line, message FROM batch_errors WHERE batch_id = batches.id
        ORDER BY jobs DESC, code LIMIT {COMMONEST}) AS known) AS errors_by_code"""  # noqa: S608 - a constant
# Whether its tenant has had all images of the day.
IMAGES_SPENT = """
    status = 'in_progress' AND EXISTS (
        SELECT FROM image_days d JOIN tenants t ON t.id = d.tenant_id
        WHERE d.tenant_id = batches.tenant_id AND d.day = (now() AT TIME ZONE 'UTC')::date
          AND d.fetched >= coalesce(nullif(t.quota_images_day, 0), d.allowed)
          AND t.quota_images_day IS DISTINCT FROM 0) AS images_spent"""
SEEN = f"{ERRORS_BY_CODE}, {IMAGES_SPENT}"
SELECT = f"SELECT *, {SEEN} FROM batches"  # noqa: S608 - as above


@dataclass(frozen=True)
class NewBatch:
    id: str
    tenant_id: str
    endpoint: str
    input_file_id: str
    completion_window: str
    window_s: int
    metadata: str | None  # JSON
    output_expires_after_s: int | None
    request_hash: str
    idempotency_key: str | None
    priority: Priority = Priority.STANDARD
    brake_share: float | None = None
    brake_after: int | None = None
    retry_of: str | None = None
    retry_states: Sequence[str] | None = None
    input_table: str | None = None  # JSON
    is_dry_run: bool = False
    is_strict: bool = False
    key_id: str | None = None
    cache: CacheMode = CacheMode.OFF
    cascade: str | None = None  # JSON
    near_distance: int | None = None
    trace: str | None = None


@dataclass(frozen=True)
class ErrorCount:
    """How many of a batch's jobs have failed with a code, and what the first one that was noted says."""

    code: str
    jobs: int
    line: int | None
    message: str


@dataclass(frozen=True)
class BatchRow:
    """A batch as its owner sees it."""

    id: str
    status: BatchStatus
    endpoint: str
    input_file_id: str
    input_table: Mapping[str, Any] | None
    is_dry_run: bool
    is_strict: bool
    report: Mapping[str, Any] | None
    completion_window: str
    metadata: Mapping[str, str] | None
    model: str | None
    priority: Priority
    retry_of: str | None
    errors: Sequence[LineError]
    errors_by_code: Sequence[ErrorCount]
    request_hash: str
    total: int
    completed: int
    failed: int
    prompt_tokens: int
    cached_tokens: int
    completion_tokens: int
    cache: CacheMode
    cached_answers: int
    model_s: float
    saved_model_s: float
    cascade: Mapping[str, Any] | None
    escalated: int
    escalated_answered: int
    agreed: int
    first_model_s: float
    near_distance: int | None
    near_answers: int
    images_spent: bool
    pace: float | None
    pace_at: datetime | None
    pace_ended: int | None
    output_file_id: str | None
    error_file_id: str | None
    created_at: datetime
    expires_at: datetime
    ingested_at: datetime | None
    in_progress_at: datetime | None
    finalizing_at: datetime | None
    completed_at: datetime | None
    failed_at: datetime | None
    expired_at: datetime | None
    cancelling_at: datetime | None
    cancelled_at: datetime | None

    @property
    def is_open(self) -> bool:
        return self.status not in ENDED_BATCH

    @property
    def ends_at(self) -> datetime | None:
        """When its last job will end, at the pace so far; None where that is not known."""
        if self.status is not BatchStatus.IN_PROGRESS:
            return None
        return completion_at(self.pace, measured_at=self.pace_at, left=self.total - (self.pace_ended or 0))


def lock_submission(session: Session, tenant_id: str, name: str) -> None:
    """Let one submission of this name in at a time, until the transaction ends."""
    session.execute(
        text("SELECT pg_advisory_xact_lock(hashtextextended(:name, 0))"), {"name": f"{tenant_id}\n{name}"}
    )


def insert_batch(session: Session, batch: NewBatch) -> BatchRow:
    row = session.execute(
        text(
            f"""
            INSERT INTO batches (id, tenant_id, key_id, status, endpoint, input_file_id, completion_window,
                                 metadata, output_expires_after_s, request_hash, idempotency_key, priority,
                                 brake_share, brake_after, retry_of, retry_states, input_table,
                                 is_dry_run, is_strict, cache, cascade,
                                 near_distance, trace, expires_at)
            VALUES (:id, :tenant_id, :key_id, 'validating', :endpoint, :input_file_id, :completion_window,
                    CAST(:metadata AS jsonb), :output_expires_after_s, :request_hash, :idempotency_key,
                    :priority, :brake_share, :brake_after, :retry_of, CAST(:retry_states AS text[]),
                    CAST(:input_table AS json), :is_dry_run, :is_strict, :cache,
                    CAST(:cascade AS json), :near_distance, :trace,
                    now() + :window_s * interval '1 second')
            RETURNING *, {SEEN}
            """  # noqa: S608 - a piece of our own
        ),
        vars(batch),
    )
    return _batch(row.mappings().one())


def read_batch(session: Session, tenant_id: str, batch_id: str) -> BatchRow | None:
    return _one(
        session.execute(
            text(f"{SELECT} WHERE id = :id AND tenant_id = :tenant AND deleted_at IS NULL"),
            {"id": batch_id, "tenant": tenant_id},
        )
    )


def find_by_key(session: Session, tenant_id: str, idempotency_key: str) -> BatchRow | None:
    return _one(
        session.execute(
            text(f"{SELECT} WHERE tenant_id = :tenant AND idempotency_key = :key"),
            {"tenant": tenant_id, "key": idempotency_key},
        )
    )


def find_repeated(session: Session, tenant_id: str, request_hash: str, *, within_s: int) -> BatchRow | None:
    """The newest batch that the same request without a key made lately."""
    return _one(
        session.execute(
            text(
                f"""
                {SELECT}
                WHERE tenant_id = :tenant AND created_at > now() - :within * interval '1 second'
                  AND request_hash = :hash AND idempotency_key IS NULL AND deleted_at IS NULL
                ORDER BY created_at DESC, id DESC LIMIT 1
                """
            ),
            {"tenant": tenant_id, "within": within_s, "hash": request_hash},
        )
    )


def list_batches(
    session: Session, tenant_id: str, *, limit: int, after: BatchRow | None
) -> Sequence[BatchRow]:
    """A page of a tenant's batches, newest first, from behind `after` on."""
    query = f"{SELECT} WHERE tenant_id = :tenant AND deleted_at IS NULL"
    rows = read_page(session, query, {"tenant": tenant_id}, limit=limit, after=after)
    return [_batch(row) for row in rows.mappings()]


def cancel_batch(session: Session, tenant_id: str, batch_id: str) -> BatchRow | None:
    """Start to cancel a batch that is being validated or in progress; None for any other.

    None too for one whose file did not pass: its rows are being removed, and it ends as failed by itself.
    """
    return _one(
        session.execute(
            text(
                f"""
                UPDATE batches SET status = 'cancelling', ending = 'cancelled', cancelling_at = now()
                WHERE id = :id AND tenant_id = :tenant AND status IN ('validating', 'in_progress')
                  AND errors IS NULL
                RETURNING *, {SEEN}
                """  # noqa: S608 - a piece of our own
            ),
            {"id": batch_id, "tenant": tenant_id},
        )
    )


def estimate_open_jobs(session: Session, *, cap: int) -> int:
    """Jobs that have not ended: those of batches by the batches' counts, direct ones counted up to `cap`."""
    return session.execute(
        text(
            """
            SELECT (SELECT coalesce(sum(greatest(total - completed - failed, 0)), 0)
                    FROM batches WHERE status IN ('validating', 'in_progress', 'finalizing', 'cancelling')
                        AND NOT is_dry_run)
                 + (SELECT count(*) FROM (
                        SELECT 1 FROM jobs
                        WHERE batch_id IS NULL AND state IN ('waiting', 'ready', 'queued')
                        LIMIT :cap) AS direct)
            """
        ),
        {"cap": cap},
    ).scalar_one()


def _one(result: Result[Any]) -> BatchRow | None:
    row = result.mappings().one_or_none()
    return _batch(row) if row else None


def _batch(row: RowMapping) -> BatchRow:
    values = {field.name: row[field.name] for field in fields(BatchRow)}
    return BatchRow(
        **{
            **values,
            "status": BatchStatus(row["status"]),
            "priority": Priority(row["priority"]),
            "cache": CacheMode(row["cache"]),
            "errors": tuple(LineError(**error) for error in row["errors"] or ()),
            "errors_by_code": tuple(ErrorCount(**error) for error in row["errors_by_code"]),
        }
    )
