"""Retries: a new batch of those jobs of an ended one that were not answered."""

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import structlog
from sqlalchemy.orm import Session

from app import tracing
from app.actor import actor
from app.batches import Brake, chosen_brake, missing, submitted_before
from app.db import Sessions, transaction
from app.errors import Conflict, RequestError
from app.ids import new_batch_id
from app.limits import Limits
from app.repeats import hash_request
from app.states import ENDED_BATCH, ENDED_JOB, BatchStatus, JobState, Priority
from app.store import audit
from app.store.batches import BatchRow, NewBatch, insert_batch, lock_submission
from app.store.failures import FailedBatch
from app.store.retries import EndedBatch, lock_batch

log = structlog.get_logger()

# What became of the jobs that a batch with this status left unrun.
UNRUN = {
    BatchStatus.CANCELLED: JobState.CANCELLED,
    BatchStatus.EXPIRED: JobState.EXPIRED,
    BatchStatus.FAILED: JobState.FAILED,
}


@dataclass(frozen=True)
class RetryWish:
    """Which jobs to try again, and what is to be different; None is as it was in the old batch."""

    states: Sequence[JobState] = (JobState.FAILED,)
    completion_window: str | None = None
    window_s: int | None = None
    metadata: Mapping[str, str] | None = None
    output_expires_after_s: int | None = None
    priority: Priority | None = None
    brake: Brake | None = None


class Retries:
    """The copying is left to ingest: the new batch is `validating` until all of its jobs are there."""

    def __init__(self, *, sessions: Sessions, limits: Limits, brake: Brake) -> None:
        self._sessions = sessions
        self._limits = limits
        self._brake = brake

    def submit(
        self,
        tenant_id: str,
        batch_id: str,
        wish: RetryWish,
        *,
        idempotency_key: str | None = None,
        is_retry: bool = False,
    ) -> BatchRow:
        """A new batch, or the one that the same request made before; sameness as with new batches.

        `Conflict` for a batch that still runs, RequestError for one of which nothing is to be retried.
        """
        request_hash = hash_retry(batch_id, wish)
        refusal = self._limits.refusal()
        with tracing.begin("create batch", retry_of=batch_id) as step, transaction(self._sessions) as session:
            lock_submission(session, tenant_id, idempotency_key or request_hash)
            earlier = submitted_before(session, tenant_id, request_hash, idempotency_key, is_retry=is_retry)
            if earlier is not None:
                return earlier
            if refusal is not None:
                raise refusal
            new = self._check(session, tenant_id, batch_id, wish, request_hash, idempotency_key)
            batch = insert_batch(session, new)
            details = {"retry_of": batch_id}
            audit.note(session, actor(), "batch.retried", batch.id, details, tenant_id=tenant_id)
            step.note(batch=batch.id)
        log.info("batch_retried", batch=batch.id, retry_of=batch_id)
        return batch

    def _check(
        self,
        session: Session,
        tenant_id: str,
        batch_id: str,
        wish: RetryWish,
        request_hash: str,
        idempotency_key: str | None,
    ) -> NewBatch:
        old = lock_batch(session, tenant_id, batch_id)
        if old is None:
            raise missing(batch_id)
        if old.status not in ENDED_BATCH:
            raise Conflict(
                f"Batch {batch_id} cannot be retried yet: its status is {old.status.value}.",
                param="batch_id",
                code="batch_not_ended",
            )
        jobs = count_retryable(old, wish.states)
        if jobs <= 0:
            raise RequestError(why_nothing(old, wish.states), param="states", code="nothing_to_retry")
        self._limits.check_jobs(session, tenant_id, jobs=jobs)
        brake = chosen_brake(wish.brake, Brake(old.brake_share, old.brake_after or self._brake.after))
        return _new_batch(tenant_id, old, wish, brake, request_hash, idempotency_key)


def hash_retry(batch_id: str, wish: RetryWish) -> str:
    """Hex sha256 of everything a client asks for: two requests with one hash say the same."""
    brake = vars(wish.brake) if wish.brake else None
    said = {**vars(wish), "states": sorted(wish.states), "brake": brake, "retry_of": batch_id}
    return hash_request(said)


def count_retryable(old: EndedBatch | FailedBatch, states: Collection[JobState] = ENDED_JOB) -> int:
    """Jobs of an ended batch in these states, without the lines that are no request."""
    return sum(count for state, count in _unanswered(old) if state in states)


def why_nothing(old: EndedBatch, states: Sequence[JobState]) -> str:
    """What to tell who wants to retry nothing: that, and what else is there."""
    others = [
        f"{count:,} {state.value}" for state, count in _unanswered(old) if count and state not in states
    ]
    hints = [
        *([f"Lines that are no requests ({old.bad_lines:,}) would fail again."] if old.bad_lines else []),
        *([f"There are {' and '.join(others)} ones: name them in 'states'."] if others else []),
    ]
    return " ".join([f"Batch {old.id} has no {' or '.join(states)} jobs that could be retried.", *hints])


def _unanswered(old: EndedBatch | FailedBatch) -> list[tuple[JobState, int]]:
    """Jobs that ran and failed, and those that never ran, which have no errors of their own."""
    unrun = [(UNRUN[old.status], old.failed - old.explained)] if old.status in UNRUN else []
    return [(JobState.FAILED, old.explained - old.bad_lines), *unrun]


def _new_batch(
    tenant_id: str,
    old: EndedBatch,
    wish: RetryWish,
    brake: Brake,
    request_hash: str,
    idempotency_key: str | None,
) -> NewBatch:
    metadata = wish.metadata if wish.metadata is not None else old.metadata
    return NewBatch(
        id=new_batch_id(),
        tenant_id=tenant_id,
        key_id=actor().key_id,
        endpoint=old.endpoint,
        input_file_id=old.input_file_id,
        completion_window=wish.completion_window or old.completion_window,
        window_s=wish.window_s or old.window_s,
        metadata=json.dumps(dict(metadata)) if metadata else None,
        output_expires_after_s=wish.output_expires_after_s or old.output_expires_after_s,
        request_hash=request_hash,
        idempotency_key=idempotency_key,
        priority=wish.priority or old.priority,
        brake_share=brake.share,
        brake_after=brake.after,
        retry_of=old.id,
        retry_states=sorted(wish.states),
        input_table=json.dumps(old.input_table) if old.input_table is not None else None,
        cache=old.cache,
        cascade=json.dumps(old.cascade) if old.cascade is not None else None,
        near_distance=old.near_distance,
        trace=tracing.context(),
    )
