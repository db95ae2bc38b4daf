"""The room where prepared requests wait until the engine's thread takes a group of them."""

import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from itertools import count

from app.errors import TransientWork, WorkError
from workers.engine.base import Answer
from workers.engine.prepare import Prepared
from workers.engine.scheduler import Join, Waiting, next_group

# Groups' worth of rows that wait prepared. More would group better by length, but each picture that is not in
# the cache holds up to 24 MB of patches (980 visual tokens).
GROUPS_AHEAD = 4


class WaitingRoom:
    """Many threads add, one takes."""

    def __init__(
        self, *, row_limit: int, max_wait_s: float, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._row_limit = row_limit
        self._places = GROUPS_AHEAD * row_limit
        self._max_wait_s = max_wait_s
        self._clock = clock
        self._rows: dict[int, Prepared] = {}
        self._numbers = count()
        self._changed = threading.Condition()
        self._closed = False

    def __len__(self) -> int:
        return len(self._rows)

    def add(self, row: Prepared) -> None:
        """Waits while the room is full."""
        with self._changed:
            self._changed.wait_for(lambda: self._closed or len(self._rows) < self._places)
            closed = self._closed
            if not closed:
                self._rows[next(self._numbers)] = row
                self._changed.notify_all()
        if closed:
            fail(row.future, engine_closed())

    def take(self) -> list[Prepared] | None:
        """Wait for a group and let it join: its futures can no longer be cancelled. None after `close`.

        May be empty, where all that would have joined were cancelled or late.
        """
        with self._changed:
            while not self._closed:
                decision = self._decide()
                if isinstance(decision, Join):
                    chosen = [self._rows.pop(number) for number in decision.numbers]
                    self._changed.notify_all()
                    break
                self._changed.wait(decision)
            else:
                return None
        return self._joined(chosen)

    def close(self) -> None:
        """Fail what waits, and whatever comes later."""
        with self._changed:
            self._closed = True
            left = list(self._rows.values())
            self._rows.clear()
            self._changed.notify_all()
        for row in left:
            fail(row.future, engine_closed())

    def _decide(self) -> Join | float | None:
        """Who leaves the room, or how many seconds to wait (None: until somebody comes)."""
        if not self._rows:
            return None
        ended = [number for number, row in self._rows.items() if row.future.cancelled() or self._late(row)]
        if ended:
            return Join(tuple(ended))
        waiting = [Waiting(number, row.arrived, len(row.prompt)) for number, row in self._rows.items()]
        decision = next_group(
            waiting, now=self._clock(), row_limit=self._row_limit, max_wait_s=self._max_wait_s
        )
        return decision if isinstance(decision, Join) else decision.seconds

    def _joined(self, chosen: Sequence[Prepared]) -> list[Prepared]:
        late = [row for row in chosen if self._late(row)]
        for row in late:
            fail(row.future, job_timeout())
        return [row for row in chosen if row not in late and row.future.set_running_or_notify_cancel()]

    def _late(self, row: Prepared) -> bool:
        return row.request.deadline is not None and self._clock() >= row.request.deadline


def fail(future: Future[Answer], error: WorkError) -> None:
    """End a request that has not joined, unless it was cancelled."""
    if future.set_running_or_notify_cancel():
        future.set_exception(error)


def job_timeout() -> WorkError:
    return TransientWork("job_timeout", "the deadline passed before the request joined a step")


def engine_closed() -> WorkError:
    return TransientWork("engine_closed", "the engine was closed before the request joined a step")
