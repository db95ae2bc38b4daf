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
# In percent of a bar: thinner parts are not seen, and one failure among millions is to be.
THINNEST = 0.5


@dataclass(frozen=True)
class StateCount:
    """How many jobs are in a state; `sent` jobs are on the broker, `unsent` ones wait for their turn."""

    state: str
    jobs: int


@dataclass(frozen=True)
class BarPart:
    """A part of a progress bar: where it begins, and how wide it is, in percent."""

    kind: str
    at: float
    width: float


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
    def bar(self) -> list[BarPart]:
        return bar_parts(self.batch)

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


def bar_parts(batch: BatchRow) -> list[BarPart]:
    """What has ended, answers by a model first, then those from the cache, then failures."""
    cached = min(batch.cached_answers, batch.completed)
    ended = {
        JobState.COMPLETED.value: batch.completed - cached,
        "cached": cached,
        JobState.FAILED.value: batch.failed,
    }
    parts, at = list[BarPart](), 0.0
    for kind, jobs in ended.items():
        if jobs:
            width = max(THINNEST, 100 * jobs / max(batch.total, 1))
            parts.append(BarPart(kind, round(min(at, 100 - width), 3), round(width, 3)))
            at += width
    return parts


def state_counts(batch: BatchRow, open_: OpenCounts) -> list[StateCount]:
    """Every state, those that have ended first; what came from the cache, if anything, is counted twice."""
    unended = max(0, batch.total - batch.completed - batch.failed)
    counts = {
        JobState.COMPLETED.value: batch.completed,
        "cached": batch.cached_answers,
        JobState.FAILED.value: batch.failed,
        JobState.RUNNING.value: min(open_.running, unended),
        "sent": min(open_.queued, unended),
    }
    counts["unsent"] = max(0, unended - counts[JobState.RUNNING.value] - counts["sent"])
    return [StateCount(state, jobs) for state, jobs in counts.items() if jobs or state != "cached"]


def _cost(batch: BatchRow, prices: Mapping[str, Price]) -> Cost | None:
    price = prices.get(batch.model or "")
    if price is None:
        return None
    amount = price.of(
        prompt=batch.prompt_tokens, cached=batch.cached_tokens, completion=batch.completion_tokens
    )
    return Cost(amount, price.currency)
