"""A loop in a thread idles until its time is over, it is woken, or it is stopped."""

from collections.abc import Callable, Iterator
from threading import Event

import pytest

from app.loops import Loop
from tests.waiting import eventually

FOR_EVER_S = 3600.0


@pytest.fixture
def start() -> Iterator[Callable[[Loop], None]]:
    """Starts a loop, and ends it after the test."""
    loops: list[Loop] = []

    def start(loop: Loop) -> None:
        loops.append(loop)
        loop.start()

    yield start
    for loop in loops:
        loop.stop()
        assert loop.join(5)


def test_an_idle_loop_steps_at_once_when_it_is_woken(start: Callable[[Loop], None]) -> None:
    steps: list[int] = []
    wake = Event()
    start(Loop("sleeper", lambda: bool(steps.append(1)), idle_s=FOR_EVER_S, wake=wake))
    eventually(lambda: len(steps) == 1)
    wake.set()
    eventually(lambda: len(steps) == 2)


def test_a_wake_up_during_a_step_is_not_lost(start: Callable[[Loop], None]) -> None:
    steps: list[int] = []
    wake = Event()

    def step() -> bool:
        steps.append(1)
        if len(steps) == 1:
            wake.set()
        return False

    start(Loop("sleeper", step, idle_s=FOR_EVER_S, wake=wake))
    eventually(lambda: len(steps) == 2)


def test_an_idle_loop_ends_when_it_is_stopped() -> None:
    loop = Loop("sleeper", lambda: False, idle_s=FOR_EVER_S)
    loop.start()
    loop.stop()
    assert loop.join(5)
