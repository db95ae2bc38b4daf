"""Waiting for another worker that encodes the same image: bounded, and only while the model is busy."""

import threading
import time
from collections.abc import Callable

WAIT_S = 5.0  # in all, for one image; then we encode as well, which costs time but no harm
POLL_S = 0.02

Ask = Callable[[], bool]


def always() -> bool:
    """Whether the model is idle, where nobody can tell: then nobody waits."""
    return True


class Waits:
    """At most `slots` threads wait at once: the others go on preparing what the model can do meanwhile.

    And a wait ends at once where the model runs out of other work (`idle`): then encoding here costs nothing.
    """

    def __init__(
        self,
        *,
        slots: int,
        wait_s: float = WAIT_S,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._slots = threading.Semaphore(slots)
        self._wait_s = wait_s
        self._clock = clock
        self._sleep = sleep

    def deadline(self) -> float:
        return self._clock() + self._wait_s

    def wait(self, locked: Ask, *, idle: Ask, until: float) -> bool:
        """Whether the other worker has ended; False where waiting longer would not do."""
        if not self._slots.acquire(blocking=False):
            return False
        try:
            while not idle() and self._clock() < until:
                if not locked():
                    return True
                self._sleep(POLL_S)
            return False
        finally:
            self._slots.release()
