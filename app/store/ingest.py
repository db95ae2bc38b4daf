"""A batch's file on its way to job rows: taken under a lease, advanced block by block."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from io import StringIO
from typing import Any, Protocol

from psycopg2.errors import UniqueViolation
from sqlalchemy import text
from sqlalchemy.orm import Session

from app.answer_keys import CacheMode, cache_bits
from app.errors import LineError
from app.states import JobState, Priority
from app.store.journal import NOTE_ERRORS, NOTE_RESULTS
from app.store.quotas import QuotaUse

JOB_COLUMNS = (
    "id, tenant_id, batch_id, line, custom_id, model, state, prompt, params, image_ids, image_group, "
    "waiting_on, deadline, priority, error_code, error_message, error_param, finished_at, cache, "
    "question_hash, final_model, trace"
)
COPY_JOBS = f"COPY jobs ({JOB_COLUMNS}) FROM STDIN"
COPY_WAITS = "COPY job_waits (image_id, job_id) FROM STDIN"

# A batch that was closed before its last line was read is read on: its lines become jobs that never run.
UNREAD = "status IN ('validating', 'cancelling', 'finalizing') AND ingested_at IS NULL"
# A block counts only where the one before it ended, whoever holds the lease.
AT_THIS_BYTE = f"{UNREAD} AND errors IS NULL AND ingested_bytes = :from_byte"

_NULL = "\\N"
# The backslash first, since the others become one. str.translate took ten times as long.
_COPY_ESCAPES = (("\\", "\\\\"), ("\n", "\\n"), ("\r", "\\r"), ("\t", "\\t"))


@dataclass(frozen=True)
class IngestTask:
    """A batch to read, from byte `bytes` and line `lines` on. `jobs` rows are there by now.

    Of a table `bytes` counts rows. One that is a retry reads no file but another batch: there it counts that
    batch's lines.
    """

    id: str
    tenant_id: str
    endpoint: str
    model: str | None
    expires_at: datetime
    bytes: int
    lines: int
    jobs: int
    is_rejected: bool
    is_closed: bool  # cancelled or expired meanwhile
    is_dry_run: bool
    is_strict: bool  # one bad line refuses them all
    report: Mapping[str, Any] | None  # what a dry run has counted so far
    object_key: str | None  # None when the input file was deleted
    priority: Priority = Priority.STANDARD
    retry_of: str | None = None
    retry_states: Sequence[str] | None = None
    input_file_id: str = ""
    filename: str = ""
    table: Mapping[str, Any] | None = None  # as app.tables.spec reads it; None for a file of lines
    quota: QuotaUse | None = None  # the tenant's other jobs, where there is a limit
    cache: CacheMode = CacheMode.OFF
    cascade: Mapping[str, Any] | None = None  # as app.cascade reads it
    near_distance: int | None = None
    shadow: Mapping[str, Any] | None = None  # of a shadow batch: `model`, `other` and `share`
    trace: str | None = None


class EndedRow(Protocol):
    """A new job that is over before it begins, where it has an `error`."""

    @property
    def id(self) -> int: ...

    @property
    def line(self) -> int: ...

    @property
    def error(self) -> LineError | None: ...


@dataclass(frozen=True)
class JobRow:
    """A job of a batch; one with an `error` is over before it begins."""

    id: int
    line: int
    custom_id: str | None
    model: str
    prompt: str  # JSON, like params
    params: str
    image_ids: Sequence[int] = ()
    waiting_on: frozenset[int] = frozenset()
    error: LineError | None = None
    question_hash: bytes | None = None  # where the answer cache may be used
    final_model: str | None = None  # where `model` is the one that a cascade asks first
    trace: str | None = None


@dataclass(frozen=True)
class Step:
    """How far one block brings a batch."""

    bytes: int
    lines: int
    jobs: int
    failed: Sequence[EndedRow]  # over before they began
    bad_lines: int  # of these: no requests
    model: str | None  # of the first line that is a request


class LostBatch(Exception):
    """The batch was cancelled, has expired or was read on by somebody else: what we hold is void."""


class DuplicateLines(Exception):
    """Rows that are there already: a custom_id twice, or a block that somebody else has committed."""


def take_batch(session: Session, *, lease_s: float) -> IngestTask | None:
    """Take the batch that has waited longest for its next turn; other dispatchers skip it."""
    row = session.execute(
        text(
            f"""
            UPDATE batches b SET lease_until = now() + :lease * interval '1 second'
            WHERE b.id = (
                SELECT id FROM batches
                WHERE {UNREAD} AND (lease_until IS NULL OR lease_until <= now())
                ORDER BY coalesce(lease_until, created_at) LIMIT 1 FOR UPDATE SKIP LOCKED)
            RETURNING b.id, b.tenant_id, b.endpoint, b.model, b.expires_at, b.total AS jobs,
                      b.ingested_bytes AS bytes, b.ingested_lines AS lines,
                      b.errors IS NOT NULL AS is_rejected, b.status <> 'validating' AS is_closed,
                      b.is_dry_run, b.is_strict, b.report, b.cache, b.cascade, b.near_distance, b.trace,
                      b.priority, b.retry_of, b.retry_states, b.input_file_id, b.input_table AS "table",
                      (SELECT f.object_key FROM files f
                       WHERE f.id = b.input_file_id AND f.tenant_id = b.tenant_id) AS object_key,
                      (SELECT coalesce(max(f.filename), '') FROM files f
                       WHERE f.id = b.input_file_id AND f.tenant_id = b.tenant_id) AS filename,
                      (SELECT json_build_object('model', s.model, 'other', s.other, 'share', s.share)
                       FROM shadows s WHERE s.shadow_batch_id = b.id) AS shadow
            """  # noqa: S608 - a piece of our own
        ),
        {"lease": lease_s},
    ).mappings()
    found = row.one_or_none()
    if found is None:
        return None
    chosen = {"priority": Priority(found["priority"]), "cache": CacheMode(found["cache"])}
    return IngestTask(**{**found, **chosen})


def draw_job_ids(session: Session, count: int) -> Sequence[int]:
    """Ids for rows that are written by COPY, in rising order."""
    drawn = session.execute(
        text("SELECT array_agg(nextval('jobs_id_seq')) FROM generate_series(1, :count)"), {"count": count}
    )
    return drawn.scalar_one() or ()


def copy_jobs(session: Session, task: IngestTask, rows: Iterable[JobRow]) -> None:
    """Add the rows of a block, and what they wait for. Raises DuplicateLines."""
    jobs, waits = StringIO(), StringIO()
    shared = _Shared.of(task)
    for row in rows:
        jobs.write(_job_text(shared, row))
        waits.writelines(f"{image_id}\t{row.id}\n" for image_id in row.waiting_on)
    try:
        _copy(session, COPY_JOBS, jobs)
        _copy(session, COPY_WAITS, waits)
    except UniqueViolation as error:
        raise DuplicateLines(task.id) from error


def advance(session: Session, task: IngestTask, step: Step, *, lease_s: float) -> bool:
    """Note a block as read.

    False if the batch is not at this byte any more, or was rejected: then the caller must roll back. This
    is the fence.
    """
    row = session.execute(
        text(
            f"""
            WITH ended AS (
                SELECT CAST(:id AS text) AS batch_id, given.* FROM unnest(
                    CAST(:ids AS bigint[]), CAST(:numbers AS int[]), CAST(:codes AS text[]),
                    CAST(:messages AS text[])) AS given(id, line, error_code, error_message)),
            counts AS (SELECT batch_id, array_agg(id ORDER BY id) AS ids FROM ended GROUP BY batch_id),
            counted AS (
                UPDATE batches SET ingested_bytes = ingested_bytes + :bytes,
                    ingested_lines = ingested_lines + :lines, total = total + :jobs,
                    failed = failed + (SELECT count(*) FROM ended), bad_lines = bad_lines + :bad_lines,
                    image_failures = image_failures + (SELECT count(*) FROM ended) - :bad_lines,
                    model = coalesce(model, :model), lease_until = now() + :lease * interval '1 second'
                WHERE id = :id AND {AT_THIS_BYTE}
                RETURNING id, completed + failed AS seq),
            {NOTE_RESULTS},
            {NOTE_ERRORS}
            SELECT id FROM counted
            """  # noqa: S608 - pieces of our own
        ),
        {
            "id": task.id,
            "from_byte": task.bytes,
            "lease": lease_s,
            "bytes": step.bytes,
            "lines": step.lines,
            "jobs": step.jobs,
            "model": step.model,
            "bad_lines": step.bad_lines,
            "ids": [row.id for row in step.failed],
            "numbers": [row.line for row in step.failed],
            "codes": [row.error.code for row in step.failed if row.error],
            "messages": [row.error.message for row in step.failed if row.error],
        },
    )
    return row.one_or_none() is not None


def hold_batch(session: Session, task: IngestTask, *, lease_s: float) -> None:
    """Keep a batch from others for longer."""
    session.execute(
        text(
            f"""
            UPDATE batches SET lease_until = now() + :lease * interval '1 second'
            WHERE id = :id AND {UNREAD}
            """  # noqa: S608 - a piece of our own
        ),
        {"id": task.id, "lease": lease_s},
    )


def name_input(session: Session, task: IngestTask, file_id: str) -> bool:
    """Give a batch another input file, once and before anything is read; False where somebody else has."""
    row = session.execute(
        text(
            f"""
            UPDATE batches SET input_file_id = :file
            WHERE id = :id AND input_file_id = :place AND {AT_THIS_BYTE} RETURNING id
            """  # noqa: S608 - a piece of our own
        ),
        {"id": task.id, "file": file_id, "place": task.input_file_id, "from_byte": task.bytes},
    )
    return row.one_or_none() is not None


def find_place(session: Session, batch_id: str) -> int:
    """At which byte the reading of a batch stands."""
    return session.execute(
        text("SELECT ingested_bytes FROM batches WHERE id = :id"), {"id": batch_id}
    ).scalar_one()


def pause_batch(session: Session, task: IngestTask) -> None:
    """Give others their turn: the batch can be taken again, after those that have waited longer."""
    session.execute(
        text(f"UPDATE batches SET lease_until = now() WHERE id = :id AND {UNREAD}"),  # noqa: S608
        {"id": task.id},
    )


def start_batch(session: Session, task: IngestTask) -> bool:
    """The whole file is read: open the batch for its workers, unless it was closed meanwhile."""
    row = session.execute(
        text(
            f"""
            UPDATE batches SET ingested_at = now(), lease_until = NULL,
                status = CASE status WHEN 'validating' THEN 'in_progress' ELSE status END,
                in_progress_at = CASE status WHEN 'validating' THEN now() END,
                pace_at = now(), pace_ended = completed + failed
            WHERE id = :id AND {AT_THIS_BYTE} RETURNING id
            """  # noqa: S608 - a piece of our own
        ),
        {"id": task.id, "from_byte": task.bytes},
    )
    return row.one_or_none() is not None


def stop_reading(session: Session, task: IngestTask) -> bool:
    """Leave a closed batch with the lines that are there: what is wrong with its file makes no difference."""
    row = session.execute(
        text(
            """
            UPDATE batches SET ingested_at = now(), lease_until = NULL
            WHERE id = :id AND status IN ('cancelling', 'finalizing') AND ingested_at IS NULL RETURNING id
            """
        ),
        {"id": task.id},
    )
    return row.one_or_none() is not None


def _copy(session: Session, statement: str, rows: StringIO) -> None:
    if rows.tell():
        rows.seek(0)
        driver: Any = session.connection().connection  # psycopg2's own: SQLAlchemy knows no COPY
        with driver.cursor() as cursor:
            cursor.copy_expert(statement, rows)


@dataclass(frozen=True)
class _Shared:
    """What the rows of a batch have in common, in COPY's text format."""

    tenant_id: str
    batch_id: str
    deadline: str
    priority: str
    cache: str

    @classmethod
    def of(cls, task: IngestTask) -> "_Shared":
        cache = cache_bits(task.cache, task.near_distance)
        return cls(task.tenant_id, task.id, task.expires_at.isoformat(), task.priority, str(cache))


def _job_text(shared: _Shared, row: JobRow) -> str:
    """One row in COPY's text format."""
    error = row.error
    open_state = JobState.WAITING if row.waiting_on else JobState.READY
    values = (
        str(row.id),
        shared.tenant_id,
        shared.batch_id,
        str(row.line),
        _escaped(row.custom_id),
        _escaped(row.model),
        JobState.FAILED if error else open_state,
        _escaped(row.prompt),
        _escaped(row.params),
        f"{{{','.join(map(str, row.image_ids))}}}",
        str(row.image_ids[0] if row.image_ids else 0),
        str(len(row.waiting_on)),
        shared.deadline,
        shared.priority,
        _escaped(error.code if error else None),
        _escaped(error.message if error else None),
        _escaped(error.param if error else None),
        "now" if error else _NULL,
        shared.cache if row.question_hash else "0",
        f"\\\\x{row.question_hash.hex()}" if row.question_hash else _NULL,
        _escaped(row.final_model),
        row.trace or _NULL,
    )
    return "\t".join(values) + "\n"


def _escaped(value: str | None) -> str:
    if value is None:
        return _NULL
    for character, escape in _COPY_ESCAPES:
        value = value.replace(character, escape)
    return value
