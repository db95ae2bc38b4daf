"""Which features deserve a place in which tier: those of images that return. Pure, but for the sketch."""

import threading
from dataclasses import dataclass

SIGHTINGS = 65_536  # images that the sketch remembers for sure; twice as many at most


@dataclass(frozen=True)
class Reuse:
    """What is known of an image's uses when it is looked up and not found.

    `expected` requests are known to want it, this one among them; `later` of those are in no worker's hands
    yet. `seen`: somebody has wanted it before.
    """

    expected: int = 1
    later: int = 0
    seen: bool = False


UNKNOWN = Reuse()
# Features that are handed in without a look-up before: whoever does that wants them kept.
WANTED = Reuse(expected=2, later=1, seen=True)


def returns(reuse: Reuse) -> bool:
    """Whether it may push out others of its kind from memory. All else only fills what is free there."""
    return reuse.expected > 1 or reuse.seen


def worth_sharing(reuse: Reuse, *, awaited: bool) -> bool:
    """Whether it goes to Redis, where writing costs a network's time as well.

    Requests that this worker holds already share one encoding: only later ones count, a second sighting,
    or another worker that waits for it now (`awaited`).
    """
    return reuse.later > 0 or reuse.seen or awaited


class Sightings:
    """Which names were seen of late: two generations of hashes, so that the memory is bounded."""

    def __init__(self, capacity: int = SIGHTINGS) -> None:
        self._capacity = capacity
        self._young: set[int] = set()
        self._old: set[int] = set()
        self._lock = threading.Lock()

    @property
    def size(self) -> int:
        return len(self._young) + len(self._old)

    def again(self, name: object) -> bool:
        """Note a sighting; whether it is not the first."""
        mark = hash(name)
        with self._lock:
            before = mark in self._young or mark in self._old
            self._young.add(mark)
            if len(self._young) > self._capacity:
                self._old, self._young = self._young, set()
            return before
