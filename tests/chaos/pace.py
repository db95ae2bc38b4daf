"""How fast batches are handed in: as fast as the strikes come, so that both end together."""

from dataclasses import dataclass

LEAST_OPEN, MOST_OPEN = 2, 6
AHEAD = 0.1  # how far the batches may run ahead of the strikes


@dataclass
class Pace:
    """`struck` is the share of the strikes that were dealt; whoever strikes moves it."""

    struck: float = 0.0

    @property
    def over(self) -> bool:
        return self.struck >= 1

    def allows(self, *, given: int, left: int, open: int) -> bool:
        """Whether the next batch may be handed in; when none is left, one that was there already.

        Strikes need jobs that run: the work does not end before they do.
        """
        if open < LEAST_OPEN:
            return left > 0 or not self.over
        return left > 0 and open < MOST_OPEN and given / (given + left) <= self.struck + AHEAD
