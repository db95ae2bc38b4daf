"""The dispatcher fills a bounded window by class, by fair shares and by deadline, and sends nothing twice."""

from concurrent.futures import ThreadPoolExecutor

import pytest

from app.config import Settings, read_option
from app.db import Sessions, transaction
from app.dispatch import Dispatcher
from app.errors import TransientWork
from app.model_list import read_models
from app.states import JobState
from app.store import workers
from tests.broker import Broker
from tests.rows import Rows

TWO_MODELS = read_models("small=x max_pixels=65536, large=y", read_option)


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


def test_a_window_that_is_nearly_full_is_not_looked_at_again_at_once(
    db: Sessions, rows: Rows, broker: Broker, settings: Settings
) -> None:
    rows.add_jobs(12, batch_id="batch_1")
    work = dispatcher(db, broker, settings, window_jobs=8)
    assert work.step()
    rows.run("UPDATE jobs SET state = 'running' WHERE id = (SELECT min(id) FROM jobs)")
    assert not work.step()
    assert len(broker.sent) == 9


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


def test_jobs_that_were_on_board_at_a_death_go_first_one_by_one_and_within_the_window(
    db: Sessions, rows: Rows, broker: Broker, settings: Settings
) -> None:
    others = rows.add_jobs(4, batch_id="batch_1")
    saved = rows.add_jobs(2, batch_id=rows.add_batch("batch_2"), alone=True)
    rows.run("UPDATE batches SET expires_at = now() + interval '2 days' WHERE id = 'batch_2'")
    dispatcher(db, broker, settings, window_jobs=4, chunk_jobs=2).send()
    assert [chunk.job_ids for chunk in broker.chunks] == [(saved[0],), (saved[1],), tuple(others[:2])]


@pytest.mark.parametrize(
    "change", ["status = 'cancelling'", "expires_at = now()", "deleted_at = now()"], ids=lambda it: it[:7]
)
def test_jobs_that_were_on_board_at_a_death_stay_with_a_batch_that_is_closed(
    db: Sessions, rows: Rows, broker: Broker, settings: Settings, change: str
) -> None:
    rows.add_jobs(2, batch_id="batch_1", alone=True)
    rows.run(f"UPDATE batches SET {change}")  # noqa: S608 - from the list above
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


def test_classes_go_in_order_and_the_background_gets_what_is_left(
    db: Sessions, rows: Rows, broker: Broker, settings: Settings
) -> None:
    rows.add_batch("batch_2")
    rows.run("UPDATE batches SET priority = 'background' WHERE id = 'batch_1'")
    leisure = rows.add_jobs(9, batch_id="batch_1", priority="background")
    standard = rows.add_jobs(6, batch_id="batch_2")
    waiting = rows.add_jobs(3, priority="interactive")
    assert dispatcher(db, broker, settings, window_jobs=8).send() == 11
    sent = {chunk.job_ids: chunk.priority for chunk in broker.chunks}
    assert sent == {
        **{(job_id,): "interactive" for job_id in waiting},
        tuple(standard): "standard",
        tuple(leisure[:2]): "background",
    }


def test_a_full_background_keeps_no_standard_job_waiting(
    db: Sessions, rows: Rows, broker: Broker, settings: Settings
) -> None:
    rows.add_jobs(9, priority="background")
    work = dispatcher(db, broker, settings, window_jobs=8)
    assert (work.send(), work.send()) == (8, 0)
    rows.add_jobs(9)
    assert (work.send(), work.send()) == (8, 0)


def test_a_background_batch_near_its_deadline_counts_as_standard(
    db: Sessions, rows: Rows, broker: Broker, settings: Settings
) -> None:
    rows.add_jobs(2, batch_id="batch_1", priority="background")
    rows.run(
        "UPDATE batches SET priority = 'background', created_at = now() - interval '8 hours', "
        "expires_at = now() + interval '2 hours'"
    )
    dispatcher(db, broker, settings).send()
    assert [chunk.priority for chunk in broker.chunks] == ["standard"]
    assert rows.all("SELECT priority FROM jobs") == ["standard", "standard"]


def test_a_tenant_who_came_late_gets_its_share_of_the_whole_window(
    db: Sessions, rows: Rows, broker: Broker, settings: Settings
) -> None:
    rows.add_jobs(30, batch_id="batch_1")
    work = dispatcher(db, broker, settings, window_jobs=8)
    work.send()
    late = Rows(db, tenant="tenant_b").add_jobs(9)
    rows.run(
        "UPDATE jobs SET state = 'running' WHERE id IN (SELECT min(id) FROM jobs WHERE state = 'queued')"
    )
    rows.run(
        "UPDATE jobs SET state = 'running' WHERE id IN (SELECT min(id) FROM jobs WHERE state = 'queued')"
    )
    assert work.send() == 2
    assert broker.sent[-2:] == late[:2]


def test_a_tenants_weight_is_its_part_of_the_window(
    db: Sessions, rows: Rows, broker: Broker, settings: Settings
) -> None:
    rows.add_jobs(30)
    Rows(db, tenant="tenant_b").add_jobs(30)
    rows.run("UPDATE tenants SET weight = 3 WHERE id = 'tenant_b'")
    dispatcher(db, broker, settings, window_jobs=12).send()
    assert rows.one("SELECT count(*) FROM jobs WHERE state = 'queued' AND tenant_id = 'tenant_b'") == 9


def test_the_batch_with_the_earlier_deadline_goes_first_and_none_before_its_time(
    db: Sessions, rows: Rows, broker: Broker, settings: Settings
) -> None:
    rows.add_batch("batch_2")
    rows.run("UPDATE batches SET expires_at = now() + interval '1 hour' WHERE id = 'batch_2'")
    late, soon = rows.add_jobs(3, batch_id="batch_1"), rows.add_jobs(3, batch_id="batch_2")
    again = rows.add_jobs(1, batch_id="batch_2", not_before="2100-01-01")
    dispatcher(db, broker, settings, window_jobs=5).send()
    assert broker.sent == [*soon, *late[:2]]
    assert rows.states()[again[0]] == JobState.READY


@pytest.mark.parametrize("column", ["expires_at", "deleted_at"])
def test_nothing_of_a_batch_past_its_time_or_deleted_is_sent(
    db: Sessions, rows: Rows, broker: Broker, settings: Settings, column: str
) -> None:
    rows.add_jobs(2, batch_id="batch_1")
    rows.run(f"UPDATE batches SET {column} = now() - interval '1 second'")  # noqa: S608 - one of two columns
    assert dispatcher(db, broker, settings).send() == 0


def test_a_tenant_of_many_small_batches_fills_the_window_in_one_step(
    db: Sessions, rows: Rows, broker: Broker, settings: Settings
) -> None:
    for number in range(20):
        rows.add_batch(f"small_{number:02}")
        rows.add_jobs(1, batch_id=f"small_{number:02}")
    Rows(db, tenant="tenant_b").add_jobs(2)
    assert dispatcher(db, broker, settings, window_jobs=16).send() == 16


def test_while_one_dispatcher_sends_another_leaves_it_to_that(
    db: Sessions, rows: Rows, broker: Broker, settings: Settings
) -> None:
    rows.add_jobs(9, batch_id="batch_1")
    first, second = (dispatcher(db, broker, settings, window_jobs=4) for _ in range(2))
    meanwhile: list[int] = []
    broker.after_send = lambda: meanwhile.append(second.send())
    assert (first.send(), meanwhile) == (4, [0])
    rows.run("UPDATE jobs SET state = 'running' WHERE state = 'queued'")
    broker.after_send = None
    assert second.send() == 4


def test_dispatchers_that_run_at_once_send_each_job_once(
    db: Sessions, rows: Rows, broker: Broker, settings: Settings
) -> None:
    ids = rows.add_jobs(60, batch_id="batch_1")
    dispatchers = [dispatcher(db, broker, settings, window_jobs=200, chunk_jobs=3) for _ in range(3)]
    with ThreadPoolExecutor(3) as pool:
        for work in dispatchers:
            work.reap()
        sums = list(pool.map(lambda work: sum(work.send() for _ in range(5)), dispatchers))
    assert sum(sums) == 60
    assert sorted(broker.sent) == ids


def _die() -> None:
    raise KeyboardInterrupt
