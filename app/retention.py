"""Removes what is old enough, or was deleted by its owner: files, batches with all their rows, images."""

from dataclasses import dataclass
from threading import Event

import structlog

from app import removal, telemetry
from app.config import Settings
from app.db import Sessions, transaction
from app.store import retention as store

log = structlog.get_logger()

# Rows of one transaction: nobody waits long for one of them, and a process that dies loses little.
BLOCK_ROWS = 5_000
BLOCK_BATCHES = 100


@dataclass(frozen=True)
class Progress:
    """How far a deleted batch is removed."""

    batch_id: str
    line: int
    ended: bool


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
    ) -> None:
        self._sessions = sessions
        self._batches_s = settings.retention_batches_s
        self._images_s = settings.retention_images_s
        self._stopping = stopping or Event()
        self._block_rows = block_rows

    def step(self) -> bool:
        """A block of each kind, and one deleted batch as a whole; False when there was nothing to remove."""
        removed = [self._files(), self._old_batches(), self._jobs(), self._images(), self._deleted_batch()]
        return any(removed)

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

    def _deleted_batch(self) -> bool:
        """Remove the rows of a batch that is gone for its owner, block by block, the batch itself last."""
        done: Progress | None = None
        while not self._stopping.is_set():
            done = self._remove_block(done)
            if done is None or done.ended:
                break
        return done is not None

    def _remove_block(self, done: Progress | None) -> Progress | None:
        with transaction(self._sessions) as session:
            batch_id = store.lock_deleted(session)
            if batch_id is None:
                return None
            # From there on, not over all the dead rows again. Another dispatcher may have taken our batch.
            line = done.line if done and done.batch_id == batch_id else 0
            block = store.delete_jobs(session, batch_id, after_line=line, limit=self._block_rows)
            results = store.delete_results(session, batch_id, limit=self._block_rows)
            ended = max(block.jobs, results) < self._block_rows
            if ended:
                store.delete_batch(session, batch_id)
        _counted("jobs", block.jobs)
        if ended:
            _counted("batches", 1)
            log.info("batch_removed", batch=batch_id)
        return Progress(batch_id, max(line, block.last_line), ended)


def _counted(table: str, rows: int) -> int:
    telemetry.ROWS_DELETED.labels(table).inc(rows)
    return rows
