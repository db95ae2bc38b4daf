"""A batch as its page shows it. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from app.pace import completion_at
from app.prices import Price
from app.states import ENDED_BATCH, BatchStatus, JobState
from app.store.batches import BatchRow
from app.store.progress import OpenCounts
from app.usage import Cost

# How often a page asks again while its batch runs.
LIVE_S = 2


@dataclass(frozen=True)
class StateCount:
    """How many jobs are in a state; `sent` jobs are on the broker, `unsent` ones wait for their turn."""

    state: str
    jobs: int


@dataclass(frozen=True)
class BatchView:
    batch: BatchRow
    name: str  # as its owner called it, else its id
    is_open: bool
    total: int
    ended: int
    ends_at: datetime | None
    seconds_left: float | None
    cost: Cost | None
    can_retry: bool

    @property
    def id(self) -> str:
        return self.batch.id

    @property
    def status(self) -> str:
        return self.batch.status.value


def batch_view(batch: BatchRow, prices: Mapping[str, Price], *, now: datetime) -> BatchView:
    is_open = batch.status not in ENDED_BATCH
    is_running = batch.status is BatchStatus.IN_PROGRESS
    left = batch.total - (batch.pace_ended or 0)
    ends_at = completion_at(batch.pace, measured_at=batch.pace_at, left=left) if is_running else None
    return BatchView(
        batch=batch,
        name=(batch.metadata or {}).get("name") or (batch.metadata or {}).get("description") or batch.id,
        is_open=is_open,
        total=batch.total,
        ended=batch.completed + batch.failed,
        ends_at=ends_at,
        seconds_left=max(0.0, (ends_at - now).total_seconds()) if ends_at else None,
        cost=_cost(batch, prices),
        can_retry=not is_open and batch.failed > 0 and not batch.is_dry_run,
    )


def state_counts(batch: BatchRow, open_: OpenCounts) -> list[StateCount]:
    """Every state that has jobs, those that have ended first."""
    unended = max(0, batch.total - batch.completed - batch.failed)
    counts = {
        JobState.COMPLETED.value: batch.completed,
        JobState.FAILED.value: batch.failed,
        JobState.RUNNING.value: min(open_.running, unended),
        "sent": min(open_.queued, unended),
    }
    counts["unsent"] = max(0, unended - counts[JobState.RUNNING.value] - counts["sent"])
    return [StateCount(state, jobs) for state, jobs in counts.items()]


def _cost(batch: BatchRow, prices: Mapping[str, Price]) -> Cost | None:
    price = prices.get(batch.model or "")
    if price is None:
        return None
    amount = price.of(
        prompt=batch.prompt_tokens, cached=batch.cached_tokens, completion=batch.completion_tokens
    )
    return Cost(amount, price.currency)
