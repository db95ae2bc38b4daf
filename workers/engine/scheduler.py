"""Who joins the next group of rows: pure deciding, no clock and no threads."""

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Waiting:
    """A prepared request that waits to join."""

    number: int
    arrived: float  # seconds, on the caller's clock
    length: int  # prompt tokens


@dataclass(frozen=True)
class Wait:
    """Nobody joins yet: look again after so many seconds, or when somebody arrives."""

    seconds: float


@dataclass(frozen=True)
class Join:
    """These join now, by number."""

    numbers: tuple[int, ...]


def next_group(waiting: Sequence[Waiting], *, now: float, row_limit: int, max_wait_s: float) -> Join | Wait:
    """Decide for a non-empty waiting room.

    The group starts when it is full or when its oldest has waited `max_wait_s`. The oldest always joins, so
    nobody is passed over for ever; the others are those nearest to it in length.
    """
    oldest = min(waiting, key=lambda row: (row.arrived, row.number))
    left = oldest.arrived + max_wait_s - now
    if len(waiting) < row_limit and left > 0:
        return Wait(left)
    return Join(tuple(row.number for row in _window(waiting, oldest, row_limit)))


def _window(waiting: Sequence[Waiting], oldest: Waiting, row_limit: int) -> Sequence[Waiting]:
    """Of all runs of `row_limit` neighbours in length that hold the oldest, the one with least padding."""
    ordered = sorted(waiting, key=lambda row: (row.length, row.arrived, row.number))
    size = min(row_limit, len(ordered))
    place = ordered.index(oldest)
    starts = range(max(0, place - size + 1), min(place, len(ordered) - size) + 1)
    return min((ordered[start : start + size] for start in starts), key=_padding)


def _padding(rows: Sequence[Waiting]) -> int:
    return sum(rows[-1].length - row.length for row in rows)
