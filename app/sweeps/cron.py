"""When a sweep is due: a cron line read in a time zone, daylight saving decided. Pure.

A line that names its hour and minute (`30 2 * * *`) is due once a day by the clock on the wall: at a time
that a change of the clock leaves out, right after the gap; at a time that comes twice, the first time. One
whose hour or minute begins with a star (`*/15 * * * *`) goes by the time that passes, as Debian's cron has
it: an hour that comes twice has its due times twice. Due times that fall together are one.
"""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

from cronsim import CronSim, CronSimError

from app.errors import RequestError

FIELDS = 5
# How far to look back for the newest due time: as few steps as a line's own pace allows.
LOOK_BACK = tuple(timedelta(hours=hours) for hours in (1, 25, 24 * 40, 24 * 400, 24 * 366 * 9))


def check_cron(cron: str, zone: str) -> None:
    """RequestError for a line that is none or never comes true, and for a zone that is unknown."""
    try:
        where = ZoneInfo(zone)
    except (OSError, ValueError, LookupError) as error:
        message = f"The time zone {zone!r} is unknown: write one such as Europe/Berlin, or UTC."
        raise RequestError(message, param="zone", code="invalid_zone") from error
    try:
        if len(cron.split()) != FIELDS:
            raise CronSimError("it needs five fields: minute, hour, day of month, month, day of week")
        next(CronSim(cron, datetime(2000, 1, 1, tzinfo=where)))
    except (CronSimError, StopIteration) as error:
        why = str(error) or "it never comes true"
        raise RequestError(
            f"The cron line {cron!r} is none: {why}.", param="cron", code="invalid_cron"
        ) from None


def due_times(cron: str, zone: str, after: datetime) -> Iterator[datetime]:
    """The due times behind `after`, in UTC, each later than the one before it."""
    last = after.astimezone(UTC)
    for found in CronSim(cron, after.astimezone(ZoneInfo(zone))):
        due = found.astimezone(UTC)
        # Times of a gap fall together at its end, and where the clock was put back a first one is past.
        if due > last:
            last = due
            yield due


def next_due(cron: str, zone: str, after: datetime) -> datetime | None:
    """The first due time behind `after`; None where the line never comes true again."""
    return next(due_times(cron, zone, after), None)


def latest_due(cron: str, zone: str, first: datetime, now: datetime) -> datetime:
    """The newest due time up to `now`, where `first` is one that has come."""
    for back in LOOK_BACK:
        start = max(first, now - back)
        found = None
        for due in due_times(cron, zone, start):
            if due > now:
                break
            found = due
        if found is not None:
            return found
        if start == first:
            break
    return first
