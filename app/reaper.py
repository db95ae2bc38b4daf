"""Takes back what was lost: lapsed leases, messages that the broker or workers lost, jobs past due."""

import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from typing import Protocol

import structlog

from app import telemetry
from app.config import Settings
from app.db import Sessions, transaction
from app.planner import Lane
from app.queue import queue_name
from app.states import Priority
from app.store import answer_cache, images, lost, plans, workers

log = structlog.get_logger()

WORKER_FORGOTTEN_S = 86_400  # a row of a process that never said goodbye is of no more use after a day
REAPS_PER_HEARTBEAT = 4
FORSAKEN = 1_000  # answers that nobody is asked for any more, taken up at once


class Depths(Protocol):
    def depth(self, model: str, priority: Priority = Priority.STANDARD) -> int: ...
    def dead(self) -> int: ...


@dataclass
class _Taken:
    """Up to which moment of sending a queue's messages have been taken from it, as seen over time."""

    seen: deque[tuple[float, datetime]] = field(default_factory=deque)

    def note(self, now: float, moment: datetime | None) -> None:
        if moment is not None and (not self.seen or moment > self.seen[-1][1]):
            self.seen.append((now, moment))

    def before(self, then: float) -> datetime | None:
        """The moment as it was seen `then`, or last before that."""
        while len(self.seen) > 1 and self.seen[1][0] <= then:
            self.seen.popleft()
        return self.seen[0][1] if self.seen and self.seen[0][0] <= then else None


class Reaper:
    """A `step` is due several times in a heartbeat. Any number may run: each skips rows that others lock.

    A job that is queued is either on the broker, or in the hands of a worker that will claim it or has said
    that it waits for its turn. A queue keeps its order: what was sent before jobs that have run for
    `lost_after_s`, or before the queue was seen empty so long ago, has been taken from it, and if nobody
    has claimed it by then, nobody will.
    """

    def __init__(
        self,
        *,
        sessions: Sessions,
        broker: Depths,
        settings: Settings,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._sessions = sessions
        self._broker = broker
        self._settings = settings
        self._clock = clock
        self._taken: dict[Lane, _Taken] = {}
        self._due_at = 0.0
        _begin_counters()
        self.wait_for_heartbeats()

    def wait_for_heartbeats(self) -> None:
        """After an outage the workers must have time to renew their leases before we judge them."""
        self._due_at = self._clock() + 1.5 * self._settings.heartbeat_s

    def step(self) -> None:
        """Reap if it is time."""
        if self._clock() >= self._due_at:
            self.reap()
            self._due_at = self._clock() + self._settings.heartbeat_s / REAPS_PER_HEARTBEAT

    def reap(self) -> None:
        """Take back lapsed leases and lost messages, end direct jobs past their deadline, set the gauges."""
        with transaction(self._sessions) as session:
            lapsed = lost.take_back_lapsed(session, crash_attempts=self._settings.crash_attempts)
            expired = lost.expire_direct(session)
            unheld = lost.take_back_held(session)
            urgent = lost.take_back_urgent(session)
            workers.forget_silent(session, after_s=WORKER_FORGOTTEN_S)
            answer_cache.release_forsaken(session, limit=FORSAKEN)
        for job in lapsed:
            log.warning("lease_lapsed", job=job.id, attempt=job.attempt, worker=job.worker, ended=job.failed)
            telemetry.JOBS_RETURNED.labels("lapsed").inc(not job.failed)
            telemetry.JOBS_ENDED.labels("failed", "engine_crash").inc(job.failed)
        telemetry.JOBS_ENDED.labels("expired", "job_expired").inc(expired)
        _count("unheard", unheld)
        _count("urgent", urgent)
        self._set_gauges()
        self._take_back_unheard()  # last, as it asks the broker, which may be away

    def _take_back_unheard(self) -> None:
        with transaction(self._sessions) as session:
            queued = plans.count_queued(session)
            live = workers.count_live(session, within_s=self._settings.lease_s)
            running = lost.read_taken(session)
        models = {*self._settings.served_models, *live, *(lane.model for lane in queued)}
        for lane in (Lane(model, priority) for model in sorted(models) for priority in Priority):
            waiting = sum(queued.get(lane, {}).values())
            telemetry.QUEUED_JOBS.labels(lane.model, lane.priority).set(waiting)
            self._look_at(lane, running.get(lane))
        telemetry.DEAD_CHUNKS.set(self._broker.dead())
        telemetry.LOOKED_AT_SECONDS.labels("broker").set_to_current_time()

    def _look_at(self, lane: Lane, running: datetime | None) -> None:
        with transaction(self._sessions) as session:
            now = lost.read_time(session)
        depth = self._broker.depth(lane.model, lane.priority)
        telemetry.QUEUE_MESSAGES.labels(queue_name(lane.model, lane.priority)).set(depth)
        taken = self._taken.setdefault(lane, _Taken())
        # What is published after that moment is marked as sent later, too.
        taken.note(self._clock(), running if depth else now)
        before = taken.before(self._clock() - self._settings.lost_after_s)
        if before is None:
            return
        with transaction(self._sessions) as session:
            found = lost.take_back_sent(session, lane, before=before)
        _count("unheard", found)
        if found:
            log.warning("messages_lost", model=lane.model, priority=lane.priority, jobs=found)

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
        telemetry.LOOKED_AT_SECONDS.labels("database").set_to_current_time()


def _begin_counters() -> None:
    """What alarms are rung for: of a counter that comes with its first event Prometheus sees no increase."""
    telemetry.JOBS_RETURNED.labels("lapsed")
    telemetry.JOBS_ENDED.labels("failed", "engine_crash")
    for server in ("database", "broker"):
        telemetry.LOOKED_AT_SECONDS.labels(server)


def _count(reason: str, jobs: int) -> None:
    telemetry.JOBS_RETURNED.labels(reason).inc(jobs)
