"""How fast a batch's jobs end, and when the last of them will. Pure."""

import math
from datetime import datetime, timedelta

# Older measurements fade with this time constant: chunks end in bursts, and a burst must not promise much.
MEMORY_S = 60.0
LONGEST = timedelta(days=365)


def next_pace(pace: float | None, *, jobs: int, seconds: float) -> float | None:
    """Jobs per second after `seconds` more in which `jobs` ended; None as long as none has ended ever."""
    if seconds <= 0:
        return pace
    rate = jobs / seconds
    if pace is None:
        return rate or None
    return pace + (rate - pace) * -math.expm1(-seconds / MEMORY_S)


def completion_at(pace: float | None, *, measured_at: datetime | None, left: int) -> datetime | None:
    """When the last of `left` jobs will end that were left at the measurement.

    None where that is not known, or further off than anybody plans for.
    """
    if not pace or measured_at is None or left <= 0 or left > pace * LONGEST.total_seconds():
        return None
    return measured_at + timedelta(seconds=left / pace)
