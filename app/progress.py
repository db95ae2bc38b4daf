"""What a batch's owner sees of it while it runs: its results as they end, its errors by code."""

from collections.abc import Sequence
from dataclasses import dataclass

from app.batches import found
from app.config import MIB
from app.db import Sessions, transaction
from app.parts import in_parts
from app.results import AnsweredJob, UnansweredJob
from app.store import progress as store
from app.store.batches import BatchRow, ErrorCount, read_batch
from app.store.progress import OpenCounts

# Of answers in a page of results: those with log probabilities can be a megabyte each.
PAGE_BYTES = 16 * MIB


@dataclass(frozen=True)
class Result:
    """An ended job and its number in the order in which the batch's jobs ended, from 1."""

    seq: int
    job: AnsweredJob | UnansweredJob


@dataclass(frozen=True)
class ResultPage:
    """Results up to number `last_seq`, which is the cursor of the next page."""

    results: Sequence[Result]
    last_seq: int
    has_more: bool
    batch: BatchRow

    @property
    def ended(self) -> bool:
        """Whether all jobs of the batch have ended: with the last page, nothing else will come."""
        batch = self.batch
        return batch.ingested_at is not None and batch.completed + batch.failed >= batch.total


class Progress:
    def __init__(self, *, sessions: Sessions) -> None:
        self._sessions = sessions

    def results(
        self, tenant_id: str, batch_id: str, *, after: int, limit: int, answered: bool | None = None
    ) -> ResultPage:
        """The results behind number `after`. With `answered`, a page leaves others out, and may be empty.

        The batch is read first: where it has ended by then, the results that follow are all there.
        """
        with transaction(self._sessions) as session:
            batch = found(read_batch(session, tenant_id, batch_id), batch_id)
            places = store.read_places(session, batch.id, after=after, limit=limit + 1)
            sizes = store.read_sizes(session, [place.job_id for place in places])
            page = next(in_parts(places[:limit], sizes, most=PAGE_BYTES), [])
            jobs = store.read_ended(session, [place.job_id for place in page], answered=answered)
        return ResultPage(
            results=[Result(place.seq, jobs[place.job_id]) for place in page if place.job_id in jobs],
            last_seq=page[-1].seq if page else after,
            has_more=len(places) > len(page),
            batch=batch,
        )

    def errors(self, tenant_id: str, batch_id: str) -> Sequence[ErrorCount]:
        """What the batch's jobs have failed of so far, the commonest first."""
        with transaction(self._sessions) as session:
            batch = found(read_batch(session, tenant_id, batch_id), batch_id)
            return store.read_errors(session, batch.id)

    def under_way(self, batch_id: str) -> OpenCounts:
        """Jobs of a batch, which the caller has seen to be its own, that are on the broker or run."""
        with transaction(self._sessions) as session:
            return store.count_open(session, batch_id)
