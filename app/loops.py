"""A loop in a thread of its own: step after step until stopped, idle when a step found nothing."""

from collections.abc import Callable
from threading import Event, Thread

import structlog

from app import telemetry

log = structlog.get_logger()

FAULT_PAUSE_S = 1.0
LONGEST_PAUSE_S = 15.0


class Loop:
    """Runs `step` (True: there was work, come again at once) until `stop`; a step that raises is logged.

    Whoever sets `wake` ends an idle wait before its time.
    """

    def __init__(
        self, name: str, step: Callable[[], bool], *, idle_s: float, wake: Event | None = None
    ) -> None:
        self.name = name
        self.step = step
        self._idle_s = idle_s
        self._wake = wake or Event()
        self._faults = telemetry.LOOP_FAULTS.labels(name)
        self._stopping = Event()
        self._thread = Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Ask the loop to end after the step that runs."""
        self._stopping.set()
        self._wake.set()

    def join(self, timeout_s: float) -> bool:
        """Wait for the end; whether it came."""
        self._thread.join(timeout_s)
        return not self._thread.is_alive()

    def _run(self) -> None:
        pause = FAULT_PAUSE_S
        while not self._stopping.is_set():
            try:
                if not self.step():
                    self._wake.wait(self._idle_s)
                    self._wake.clear()  # before the step that looks, so that no wake-up is lost
                pause = FAULT_PAUSE_S
            except Exception:  # the top of a loop: a fault must not end it
                self._faults.inc()
                log.exception("step_failed", loop=self.name, pause_s=pause)
                self._stopping.wait(pause)
                pause = min(2 * pause, LONGEST_PAUSE_S)
