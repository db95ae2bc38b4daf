"""The worker's heartbeat: renews the leases of the jobs on board, and tells which were lost."""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from threading import Lock

import structlog

from app.config import Settings
from app.db import Sessions, transaction
from app.store import holds, jobs, workers
from app.store.jobs import Held
from workers.reports import Reports

log = structlog.get_logger()


class Leases:
    """Attempts that this process holds. `step` is one heartbeat; a loop calls it every `heartbeat_s`.

    They are kept by job and attempt: a process that was frozen past its lease may claim the same job again
    while it still works on the attempt that it lost.
    """

    def __init__(
        self,
        *,
        sessions: Sessions,
        worker: str,
        settings: Settings,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._sessions = sessions
        self._worker = worker
        self._lease_s = settings.lease_s
        self._reports = Reports(clock=clock)
        self._clock = clock
        self._lock = Lock()
        self._until: dict[Held, float] = {}
        self._waiting: set[int] = set()

    @contextmanager
    def holding(self, held: Sequence[Held]) -> Iterator[None]:
        """Keep these leases alive while the block runs; they were claimed just now."""
        until = self._clock() + self._lease_s
        with self._lock:
            self._until.update(dict.fromkeys(held, until))
        try:
            yield
        finally:
            with self._lock:
                for attempt in held:
                    self._until.pop(attempt, None)

    @contextmanager
    def waiting(self, job_ids: Sequence[int]) -> Iterator[None]:
        """Keep the leases of jobs that wait for their turn while the block runs."""
        with self._lock:
            self._waiting.update(job_ids)
        try:
            yield
        finally:
            with self._lock:
                self._waiting.difference_update(job_ids)

    def held(self) -> int:
        with self._lock:
            return len(self._until)

    def left_s(self, held: Sequence[Held]) -> float:
        """Seconds until the last of these leases ends, by this process's clock; 0 when all are gone."""
        now = self._clock()
        with self._lock:
            return max(
                (self._until[attempt] - now for attempt in held if attempt in self._until), default=0.0
            )

    def step(self) -> bool:
        """Renew every lease on board. What the books give to somebody else is forgotten here."""
        with self._lock:
            held, waiting = list(self._until), sorted(self._waiting)
        started = self._clock()
        with transaction(self._sessions) as session:
            workers.heartbeat(session, worker=self._worker, reports=self._reports.take())
            kept = jobs.renew(session, held, worker=self._worker, lease_s=self._lease_s) if held else set()
            if waiting:
                holds.renew_holds(session, waiting, worker=self._worker, lease_s=self._lease_s)
        with self._lock:
            still_held = [attempt for attempt in held if attempt in self._until]
            self._until.update(
                {attempt: started + self._lease_s for attempt in still_held if attempt in kept}
            )
            lost = [attempt for attempt in still_held if attempt not in kept]
            for attempt in lost:
                del self._until[attempt]
        if lost:
            log.warning("leases_lost", jobs=[attempt.job_id for attempt in lost])
        return False
