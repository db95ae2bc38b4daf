"""The watchdog: a step that does not end in time is noticed, once, and no other."""

import subprocess
import sys
import threading

from tests.waiting import eventually
from workers.engine.watchdog import Watchdog


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def test_a_block_is_late_only_after_its_limit_and_while_it_runs() -> None:
    clock = Clock()
    dog = Watchdog(limit_s=3600, on_stall=lambda: None, clock=clock)
    clock.now += 9000
    assert not dog.stalled()  # an idle engine may wait for ever
    with dog.watching():
        clock.now += 3600
        assert not dog.stalled()
        clock.now += 1
        assert dog.stalled()
    assert not dog.stalled()
    with dog.watching():
        assert not dog.stalled()
    dog.close()


def test_a_stall_is_told_once() -> None:
    clock, told = Clock(), list[bool]()
    dog = Watchdog(limit_s=0.01, on_stall=lambda: told.append(True), clock=clock)
    with dog.watching():
        clock.now += 1
        eventually(lambda: told)
        eventually(lambda: not watchers())
    assert told == [True]


def test_a_closed_watchdog_goes_away_and_says_nothing() -> None:
    clock, told = Clock(), list[bool]()
    dog = Watchdog(limit_s=0.01, on_stall=lambda: told.append(True), clock=clock)
    dog.close()
    eventually(lambda: not watchers())
    with dog.watching():
        clock.now += 1
    assert told == []


def test_no_limit_means_no_watchdog() -> None:
    dog = Watchdog(limit_s=0, on_stall=lambda: None)
    assert not watchers()
    dog.close()


def test_the_process_ends_and_says_where_it_stood() -> None:
    """Though its main thread would never return."""
    script = (
        "import threading\n"
        "from workers.engine.watchdog import Watchdog, end_process\n"
        "def stuck_in_a_step(): threading.Event().wait()\n"
        "with Watchdog(limit_s=0.05, on_stall=end_process).watching(): stuck_in_a_step()\n"
    )
    ended = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60)
    assert ended.returncode == 70
    assert "stuck_in_a_step" in ended.stderr
    assert "engine_dead" in ended.stderr


def watchers() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "engine-watchdog"]
