"""Whether there is room for more work: jobs that have not ended, free disk, and what a tenant may have."""

import shutil
import time
from collections.abc import Callable
from pathlib import Path
from threading import Lock

from sqlalchemy.orm import Session

from app.config import Settings
from app.db import Sessions, transaction
from app.errors import Overloaded
from app.store import quotas
from app.store.batches import estimate_open_jobs
from app.store.quotas import Quota, QuotaUse

# How long a measured value is believed. A count that took long is believed twenty times as long, so that
# counting never takes more than a twentieth of the database's time.
BELIEVED_S, BELIEVED_TIMES = 1.0, 20.0
# Both drain slowly; within the time that the stock SDK waits for (120 s).
RETRY_AFTER_S = 30
NO_LIMITS = Quota()


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
        quota: Quota = NO_LIMITS,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._sessions = sessions
        self._backlog_max_jobs = backlog_max_jobs
        self._disk_min_free_bytes = disk_min_free_bytes
        self._data_dir = data_dir or Path()
        self._quota = quota
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

    def check_jobs(
        self, session: Session, tenant_id: str, *, jobs: int = 1, is_last_word: bool = True
    ) -> None:
        """Raise `Overloaded` where so many more jobs are more than the tenant may have open.

        Where there is a limit, and it is the last word, the tenant's next jobs wait for this transaction.
        """
        allowed = quotas.read_quota(session, tenant_id, self._quota).queued_jobs
        if not allowed:
            return
        if is_last_word:
            quotas.lock_tenant(session, tenant_id)
        use = QuotaUse(quotas.count_open_jobs(session, tenant_id), allowed)
        if not use.has_room(jobs):
            raise _exceeded(too_many_jobs(use, jobs))

    def check_bytes(self, tenant_id: str) -> None:
        """Raise `Overloaded` where the tenant's files leave no room for another."""
        with transaction(self._sessions) as session:
            if allowed := quotas.read_quota(session, tenant_id, self._quota).bytes:
                _check_bytes(QuotaUse(quotas.sum_bytes(session, tenant_id), allowed), 1)

    def check_file(self, session: Session, tenant_id: str, *, size: int) -> None:
        """Raise `Overloaded` where a file of so many bytes is more than the tenant may have.

        Where there is a limit, the tenant's next file is not checked before this transaction ends.
        """
        if allowed := quotas.read_quota(session, tenant_id, self._quota).bytes:
            quotas.lock_tenant(session, tenant_id)
            _check_bytes(QuotaUse(quotas.sum_bytes(session, tenant_id), allowed), size)

    def _count_open(self) -> int:
        with transaction(self._sessions) as session:
            return estimate_open_jobs(session, cap=self._backlog_max_jobs + 1)

    def _count_free(self) -> int:
        return shutil.disk_usage(self._data_dir).free


def make_limits(sessions: Sessions, settings: Settings) -> Limits:
    """Those of an installation, from its settings."""
    return Limits(
        sessions=sessions,
        backlog_max_jobs=settings.backlog_max_jobs,
        disk_min_free_bytes=settings.disk_min_free_bytes,
        data_dir=settings.data_dir,
        quota=default_quota(settings),
    )


def default_quota(settings: Settings) -> Quota:
    """What tenants may have that have no limits of their own."""
    return Quota(settings.quota_queued_jobs, settings.quota_bytes, settings.quota_images_day)


def too_many_jobs(use: QuotaUse, jobs: int) -> str:
    """What to tell a tenant who wants so many more."""
    return (
        f"You have {use.used:,} jobs that have not ended, and may have {use.allowed:,}: there is no room for "
        f"{jobs:,} more. Wait until some have ended, cancel what is not needed, send fewer at a time, or ask "
        "the operator for more."
    )


def _check_bytes(use: QuotaUse, size: int) -> None:
    if not use.has_room(size):
        raise _exceeded(
            f"Your files have {use.used:,} bytes of the {use.allowed:,} that they may have: there is no room "
            "for this one. Delete files that you no longer need, or ask the operator for more."
        )


def _exceeded(message: str) -> Overloaded:
    return Overloaded(message, code="quota_exceeded", retry_after_s=RETRY_AFTER_S)
