"""The room where prepared requests wait until the engine's thread lets them join a step."""

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import count

from app.errors import WorkError
from workers.engine.failures import engine_closed, fail, job_timeout
from workers.engine.prefixes import PrefixCache
from workers.engine.prepare import Prepared
from workers.engine.scheduler import Join, Room, Waiting, next_join

# Steps' worth of rows that wait prepared, and the most memory their patches take. More would fill steps a
# little better, but a picture that is not in the cache holds up to 24 MB of patches (980 visual tokens).
STEPS_AHEAD = 4
PATCH_BYTES = 512 * 2**20


class WaitingRoom:
    """Many threads add, one takes. A row that leaves without joining gives its pin back."""

    def __init__(
        self,
        *,
        places: int,
        max_wait_s: float,
        prefixes: PrefixCache,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._places = places
        self._max_wait_s = max_wait_s
        self._prefixes = prefixes
        self._clock = clock
        self._rows: dict[int, Prepared] = {}
        self._waiting: dict[int, Waiting] = {}  # the same rows as the scheduler sees them
        self._numbers = count()
        self._changed = threading.Condition()
        self._closed = False
        self._coming = 0

    def __len__(self) -> int:
        return len(self._rows)

    def expect(self) -> None:
        """A request is being prepared: an idle engine may wait for it."""
        with self._changed:
            self._coming += 1

    def expect_no_more(self) -> None:
        """It has come, or never will."""
        with self._changed:
            self._coming -= 1
            self._changed.notify_all()

    def add(self, row: Prepared) -> None:
        """Waits while the room is full, unless it is urgent."""
        with self._changed:
            self._changed.wait_for(lambda: self._closed or row.request.urgent or not self._full())
            closed = self._closed
            if not closed:
                number = next(self._numbers)
                self._rows[number] = row
                self._waiting[number] = _waiting(number, row)
                self._changed.notify_all()
        if closed:
            self._send_away([row], engine_closed())

    def take(self, room: Room) -> list[Prepared] | None:
        """Who joins now. With nobody running it waits for somebody; None after `close`."""
        with self._changed:
            while not self._closed:
                self._send_away(self._leave(self._ended()), job_timeout())
                decision = self._decide(room)
                if isinstance(decision, Join):
                    return self._leave(decision.numbers)
                if room.running:
                    return []
                self._changed.wait(decision)
            return None

    def close(self) -> None:
        """Fail what waits, and whatever comes later."""
        with self._changed:
            self._closed = True
            left = self._leave(tuple(self._rows))
            self._changed.notify_all()
        self._send_away(left, engine_closed())

    def _full(self) -> bool:
        patches: dict[object, int] = {}
        for row in self._rows.values():
            patches |= row.waiting_patches
        return len(self._rows) >= self._places or sum(patches.values()) >= PATCH_BYTES

    def _decide(self, room: Room) -> Join | float | None:
        """Who leaves the room, or how many seconds to wait (None: until somebody comes)."""
        if not self._rows:
            return None
        decision = next_join(
            list(self._waiting.values()),
            now=self._clock(),
            room=replace(room, coming=self._coming),
            resident=self._prefixes,
            max_wait_s=self._max_wait_s,
        )
        return decision if isinstance(decision, Join) else decision.seconds

    def _leave(self, numbers: Sequence[int]) -> list[Prepared]:
        if numbers:
            self._changed.notify_all()
        for number in numbers:
            del self._waiting[number]
        return [self._rows.pop(number) for number in numbers]

    def _ended(self) -> list[int]:
        return [number for number, row in self._rows.items() if row.future.cancelled() or self.late(row)]

    def late(self, row: Prepared) -> bool:
        return row.request.is_late(self._clock())

    def _send_away(self, rows: Sequence[Prepared], error: WorkError) -> None:
        for row in rows:
            self._prefixes.release(row.pin)
            fail(row.future, error)


def _waiting(number: int, row: Prepared) -> Waiting:
    built = [cut for cut in row.plan.cuts if cut.built]
    starts = [0, *(cut.end for cut in built)]
    pieces = tuple((cut.key, cut.end - start) for cut, start in zip(built, starts, strict=False))
    tail = len(row.prompt) - row.plan.tail_start
    return Waiting(number, row.arrived, pieces, tail, row.request.urgent)
