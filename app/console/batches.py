"""A batch as its page shows it. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from app.prices import Price
from app.states import JobState
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
    total: int
    ended: int
    seconds_left: float | None
    cost: Cost | None
    can_retry: bool

    @property
    def id(self) -> str:
        return self.batch.id

    @property
    def is_open(self) -> bool:
        return self.batch.is_open

    @property
    def status(self) -> str:
        return self.batch.status.value


def own_name(batch: BatchRow) -> str | None:
    """As its owner calls it."""
    told = batch.metadata or {}
    return told.get("name") or told.get("description")


def batch_view(batch: BatchRow, prices: Mapping[str, Price], *, now: datetime) -> BatchView:
    ends_at = batch.ends_at
    return BatchView(
        batch=batch,
        name=own_name(batch) or batch.id,
        total=batch.total,
        ended=batch.completed + batch.failed,
        seconds_left=max(0.0, (ends_at - now).total_seconds()) if ends_at else None,
        cost=_cost(batch, prices),
        can_retry=not batch.is_open and batch.failed > 0 and not batch.is_dry_run,
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
