"""The reaper takes back what was abandoned or lost, once it is sure, and nothing that somebody holds."""

import pytest
from prometheus_client import REGISTRY
from sqlalchemy import text

from app.config import Settings, read_option
from app.db import Sessions, transaction
from app.dispatch import Dispatcher
from app.errors import TransientWork
from app.model_list import read_models
from app.reaper import Reaper
from app.states import JobState
from app.store import workers
from tests.broker import Broker
from tests.rows import Rows

TWO_MODELS = read_models("small=x, large=y", read_option)


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def rows(db: Sessions) -> Rows:
    rows = Rows(db)
    rows.add_batch()
    return rows


@pytest.fixture
def broker() -> Broker:
    return Broker()


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def reaper(db: Sessions, broker: Broker, settings: Settings, clock: Clock) -> Reaper:
    return Reaper(sessions=db, broker=broker, settings=settings, clock=clock)


def watch(reaper: Reaper, clock: Clock, settings: Settings) -> None:
    """Let the reaper look, and again when what it saw is old enough."""
    reaper.reap()
    clock.now += settings.lost_after_s
    reaper.reap()


def test_a_lapsed_lease_brings_the_job_back_to_travel_alone(
    db: Sessions, rows: Rows, broker: Broker, settings: Settings
) -> None:
    ids = rows.add_jobs(3, batch_id="batch_1", state="running", lease_until="2020-01-01", attempt=1)
    work = Dispatcher(sessions=db, sender=broker, settings=settings)
    work.reap()
    work.send()
    assert sorted(chunk.job_ids for chunk in broker.chunks) == [(job_id,) for job_id in ids]


def test_the_third_death_ends_the_job_as_engine_crash_and_counts_it(rows: Rows, reaper: Reaper) -> None:
    rows.add_jobs(1, batch_id="batch_1", state="running", lease_until="2020-01-01", crashes=2)
    reaper.reap()
    assert rows.one("SELECT state || ' ' || error_code FROM jobs") == "failed engine_crash"
    assert rows.counts() == (1, 0, 1)


def test_a_lease_that_runs_is_left_alone(rows: Rows, reaper: Reaper) -> None:
    (job_id,) = rows.add_jobs(1, batch_id="batch_1", state="running", lease_until="2100-01-01")
    reaper.reap()
    assert rows.states() == {job_id: JobState.RUNNING}


def test_a_direct_job_past_its_deadline_ends_as_expired(rows: Rows, reaper: Reaper) -> None:
    (job_id,) = rows.add_jobs(1, deadline="2020-01-01")
    reaper.reap()
    assert rows.states() == {job_id: JobState.EXPIRED}


def test_a_job_whose_caller_left_while_it_ran_is_cancelled(rows: Rows, reaper: Reaper) -> None:
    rows.add_jobs(1, deadline="2020-01-01", error_code="caller_left", error_message="The caller hung up.")
    reaper.reap()
    assert rows.table("SELECT state, error_code FROM jobs") == [("cancelled", "caller_left")]


def test_what_a_purged_queue_lost_is_ready_again_half_a_lease_after_the_queue_was_seen_empty(
    rows: Rows, reaper: Reaper, settings: Settings, clock: Clock
) -> None:
    (job_id,) = rows.add_jobs(1, batch_id="batch_1", state="queued", sent_at="2020-01-01")
    reaper.reap()
    clock.now += settings.lease_s / 2 - 1
    reaper.reap()
    assert rows.states() == {job_id: JobState.QUEUED}
    clock.now += 1
    reaper.reap()
    assert rows.states() == {job_id: JobState.READY}


def test_what_was_sent_after_the_queue_was_seen_empty_has_its_time(
    rows: Rows, reaper: Reaper, settings: Settings, clock: Clock
) -> None:
    reaper.reap()
    (job_id,) = rows.add_jobs(1, batch_id="batch_1", state="queued")
    rows.run("UPDATE jobs SET sent_at = clock_timestamp()")
    clock.now += settings.lost_after_s
    reaper.reap()
    assert rows.states() == {job_id: JobState.QUEUED}


def test_what_still_waits_on_the_broker_is_not_sent_again(
    rows: Rows, reaper: Reaper, broker: Broker, settings: Settings, clock: Clock
) -> None:
    (job_id,) = rows.add_jobs(1, batch_id="batch_1", state="queued", sent_at="2020-01-01")
    broker.waiting = 1
    watch(reaper, clock, settings)
    assert rows.states() == {job_id: JobState.QUEUED}


def test_a_message_that_later_ones_have_overtaken_is_taken_for_lost(
    rows: Rows, reaper: Reaper, broker: Broker, settings: Settings, clock: Clock
) -> None:
    """Also where all were sent in one go, a millionth of a second apart."""
    broker.waiting = 5
    (lost,) = rows.add_jobs(1, batch_id="batch_1", state="queued", sent_at="2026-01-01 12:00:00.000001")
    rows.add_jobs(1, state="running", sent_at="2026-01-01 12:00:00.000002", lease_until="2100-01-01")
    (behind,) = rows.add_jobs(1, batch_id="batch_1", state="queued", sent_at="2026-01-01 12:00:00.000003")
    watch(reaper, clock, settings)
    states = rows.states()
    assert (states[lost], states[behind]) == (JobState.READY, JobState.QUEUED)


def test_classes_and_models_overtake_each_other_without_loss(
    rows: Rows, reaper: Reaper, broker: Broker, settings: Settings, clock: Clock
) -> None:
    broker.waiting = 5
    (job_id,) = rows.add_jobs(1, state="queued", sent_at="2026-01-01 12:00", priority="background")
    rows.add_jobs(1, state="running", sent_at="2026-01-01 12:05", lease_until="2100-01-01")
    rows.add_jobs(
        1,
        model="large",
        state="running",
        sent_at="2026-01-01 12:05",
        lease_until="2100-01-01",
        priority="background",
    )
    watch(reaper, clock, settings)
    assert rows.states()[job_id] == JobState.QUEUED


def test_a_chunk_before_its_turn_is_left_to_the_worker_that_holds_it_while_that_lives(
    rows: Rows, reaper: Reaper, settings: Settings, clock: Clock
) -> None:
    (job_id,) = rows.add_jobs(1, state="queued", sent_at="2020-01-01", lease_until="2100-01-01", worker="w1")
    watch(reaper, clock, settings)
    assert rows.states() == {job_id: JobState.QUEUED}
    rows.run("UPDATE jobs SET lease_until = now() - interval '1 second'")
    reaper.reap()
    assert rows.states() == {job_id: JobState.READY}
    assert rows.one("SELECT lease_until FROM jobs") is None


def test_background_jobs_on_the_broker_come_back_when_their_batch_has_no_time_left(
    rows: Rows, reaper: Reaper
) -> None:
    rows.add_batch("batch_2")
    rows.run("UPDATE batches SET priority = 'background'")
    rows.run("UPDATE batches SET created_at = now() - interval '4 days' WHERE id = 'batch_1'")
    (near,) = rows.add_jobs(1, batch_id="batch_1", state="queued", priority="background")
    (far,) = rows.add_jobs(1, batch_id="batch_2", state="queued", priority="background")
    reaper.reap()
    assert rows.states() == {near: JobState.READY, far: JobState.QUEUED}


def test_two_reapers_take_back_a_job_once(db: Sessions, rows: Rows, reaper: Reaper) -> None:
    """What one of them has in hand, the other passes over, and does not wait for."""
    rows.add_jobs(1, batch_id="batch_1", state="running", lease_until="2020-01-01")
    with transaction(db) as session:
        session.execute(text("SELECT FROM jobs FOR UPDATE"))
        reaper.reap()
        assert rows.all("SELECT crashes FROM jobs") == [0]
    reaper.reap()
    reaper.reap()
    assert rows.all("SELECT crashes FROM jobs") == [1]


def test_after_an_outage_workers_get_time_to_renew_before_they_are_judged(
    db: Sessions, rows: Rows, broker: Broker, settings: Settings, clock: Clock
) -> None:
    work = Dispatcher(sessions=db, sender=broker, settings=settings, clock=clock)
    broker.away = True
    rows.add_jobs(1, batch_id="batch_1")
    with pytest.raises(TransientWork):
        work.step()
    rows.add_jobs(1, batch_id="batch_1", state="running", lease_until="2020-01-01")
    broker.away = False
    clock.now = settings.heartbeat_s
    work.step()
    assert JobState.RUNNING in rows.states().values()
    clock.now = 2 * settings.heartbeat_s
    work.step()
    assert JobState.RUNNING not in rows.states().values()


def test_the_live_workers_of_every_served_model_are_counted(
    db: Sessions, rows: Rows, broker: Broker, settings: Settings
) -> None:
    with transaction(db) as session:
        for worker, model in (("w1", "small"), ("w1", "large"), ("w2", "large")):
            workers.register(session, worker=worker, role="worker", model=model, revision="1")
    two = settings.model_copy(update={"models": TWO_MODELS})
    reaper = Reaper(sessions=db, broker=broker, settings=two)
    reaper.reap()
    assert (live_workers("small"), live_workers("large")) == (1, 2)
    rows.run("UPDATE workers SET heartbeat_at = now() - interval '2 minutes'")
    with transaction(db) as session:
        workers.heartbeat(session, worker="w1")
    reaper.reap()
    assert (live_workers("small"), live_workers("large")) == (1, 1)
    with transaction(db) as session:
        workers.leave(session, worker="w1")
    reaper.reap()
    assert (live_workers("small"), live_workers("large")) == (0, 0)


def live_workers(model: str) -> float | None:
    return REGISTRY.get_sample_value("vqueue_model_workers", {"model": model})


def test_what_the_broker_put_aside_is_told_and_when_it_was_asked_last(
    reaper: Reaper, broker: Broker, rows: Rows
) -> None:
    broker.put_aside = 3
    reaper.reap()
    assert REGISTRY.get_sample_value("vqueue_dead_chunks") == 3
    asked = looked_at("broker")
    broker.away = True
    with pytest.raises(TransientWork):
        reaper.reap()
    assert looked_at("database") > looked_at("broker") == asked > 0


def looked_at(server: str) -> float:
    return REGISTRY.get_sample_value("vqueue_looked_at_seconds", {"server": server}) or 0.0
