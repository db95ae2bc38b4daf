"""One page of a list, and whether more follow."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

Row = TypeVar("Row", covariant=True)


@dataclass(frozen=True)
class Page(Generic[Row]):
    rows: Sequence[Row]
    has_more: bool


def page_of(rows: Sequence[Row], limit: int) -> Page[Row]:
    """A page of up to `limit` rows; that one more was read tells that there are others behind it."""
    return Page(rows[:limit], has_more=len(rows) > limit)
