"""What operators see of failed jobs, whosever they are, and how they have them tried again."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from app.db import Sessions, transaction
from app.errors import Conflict, RequestError
from app.retrying import Retries, RetryWish, count_retryable
from app.states import ENDED_BATCH, JobState
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

    def with_codes(self, wanted: Callable[[str], bool]) -> "Failures":
        """Only codes that are wanted, and the batches that have one of them."""
        codes = [code for code in self.codes if wanted(code.code)]
        ids = {code.batch_id for code in codes}
        return Failures([batch for batch in self.batches if batch.id in ids], codes)

    def to_retry(self) -> "Failures":
        """Only what a retry would take something of."""
        return self._of([batch for batch in self.batches if retryable(batch)])

    def newest(self, count: int) -> "Failures":
        return self._of(self.batches[:count])

    def _of(self, batches: Sequence[FailedBatch]) -> "Failures":
        ids = {batch.id for batch in batches}
        return Failures(batches, [code for code in self.codes if code.batch_id in ids])


class FailureDesk:
    def __init__(self, *, sessions: Sessions, retries: Retries) -> None:
        self._sessions = sessions
        self._retries = retries

    def recent(self, *, within_s: float) -> Failures:
        with transaction(self._sessions) as session:
            batches = store.read_recent(session, within_s=within_s)
            return Failures(batches, store.read_codes(session, [batch.id for batch in batches]))

    def of(self, batch_ids: Sequence[str]) -> Failures:
        with transaction(self._sessions) as session:
            return Failures(store.read_batches(session, batch_ids), store.read_codes(session, batch_ids))

    def retry(self, batch_id: str, wish: RetryWish, *, again: bool = False) -> BatchRow:
        """A new batch of a batch's failed jobs. `Conflict` where there is one already, unless `again`."""
        with transaction(self._sessions) as session:
            found = store.read_batches(session, [batch_id])
        if not found:
            raise RequestError(f"There is no batch {batch_id}.")
        (batch,) = found
        if batch.retried_as and not again:
            raise Conflict(
                f"Batch {batch_id} was retried already, as {batch.retried_as}: --again retries it once more.",
                code="retried_already",
            )
        if batch.status in ENDED_BATCH and not count_retryable(batch, wish.states):
            raise RequestError(why_nothing(batch, wish.states), code="nothing_to_retry")
        # Of two commands at once that see no retry, the second is given the first one's.
        return self._retries.submit(batch.tenant_id, batch_id, wish, is_retry=not again)


def retryable(batch: FailedBatch) -> int | None:
    """How many of its jobs a retry would take; None while it runs, and when it was retried."""
    if batch.status not in ENDED_BATCH or batch.retried_as:
        return None
    return count_retryable(batch, RetryWish().states)


def why_nothing(batch: FailedBatch, states: Sequence[JobState]) -> str:
    """What to tell who wants to retry nothing: that, and the options that take what else there is."""
    others = [(state, count_retryable(batch, [state])) for state in JobState if state not in states]
    hints = [f"--state {state.value} takes {count:,}." for state, count in others if count]
    named = " or ".join(state.value for state in states)
    return " ".join([f"Batch {batch.id} has no {named} jobs that could be retried.", *hints])
