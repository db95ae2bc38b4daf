"""What operators see of failed jobs, whosever they are, and how they have them tried again."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from app.db import Sessions, transaction
from app.errors import RequestError
from app.retrying import Retries, RetryWish, count_retryable
from app.states import ENDED_BATCH
from app.store import failures as store
from app.store.batches import BatchRow
from app.store.failures import FailedBatch, FailedCode


@dataclass(frozen=True)
class Failures:
    """Batches with failed jobs, the newest first, and what these failed of, the commonest first."""

    batches: Sequence[FailedBatch]
    codes: Sequence[FailedCode]

    def by_code(self) -> Mapping[str, int]:
        """Jobs of all these batches by code, the commonest first."""
        found: Counter[str] = Counter()
        for code in self.codes:
            found[code.code] += code.jobs
        return dict(found.most_common())

    def commonest(self, batch: FailedBatch) -> FailedCode | None:
        return next((code for code in self.codes if code.batch_id == batch.id), None)


class FailureDesk:
    def __init__(self, *, sessions: Sessions, retries: Retries) -> None:
        self._sessions = sessions
        self._retries = retries

    def recent(self, *, within_s: float, limit: int) -> Failures:
        with transaction(self._sessions) as session:
            batches = store.read_recent(session, within_s=within_s, limit=limit)
            return Failures(batches, store.read_codes(session, [batch.id for batch in batches]))

    def of(self, batch_ids: Sequence[str]) -> Failures:
        with transaction(self._sessions) as session:
            return Failures(store.read_batches(session, batch_ids), store.read_codes(session, batch_ids))

    def retry(self, batch_id: str, wish: RetryWish) -> BatchRow:
        """A new batch of a batch's failed jobs. The same wish within half an hour gives the same one."""
        with transaction(self._sessions) as session:
            found = store.read_batches(session, [batch_id])
        if not found:
            raise RequestError(f"There is no batch {batch_id}.")
        return self._retries.submit(found[0].tenant_id, batch_id, wish, is_retry=True)


def retryable(batch: FailedBatch) -> int | None:
    """How many of its jobs a retry would take; None while it runs."""
    return count_retryable(batch) if batch.status in ENDED_BATCH else None
