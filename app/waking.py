"""Wakes a loop when Postgres tells that there is work for it, so that interactive work waits for no poll."""

from threading import Event

from app.loops import Loop
from app.store.notices import Listener

# A stop is noticed this late at most. The loop that is woken polls as well, should no notice come through.
LISTEN_S = 1.0


def waking_loop(listener: Listener, wake: Event) -> Loop:
    """Sets `wake` at every notice, in a thread of its own."""

    def step() -> bool:
        if listener.wait(LISTEN_S):
            wake.set()
        return True

    return Loop("listen", step, idle_s=LISTEN_S)
