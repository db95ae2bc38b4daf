"""A Postgres that is frozen keeps nobody on the line for ever, and is used again when it wakes."""

import time
from collections.abc import Iterator

import httpx
import pytest
from pydantic import SecretStr
from sqlalchemy import make_url, text
from sqlalchemy.exc import OperationalError
from sqlalchemy.exc import TimeoutError as PoolTimeout

from app.config import Settings
from app.db import Sessions, give_up_waiting, is_outage, make_engine, make_sessions, transaction
from app.main import build_app, wire
from tests.cutting import Cutting, cutting
from tests.serving import new_key, serving


@pytest.fixture
def way(database_url: str) -> Iterator[Cutting]:
    """The way to the database, which can be frozen."""
    url = make_url(database_url)
    with cutting(f"http://{url.host}:{url.port or 5432}") as proxy:
        yield proxy
        proxy.thaw()


@pytest.fixture
def frozen_url(way: Cutting, database_url: str) -> str:
    port = int(way.url.rsplit(":", 1)[1])
    return make_url(database_url).set(host="127.0.0.1", port=port).render_as_string(hide_password=False)


@pytest.fixture(autouse=True)
def patience() -> Iterator[None]:
    give_up_waiting(0.3)
    yield
    give_up_waiting(0)


def test_a_statement_ends_as_an_outage_and_the_next_one_works(way: Cutting, frozen_url: str) -> None:
    engine = make_engine(frozen_url, pool_size=1, application="tests")
    with transaction(make_sessions(engine)) as session:
        way.freeze()
        with pytest.raises(OperationalError) as caught:
            session.execute(text("SELECT 1"))
        assert is_outage(caught.value)
        way.thaw()
    with transaction(make_sessions(engine)) as session:
        assert session.execute(text("SELECT 2")).scalar_one() == 2
    engine.dispose()


def test_a_request_is_answered_503_and_then_again(
    way: Cutting, frozen_url: str, settings: Settings, db: Sessions
) -> None:
    app = build_app(wire(settings.model_copy(update={"database_url": SecretStr(frozen_url)})))
    headers = {"Authorization": f"Bearer {new_key(db)}"}
    with serving(app) as url, httpx.Client(base_url=url, headers=headers, timeout=30) as http:
        assert http.get("/v1/files").status_code == 200
        way.freeze()
        started = time.monotonic()
        answer = http.get("/v1/files")
        assert (answer.status_code, "Retry-After" in answer.headers) == (503, True)
        assert time.monotonic() - started < 5
        way.thaw()
        assert http.get("/v1/files").status_code == 200


def test_a_slow_statement_of_the_api_is_ended_by_the_server(database_url: str) -> None:
    engine = make_engine(database_url, pool_size=1, application="tests", statement_timeout_ms=50)
    with (
        pytest.raises(OperationalError, match="statement timeout"),
        transaction(make_sessions(engine)) as session,
    ):
        session.execute(text("SELECT pg_sleep(0.2)"))
    engine.dispose()


def test_a_pool_whose_connections_all_wait_is_an_outage_too() -> None:
    assert is_outage(PoolTimeout("QueuePool limit of size 1 overflow 0 reached"))
