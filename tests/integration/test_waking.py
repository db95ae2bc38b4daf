"""Interactive work wakes its loop through Postgres, also after the connection was lost."""

from collections.abc import Iterator
from threading import Event

import pytest
from sqlalchemy import Engine

from app.db import Sessions, transaction
from app.loops import Loop
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


def test_a_listener_takes_no_place_in_the_pool(database: Engine, wake: Event) -> None:
    before = database.pool.status()
    listener = Listener(database, JOBS)
    assert listener.wait(1)
    assert database.pool.status() == before
    listener.close()
