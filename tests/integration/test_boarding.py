"""A chunk that waits for its turn is held in the books; one that gets none goes back unclaimed."""

from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from threading import Event

import pytest

from app.config import Settings
from app.db import Sessions
from app.planner import Lane
from app.states import JobState, Priority
from tests.rows import Rows
from tests.waiting import eventually
from workers.boarding import Boarding
from workers.leases import Leases

STANDARD = Lane("demo")
BACKGROUND = Lane("demo", Priority.BACKGROUND)


@pytest.fixture
def rows(db: Sessions) -> Rows:
    return Rows(db)


@pytest.fixture
def pool() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(4) as pool:
        yield pool


@pytest.fixture
def one_seat(settings: Settings) -> Settings:
    return settings.model_copy(update={"worker_threads": 1, "resend_s": 0.2})


@pytest.fixture
def leases(db: Sessions, one_seat: Settings) -> Leases:
    return Leases(sessions=db, worker="w1", settings=one_seat)


@pytest.fixture
def boarding(db: Sessions, one_seat: Settings, leases: Leases) -> Boarding:
    return Boarding(sessions=db, leases=leases, settings=one_seat, worker="w1", pause=lambda _: None)


@contextmanager
def another_aboard(boarding: Boarding, pool: ThreadPoolExecutor) -> Iterator[None]:
    """The only seat is taken while the block runs."""
    aboard, arrive = Event(), Event()

    def travel() -> None:
        with boarding.turn([0, 0], STANDARD):
            aboard.set()
            assert arrive.wait(60)

    journey = pool.submit(travel)
    assert aboard.wait(60)
    try:
        yield
    finally:
        arrive.set()
        journey.result(60)


def board(
    boarding: Boarding, pool: ThreadPoolExecutor, ids: list[int], lane: Lane = STANDARD
) -> Future[bool]:
    """Whether the chunk's turn came."""

    def travel() -> bool:
        with boarding.turn(ids, lane) as came:
            return came

    return pool.submit(travel)


def held(rows: Rows) -> bool:
    return rows.one("SELECT count(*) FROM jobs WHERE lease_until > now() AND worker = 'w1'") > 0


def test_a_chunk_with_a_free_seat_is_not_written_about(rows: Rows, boarding: Boarding) -> None:
    ids = rows.add_jobs(2, state="queued")
    with boarding.turn(ids, STANDARD) as came:
        assert came
        assert not held(rows)


def test_a_chunk_that_waits_is_held_and_kept_until_its_turn(
    rows: Rows, boarding: Boarding, leases: Leases, pool: ThreadPoolExecutor
) -> None:
    ids = rows.add_jobs(2, state="queued")
    with another_aboard(boarding, pool):
        waiting = board(boarding, pool, ids)
        eventually(lambda: held(rows))
        rows.run("UPDATE jobs SET lease_until = now() + interval '1 second'")
        leases.step()
        assert rows.one("SELECT min(lease_until) > now() + interval '30 seconds' FROM jobs")
        assert set(rows.states().values()) == {JobState.QUEUED}
    assert waiting.result(60)


def test_a_background_chunk_gives_up_after_a_while_and_is_ready_again(
    rows: Rows, boarding: Boarding, pool: ThreadPoolExecutor
) -> None:
    ids = rows.add_jobs(2, state="queued", priority="background")
    with another_aboard(boarding, pool):
        assert not board(boarding, pool, ids, BACKGROUND).result(60)
    assert set(rows.states().values()) == {JobState.READY}
    assert rows.all("SELECT attempt FROM jobs WHERE lease_until IS NULL AND worker IS NULL") == [0, 0]


def test_a_second_message_of_a_chunk_that_is_held_goes_at_once(
    rows: Rows, boarding: Boarding, pool: ThreadPoolExecutor
) -> None:
    ids = rows.add_jobs(2, state="queued")
    with another_aboard(boarding, pool):
        first = board(boarding, pool, ids)
        eventually(lambda: held(rows))
        assert not board(boarding, pool, ids).result(60)
        assert set(rows.states().values()) == {JobState.QUEUED}
    assert first.result(60)


def test_a_chunk_whose_jobs_are_over_waits_for_no_turn(
    rows: Rows, boarding: Boarding, pool: ThreadPoolExecutor
) -> None:
    ids = rows.add_jobs(2, state="completed")
    with another_aboard(boarding, pool):
        assert not board(boarding, pool, ids).result(60)
    assert set(rows.states().values()) == {JobState.COMPLETED}


def test_after_the_close_what_waits_and_what_comes_goes_back(
    rows: Rows, boarding: Boarding, pool: ThreadPoolExecutor
) -> None:
    waiting, coming = rows.add_jobs(2, state="queued"), rows.add_jobs(1, state="queued", alone=True)
    with another_aboard(boarding, pool):
        before = board(boarding, pool, waiting)
        eventually(lambda: held(rows))
        boarding.close()
        assert not before.result(60)
    assert not board(boarding, pool, coming).result(60)
    assert set(rows.states().values()) == {JobState.READY}


def test_what_the_reaper_took_back_meanwhile_is_not_given_back_twice(
    rows: Rows, boarding: Boarding, pool: ThreadPoolExecutor
) -> None:
    """It may be on the broker again, and then belongs to that message."""
    ids = rows.add_jobs(2, state="queued")
    with another_aboard(boarding, pool):
        waiting = board(boarding, pool, ids)
        eventually(lambda: held(rows))
        rows.run("UPDATE jobs SET lease_until = NULL")
        boarding.close()
        assert not waiting.result(60)
    assert set(rows.states().values()) == {JobState.QUEUED}
