"""Turns rows into the bodies that clients see."""

import json
from collections.abc import Sequence
from datetime import datetime
from typing import Protocol, TypedDict

from app.errors import LineError
from app.ids import job_name
from app.pages import Page
from app.progress import ResultPage
from app.report import Report
from app.results import error_type, logprobs, may_pass, result_name, result_object
from app.schemas import (
    BatchError,
    BatchErrors,
    BatchExtras,
    BatchList,
    BatchObject,
    BatchUsage,
    CacheUse,
    CascadeUse,
    ErrorCount,
    ErrorList,
    FileList,
    FileObject,
    InputDetails,
    JobAnswer,
    JobError,
    JobObject,
    JobUsage,
    NearUse,
    OutputDetails,
    RequestCounts,
    TokenDetails,
)
from app.states import BatchStatus
from app.store import batches as batches_store
from app.store.batches import BatchRow
from app.store.files import FileRow
from app.store.jobs import JobView


class Named(Protocol):
    @property
    def id(self) -> str: ...


class Ends(TypedDict):
    first_id: str | None
    last_id: str | None


def ends(data: Sequence[Named]) -> Ends:
    """The first and the last id of a page, as every list has them."""
    return Ends(first_id=data[0].id if data else None, last_id=data[-1].id if data else None)


def file_object(file: FileRow) -> FileObject:
    return FileObject(
        id=file.id,
        bytes=file.bytes,
        created_at=unix(file.created_at),
        expires_at=unix_or_none(file.expires_at),
        filename=file.filename,
        purpose=file.purpose,
    )


def file_list(page: Page[FileRow]) -> FileList:
    data = [file_object(file) for file in page.rows]
    return FileList(data=data, **ends(data), has_more=page.has_more)


def batch_object(batch: BatchRow) -> BatchObject:
    return BatchObject(
        id=batch.id,
        endpoint=batch.endpoint,
        model=batch.model,
        errors=_errors(batch.errors) if batch.status is not BatchStatus.VALIDATING else None,
        input_file_id=batch.input_file_id,
        completion_window=batch.completion_window,
        status=batch.status,
        output_file_id=batch.output_file_id,
        error_file_id=batch.error_file_id,
        created_at=unix(batch.created_at),
        in_progress_at=unix_or_none(batch.in_progress_at),
        expires_at=unix(batch.expires_at),
        finalizing_at=unix_or_none(batch.finalizing_at),
        completed_at=unix_or_none(batch.completed_at),
        failed_at=unix_or_none(batch.failed_at),
        expired_at=unix_or_none(batch.expired_at),
        cancelling_at=unix_or_none(batch.cancelling_at),
        cancelled_at=unix_or_none(batch.cancelled_at),
        request_counts=_counts(batch),
        usage=_usage(batch),
        metadata=dict(batch.metadata) if batch.metadata else None,
        vqueue=_extras(batch),
    )


def job_object(job: JobView) -> JobObject:
    return JobObject(
        id=job_name(job.id),
        status=job.state,
        model=job.model,
        attempt=job.attempt,
        created_at=unix(job.created_at),
        started_at=unix_or_none(job.started_at),
        finished_at=unix_or_none(job.finished_at),
        answer=_answer(job),
        error=JobError(code=job.error_code, message=job.error_message or "") if job.error_code else None,
    )


def batch_list(page: Page[BatchRow]) -> BatchList:
    data = [batch_object(batch) for batch in page.rows]
    return BatchList(data=data, **ends(data), has_more=page.has_more)


def result_list(page: ResultPage) -> bytes:
    """A `ResultList`, written by the same hand as the files: each result has the bytes of its line."""
    results = page.results
    head = b",".join(result_object(one.job, one.seq, page.batch.endpoint) for one in results)
    tail = {
        "first_id": result_name(results[0].job.id) if results else None,
        "last_id": result_name(results[-1].job.id) if results else None,
        "last_seq": page.last_seq,
        "has_more": page.has_more,
        "ended": page.ended,
        "batch_status": page.batch.status,
    }
    return b'{"object":"list","data":[' + head + b"]," + json.dumps(tail).encode()[1:]


def error_list(counts: Sequence[batches_store.ErrorCount]) -> ErrorList:
    return ErrorList(data=[_error_count(one) for one in counts])


def unix(moment: datetime) -> int:
    return int(moment.timestamp())


def unix_or_none(moment: datetime | None) -> int | None:
    return None if moment is None else unix(moment)


def _errors(errors: Sequence[LineError]) -> BatchErrors | None:
    rows = [BatchError(code=e.code, message=e.message, param=e.param, line=e.line) for e in errors]
    return BatchErrors(data=rows) if rows else None


def _counts(batch: BatchRow) -> RequestCounts:
    """All 0 until the file is read: a share of a total that still grows would mislead."""
    if batch.ingested_at is None:
        return RequestCounts(total=0, completed=0, failed=0)
    return RequestCounts(total=batch.total, completed=batch.completed, failed=batch.failed)


def _extras(batch: BatchRow) -> BatchExtras:
    is_running = batch.status is BatchStatus.IN_PROGRESS
    counts = batch.errors_by_code if batch.ingested_at else ()
    return BatchExtras(
        priority=batch.priority,
        retry_of=batch.retry_of,
        dry_run=batch.is_dry_run,
        report=_report(batch),
        pace=batch.pace if is_running else None,
        estimated_completion_at=unix_or_none(batch.ends_at),
        errors_by_code=[_error_count(one) for one in counts],
        cache=CacheUse(
            mode=batch.cache,
            answered=batch.cached_answers,
            model_seconds_saved=round(batch.saved_model_s, 6),
        ),
        cascade=_cascade(batch),
        model_seconds=round(batch.model_s, 6),
        near_duplicates=_near(batch),
        waiting_for="image_quota" if batch.images_spent else None,
    )


def _cascade(batch: BatchRow) -> CascadeUse | None:
    if batch.cascade is None:
        return None
    large_s = batch.model_s - batch.first_model_s
    asked = batch.completed - batch.cached_answers
    saved = large_s / batch.escalated_answered * asked - batch.model_s if batch.escalated_answered else None
    return CascadeUse(
        model=batch.cascade["model"],
        threshold=batch.cascade["threshold"],
        escalated=batch.escalated,
        agreed=batch.agreed,
        model_seconds=round(batch.first_model_s, 6),
        model_seconds_saved=None if saved is None else round(saved, 6),
    )


def _near(batch: BatchRow) -> NearUse | None:
    if batch.near_distance is None:
        return None
    return NearUse(distance=batch.near_distance, answered=batch.near_answers)


def _report(batch: BatchRow) -> Report | None:
    if not batch.is_dry_run or batch.status is not BatchStatus.COMPLETED or batch.report is None:
        return None
    return Report(**batch.report)


def _error_count(one: batches_store.ErrorCount) -> ErrorCount:
    return ErrorCount(
        code=one.code,
        count=one.jobs,
        line=one.line,
        message=one.message,
        type=error_type(one.code),
        retryable=may_pass(one.code),
    )


def _answer(job: JobView) -> JobAnswer | None:
    if job.answer is None:
        return None
    prompt, completion = job.prompt_tokens or 0, job.completion_tokens or 0
    usage = JobUsage(
        prompt_tokens=prompt,
        prompt_tokens_details=TokenDetails(cached_tokens=job.cached_tokens or 0),
        completion_tokens=completion,
        total_tokens=prompt + completion,
    )
    return JobAnswer(
        text=job.answer,
        finish_reason=job.finish_reason or "",
        usage=usage,
        revision=job.revision or "",
        logprobs=logprobs(job.logprobs),
        notes=list(job.notes or ()),
        reasoning=job.reasoning,
    )


def _usage(batch: BatchRow) -> BatchUsage:
    return BatchUsage(
        input_tokens=batch.prompt_tokens,
        input_tokens_details=InputDetails(cached_tokens=batch.cached_tokens),
        output_tokens=batch.completion_tokens,
        output_tokens_details=OutputDetails(),
        total_tokens=batch.prompt_tokens + batch.completion_tokens,
    )
