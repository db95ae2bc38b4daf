"""Every due time has one run, whoever looks, and whatever the clock does meanwhile."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from random import Random
from threading import Lock, Thread
from uuid import uuid4

import pytest
from sqlalchemy import text
from sqlalchemy.orm import Session

from app.db import Sessions, transaction
from app.sweeps.cron import due_times
from app.sweeps.due import Due
from tests.desk import Desk
from tests.sweeping import World

# Both changes of the clock of 2026 lie in what follows, in both of these zones.
START = datetime(2026, 3, 1, tzinfo=UTC)
LINES = (
    ("30 2 * * *", "Europe/Berlin"),
    ("15 1 * * *", "America/New_York"),
    ("0 3 * * *", "UTC"),
    ("30 1 * * *", "Europe/Berlin"),
)
EACH = 250  # due times: 1,000 in all


@dataclass
class Clock:
    """One clock for all, which its owner moves."""

    now: datetime
    lock: Lock = field(default_factory=Lock)

    def __call__(self, _: Session) -> datetime:
        return self.now


@pytest.fixture
def world(desk: Desk) -> Iterator[World]:
    made = World(desk, prefix=f"sources/{uuid4().hex[:8]}/")
    yield made
    made.close()


def set_out(world: World) -> dict[str, list[datetime]]:
    """A sweep for each line, due from START on; their due times by id."""
    wanted: dict[str, list[datetime]] = {}
    for number, (cron, zone) in enumerate(LINES):
        sweep = world.create(name=f"s{number}", cron=cron, zone=zone)
        times = due_times(cron, zone, START)
        wanted[sweep.id] = [next(times) for _ in range(EACH)]
        world.desk.execute(
            "UPDATE sweeps SET next_due_at = :due WHERE id = :id", due=wanted[sweep.id][0], id=sweep.id
        )
    return wanted


def made(sessions: Sessions) -> dict[str, list[datetime]]:
    with transaction(sessions) as session:
        rows = session.execute(text("SELECT sweep_id, due_at FROM sweep_runs ORDER BY sweep_id, due_at"))
        found: dict[str, list[datetime]] = {}
        for row in rows:
            found.setdefault(row.sweep_id, []).append(row.due_at.astimezone(UTC))
    return found


def dispatch(sessions: Sessions, clock: Clock, *, dispatchers: int = 2) -> None:
    """Several dispatchers look until there is nothing due, all at once."""

    def work(due: Due) -> None:
        while due.step():
            pass

    threads = [Thread(target=work, args=[Due(sessions=sessions, clock=clock)]) for _ in range(dispatchers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def test_two_dispatchers_a_clock_that_jumps_and_daylight_saving_make_1000_runs(world: World) -> None:
    wanted, sessions = set_out(world), world.desk.sessions
    random, clock = Random(4), Clock(START)
    end = max(times[-1] for times in wanted.values())
    reached = START
    while reached < end:
        reached = min(reached + timedelta(hours=random.uniform(1, 11)), end)
        clock.now = reached
        dispatch(sessions, clock)
        # Put back by up to two days, or ahead by a moment, as clocks are.
        clock.now = reached - timedelta(hours=random.choice([0, 0, 1, 25, 48]))
        dispatch(sessions, clock)
    found = made(sessions)
    assert sum(map(len, found.values())) == 1000
    assert found == wanted


def test_a_leap_ahead_runs_the_newest_due_time_and_a_backfill_the_others(world: World) -> None:
    wanted, sessions = set_out(world), world.desk.sessions
    clock = Clock(max(times[-1] for times in wanted.values()))
    dispatch(sessions, clock)
    missed = made(sessions)
    assert {sweep: len(times) for sweep, times in missed.items()} == dict.fromkeys(wanted, 1)
    for sweep, times in wanted.items():
        world.sweeps.backfill(world.desk.tenant, sweep, START, times[-1])
        world.sweeps.backfill(world.desk.tenant, sweep, START, times[-1])
    found = made(sessions)
    assert found == {sweep: sorted({*times, *missed[sweep]}) for sweep, times in wanted.items()}


def test_a_clock_that_was_years_ahead_for_a_while_puts_nothing_off(world: World) -> None:
    sweep = world.create(cron="0 * * * *")
    clock = Clock(START + timedelta(days=3650))
    due = Due(sessions=world.desk.sessions, clock=clock)
    due.step()
    clock.now = START + timedelta(hours=1)
    while due.step():
        pass
    clock.now = START + timedelta(hours=2, minutes=1)
    assert due.step()
    assert START + timedelta(hours=2) in made(world.desk.sessions)[sweep.id]


def test_a_backfill_makes_no_run_for_a_time_to_come(world: World) -> None:
    sweep = world.create(cron="0 0 * * *")
    now = datetime.now(UTC)
    found = world.sweeps.backfill(
        world.desk.tenant, sweep.id, now - timedelta(days=3), now + timedelta(days=3)
    )
    assert len(found) == 3
    assert all(run.due_at <= now for run in found)
