"""Waiting for a condition instead of sleeping."""

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")
POLL_S = 0.02


def eventually(condition: Callable[[], T], *, within_s: float = 20.0) -> T:
    """Poll until `condition` gives something true, and return that; AssertionError when the time is over."""
    until = time.monotonic() + within_s
    while True:
        value = condition()
        if value:
            return value
        assert time.monotonic() < until, f"still {value!r} after {within_s} s"
        time.sleep(POLL_S)
