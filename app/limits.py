"""Whether there is room for more work: jobs that have not ended, and free disk."""

import shutil
import time
from collections.abc import Callable
from pathlib import Path
from threading import Lock

from app.db import Sessions, transaction
from app.errors import Overloaded
from app.store.batches import estimate_open_jobs

# How long a measured value is believed. A count that took long is believed twenty times as long, so that
# counting never takes more than a twentieth of the database's time.
BELIEVED_S, BELIEVED_TIMES = 1.0, 20.0
# Both drain slowly; within the time that the stock SDK waits for (120 s).
RETRY_AFTER_S = 30


class Measured:
    """A value that is measured anew when it is too old; one thread measures, the others take the last."""

    def __init__(self, measure: Callable[[], int], *, clock: Callable[[], float]) -> None:
        self._measure = measure
        self._clock = clock
        self._lock = Lock()
        self._value: int | None = None
        self._until = 0.0

    def read(self) -> int:
        if self._value is None or self._clock() >= self._until:
            self._renew()
        assert self._value is not None
        return self._value

    def _renew(self) -> None:
        if not self._lock.acquire(blocking=self._value is None):
            return
        try:
            started = self._clock()
            self._value = self._measure()
            now = self._clock()
            self._until = now + max(BELIEVED_S, BELIEVED_TIMES * (now - started))
        finally:
            self._lock.release()


class Limits:
    """Finds the reason to refuse new work (429): the backlog or the disk is past its limit."""

    def __init__(
        self,
        *,
        sessions: Sessions,
        backlog_max_jobs: int,
        disk_min_free_bytes: int,
        data_dir: Path | None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._sessions = sessions
        self._backlog_max_jobs = backlog_max_jobs
        self._disk_min_free_bytes = disk_min_free_bytes
        self._data_dir = data_dir or Path()
        self._open_jobs = Measured(self._count_open, clock=clock)
        self._free_bytes = Measured(self._count_free, clock=clock)

    def refusal(self) -> Overloaded | None:
        """Why there is no room for new jobs, if there is none. It uses a database connection of its own."""
        if self._open_jobs.read() > self._backlog_max_jobs:
            return Overloaded(
                f"More than {self._backlog_max_jobs:,} jobs are waiting. Please try again later.",
                code="backlog_full",
                retry_after_s=RETRY_AFTER_S,
            )
        return self.disk_refusal()

    def disk_refusal(self) -> Overloaded | None:
        """Why nothing that takes disk space is accepted, if it is not."""
        if not self._disk_min_free_bytes or self._free_bytes.read() >= self._disk_min_free_bytes:
            return None
        return Overloaded(
            "The service is short of disk space. Please try again later.",
            code="disk_full",
            retry_after_s=RETRY_AFTER_S,
        )

    def _count_open(self) -> int:
        with transaction(self._sessions) as session:
            return estimate_open_jobs(session, cap=self._backlog_max_jobs + 1)

    def _count_free(self) -> int:
        return shutil.disk_usage(self._data_dir).free
