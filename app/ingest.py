"""Fills batches: block after block of a file's lines becomes job rows, each block in one transaction."""

import time
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from threading import Event

import structlog
from sqlalchemy.orm import Session

from app import telemetry, tracing
from app.ahead import ahead
from app.blocks import (
    BLOCK_LINES,
    Block,
    Entry,
    job_rows,
    read_blocks,
)
from app.cascade import Cascade
from app.checking import Checker
from app.config import Settings
from app.copying import Copier
from app.db import Sessions, transaction
from app.errors import LineError
from app.inputs import MOST_ERRORS, Inputs, nothing_in, without_repeats
from app.limits import default_quota
from app.objects import ObjectStore
from app.placing import KeptImages, Placer, place_images
from app.store import checks, events, quotas, rejections
from app.store import ingest as store
from app.store.ingest import DuplicateLines, IngestTask, JobRow, LostBatch, Step
from app.store.quotas import QuotaUse
from app.tables.base import InputError

log = structlog.get_logger()

# After this long another batch gets its turn: ten lines need not wait for a million.
TURN_S = 5.0
DELETE_ROWS = 10_000


class Ingest:
    """Turns the files of validating batches into jobs, one turn of one batch per `step`.

    A process that dies in the middle leaves whole blocks behind; the next turn goes on after the last one.
    `stopping` ends a turn after the block in hand.
    """

    def __init__(
        self,
        *,
        sessions: Sessions,
        objects: ObjectStore,
        settings: Settings,
        stopping: Event | None = None,
        turn_s: float = TURN_S,
        block_lines: int = BLOCK_LINES,
    ) -> None:
        self._sessions = sessions
        self._settings = settings
        self._inputs = Inputs(sessions=sessions, objects=objects, settings=settings)
        self._placer = Placer(sessions=sessions, objects=objects, settings=settings)
        self._copier = Copier(
            sessions=sessions,
            models=settings.served_models,
            reuse_s=settings.fetch_reuse_s,
            lease_s=settings.lease_s,
            block_jobs=block_lines,
        )
        self._checker = Checker(
            sessions=sessions, inputs=self._inputs, settings=settings, block_lines=block_lines
        )
        self._stopping = stopping or Event()
        self._turn_s = turn_s
        self._block_lines = block_lines

    def step(self) -> bool:
        """Give one batch its turn; False when none waits. Raises what the servers we stand on raise."""
        with transaction(self._sessions) as session:
            task = store.take_batch(session, lease_s=self._settings.lease_s)
        if task is None:
            return False
        try:
            with telemetry.stage("ingest"):
                self._turn(task)
        except LostBatch:
            log.info("ingest_lost", batch=task.id)
        return True

    def close(self) -> None:
        self._placer.close()

    def _turn(self, task: IngestTask) -> None:
        if task.is_rejected:
            self._reject_on(task)
            return
        if task.retry_of is not None:
            self._copy(task)
            return
        if task.is_dry_run:
            self._dry_run(task)
            return
        task = self._with_quota(task)
        with closing(self._inputs.entries(task)) as entries:
            self._read(task, entries)

    def _with_quota(self, task: IngestTask) -> IngestTask:
        """What the tenant has besides this batch is counted once per turn: it may come to a little more."""
        with transaction(self._sessions) as session:
            quota = quotas.read_quota(session, task.tenant_id, default_quota(self._settings))
            if not quota.queued_jobs:
                return task
            others = quotas.count_open_jobs(session, task.tenant_id, without_batch=task.id)
        return replace(task, quota=QuotaUse(others, quota.queued_jobs))

    def _dry_run(self, task: IngestTask) -> None:
        if task.is_closed:
            self._stop(task)
            return
        until = time.monotonic() + self._turn_s
        try:
            self._checker.turn(task, is_over=lambda: self._is_over(until))
        except InputError as error:
            with transaction(self._sessions) as session:
                here = store.find_place(session, task.id)
            self._reject(replace(task, bytes=here), error.errors)

    def _copy(self, task: IngestTask) -> None:
        """Add block after block of the old batch's jobs, until they or the turn end."""
        until = time.monotonic() + self._turn_s
        while (added := self._copier.add(task)) is not None:
            task = added
            if self._is_over(until):
                self._pause(task)
                return
        self._finish(task)

    def _read(self, task: IngestTask, entries: Iterator[Entry]) -> None:
        """Add block after block, until the file or the turn ends or the file does not pass."""
        until = time.monotonic() + self._turn_s
        with closing(ahead(read_blocks(entries, most_lines=self._block_lines))) as blocks:
            try:
                for block in blocks:
                    task = self._pass(task, block)
                    if self._is_over(until):
                        self._pause(task)
                        return
            except InputError as error:
                self._reject(task, error.errors)
                return
        self._finish(task)

    def _pass(self, task: IngestTask, block: Block) -> IngestTask:
        """Add a block whose ids are its own; InputError where it may not be."""
        if error := self._inputs.too_many(task, task.jobs + len(block.lines)):
            raise InputError(error)
        try:
            return self._add(task, block)
        except DuplicateLines:
            return self._add(task, self._without_duplicates(task, block))

    def _is_over(self, until: float) -> bool:
        return self._stopping.is_set() or time.monotonic() >= until

    def _add(self, task: IngestTask, block: Block) -> IngestTask:
        """Make a block's lines rows; the task as it stands after it."""
        with tracing.follow("ingest", task.trace, batch=task.id, jobs=len(block.lines)):
            step = self._write(task, block)
        return replace(
            task,
            bytes=task.bytes + step.bytes,
            lines=task.lines + step.lines,
            jobs=task.jobs + step.jobs,
            model=task.model or step.model,
        )

    def _write(self, task: IngestTask, block: Block) -> Step:
        kept = self._placer.keep(task.tenant_id, block.references())
        with transaction(self._sessions) as session:
            failed = self._insert(session, task, block, kept)
            step = Step(block.bytes, block.count, len(block.lines), failed, len(failed), block.model)
            if not store.advance(session, task, step, lease_s=self._settings.lease_s):
                raise LostBatch
        return step

    def _insert(self, session: Session, task: IngestTask, block: Block, kept: KeptImages) -> Sequence[JobRow]:
        """Copy a block's rows into the tables; those of them that are failed from the start."""
        images = place_images(
            session, task.tenant_id, block.references(), kept, reuse_s=self._settings.fetch_reuse_s
        )
        job_ids = store.draw_job_ids(session, len(block.lines))
        cascade = Cascade.of(task.cascade) if task.cascade else None
        rows = job_rows(block, job_ids, images, kept.unusable, task.cache, cascade)
        rows = tracing.with_traces(task.id, rows, is_first=not task.jobs)
        store.copy_jobs(session, task, rows)
        return [row for row in rows if row.error is not None]

    def _without_duplicates(self, task: IngestTask, block: Block) -> Block:
        """A table's block with the rows that repeat an id made bad ones; InputError for a file of lines.

        LostBatch when no ids clash, since then it is the block that is there already.
        """
        with transaction(self._sessions) as session:
            standing = rejections.find_lines(session, task.id, block.custom_ids())
        settled = without_repeats(task, block, standing)
        if settled is None:
            raise LostBatch
        return settled

    def _pause(self, task: IngestTask) -> None:
        with transaction(self._sessions) as session:
            store.pause_batch(session, task)
        log.info("ingest_paused", batch=task.id, lines=task.lines)

    def _finish(self, task: IngestTask) -> None:
        """The whole file is read: open the batch, unless nothing in it is a request."""
        if not task.jobs:
            self._reject(task, [nothing_in(task)])
            return
        if task.model is None or task.is_strict:
            with transaction(self._sessions) as session:
                errors = rejections.read_bad_lines(session, task.id, limit=MOST_ERRORS)
            if errors:
                self._reject(task, errors)
                return
        with transaction(self._sessions) as session:
            if not store.start_batch(session, task):
                raise LostBatch
        log.info("batch_ingested", batch=task.id, jobs=task.jobs, lines=task.lines)

    def _reject_on(self, task: IngestTask) -> None:
        """Somebody else rejected it, and died; or it was closed in the middle of that."""
        if task.is_closed:
            self._stop(task)
        else:
            self._delete_rows(task)

    def _stop(self, task: IngestTask) -> None:
        with transaction(self._sessions) as session:
            if not store.stop_reading(session, task):
                raise LostBatch
            checks.forget_seen(session, task.id)
        log.info("ingest_stopped", batch=task.id, lines=task.lines)

    def _reject(self, task: IngestTask, errors: Sequence[LineError]) -> None:
        with transaction(self._sessions) as session:
            rejected = rejections.reject_batch(session, task, errors)
        if not rejected:
            self._stop(task)
            return
        log.info("batch_rejected", batch=task.id, code=errors[0].code, errors=len(errors))
        self._delete_rows(task)

    def _delete_rows(self, task: IngestTask) -> None:
        """Remove what a rejected batch has left, in blocks, and end it."""
        deleted = DELETE_ROWS
        while deleted:
            with transaction(self._sessions) as session:
                deleted = rejections.delete_jobs(
                    session, task.id, limit=DELETE_ROWS, lease_s=self._settings.lease_s
                )
                if deleted is None:
                    raise LostBatch
        with transaction(self._sessions) as session:
            if rejections.fail_batch(session, task.id):
                checks.forget_seen(session, task.id)
                events.tell_end(session, task.id)
