"""Batches: submitted once however often they are sent, read, listed, cancelled."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import structlog
from sqlalchemy.orm import Session

from app import tracing
from app.actor import actor
from app.answer_keys import CacheMode
from app.config import Settings
from app.db import Sessions, transaction
from app.errors import Conflict, NotFound, RequestError
from app.files import BATCH
from app.ids import new_batch_id
from app.limits import Limits
from app.pages import Page, page_of
from app.removal import remove_batch
from app.repeats import hash_request, key_reused
from app.states import BatchStatus, Priority
from app.store import audit
from app.store import batches as store
from app.store.batches import BatchRow, NewBatch
from app.store.files import read_file
from app.tables.checks import TableChecks, check_format, table_checks
from app.tables.places import is_place, read_place
from app.warm import WARM

# The stock SDK retries twice, each after at most 600 s of waiting for an answer and 120 s of pause.
REPEATED_WITHIN_S = 30 * 60

log = structlog.get_logger()

Along = Callable[[Session, str], None]


@dataclass(frozen=True)
class Brake:
    """Stop a batch of which this share has failed, looked at once so many have ended; no share, no brake."""

    share: float | None
    after: int | None


# A strict batch stops at its first failure; no share is so small that it would be reached otherwise.
FIRST_FAILURE = Brake(share=1e-9, after=1)


@dataclass(frozen=True)
class Wish:
    """What a client asks for. `window_s` is its `completion_window` in seconds."""

    input_file_id: str
    endpoint: str
    completion_window: str
    window_s: int
    metadata: Mapping[str, str] | None
    output_expires_after_s: int | None
    priority: Priority = Priority.STANDARD
    brake: Brake | None = None  # None is the service's own
    dry_run: bool = False
    strict: bool = False
    table: Mapping[str, Any] | None = None  # as app.tables.spec reads it; None for a file of lines
    cache: CacheMode | None = None  # None is the service's own
    cascade: Mapping[str, Any] | None = None  # as app.cascade reads it
    near_distance: int | None = None  # bits in which a picture may differ whose answer stands in


class Batches:
    def __init__(
        self,
        *,
        sessions: Sessions,
        limits: Limits,
        brake: Brake,
        tables: TableChecks,
        cache: CacheMode,
        models: Mapping[str, str],
    ) -> None:
        self._sessions = sessions
        self._limits = limits
        self._brake = brake
        self._tables = tables
        self._cache = cache
        self._models = models

    def submit(
        self,
        tenant_id: str,
        wish: Wish,
        *,
        idempotency_key: str | None = None,
        is_retry: bool = False,
        along: Along | None = None,
    ) -> BatchRow:
        """A new batch, or the one that the same request made before.

        A request is the same if it carries the same idempotency key; or, without one, if it is a client's
        retry and says the same as a batch made lately. `along` is given the batch's id in its transaction:
        what that writes is committed with the batch, and what it raises leaves none.
        """
        request_hash = hash_wish(wish)
        refusal = self._limits.disk_refusal() if wish.dry_run else self._limits.refusal()
        with tracing.begin("create batch") as step, transaction(self._sessions) as session:
            # The first try may still be in the middle of its transaction.
            store.lock_submission(session, tenant_id, idempotency_key or request_hash)
            earlier = submitted_before(session, tenant_id, request_hash, idempotency_key, is_retry=is_retry)
            if earlier is None and refusal is not None:
                raise refusal
            batch = earlier or self._add(session, tenant_id, wish, request_hash, idempotency_key)
            if along is not None:
                along(session, batch.id)
            step.note(batch=batch.id)
        if earlier is None:
            log.info("batch_submitted", batch=batch.id)
        return batch

    def read(self, tenant_id: str, batch_id: str) -> BatchRow:
        """A batch of this tenant; `NotFound` for any other."""
        with transaction(self._sessions) as session:
            return found(store.read_batch(session, tenant_id, batch_id), batch_id)

    def list(self, tenant_id: str, *, limit: int, after: str | None = None) -> Page[BatchRow]:
        with transaction(self._sessions) as session:
            cursor = found(store.read_batch(session, tenant_id, after), after) if after else None
            rows = store.list_batches(session, tenant_id, limit=limit + 1, after=cursor)
        return page_of(rows, limit)

    def cancel(self, tenant_id: str, batch_id: str) -> BatchRow:
        """Start to cancel; harmless while that is under way. `Conflict` for a batch that ended otherwise."""
        with transaction(self._sessions) as session:
            cancelled = start_to_cancel(session, tenant_id, batch_id)
            batch = cancelled or found(store.read_batch(session, tenant_id, batch_id), batch_id)
        if batch.status is not BatchStatus.CANCELLING:
            is_rejected = batch.status is BatchStatus.VALIDATING
            why = "its file did not pass" if is_rejected else f"its status is {batch.status.value}"
            raise Conflict(
                f"Batch {batch_id} cannot be cancelled: {why}.",
                param="batch_id",
                code="batch_not_cancellable",
            )
        if cancelled:
            log.info("batch_cancelling", batch=batch_id)
        return batch

    def delete(self, tenant_id: str, batch_id: str) -> None:
        """Let an ended batch be gone, its output and error files with it; `Conflict` for one that runs.

        The dispatcher removes its rows.
        """
        with transaction(self._sessions) as session:
            if not remove_batch(session, tenant_id, batch_id):
                batch = found(store.read_batch(session, tenant_id, batch_id), batch_id)
                raise Conflict(
                    f"Batch {batch_id} cannot be deleted: its status is {batch.status.value}.",
                    param="batch_id",
                    code="batch_not_deletable",
                )
            audit.note(session, actor(), "batch.deleted", batch_id, tenant_id=tenant_id)
        log.info("batch_deleted", batch=batch_id)

    def _add(
        self, session: Session, tenant_id: str, wish: Wish, request_hash: str, idempotency_key: str | None
    ) -> BatchRow:
        if not wish.dry_run:
            self._limits.check_jobs(session, tenant_id)
        batch = self._insert(session, tenant_id, wish, request_hash, idempotency_key)
        details = {"input_file_id": wish.input_file_id} | ({"dry_run": True} if wish.dry_run else {})
        audit.note(session, actor(), "batch.created", batch.id, details, tenant_id=tenant_id)
        return batch

    def _insert(
        self, session: Session, tenant_id: str, wish: Wish, request_hash: str, idempotency_key: str | None
    ) -> BatchRow:
        if is_place(wish.input_file_id):
            self._tables.check_place(read_place(wish.input_file_id), wish.table)
        else:
            _check_input(session, tenant_id, wish)
        table = self._tables.settled(wish.table) if wish.table is not None else None
        brake = chosen_brake(FIRST_FAILURE if wish.strict and not wish.brake else wish.brake, self._brake)
        new = NewBatch(
            id=new_batch_id(),
            tenant_id=tenant_id,
            key_id=actor().key_id,
            endpoint=wish.endpoint,
            input_file_id=wish.input_file_id,
            completion_window=wish.completion_window,
            window_s=wish.window_s,
            metadata=json.dumps(wish.metadata) if wish.metadata else None,
            output_expires_after_s=wish.output_expires_after_s,
            priority=wish.priority,
            brake_share=brake.share,
            brake_after=brake.after,
            request_hash=request_hash,
            idempotency_key=idempotency_key,
            is_dry_run=wish.dry_run,
            is_strict=wish.strict,
            input_table=json.dumps(table) if table is not None else None,
            cache=chosen_cache(wish, self._cache),
            cascade=json.dumps(self.check_cascade(wish.cascade)) if wish.cascade is not None else None,
            near_distance=wish.near_distance,
            trace=tracing.context(),
        )
        return store.insert_batch(session, new)

    def check_cascade(self, cascade: Mapping[str, Any], *, within: str = "") -> Mapping[str, Any]:
        """With the model behind the name that a client gives it; RequestError for one that is not served."""
        name = cascade["model"]
        if name not in self._models:
            raise RequestError(
                f"The model {name!r} is not served here; use {', '.join(self._models)}.",
                param=f"{within}cascade.model",
                code="model_not_found",
            )
        return {**cascade, "model": self._models[name]}


def start_to_cancel(session: Session, tenant_id: str, batch_id: str) -> BatchRow | None:
    """Cancel a batch that is open, in the caller's transaction; None for any other."""
    cancelled = store.cancel_batch(session, tenant_id, batch_id)
    if cancelled:
        audit.note(session, actor(), "batch.cancelled", batch_id, tenant_id=tenant_id)
    return cancelled


def submitted_before(
    session: Session, tenant_id: str, request_hash: str, idempotency_key: str | None, *, is_retry: bool
) -> BatchRow | None:
    """The batch that the same request has made. `Conflict` where its key has made another one."""
    if idempotency_key:
        earlier = store.find_by_key(session, tenant_id, idempotency_key)
    elif is_retry:
        earlier = store.find_repeated(session, tenant_id, request_hash, within_s=REPEATED_WITHIN_S)
    else:
        earlier = None
    if earlier is not None and earlier.request_hash != request_hash:
        raise key_reused()
    if earlier is not None:
        log.info("batch_repeated", batch=earlier.id)
    return earlier


def make_batches(sessions: Sessions, limits: Limits, settings: Settings) -> Batches:
    return Batches(
        sessions=sessions,
        limits=limits,
        brake=default_brake(settings),
        tables=table_checks(settings),
        cache=CacheMode(settings.answer_cache),
        models=settings.model_names,
    )


def default_brake(settings: Settings) -> Brake:
    return Brake(settings.brake_share or None, settings.brake_after)


def chosen_brake(wish: Brake | None, otherwise: Brake) -> Brake:
    """What a client asks for, the rest of it as it is otherwise."""
    if wish is None:
        return otherwise
    return Brake(wish.share or None, wish.after or otherwise.after)


def chosen_cache(wish: Wish, otherwise: CacheMode) -> CacheMode:
    """How a batch uses the answer cache; not at all where its jobs are to fill the caches before it."""
    if (wish.metadata or {}).get(WARM) == "on":
        return CacheMode.OFF
    # Answers of near duplicates are kept ones.
    return wish.cache or (otherwise if wish.near_distance is None else CacheMode.ON)


def hash_wish(wish: Wish) -> str:
    """Hex sha256 of everything a client asks for: two requests with one hash say the same."""
    said = {**vars(wish), "metadata": dict(wish.metadata or {}), "brake": wish.brake and vars(wish.brake)}
    # Left out where they say nothing: so were they before there were such things.
    if wish.priority is Priority.STANDARD:
        del said["priority"]
    for name in ("brake", "table", "dry_run", "strict", "cache", "cascade"):
        if not said[name]:
            del said[name]
    if wish.near_distance is None:
        del said["near_distance"]
    return hash_request(said)


def _check_input(session: Session, tenant_id: str, wish: Wish) -> None:
    file_id = wish.input_file_id
    file = read_file(session, tenant_id, file_id)
    if file is None:
        raise NotFound(f"No such File object: {file_id}", param="input_file_id", code="file_not_found")
    if file.purpose != BATCH:
        raise RequestError(
            f"The purpose of file {file_id} is '{file.purpose}'; a batch needs a file of purpose 'batch'.",
            param="input_file_id",
            code="invalid_purpose",
        )
    check_format(file.filename, wish.table)


def found(batch: BatchRow | None, batch_id: str) -> BatchRow:
    """The batch that was looked for; `NotFound` where there is none."""
    if batch is None:
        raise missing(batch_id)
    return batch


def missing(batch_id: str) -> NotFound:
    return NotFound(f"No batch found with id '{batch_id}'.", param="batch_id", code="batch_not_found")
