"""A bound on how many run at once on an event loop; whoever is urgent is let in before others."""

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

Door = asyncio.Future[None]


class Places:
    """For the coroutines of one loop, each class in its order of coming."""

    def __init__(self, count: int) -> None:
        self._free = count
        self._urgent: deque[Door] = deque()
        self._others: deque[Door] = deque()

    @asynccontextmanager
    async def place(self, *, urgent: bool) -> AsyncIterator[None]:
        await self._enter(self._urgent if urgent else self._others)
        try:
            yield
        finally:
            self._leave()

    async def _enter(self, queue: deque[Door]) -> None:
        if self._free:
            self._free -= 1
            return
        door: Door = asyncio.get_running_loop().create_future()
        queue.append(door)
        try:
            await door
        except asyncio.CancelledError:
            if door.done() and not door.cancelled():  # let in, and called away at the same moment
                self._leave()
            raise

    def _leave(self) -> None:
        """The place goes to whoever waits first."""
        for queue in (self._urgent, self._others):
            while queue:
                door = queue.popleft()
                if not door.done():
                    door.set_result(None)
                    return
        self._free += 1
