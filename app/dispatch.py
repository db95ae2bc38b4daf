"""The dispatcher's loop: take back what was lost, give known answers, fill the window on the broker."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Protocol

import structlog
from sqlalchemy.orm import Session

from app import telemetry, tracing
from app.answering import KnownAnswers, tell_given
from app.config import Settings
from app.db import Sessions, transaction
from app.known import Sorted
from app.planner import (
    Chunk,
    ChunkLimits,
    Demand,
    Queued,
    ReadyJob,
    interleave,
    line_up,
    open_lanes,
    plan_chunks,
    share,
)
from app.queue import queue_name
from app.reaper import Depths, Reaper
from app.store import images, plans, workers
from app.store.answer_cache import Given
from app.visual_tokens import MIN_PIXELS, visual_tokens

log = structlog.get_logger()


class Sender(Depths, Protocol):
    def send(self, chunks: Sequence[Chunk]) -> None: ...


class Dispatcher:
    """One step sends what fits into the window; now and then it reaps first.

    Several dispatchers may run: one sends at a time, and each locks the rows that it sends.
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
        self._limits = ChunkLimits(settings.chunk_jobs, settings.chunk_visual_tokens)
        self._answers = KnownAnswers(settings.shared_cache_tenants)
        self._reaper = Reaper(sessions=sessions, broker=sender, settings=settings, clock=clock)

    def step(self) -> bool:
        """Reap if it is time, then send; whether to come again at once.

        Not after a small helping: the window is nearly full then, and a look costs much the same for a few
        jobs as for many. Without the pause two chunks were sent at a time.
        """
        try:
            self._reaper.step()
            return 4 * self.send() >= self._settings.window_jobs
        except Exception:
            self._reaper.wait_for_heartbeats()
            raise

    def reap(self) -> None:
        self._reaper.reap()

    def send(self) -> int:
        """Publish ready jobs, as many as the window has room for; how many.

        The rows stay locked from reading to commit. A crash after the publish leaves them ready: they are
        sent again, and the second message claims nothing.
        """
        with telemetry.stage("dispatch"), transaction(self._sessions) as session:
            candidates = self._candidates(session)
            if not candidates:
                return 0
            rows = self._images(session, candidates)
            found = self._answers.sort_out(session, candidates, rows)
            chunks = plan_chunks(self._ready_jobs(found.asked, rows), self._limits)
            traces = {one.id: one.trace for one in candidates if one.trace}
            if chunks:
                self._publish(chunks, traces)
                plans.mark_queued(session, chunks, found.keys)
            # Last, as it locks batches: those that end their jobs would wait for the broker.
            given = self._answers.settle(session, found)
        for chunk in chunks:
            telemetry.CHUNKS_SENT.labels(queue_name(chunk.model, chunk.priority)).inc()
            telemetry.CHUNK_JOBS.observe(len(chunk.job_ids))
        tell_given(given, waiting=len(found.waiting))
        _trace_known(found, given, traces)
        if chunks:
            log.info("chunks_sent", chunks=len(chunks), jobs=len(found.asked))
        return len(candidates)

    def _publish(self, chunks: Sequence[Chunk], traces: Mapping[int, str]) -> None:
        asked = {job_id: traces[job_id] for chunk in chunks for job_id in chunk.job_ids if job_id in traces}
        with tracing.follow("publish chunk", asked, kind="producer") as step:
            self._sender.send(_with_traces(chunks, step.contexts))

    def _candidates(self, session: Session) -> list[plans.Candidate]:
        if not plans.take_turn(session):
            return []
        queued = plans.count_queued(session)
        lanes = open_lanes(self._models(session), self._settings.window_jobs, queued)
        if not lanes:
            return []
        saved = plans.lock_saved(session, lanes, limit=self._settings.window_jobs)
        queued = _with(queued, saved)
        demands = line_up(
            lanes,
            plans.read_open_batches(session),
            plans.read_direct(session),
            plans.read_weights(session),
        )
        first = {one.id: one for one in saved}
        granted = self._share(session, queued, demands)
        piles = plans.lock_ready(session, granted) if granted else []
        weights = (demand.weight for demand, _ in granted)
        further = interleave(list(zip(weights, piles, strict=True)), self._settings.chunk_jobs)
        return [*first.values(), *(one for one in further if one.id not in first)]

    def _models(self, session: Session) -> set[str]:
        """Those of the settings and of the workers: one may serve what the settings dropped."""
        return {
            *self._settings.served_models,
            *workers.count_live(session, within_s=self._settings.lease_s),
        }

    def _share(self, session: Session, queued: Queued, demands: list[Demand]) -> list[tuple[Demand, int]]:
        """The shares, with every demand counted as far as its share goes, and no further.

        What a first look leaves to others is all that a second one has to find, so that nobody is looked at
        three times.
        """
        window = self._settings.window_jobs
        while True:
            granted = share(window, queued, demands)
            unsure = [(demand, jobs) for demand, jobs in granted if demand.more and jobs > demand.ready]
            if not unsure:
                return granted
            looks = [(demand, window if demand.ready else jobs) for demand, jobs in unsure]
            counts = plans.count_ready(session, looks)
            seen = {
                id(demand): replace(demand, ready=ready, more=ready == cap)
                for (demand, cap), ready in zip(looks, counts, strict=True)
            }
            demands = [seen.get(id(demand), demand) for demand in demands]

    def _images(self, session: Session, candidates: Sequence[plans.Candidate]) -> dict[int, images.ImageRow]:
        wanted = {image_id for candidate in candidates for image_id in candidate.image_ids}
        return images.read_images(session, sorted(wanted))

    def _ready_jobs(
        self, candidates: Sequence[plans.Candidate], rows: Mapping[int, images.ImageRow]
    ) -> list[ReadyJob]:
        budgets = {
            model: self._settings.for_model(model).max_pixels
            for model in {candidate.lane.model for candidate in candidates}
        }
        return [_ready_job(candidate, rows, budgets[candidate.lane.model]) for candidate in candidates]


def _with_traces(chunks: Sequence[Chunk], traces: Mapping[int, str]) -> Sequence[Chunk]:
    """Each with those of its own jobs."""
    if not traces:
        return chunks
    return [
        replace(chunk, traces={job_id: traces[job_id] for job_id in chunk.job_ids if job_id in traces})
        for chunk in chunks
    ]


def _trace_known(found: Sorted, given: Given, traces: Mapping[int, str]) -> None:
    """In their traces: who was given an answer that is kept, and who waits for one."""
    waiting = {job_id for job_id, _ in found.waiting}
    for name, job_ids in (("give answer", given.job_ids), ("await answer", waiting)):
        with tracing.follow(name, {job_id: traces[job_id] for job_id in job_ids & traces.keys()}):
            pass


def _with(queued: Queued, saved: Sequence[plans.Candidate]) -> Queued:
    """What is queued once these are, too."""
    found = {lane: dict(tenants) for lane, tenants in queued.items()}
    for one in saved:
        tenants = found.setdefault(one.lane, {})
        tenants[one.tenant_id] = tenants.get(one.tenant_id, 0) + 1
    return found


def _ready_job(candidate: plans.Candidate, rows: Mapping[int, images.ImageRow], max_pixels: int) -> ReadyJob:
    """With the visual tokens of its images under the model's own pixel budget."""
    found = [rows[image_id] for image_id in candidate.image_ids if image_id in rows]
    tokens = {
        row.id: visual_tokens(row.width, row.height, min_pixels=MIN_PIXELS, max_pixels=max_pixels)
        for row in found
    }
    lane = candidate.lane
    return ReadyJob(candidate.id, lane.model, tokens, candidate.alone, lane.priority)
