"""Interactive work wakes its loop through Postgres, also after the connection was lost."""

from collections.abc import Iterator
from threading import Event

import httpx
import pytest
from sqlalchemy import Engine

from app.db import Sessions, transaction
from app.loops import Loop
from app.store import images, jobs
from app.store.images import ImageWish, StoredImage
from app.store.notices import JOBS, Listener, notify
from app.waking import waking_loop
from tests.rows import Rows
from tests.waiting import eventually

CUT = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE query = 'LISTEN vqueue_jobs'"


@pytest.fixture
def wake() -> Event:
    return Event()


@pytest.fixture
def listening(database: Engine, wake: Event) -> Iterator[Loop]:
    """A loop that has begun to listen: what came before that counts as a notice."""
    listener = Listener(database, JOBS)
    loop = waking_loop(listener, wake)
    loop.start()
    eventually(wake.is_set)
    wake.clear()
    yield loop
    loop.stop()
    assert loop.join(5)
    listener.close()


@pytest.mark.usefixtures("listening")
def test_a_notice_wakes_only_once_the_transaction_commits(db: Sessions, wake: Event) -> None:
    with transaction(db) as session:
        notify(session, JOBS)
        session.flush()
        assert not wake.wait(0.1)
    assert wake.wait(5)


@pytest.mark.usefixtures("listening")
def test_a_lost_connection_counts_as_a_notice_and_is_made_anew(db: Sessions, wake: Event) -> None:
    assert Rows(db).all(CUT) == [True]
    assert wake.wait(10)
    wake.clear()
    with transaction(db) as session:
        notify(session, JOBS)
    assert wake.wait(5)


@pytest.mark.parametrize(("priority", "wakes"), [("interactive", True), ("background", False)])
@pytest.mark.usefixtures("listening")
def test_an_interactive_job_wakes_the_dispatcher_when_it_is_posted(
    http: httpx.Client, wake: Event, priority: str, wakes: bool
) -> None:
    assert http.post("/v1/jobs", json={"question": "?", "priority": priority}).status_code == 202
    assert wake.wait(5 if wakes else 0.2) is wakes


@pytest.mark.parametrize(("priority", "wakes"), [("interactive", True), ("standard", False)])
@pytest.mark.usefixtures("listening")
def test_the_last_picture_of_an_interactive_job_wakes_the_dispatcher(
    db: Sessions, wake: Event, priority: str, wakes: bool
) -> None:
    rows = Rows(db)
    rows.add_tenant()
    with transaction(db) as session:
        wish = ImageWish("url", "h", "https://a.example/1.png")
        image = images.want_images(session, rows.tenant, [wish], reuse_s=0)["h"].id
    (job_id,) = rows.add_jobs(1, priority=priority, state="waiting", waiting_on=1, image_ids=[image])
    with transaction(db) as session:
        jobs.insert_waits(session, [(image, job_id)])
        (task,) = images.claim_fetches(session, limit=1, lease_s=60, per_host=1, active={})
        assert images.record_stored(session, task, StoredImage("a" * 64, "PNG", 8, 8, 9)) == 1
    assert wake.wait(5 if wakes else 0.2) is wakes


def test_a_listener_takes_no_place_in_the_pool(database: Engine, wake: Event) -> None:
    before = database.pool.status()
    listener = Listener(database, JOBS)
    assert listener.wait(1)
    assert database.pool.status() == before
    listener.close()
