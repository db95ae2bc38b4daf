"""Removes what is old enough, or was deleted by its owner: files, batches with all their rows, images."""

import time
from collections.abc import Callable
from threading import Event

import structlog

from app import removal, telemetry
from app.config import Settings
from app.db import Sessions, transaction
from app.store import answer_cache, audit, events, repeats, sweeps
from app.store import retention as store
from app.troubled import Troubled

log = structlog.get_logger()

# Rows of one transaction: nobody waits long for one of them, and a process that dies loses little.
BLOCK_ROWS = 5_000
BLOCK_BATCHES = 100


class Retention:
    """Several may run at once: each takes rows that no other one holds.

    A process that dies in the middle leaves whole blocks behind, and a batch that is gone for its owner; the
    next one goes on there. `stopping` ends a step after the block in hand.
    """

    def __init__(
        self,
        *,
        sessions: Sessions,
        settings: Settings,
        stopping: Event | None = None,
        block_rows: int = BLOCK_ROWS,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._sessions = sessions
        self._batches_s = settings.retention_batches_s
        self._images_s = settings.retention_images_s
        self._events_s = settings.retention_events_s
        self._audit_s = settings.retention_audit_s
        self._sweep_runs_s = settings.retention_sweep_runs_s
        self._stopping = stopping or Event()
        self._block_rows = block_rows
        self._troubled = Troubled("retention", clock=clock)

    def step(self) -> bool:
        """A block of each kind, and one deleted batch as a whole; False when there was nothing to remove."""
        kinds = (
            self._files,
            self._old_batches,
            self._jobs,
            self._images,
            self._keys,
            self._events,
            self._audit,
            self._answers,
            self._sweep_runs,
            self._deleted_batch,
        )
        return any(list(map(self._spared, kinds)))  # each of them, also behind one that found something

    def _spared(self, kind: Callable[[], int]) -> int:
        """What the kind removes; nothing while it rests from a fault, which keeps the others from nothing."""
        removed = 0
        if kind.__name__ not in self._troubled.ids:
            with self._troubled.sparing(kind.__name__):
                removed = kind()
        return removed

    def _files(self) -> int:
        with transaction(self._sessions) as session:
            return _counted("files", removal.remove_expired_files(session, limit=self._block_rows))

    def _old_batches(self) -> int:
        if not self._batches_s:
            return 0
        with transaction(self._sessions) as session:
            marked = removal.remove_old_batches(session, ended_before_s=self._batches_s, limit=BLOCK_BATCHES)
        for batch_id in marked:
            log.info("batch_outlived", batch=batch_id)
        return len(marked)

    def _jobs(self) -> int:
        if not self._batches_s:
            return 0
        with transaction(self._sessions) as session:
            gone = store.delete_old_jobs(session, ended_before_s=self._batches_s, limit=self._block_rows)
        return _counted("jobs", gone)

    def _images(self) -> int:
        if not self._images_s:
            return 0
        with transaction(self._sessions) as session:
            gone = removal.remove_old_images(session, unused_for_s=self._images_s, limit=self._block_rows)
        return _counted("images", gone)

    def _keys(self) -> int:
        """Idempotency keys that count no more."""
        with transaction(self._sessions) as session:
            return repeats.forget_old(session, limit=self._block_rows)

    def _events(self) -> int:
        if not self._events_s:
            return 0
        with transaction(self._sessions) as session:
            gone = events.delete_old(session, older_than_s=self._events_s, limit=self._block_rows)
        return _counted("webhook_events", gone)

    def _audit(self) -> int:
        if not self._audit_s:
            return 0
        with transaction(self._sessions) as session:
            gone = audit.delete_old(session, older_than_s=self._audit_s, limit=self._block_rows)
        return _counted("audit_log", gone)

    def _answers(self) -> int:
        """Kept answers that are past their time."""
        with transaction(self._sessions) as session:
            gone = answer_cache.delete_expired(session, limit=self._block_rows)
        return _counted("answer_cache", gone)

    def _sweep_runs(self) -> int:
        """Runs of sweeps with their changes."""
        if not self._sweep_runs_s:
            return 0
        with transaction(self._sessions) as session:
            gone = sweeps.delete_old_runs(session, ended_before_s=self._sweep_runs_s, limit=self._block_rows)
        return _counted("sweep_runs", gone)

    def _deleted_batch(self) -> int:
        """Remove the rows of a batch that is gone for its owner, block by block, the batch itself last."""
        with transaction(self._sessions) as session:
            batch_id = store.lock_deleted(session, without=self._troubled.ids)
        if batch_id is not None:
            with self._troubled.sparing(batch_id):
                self._remove(batch_id)
        return batch_id is not None

    def _remove(self, batch_id: str) -> None:
        line: int | None = 0
        while line is not None and not self._stopping.is_set():
            line = self._remove_block(batch_id, line)

    def _remove_block(self, batch_id: str, line: int) -> int | None:
        """The line to go on behind, not over all the dead rows again; None where nothing is left for us."""
        with transaction(self._sessions) as session:
            if store.lock_deleted(session, only=batch_id) is None:
                return None
            block = store.delete_jobs(session, batch_id, after_line=line, limit=self._block_rows)
            results = store.delete_results(session, batch_id, limit=self._block_rows)
            ended = max(block.jobs, results) < self._block_rows
            if ended:
                store.delete_batch(session, batch_id)
        _counted("jobs", block.jobs)
        if not ended:
            return max(line, block.last_line)
        _counted("batches", 1)
        log.info("batch_removed", batch=batch_id)
        return None


def _counted(table: str, rows: int) -> int:
    telemetry.ROWS_DELETED.labels(table).inc(rows)
    return rows
