"""Fixtures: real servers, each started when the first test asks for it, and clean tables for every test.

Servers that `VQUEUE_DATABASE_URL`, `VQUEUE_BROKER_URL`, `VQUEUE_REDIS_URL` or `VQUEUE_S3_*` name are used
instead; there we make a database, a bucket and empty Redis databases of our own and touch nothing else.
"""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import boto3
import pytest
from hypothesis import settings as hypothesis_settings
from pydantic import SecretStr
from sqlalchemy import Engine, text

from app.config import Settings
from app.db import Sessions, make_engine, make_sessions
from app.local import rabbitmq
from app.migrate import migrate
from app.models import metadata
from tests.servers import (
    Databases,
    Machine,
    S3Place,
    VirtualHosts,
    claim_redis,
    flush_redis,
    given_s3,
    start_postgres,
    start_rabbitmq,
    start_s3,
    start_valkey,
)

# The same examples in every run, so that a change fails by what it changes. New ones: VQUEUE_EXPLORE=1.
hypothesis_settings.register_profile("same", derandomize=True)
hypothesis_settings.load_profile("default" if os.environ.get("VQUEUE_EXPLORE") else "same")

SHARED_CASES = Path(__file__).resolve().parents[2] / "shared" / "field-cases"


@pytest.fixture(scope="session")
def servers() -> Iterator[Machine]:
    """Where local servers run; it starts none by itself."""
    machine = Machine()
    yield machine
    machine.close()


@pytest.fixture(scope="session")
def database_url(request: pytest.FixtureRequest) -> Iterator[str]:
    """A fresh database at the newest migration."""
    given = os.environ.get("VQUEUE_DATABASE_URL")
    databases = Databases(given or start_postgres(request.getfixturevalue("servers")).url("postgres"))
    url = databases.create()
    engine = make_engine(url, pool_size=1, application="tests")
    migrate(engine)
    engine.dispose()
    yield url
    databases.drop(url)


@pytest.fixture(scope="session")
def database(database_url: str) -> Iterator[Engine]:
    engine = make_engine(database_url, pool_size=10, application="tests")
    yield engine
    engine.dispose()


@pytest.fixture
def db(database: Engine) -> Iterator[Sessions]:
    """A session factory over migrated tables, emptied after the test."""
    yield make_sessions(database)
    tables = ", ".join(table.name for table in metadata.sorted_tables)
    with database.begin() as connection:
        connection.execute(text(f"TRUNCATE {tables} RESTART IDENTITY CASCADE"))


@pytest.fixture(scope="session")
def redis_urls(request: pytest.FixtureRequest) -> Iterator[tuple[str, str]]:
    """Two databases of a Valkey: for the broker, for the cache."""
    broker = os.environ.get("VQUEUE_BROKER_URL", "")
    given = os.environ.get("VQUEUE_REDIS_URL") or (broker if broker.startswith("redis") else None)
    if given is None:
        valkey = start_valkey(request.getfixturevalue("servers"))
        yield valkey.url(0), valkey.url(1)
        return
    first = claim_redis(broker if broker.startswith("redis") else given)
    second = claim_redis(given, taken=(first,))
    yield first, second
    flush_redis(first)
    flush_redis(second)


@pytest.fixture(scope="session")
def valkey_url(redis_urls: tuple[str, str]) -> str:
    """The Valkey database that serves as broker."""
    return redis_urls[0]


@pytest.fixture(scope="session")
def cache_url(redis_urls: tuple[str, str]) -> str:
    """The Valkey database that serves as cache."""
    return redis_urls[1]


@pytest.fixture(scope="session")
def virtual_hosts(request: pytest.FixtureRequest) -> VirtualHosts:
    if not rabbitmq.installed() and os.environ.get("VQUEUE_SKIP_RABBITMQ") == "1":
        pytest.skip("rabbitmq-server is not installed and VQUEUE_SKIP_RABBITMQ=1")
    return VirtualHosts(start_rabbitmq(request.getfixturevalue("servers")))


@pytest.fixture
def rabbitmq_url(request: pytest.FixtureRequest) -> Iterator[str]:
    """A virtual host of its own for the test; on a given RabbitMQ, the one of its URL."""
    given = os.environ.get("VQUEUE_BROKER_URL", "")
    if given.startswith("amqp"):
        yield given
        return
    hosts: VirtualHosts = request.getfixturevalue("virtual_hosts")
    url = hosts.create()
    yield url
    hosts.delete(url)


@pytest.fixture(params=["redis", "rabbitmq"])
def broker_url(request: pytest.FixtureRequest) -> Iterator[str]:
    """Each kind of broker in turn, empty."""
    if request.param == "rabbitmq":
        yield request.getfixturevalue("rabbitmq_url")
        return
    url: str = request.getfixturevalue("valkey_url")
    flush_redis(url)
    yield url
    flush_redis(url)


@pytest.fixture(scope="session")
def s3(request: pytest.FixtureRequest) -> Iterator[S3Place]:
    """A bucket of our own."""
    given = given_s3()
    if given is None:
        local = start_s3(request.getfixturevalue("servers"))
        local.create()
        yield local
        return
    given.create()
    yield given
    _remove_bucket(given)


@pytest.fixture(scope="session")
def settings(database_url: str, valkey_url: str, cache_url: str, s3: S3Place) -> Settings:
    """Settings that point to the test run's servers, with Valkey as broker."""
    return Settings(
        database_url=SecretStr(database_url),
        broker_url=SecretStr(valkey_url),
        redis_url=SecretStr(cache_url),
        s3_endpoint_url=s3.endpoint_url,
        s3_region=s3.region,
        s3_bucket=s3.bucket,
        s3_access_key_id=SecretStr(s3.access_key_id) if s3.access_key_id else None,
        s3_secret_access_key=SecretStr(s3.secret_access_key) if s3.secret_access_key else None,
    )


@pytest.fixture(scope="session")
def shared_cases() -> Path:
    """The folder of field cases that lies beside a checkout; a clone without it has cases of its own."""
    if not SHARED_CASES.is_dir():
        pytest.skip("no ../shared/field-cases beside this checkout")
    return SHARED_CASES


def _remove_bucket(place: S3Place) -> None:
    s3: Any = boto3.resource(  # made at run time: there is no type to name
        "s3",
        endpoint_url=place.endpoint_url,
        region_name=place.region,
        aws_access_key_id=place.access_key_id,
        aws_secret_access_key=place.secret_access_key,
    )
    bucket = s3.Bucket(place.bucket)
    bucket.objects.all().delete()
    bucket.delete()
