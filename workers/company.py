"""Who may run beside whom in one process: most chunks together, a job that must travel alone by itself."""

from collections.abc import Iterator
from contextlib import contextmanager
from threading import Condition


class Company:
    """A job that was on board at a death runs with nobody beside it: its neighbours would die with it again.

    Whoever waits to be alone is let in before those who come later.
    """

    def __init__(self) -> None:
        self._changed = Condition()
        self._together = 0
        self._alone = False
        self._wish = 0  # to be alone

    @property
    def waiting(self) -> int:
        """How many wait to be alone."""
        return self._wish

    @contextmanager
    def travel(self, *, alone: bool) -> Iterator[None]:
        """Wait for a place, and keep it while the block runs."""
        if alone:
            self._enter_alone()
        else:
            self._enter()
        try:
            yield
        finally:
            with self._changed:
                if alone:
                    self._alone = False
                else:
                    self._together -= 1
                self._changed.notify_all()

    def _enter(self) -> None:
        with self._changed:
            self._changed.wait_for(lambda: not self._alone and not self._wish)
            self._together += 1

    def _enter_alone(self) -> None:
        with self._changed:
            self._wish += 1
            self._changed.wait_for(lambda: not self._alone and not self._together)
            self._wish -= 1
            self._alone = True
