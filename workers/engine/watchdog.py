"""Ends a process whose engine makes no progress, so that leases bring its jobs back to others."""

import faulthandler
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

CHECKS = 4  # looks at the clock within one limit


def end_process() -> None:
    """Say where every thread stands, and exit at once: a stuck device would hold up any orderly end."""
    faulthandler.dump_traceback(file=sys.stderr, all_threads=True)
    print("engine_dead: no further step will end, the process exits", file=sys.stderr, flush=True)  # noqa: T201
    os._exit(os.EX_SOFTWARE)


class Watchdog:
    """Calls `on_stall` once when a watched block runs longer than `limit_s`; 0 switches it off."""

    def __init__(
        self, *, limit_s: float, on_stall: Callable[[], None], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._limit_s = limit_s
        self._on_stall = on_stall
        self._clock = clock
        self._since: float | None = None
        self._closed = threading.Event()
        if limit_s > 0:
            threading.Thread(target=self._watch, name="engine-watchdog", daemon=True).start()

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Watch this block, which must end in time."""
        self._since = self._clock()
        try:
            yield
        finally:
            self._since = None

    def stalled(self) -> bool:
        since = self._since
        return since is not None and self._clock() - since > self._limit_s

    def close(self) -> None:
        self._closed.set()

    def _watch(self) -> None:
        while not self._closed.wait(self._limit_s / CHECKS):
            if self.stalled():
                self._on_stall()
                return
