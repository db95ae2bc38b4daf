"""The dispatcher fills a bounded window, sends again what was lost, and takes back what was abandoned."""

from collections.abc import Callable, Sequence

import pytest
from prometheus_client import REGISTRY

from app.config import Settings, read_option
from app.db import Sessions, transaction
from app.dispatch import Dispatcher
from app.errors import TransientWork
from app.model_list import read_models
from app.planner import Chunk
from app.states import JobState, Priority
from app.store import workers
from tests.rows import Rows

TWO_MODELS = read_models("small=x max_pixels=65536, large=y", read_option)


class Broker:
    """Remembers what was published, and can be switched off."""

    def __init__(self) -> None:
        self.chunks: list[Chunk] = []
        self.away = False
        self.waiting = 0
        self.after_send: Callable[[], None] | None = None

    def send(self, chunks: Sequence[Chunk]) -> None:
        if self.away:
            raise TransientWork("broker_unavailable", "away")
        self.chunks.extend(chunks)
        if self.after_send:
            self.after_send()

    def depth(self, model: str, priority: Priority = Priority.STANDARD) -> int:
        return self.waiting

    @property
    def sent(self) -> list[int]:
        return [job_id for chunk in self.chunks for job_id in chunk.job_ids]


@pytest.fixture
def rows(db: Sessions) -> Rows:
    rows = Rows(db)
    rows.add_batch()
    return rows


@pytest.fixture
def broker() -> Broker:
    return Broker()


def dispatcher(db: Sessions, broker: Broker, settings: Settings, **changes: object) -> Dispatcher:
    return Dispatcher(sessions=db, sender=broker, settings=settings.model_copy(update=changes))


def test_ready_jobs_are_sent_once_and_marked_queued(
    db: Sessions, rows: Rows, broker: Broker, settings: Settings
) -> None:
    ids = rows.add_jobs(5, batch_id="batch_1")
    work = dispatcher(db, broker, settings)
    assert (work.send(), work.send()) == (5, 0)
    assert sorted(broker.sent) == ids
    assert set(rows.states().values()) == {JobState.QUEUED}


def test_the_window_bounds_what_waits_on_the_broker(
    db: Sessions, rows: Rows, broker: Broker, settings: Settings
) -> None:
    rows.add_jobs(10, batch_id="batch_1")
    work = dispatcher(db, broker, settings, window_jobs=4)
    assert (work.send(), work.send()) == (4, 0)
    rows.run("UPDATE jobs SET state = 'running' WHERE state = 'queued'")
    assert work.send() == 4


def test_the_jobs_of_one_image_travel_together(
    db: Sessions, rows: Rows, broker: Broker, settings: Settings
) -> None:
    images = [rows.add_image(letter * 64) for letter in "abcd"]
    for image in images * 3:
        rows.add_jobs(1, batch_id="batch_1", image_ids=[image], image_group=image)
    dispatcher(db, broker, settings, chunk_jobs=3).send()
    groups = [
        {rows.one("SELECT image_group FROM jobs WHERE id = :id", id=job_id) for job_id in chunk.job_ids}
        for chunk in broker.chunks
    ]
    assert groups == [{image} for image in images]


def test_a_chunk_is_sized_by_the_visual_tokens_of_its_images(
    db: Sessions, rows: Rows, broker: Broker, settings: Settings
) -> None:
    for letter in "abcd":
        image = rows.add_image(letter * 64, width=640, height=640)  # 20 x 20 = 400 tokens
        rows.add_jobs(1, batch_id="batch_1", image_ids=[image], image_group=image)
    dispatcher(db, broker, settings, chunk_visual_tokens=800).send()
    assert [len(chunk.job_ids) for chunk in broker.chunks] == [2, 2]


@pytest.mark.parametrize("status", ["validating", "cancelling", "finalizing"])
def test_jobs_of_a_batch_that_is_not_in_progress_stay(
    db: Sessions, rows: Rows, broker: Broker, settings: Settings, status: str
) -> None:
    rows.add_jobs(2, batch_id="batch_1")
    rows.run("UPDATE batches SET status = :status", status=status)
    assert dispatcher(db, broker, settings).send() == 0


def test_a_broker_that_is_away_leaves_the_jobs_ready(
    db: Sessions, rows: Rows, broker: Broker, settings: Settings
) -> None:
    (job_id,) = rows.add_jobs(1, batch_id="batch_1")
    broker.away = True
    with pytest.raises(TransientWork):
        dispatcher(db, broker, settings).send()
    assert rows.states() == {job_id: JobState.READY}
    broker.away = False
    assert dispatcher(db, broker, settings).send() == 1


def test_a_death_between_publish_and_mark_sends_the_jobs_again(
    db: Sessions, rows: Rows, broker: Broker, settings: Settings
) -> None:
    """The second message is harmless: its claim finds nothing to claim."""
    (job_id,) = rows.add_jobs(1, batch_id="batch_1")
    broker.after_send = _die
    with pytest.raises(KeyboardInterrupt):
        dispatcher(db, broker, settings).send()
    broker.after_send = None
    dispatcher(db, broker, settings).send()
    assert broker.sent == [job_id, job_id]


def test_a_lapsed_lease_brings_the_job_back_to_travel_alone(
    db: Sessions, rows: Rows, broker: Broker, settings: Settings
) -> None:
    ids = rows.add_jobs(3, batch_id="batch_1", state="running", lease_until="2020-01-01", attempt=1)
    work = dispatcher(db, broker, settings)
    work.reap()
    work.send()
    assert sorted(chunk.job_ids for chunk in broker.chunks) == [(job_id,) for job_id in ids]


def test_the_third_death_ends_the_job_as_engine_crash_and_counts_it(
    db: Sessions, rows: Rows, broker: Broker, settings: Settings
) -> None:
    rows.add_jobs(1, batch_id="batch_1", state="running", lease_until="2020-01-01", crashes=2)
    dispatcher(db, broker, settings).reap()
    assert rows.one("SELECT state || ' ' || error_code FROM jobs") == "failed engine_crash"
    assert rows.counts() == (1, 0, 1)


def test_a_lease_that_runs_is_left_alone(
    db: Sessions, rows: Rows, broker: Broker, settings: Settings
) -> None:
    (job_id,) = rows.add_jobs(1, batch_id="batch_1", state="running", lease_until="2100-01-01")
    dispatcher(db, broker, settings).reap()
    assert rows.states() == {job_id: JobState.RUNNING}


def test_what_a_purged_queue_lost_is_sent_again(
    db: Sessions, rows: Rows, broker: Broker, settings: Settings
) -> None:
    (job_id,) = rows.add_jobs(1, batch_id="batch_1", state="queued", sent_at="2020-01-01")
    dispatcher(db, broker, settings).reap()
    assert rows.states() == {job_id: JobState.READY}


def test_what_still_waits_on_the_broker_is_not_sent_again(
    db: Sessions, rows: Rows, broker: Broker, settings: Settings
) -> None:
    (job_id,) = rows.add_jobs(1, batch_id="batch_1", state="queued", sent_at="2020-01-01")
    broker.waiting = 1
    dispatcher(db, broker, settings).reap()
    assert rows.states() == {job_id: JobState.QUEUED}


def test_a_message_that_later_ones_have_overtaken_is_taken_for_lost(
    db: Sessions, rows: Rows, broker: Broker, settings: Settings
) -> None:
    broker.waiting = 5
    (lost,) = rows.add_jobs(1, batch_id="batch_1", state="queued", sent_at="2026-01-01 12:00")
    rows.add_jobs(
        1, batch_id="batch_1", state="running", sent_at="2026-01-01 12:05", lease_until="2100-01-01"
    )
    (behind,) = rows.add_jobs(1, batch_id="batch_1", state="queued", sent_at="2026-01-01 12:06")
    dispatcher(db, broker, settings).reap()
    states = rows.states()
    assert (states[lost], states[behind]) == (JobState.READY, JobState.QUEUED)


def test_a_direct_job_past_its_deadline_ends_as_expired(
    db: Sessions, rows: Rows, broker: Broker, settings: Settings
) -> None:
    (job_id,) = rows.add_jobs(1, deadline="2020-01-01")
    dispatcher(db, broker, settings).reap()
    assert rows.states() == {job_id: JobState.EXPIRED}


def test_after_an_outage_workers_get_time_to_renew_before_they_are_judged(
    db: Sessions, rows: Rows, broker: Broker, settings: Settings
) -> None:
    now = 0.0
    work = Dispatcher(sessions=db, sender=broker, settings=settings, clock=lambda: now)
    broker.away = True
    rows.add_jobs(1, batch_id="batch_1")
    with pytest.raises(TransientWork):
        work.step()
    rows.add_jobs(1, batch_id="batch_1", state="running", lease_until="2020-01-01")
    broker.away = False
    now = settings.heartbeat_s
    work.step()
    assert JobState.RUNNING in rows.states().values()
    now = 3 * settings.heartbeat_s
    work.step()
    assert JobState.RUNNING not in rows.states().values()


def test_two_tenants_share_the_window(db: Sessions, rows: Rows, broker: Broker, settings: Settings) -> None:
    large = rows.add_jobs(20, batch_id="batch_1")
    other = Rows(db, tenant="tenant_b")
    other.add_batch("batch_2")
    small = other.add_jobs(3, batch_id="batch_2")
    dispatcher(db, broker, settings, window_jobs=8).send()
    assert set(small) <= set(broker.sent)
    assert len(set(large) & set(broker.sent)) == 5


def test_a_tenant_with_many_direct_jobs_does_not_hide_the_others(
    db: Sessions, rows: Rows, broker: Broker, settings: Settings
) -> None:
    rows.add_jobs(30)
    small = Rows(db, tenant="tenant_b").add_jobs(2)
    dispatcher(db, broker, settings, window_jobs=8).send()
    assert set(small) <= set(broker.sent)


def test_a_model_whose_window_is_full_holds_up_no_other(
    db: Sessions, rows: Rows, broker: Broker, settings: Settings
) -> None:
    """In one batch, in several, and among direct jobs."""
    rows.add_jobs(9, batch_id="batch_1", model="large")
    rows.add_jobs(9, model="large")
    first = rows.add_jobs(6, batch_id="batch_1", model="small")
    work = dispatcher(db, broker, settings, models=TWO_MODELS, window_jobs=4)
    assert (work.send(), work.send()) == (8, 0)
    rows.run("UPDATE jobs SET state = 'running' WHERE state = 'queued' AND model = 'small'")
    rows.add_batch("batch_2")
    then = [*rows.add_jobs(1, batch_id="batch_2", model="small"), *rows.add_jobs(1, model="small")]
    assert work.send() == 4
    of_small = [job_id for chunk in broker.chunks if chunk.model == "small" for job_id in chunk.job_ids]
    assert sorted(of_small) == [*first, *then]


def test_a_chunk_is_sized_by_the_pixel_budget_of_its_model(
    db: Sessions, rows: Rows, broker: Broker, settings: Settings
) -> None:
    for letter in "abcd":
        image = rows.add_image(letter * 64, width=640, height=640)  # 400 tokens, or 64 of 65,536 pixels
        for model in ("small", "large"):
            rows.add_jobs(1, batch_id="batch_1", model=model, image_ids=[image], image_group=image)
    dispatcher(db, broker, settings, models=TWO_MODELS, chunk_visual_tokens=800).send()
    assert sorted((chunk.model, len(chunk.job_ids)) for chunk in broker.chunks) == [
        ("large", 2),
        ("large", 2),
        ("small", 4),
    ]


def test_jobs_of_a_model_that_nobody_serves_stay_until_a_worker_does(
    db: Sessions, rows: Rows, broker: Broker, settings: Settings
) -> None:
    ids = rows.add_jobs(2, batch_id="batch_1", model="former")
    work = dispatcher(db, broker, settings)
    assert work.send() == 0
    with transaction(db) as session:
        workers.register(session, worker="w1", role="worker", model="former", revision="1")
    assert (work.send(), sorted(broker.sent)) == (2, ids)


def test_the_live_workers_of_every_served_model_are_counted(
    db: Sessions, rows: Rows, broker: Broker, settings: Settings
) -> None:
    with transaction(db) as session:
        for worker, model in (("w1", "small"), ("w1", "large"), ("w2", "large")):
            workers.register(session, worker=worker, role="worker", model=model, revision="1")
    work = dispatcher(db, broker, settings, models=TWO_MODELS)
    work.reap()
    assert (live_workers("small"), live_workers("large")) == (1, 2)
    rows.run("UPDATE workers SET heartbeat_at = now() - interval '2 minutes'")
    with transaction(db) as session:
        workers.heartbeat(session, worker="w1")
    work.reap()
    assert (live_workers("small"), live_workers("large")) == (1, 1)
    with transaction(db) as session:
        workers.leave(session, worker="w1")
    work.reap()
    assert (live_workers("small"), live_workers("large")) == (0, 0)


def live_workers(model: str) -> float | None:
    return REGISTRY.get_sample_value("vqueue_model_workers", {"model": model})


def _die() -> None:
    raise KeyboardInterrupt
