"""When sweeps are due: against a look at every minute, and where a clock leaves hours out or repeats them."""

from datetime import UTC, datetime, timedelta
from itertools import islice, takewhile
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.errors import RequestError
from app.sweeps.cron import check_cron, due_times, latest_due, next_due

ZONES = ("UTC", "Europe/Berlin", "America/New_York", "Australia/Sydney", "Asia/Kolkata", "Africa/Casablanca")
# Its clock moves by half an hour, of which cronsim steps over the second in lines that go by passing time.
HALF_HOUR = "Australia/Lord_Howe"
MINUTE = timedelta(minutes=1)
DAYS = 3


def field(low: int, high: int) -> st.SearchStrategy[str]:
    return st.lists(st.integers(low, high), min_size=1, max_size=3, unique=True).map(
        lambda found: ",".join(map(str, sorted(found)))
    )


fixed = st.tuples(field(0, 59), field(0, 23)).map(lambda found: f"{found[0]} {found[1]} * * *")
by_time = st.one_of(
    field(0, 59).map(lambda minutes: f"{minutes} * * * *"),
    st.sampled_from(["*/7 * * * *", "* * * * *", "*/20 2 * * *", "0 */3 * * *"]),
)
lines = st.one_of(
    st.tuples(fixed, st.sampled_from([*ZONES, HALF_HOUR])), st.tuples(by_time, st.sampled_from(ZONES))
)
# Around the changes of 2026 in most of these zones, and whenever else.
starts = st.one_of(
    st.sampled_from([(3, 7), (3, 28), (4, 4), (10, 3), (10, 24), (10, 31), (2, 14), (3, 21)]),
    st.tuples(st.integers(1, 12), st.integers(1, 28)),
).map(lambda day: datetime(2026, *day, tzinfo=UTC))


def numbers(text: str, top: int) -> set[int]:
    if text.startswith("*"):
        return set(range(0, top, int(text[2:] or 1)))
    return {int(one) for one in text.split(",")}


def brute(cron: str, zone: str, after: datetime) -> list[datetime]:
    """The due times of some days, by looking at every minute there is."""
    minutes, hours = (numbers(text, top) for text, top in zip(cron.split(), (60, 24), strict=False))
    where, end = ZoneInfo(zone), after + timedelta(days=DAYS)
    every = [after + MINUTE * at for at in range(-1500, DAYS * 1440 + 1)]
    walls = [(at, at.astimezone(where).replace(tzinfo=None)) for at in every]
    if "*" in cron.split()[0] + cron.split()[1]:
        found = {at for at, wall in walls if wall.minute in minutes and wall.hour in hours}
    else:
        found = set[datetime]()
        day = walls[0][1].replace(hour=0, minute=0)
        while day <= walls[-1][1]:
            for wanted in (day + timedelta(hours=h, minutes=m) for h in hours for m in minutes):
                # The first minute whose wall clock shows that time, or has leapt over it.
                found.add(next((at for at, wall in walls if wall >= wanted), end + MINUTE))
            day += timedelta(days=1)
    return sorted(at for at in found if after < at <= end)


@settings(deadline=None, max_examples=150)
@given(lines, starts)
def test_due_times_are_those_of_every_minute_that_matches(line: tuple[str, str], after: datetime) -> None:
    cron, zone = line
    end = after + timedelta(days=DAYS)
    assert list(takewhile(lambda due: due <= end, due_times(cron, zone, after))) == brute(cron, zone, after)


@settings(deadline=None)
@given(st.one_of(fixed, by_time), st.sampled_from(ZONES), starts, st.integers(0, 3 * 1440))
def test_the_latest_is_the_last_of_all_up_to_now(cron: str, zone: str, after: datetime, minutes: int) -> None:
    first = next_due(cron, zone, after)
    assert first is not None
    now = first + MINUTE * minutes
    walked = list(takewhile(lambda due: due <= now, due_times(cron, zone, first)))
    assert latest_due(cron, zone, first, now) == (walked[-1] if walked else first)


@pytest.mark.parametrize(
    ("after", "due"),
    [
        (datetime(2026, 3, 28, 12, tzinfo=UTC), datetime(2026, 3, 29, 1, tzinfo=UTC)),  # 02:30 is left out
        (datetime(2026, 10, 24, 12, tzinfo=UTC), datetime(2026, 10, 25, 0, 30, tzinfo=UTC)),  # comes twice
        (datetime(2026, 10, 25, 0, 30, tzinfo=UTC), datetime(2026, 10, 26, 1, 30, tzinfo=UTC)),
    ],
)
def test_a_nightly_run_comes_once_on_the_days_of_the_change(after: datetime, due: datetime) -> None:
    assert next_due("30 2 * * *", "Europe/Berlin", after) == due


def test_due_times_that_fall_together_are_one() -> None:
    after = datetime(2026, 3, 28, 23, tzinfo=UTC)
    found = list(islice(due_times("0,20,40 2,3 * * *", "Europe/Berlin", after), 3))
    assert [due.hour * 60 + due.minute for due in found] == [60, 80, 100]


def test_a_line_that_is_due_once_in_four_years_has_a_latest_time() -> None:
    first = datetime(2024, 2, 29, tzinfo=UTC)
    assert latest_due("0 0 29 2 *", "UTC", first, datetime(2031, 1, 1, tzinfo=UTC)).year == 2028


@pytest.mark.parametrize(
    "cron", ["", "* * * *", "0 0 * * * *", "61 * * * *", "0 0 31 2 *", "@daily", "a b c d e"]
)
def test_what_is_no_cron_line_is_refused(cron: str) -> None:
    with pytest.raises(RequestError) as refused:
        check_cron(cron, "UTC")
    assert refused.value.code == "invalid_cron"


@pytest.mark.parametrize("zone", ["", "Mars/Olympus", "../etc/passwd", "/etc/passwd", "Europe"])
def test_what_is_no_zone_is_refused(zone: str) -> None:
    with pytest.raises(RequestError) as refused:
        check_cron("0 0 * * *", zone)
    assert refused.value.code == "invalid_zone"
