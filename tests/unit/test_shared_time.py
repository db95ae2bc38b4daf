"""An engine's time is divided among the requests that it has, and adds up to the time that it was busy."""

from concurrent.futures import Future

import pytest
from hypothesis import given
from hypothesis import strategies as st

from workers.shared_time import Meter, SharedTime


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def test_two_requests_share_the_time_that_they_are_both_there() -> None:
    clock = Clock()
    shared = SharedTime(clock)
    first = shared.begin()
    clock.now = 2.0
    second = shared.begin()
    clock.now = 6.0
    assert shared.end(first) == pytest.approx(4.0)
    clock.now = 7.0
    assert shared.end(second) == pytest.approx(3.0)


def test_time_without_requests_is_nobodys() -> None:
    clock = Clock()
    shared = SharedTime(clock)
    for _ in range(2):
        begun = shared.begin()
        clock.now += 1.0
        assert shared.end(begun) == pytest.approx(1.0)
        clock.now += 100.0


@given(st.lists(st.tuples(st.floats(0, 10), st.booleans()), max_size=30))
def test_the_seconds_of_all_add_up_to_the_busy_time(moves: list[tuple[float, bool]]) -> None:
    clock = Clock()
    shared = SharedTime(clock)
    running: list[float] = []
    total = busy = 0.0
    for passed, comes in [*moves, *((1.0, False) for _ in moves)]:
        busy += passed if running else 0.0
        clock.now += passed
        if comes:
            running.append(shared.begin())
        elif running:
            total += shared.end(running.pop(0))
    assert total == pytest.approx(busy if not running else total)


def test_a_meter_ends_what_still_runs_once() -> None:
    clock = Clock()
    shared, meter = SharedTime(clock), Meter()
    done, cut, refused = Future[int](), Future[int](), Future[int]()
    meter.begin(done, shared)
    meter.begin(cut, shared)
    clock.now = 2.0
    meter.end([done, refused])
    clock.now = 3.0
    meter.close()
    meter.close()
    assert [meter.seconds(one) for one in (done, cut, refused)] == pytest.approx([1.0, 2.0, 0.0])
