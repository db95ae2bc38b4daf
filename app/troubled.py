"""Who met a fault of ours is left alone for a while, so that nobody else waits for them."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import structlog

from app import telemetry
from app.db import is_outage

log = structlog.get_logger()

REST_S = 60.0


class Troubled:
    """Batches, or other things with an id, that a loop goes round until their rest is over."""

    def __init__(
        self, loop: str, *, rest_s: float = REST_S, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._loop = loop
        self._rest_s = rest_s
        self._clock = clock
        self._until: dict[str, float] = {}

    @property
    def ids(self) -> list[str]:
        now = self._clock()
        self._until = {one: until for one, until in self._until.items() if until > now}
        return list(self._until)

    @contextmanager
    def sparing(self, one: str) -> Iterator[None]:
        """Log a fault of the block instead of raising it, and let `one` rest; an outage is raised."""
        try:
            yield
        except Exception as error:
            if is_outage(error):
                raise
            self._until[one] = self._clock() + self._rest_s
            telemetry.LOOP_FAULTS.labels(self._loop).inc()
            log.exception("left_alone", loop=self._loop, id=one, rest_s=self._rest_s)
