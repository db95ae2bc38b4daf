"""How the open batches fare: which stand still, and which will be late. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from app.pace import completion_at

# Statuses in which a batch can stand still; a gauge has one series for each.
OPEN: tuple[str, ...] = ("validating", "in_progress", "finalizing", "cancelling")
LAST_PART = 0.25  # of its window: a batch that has no pace by then is taken for late


@dataclass(frozen=True)
class OpenBatch:
    """A batch that has not ended. `has_turn`: some of its jobs are on the broker or in a worker."""

    id: str
    status: str
    lines: int  # read so far
    ended: int
    total: int
    has_turn: bool
    pace: float | None  # jobs per second
    pace_at: datetime | None
    created_at: datetime
    expires_at: datetime

    @property
    def left(self) -> int:
        return self.total - self.ended


def is_late(batch: OpenBatch, now: datetime) -> bool:
    """Whether it will not be done by its deadline, as far as its pace tells.

    A batch that waits for its turn has no pace to speak of: it is judged in the last quarter of its window.
    """
    if batch.status != "in_progress" or not batch.left:
        return False
    in_last_part = now >= batch.expires_at - LAST_PART * (batch.expires_at - batch.created_at)
    if not batch.has_turn and not in_last_part:
        return False
    if not batch.pace:
        return in_last_part
    end = completion_at(batch.pace, measured_at=batch.pace_at, left=batch.left)
    return end is None or end > batch.expires_at


class Standing:
    """Remembers since when each open batch has been as it is. Of one process: a new one begins anew."""

    def __init__(self) -> None:
        self._since: dict[str, tuple[tuple[str, int, int], datetime]] = {}

    def look(self, batches: Sequence[OpenBatch], now: datetime) -> dict[str, timedelta]:
        """For how long each batch has not moved though it could: one that waits for its turn stands fair."""
        before, self._since = self._since, {}
        for batch in batches:
            seen = (batch.status, batch.lines, batch.ended)
            known = before.get(batch.id)
            if known is None or known[0] != seen or not _may_move(batch):
                known = (seen, now)
            self._since[batch.id] = known
        return {batch_id: now - since for batch_id, (_, since) in self._since.items()}


def longest(batches: Sequence[OpenBatch], still: dict[str, timedelta]) -> dict[str, float]:
    """The longest standstill in seconds of each open status, 0 where there is none."""
    found: dict[str, float] = dict.fromkeys(OPEN, 0.0)
    for batch in batches:
        found[batch.status] = max(found[batch.status], still[batch.id].total_seconds())
    return found


def _may_move(batch: OpenBatch) -> bool:
    return batch.status != "in_progress" or batch.has_turn or not batch.left
