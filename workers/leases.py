"""The worker's heartbeat: renews the leases of the jobs on board, and tells which were lost."""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from threading import Lock

import structlog

from app.config import Settings
from app.db import Sessions, transaction
from app.store import jobs, workers

log = structlog.get_logger()


class Leases:
    """Jobs that this process holds. `step` is one heartbeat; a loop calls it every `heartbeat_s`."""

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
        self._clock = clock
        self._lock = Lock()
        self._until: dict[int, float] = {}

    @contextmanager
    def holding(self, job_ids: Sequence[int]) -> Iterator[None]:
        """Keep the leases of these jobs alive while the block runs; they were claimed just now."""
        until = self._clock() + self._lease_s
        with self._lock:
            self._until.update(dict.fromkeys(job_ids, until))
        try:
            yield
        finally:
            with self._lock:
                for job_id in job_ids:
                    self._until.pop(job_id, None)

    def held(self) -> int:
        with self._lock:
            return len(self._until)

    def left_s(self, job_ids: Sequence[int]) -> float:
        """Seconds until the last of these leases ends, by this process's clock; at most 0 when all ended."""
        now = self._clock()
        with self._lock:
            return max(
                (self._until[job_id] - now for job_id in job_ids if job_id in self._until), default=0.0
            )

    def step(self) -> bool:
        """Renew every lease on board. What the books give to somebody else is forgotten here."""
        with self._lock:
            held = list(self._until)
        started = self._clock()
        with transaction(self._sessions) as session:
            workers.heartbeat(session, worker=self._worker)
            kept = jobs.renew(session, held, worker=self._worker, lease_s=self._lease_s) if held else set()
        with self._lock:
            still_held = [job_id for job_id in held if job_id in self._until]
            for job_id in still_held:
                self._until[job_id] = started + self._lease_s if job_id in kept else started
        if lost := [job_id for job_id in still_held if job_id not in kept]:
            log.warning("leases_lost", jobs=lost)
        return False
