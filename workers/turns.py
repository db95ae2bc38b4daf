"""Whose turn it is in one process: so many chunks of a model at once, higher classes first, some alone."""

import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count
from threading import Condition

from app.planner import Lane
from app.states import Priority

RANKS = {priority: rank for rank, priority in enumerate(Priority)}
FIRST = -1  # the rank of whoever has waited too long
ALONE_PATIENCE_S = 10.0
LOOK_AGAIN_S = 0.2


class Place:
    """A chunk's place in the line; one that is `alone` waits for a turn with nobody beside it."""

    def __init__(self, turns: "Turns", lane: Lane, *, alone: bool, number: int, since: float) -> None:
        self.lane = lane
        self.alone = alone
        self.number = number
        self.since = since
        self._turns = turns

    @property
    def seated(self) -> bool:
        """Whether it is one of those that share the seats of their model."""
        return self.lane.priority is not Priority.INTERACTIVE

    def wait(self, timeout_s: float | None) -> bool:
        """Wait for the turn, and whether it came; not if the time was over before, or no turns are given."""
        return self._turns.wait(self, timeout_s)


class Turns:
    """At most `seats` chunks of a model run at once, and interactive ones beside them, as many as come.

    Among those that wait the higher class goes first, then who came first. A job that was on board at a death
    runs with nobody beside it, since its neighbours would die with it again: while it waits nobody behind it
    is let in, and nobody at all once it has waited for `patience_s`.

    The next standard chunk is fetched when one has ended: for `kept_s` its seat is kept from the background.
    """

    def __init__(
        self,
        seats: int,
        *,
        patience_s: float = ALONE_PATIENCE_S,
        kept_s: float = 0.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._seats = seats
        self._patience_s = patience_s
        self._kept_s = kept_s
        self._clock = clock
        self._kept_until: dict[str, float] = {}
        self._changed = Condition()
        self._numbers = count()
        self._line: list[Place] = []
        self._aboard: list[Place] = []
        self._open = True

    @property
    def waiting(self) -> int:
        return len(self._line)

    @contextmanager
    def place(self, lane: Lane, *, alone: bool = False) -> Iterator[Place]:
        """A place in the line, and then aboard, while the block runs."""
        place = Place(self, lane, alone=alone, number=next(self._numbers), since=self._clock())
        with self._changed:
            self._line.append(place)
        try:
            yield place
        finally:
            with self._changed:
                self._leave(place)
                self._changed.notify_all()

    def wait(self, place: Place, timeout_s: float | None) -> bool:
        with self._changed:
            until = math.inf if timeout_s is None else self._clock() + timeout_s
            while self._open and not self._may_go(place) and (left_s := until - self._clock()) > 0:
                self._changed.wait(min(left_s, LOOK_AGAIN_S))
            if not self._may_go(place):
                return False
            self._line.remove(place)
            self._aboard.append(place)
            self._changed.notify_all()
            return True

    def close(self) -> None:
        """Give no more turns: whoever waits, or comes from now on, is told so."""
        with self._changed:
            self._open = False
            self._changed.notify_all()

    def _leave(self, place: Place) -> None:
        if place in self._line:
            self._line.remove(place)
        if place in self._aboard:
            self._aboard.remove(place)
            if place.lane.priority is Priority.STANDARD:
                self._kept_until[place.lane.model] = self._clock() + self._kept_s

    def _may_go(self, place: Place) -> bool:
        if not self._open or any(other.alone for other in self._aboard):
            return False
        if any(self._is_before(other, place) for other in self._line):
            return False
        if place.alone:
            return not self._aboard
        return not place.seated or self._has_seat(place.lane)

    def _has_seat(self, lane: Lane) -> bool:
        if lane.priority is Priority.BACKGROUND and self._clock() < self._kept_until.get(lane.model, 0.0):
            return False
        return sum(other.seated and other.lane.model == lane.model for other in self._aboard) < self._seats

    def _is_before(self, other: Place, place: Place) -> bool:
        """Whether the other must have its turn first: it wants the same seats, or quiet."""
        if self._standing(other) >= self._standing(place):
            return False
        same_seats = other.seated and place.seated and other.lane.model == place.lane.model
        return other.alone or place.alone or same_seats

    def _standing(self, place: Place) -> tuple[int, int]:
        """Lower ones come first."""
        impatient = place.alone and self._clock() - place.since >= self._patience_s
        return FIRST if impatient else RANKS[place.lane.priority], place.number
