"""What each request takes of an engine's time, while many share it."""

import time
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from threading import Lock
from typing import Any


class SharedTime:
    """Divides the time in which an engine has work evenly among the requests that it has.

    The seconds of all requests add up to the seconds in which there was one: what an answer that need not be
    computed would have taken. An engine's own steps could say more exactly what a long prompt took beside a
    short one, but not every engine tells of its steps.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = Lock()
        self._active = 0
        self._at = 0.0
        self._each = 0.0  # what a request that was there all the time would have by now

    def begin(self) -> float:
        """A request comes; give what this returns to `end`."""
        with self._lock:
            self._advance(self._active)
            self._active += 1
            return self._each

    def end(self, begun: float) -> float:
        """It goes; its seconds."""
        with self._lock:
            self._advance(self._active)
            self._active -= 1
            return self._each - begun

    def _advance(self, active: int) -> None:
        now = self._clock()
        if active:
            self._each += (now - self._at) / active
        self._at = now


class Meter:
    """The seconds of one chunk's requests, by their futures. For one thread."""

    def __init__(self) -> None:
        self._running: dict[Future[Any], tuple[SharedTime, float]] = {}
        self._seconds: dict[Future[Any], float] = {}

    def begin(self, answer: Future[Any], shared: SharedTime) -> None:
        self._running[answer] = shared, shared.begin()

    def end(self, answers: Iterable[Future[Any]]) -> None:
        for answer in answers:
            if answer in self._running:
                shared, begun = self._running.pop(answer)
                self._seconds[answer] = shared.end(begun)

    def close(self) -> None:
        """End what still runs."""
        self.end(list(self._running))

    def seconds(self, answer: Future[Any]) -> float:
        """0 for what never reached an engine."""
        return self._seconds.get(answer, 0.0)
