"""Fixtures of the API's tests (the app, two tenants' clients), of the queue's (a broker) and of batches'."""

from collections.abc import Iterator
from uuid import uuid4

import httpx
import pytest
from openai import OpenAI
from pydantic import SecretStr

from app.config import Settings
from app.db import Sessions
from app.main import build_app, wire
from app.objects import ObjectStore, make_objects
from app.queue import ChunkSender, is_amqp, make_celery
from tests.console import Visitor, visiting
from tests.desk import Desk
from tests.labelled import SCHEMA, TABLE, Labelled
from tests.rows import Rows
from tests.serving import new_key, sdk, serving


@pytest.fixture(scope="session")
def api_url(settings: Settings) -> Iterator[str]:
    with serving(build_app(wire(settings))) as url:
        yield url


@pytest.fixture
def api_key(db: Sessions) -> str:
    return new_key(db)


@pytest.fixture
def client(api_url: str, api_key: str) -> Iterator[OpenAI]:
    """The SDK of a tenant."""
    with sdk(api_url, api_key) as client:
        yield client


@pytest.fixture
def stranger(api_url: str, db: Sessions) -> Iterator[OpenAI]:
    """The SDK of another tenant."""
    with sdk(api_url, new_key(db, "Bob")) as client:
        yield client


@pytest.fixture
def http(api_url: str, api_key: str) -> Iterator[httpx.Client]:
    """Plain HTTP with the tenant's key, for what the SDK never sends."""
    headers = {"Authorization": f"Bearer {api_key}"}
    with httpx.Client(base_url=api_url, headers=headers, timeout=60) as http:
        yield http


@pytest.fixture
def visitor(api_url: str, api_key: str) -> Iterator[Visitor]:
    """The tenant's browser, signed in to the console."""
    with visiting(api_url, api_key) as visitor:
        yield visitor


@pytest.fixture
def rows(db: Sessions, api_key: str) -> Rows:
    """Rows of the tenant, written straight to the tables."""
    assert api_key
    rows = Rows(db)
    rows.tenant = rows.one("SELECT id FROM tenants WHERE name = 'Ada'")
    return rows


@pytest.fixture(scope="module")
def objects(settings: Settings) -> Iterator[ObjectStore]:
    store = make_objects(settings)
    yield store
    store.close()


@pytest.fixture
def desk(db: Sessions, objects: ObjectStore, settings: Settings) -> Desk:
    return Desk(sessions=db, objects=objects, settings=settings)


@pytest.fixture
def on_broker(settings: Settings, broker_url: str) -> Settings:
    """Settings for one test: its broker, a model name of its own, short leases."""
    return settings.model_copy(
        update={
            "broker_url": SecretStr(broker_url),
            "model_name": f"m{uuid4().hex[:8]}",
            "lease_s": 3.0,
            "heartbeat_s": 0.5,
            "resend_s": 1.0,
            "worker_threads": 2,
        }
    )


@pytest.fixture
def sender(on_broker: Settings, broker_url: str) -> Iterator[ChunkSender]:
    sender = ChunkSender(celery=make_celery(on_broker), amqp=is_amqp(broker_url))
    yield sender
    sender.close()


@pytest.fixture
def mine(db: Sessions, api_key: str) -> Labelled:
    assert api_key
    labelled = Labelled.of(db, "")
    labelled.rows.tenant = labelled.rows.one("SELECT id FROM tenants WHERE name = 'Ada'")
    return labelled


@pytest.fixture
def found(mine: Labelled) -> dict[str, str]:
    """Answers of two policy versions, models and days, by what they are called here."""
    for number in (1, 2):
        mine.batch(f"b{number}", policy=f"v{number}", table=TABLE)
    return {
        "old": mine.answer("red", batch_id="b1", custom_id="1:colour", day="2026-11-20"),
        "kind": mine.answer("blue", batch_id="b1", custom_id="1:kind", day="2026-11-20"),
        "new": mine.answer("red", batch_id="b2", custom_id="2:colour", day="2026-11-22"),
        "large": mine.answer("green", batch_id="b2", custom_id="1:kind", model="large", day="2026-11-22"),
        "direct": mine.answer('{"colour": "red", "worn": true}', constraint=SCHEMA, day="2026-11-21"),
    }
