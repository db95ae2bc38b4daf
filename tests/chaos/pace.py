"""How fast batches are handed in: as fast as the strikes come, so that both end together."""

from dataclasses import dataclass

LEAST_OPEN, MOST_OPEN = 3, 6
AHEAD = 0.1  # how far the batches may run ahead of the strikes


@dataclass
class Pace:
    """`struck` is the share of the strikes that are done; whoever strikes moves it."""

    struck: float = 0.0

    def allows(self, *, given: int, left: int, open: int) -> bool:
        """Whether the next batch may be handed in."""
        if open < LEAST_OPEN:
            return True
        return open < MOST_OPEN and given / (given + left) <= self.struck + AHEAD
