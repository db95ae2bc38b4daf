"""The dispatcher's loop: take back what was lost, fill the window on the broker from ready jobs."""

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

import structlog
from sqlalchemy.orm import Session

from app import telemetry
from app.config import Settings
from app.db import Sessions, transaction
from app.planner import Chunk, ChunkLimits, ReadyJob, plan_chunks, share
from app.queue import queue_name
from app.states import Priority
from app.store import images, plans, workers
from app.visual_tokens import visual_tokens

log = structlog.get_logger()

# Qwen3-VL's own least area of an image. It sizes chunks only; the engine reads its checkpoint's.
MIN_PIXELS = 65_536
WORKER_FORGOTTEN_S = 86_400  # a row of a process that never said goodbye is of no more use after a day


class Sender(Protocol):
    def send(self, chunks: Sequence[Chunk]) -> None: ...

    def depth(self, model: str, priority: Priority = Priority.STANDARD) -> int: ...


class Dispatcher:
    """One step sends what fits into the window; the reaper's work is done once per heartbeat.

    Several dispatchers may run: each locks the rows that it sends, and the others skip them.
    """

    def __init__(
        self,
        *,
        sessions: Sessions,
        sender: Sender,
        settings: Settings,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._sessions = sessions
        self._sender = sender
        self._settings = settings
        self._clock = clock
        self._reap_at = clock() + settings.lease_s / 2
        self._batch_models: dict[str, frozenset[str]] = {}
        self._limits = ChunkLimits(settings.chunk_jobs, settings.chunk_visual_tokens)

    def step(self) -> bool:
        """Reap if it is time, then send; whether anything was sent."""
        try:
            if self._clock() >= self._reap_at:
                self.reap()
                self._reap_at = self._clock() + self._settings.heartbeat_s / 2
            return self.send() > 0
        except Exception:
            # After an outage the workers must have time to renew their leases before we judge them.
            self._reap_at = self._clock() + 2 * self._settings.heartbeat_s
            raise

    def send(self) -> int:
        """Publish ready jobs, as many as the window has room for; how many.

        The rows stay locked from reading to commit. A crash after the publish leaves them ready: they are
        sent again, and the second message claims nothing.
        """
        with telemetry.stage("dispatch"), transaction(self._sessions) as session:
            candidates = self._candidates(session)
            if not candidates:
                return 0
            chunks = plan_chunks(self._ready_jobs(session, candidates), self._limits)
            self._sender.send(chunks)
            plans.mark_queued(session, [candidate.id for candidate in candidates])
        for chunk in chunks:
            telemetry.CHUNKS_SENT.labels(queue_name(chunk.model, chunk.priority)).inc()
            telemetry.CHUNK_JOBS.observe(len(chunk.job_ids))
        log.info("chunks_sent", chunks=len(chunks), jobs=len(candidates))
        return len(candidates)

    def reap(self) -> None:
        """Take back lapsed leases and lost messages, end direct jobs past their deadline, set the gauges."""
        with transaction(self._sessions) as session:
            lapsed = plans.take_back_lapsed(session, crash_attempts=self._settings.crash_attempts)
            expired = plans.expire_direct(session)
            workers.forget_silent(session, after_s=WORKER_FORGOTTEN_S)
        for job in lapsed:
            log.warning("lease_lapsed", job=job.id, attempt=job.attempt, worker=job.worker, ended=job.failed)
            telemetry.JOBS_RETURNED.labels("lapsed").inc(not job.failed)
            telemetry.JOBS_ENDED.labels("failed", "engine_crash").inc(job.failed)
        telemetry.JOBS_ENDED.labels("expired", "job_expired").inc(expired)
        self._take_back_unheard()
        self._set_gauges()

    def _candidates(self, session: Session) -> list[plans.Candidate]:
        room = self._room(session)
        if not room:
            return []
        sources = plans.read_sources(session, room, self._open_batches(session))
        return [
            candidate
            for source, take in share(room, sources)
            for candidate in plans.lock_ready(session, source, limit=take)
        ]

    def _open_batches(self, session: Session) -> dict[str, frozenset[str]]:
        """The open batches with the models of their jobs, which are read once."""
        batch_ids = plans.read_open_batches(session)
        new = [batch_id for batch_id in batch_ids if batch_id not in self._batch_models]
        found = self._batch_models | (plans.read_models(session, new) if new else {})
        self._batch_models = {batch_id: found[batch_id] for batch_id in batch_ids if batch_id in found}
        return self._batch_models

    def _room(self, session: Session) -> dict[str, int]:
        """How many more jobs of each model may wait on the broker, models without room left out.

        The models are those of the settings and of the workers: one may serve what the settings dropped.
        """
        queued = plans.count_queued(session)
        live = workers.count_live(session, within_s=self._settings.lease_s)
        room = {
            model: self._settings.window_jobs - queued.get(model, 0)
            for model in sorted({*self._settings.served_models, *live})
        }
        return {model: left for model, left in room.items() if left > 0}

    def _ready_jobs(self, session: Session, candidates: Sequence[plans.Candidate]) -> list[ReadyJob]:
        wanted = {image_id for candidate in candidates for image_id in candidate.image_ids}
        rows = images.read_images(session, sorted(wanted))
        budgets = {
            model: self._settings.for_model(model).max_pixels
            for model in {candidate.model for candidate in candidates}
        }
        return [_ready_job(candidate, rows, budgets[candidate.model]) for candidate in candidates]

    def _take_back_unheard(self) -> None:
        with transaction(self._sessions) as session:
            models = plans.count_queued(session)
        for model in models:
            depths = {priority: self._sender.depth(model, priority) for priority in Priority}
            for priority, waiting in depths.items():
                telemetry.QUEUE_MESSAGES.labels(queue_name(model, priority)).set(waiting)
            depth = sum(depths.values())
            with transaction(self._sessions) as session:
                found = plans.take_back_unheard(
                    session, model, after_s=self._settings.resend_s, queue_is_empty=depth == 0
                )
            if found:
                telemetry.JOBS_RETURNED.labels("unheard").inc(found)
                log.warning("messages_lost", model=model, jobs=found)

    def _set_gauges(self) -> None:
        with transaction(self._sessions) as session:
            backlog = plans.count_backlog(session, cap=self._settings.backlog_max_jobs)
            batches = plans.count_batches(session)
            open_images = images.count_open(session)
            live = workers.count_live(session, within_s=self._settings.lease_s)
        telemetry.JOBS.labels("waiting_or_ready").set(backlog.waiting_or_ready)
        telemetry.JOBS.labels("queued").set(backlog.queued)
        telemetry.JOBS.labels("running").set(backlog.running)
        for model in self._settings.served_models:
            telemetry.MODEL_WORKERS.labels(model).set(live.get(model, 0))
        for status in ("validating", "in_progress", "finalizing", "cancelling"):
            telemetry.BATCHES.labels(status).set(batches.get(status, 0))
        for state in ("pending", "fetching"):
            telemetry.IMAGES.labels(state).set(open_images.get(state, 0))


def _ready_job(candidate: plans.Candidate, rows: Mapping[int, images.ImageRow], max_pixels: int) -> ReadyJob:
    """With the visual tokens of its images under the model's own pixel budget."""
    found = [rows[image_id] for image_id in candidate.image_ids if image_id in rows]
    tokens = {
        row.id: visual_tokens(row.width, row.height, min_pixels=MIN_PIXELS, max_pixels=max_pixels)
        for row in found
    }
    return ReadyJob(candidate.id, candidate.model, tokens, candidate.alone, candidate.priority)
