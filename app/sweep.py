"""Closes batches whose time is over, and ends the open jobs of those that were closed or cancelled."""

import time
from collections.abc import Callable

import structlog

from app import telemetry
from app.db import Sessions, transaction
from app.store import endings as store
from app.store.endings import SweepTask
from app.troubled import Troubled

log = structlog.get_logger()

BLOCK_JOBS = 5_000
# Jobs that ran when their batch was closed come back seldom: a look now and then is enough.
AGAIN_AFTER_S = 5.0


class Sweeper:
    """Several may run at once: a job is ended once, whoever comes first."""

    def __init__(
        self,
        *,
        sessions: Sessions,
        block_jobs: int = BLOCK_JOBS,
        again_after_s: float = AGAIN_AFTER_S,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._sessions = sessions
        self._block_jobs = block_jobs
        self._again_after_s = again_after_s
        self._troubled = Troubled("sweep", clock=clock)

    def step(self) -> bool:
        """Expire what is due and sweep one batch; False when there is none."""
        with transaction(self._sessions) as session:
            expired = store.expire_batches(session)
            task = store.find_to_sweep(session, again_after_s=self._again_after_s, without=self._troubled.ids)
        for batch_id in expired:
            log.info("batch_expired", batch=batch_id)
        if task is not None:
            with self._troubled.sparing(task.id):
                self._sweep(task)
        return task is not None

    def _sweep(self, task: SweepTask) -> None:
        line = jobs = 0
        while True:
            with transaction(self._sessions) as session:
                swept = store.sweep_jobs(session, task, after_line=line, limit=self._block_jobs)
            jobs, line = jobs + swept.jobs, swept.last_line
            if swept.jobs < self._block_jobs:
                break
        with transaction(self._sessions) as session:
            store.mark_swept(session, task)
        telemetry.JOBS_ENDED.labels(task.ending, f"batch_{task.ending}").inc(jobs)
        log.info("batch_swept", batch=task.id, jobs=jobs)
