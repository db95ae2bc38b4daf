"""The fixtures themselves: real servers, and nothing left from one test to the next."""

from kombu.connection import Connection
from sqlalchemy import Engine, text

from app.config import Settings
from app.db import Sessions, transaction
from app.migrate import drift
from tests.servers import S3Place


def test_the_database_is_at_the_newest_migration(database: Engine) -> None:
    assert drift(database) == []


def test_a_table_can_be_written(db: Sessions) -> None:
    with transaction(db) as session:
        session.execute(text("INSERT INTO tenants (id, name) VALUES ('tenant_a', 'A')"))
    with transaction(db) as session:
        assert session.execute(text("SELECT count(*) FROM tenants")).scalar_one() == 1


def test_the_next_test_finds_it_empty(db: Sessions) -> None:
    with transaction(db) as session:
        assert session.execute(text("SELECT count(*) FROM tenants")).scalar_one() == 0


def test_a_message_passes_through_each_broker(broker_url: str) -> None:
    with Connection(broker_url) as connection, connection.SimpleQueue("hello") as queue:
        queue.put({"chunk": "c1"})
        message = queue.get(timeout=10)
        message.ack()
        assert message.payload == {"chunk": "c1"}


def test_an_object_is_stored_and_read(s3: S3Place) -> None:
    store = s3.store()
    store.put("greeting", b"hello", content_type="text/plain")
    assert store.get("greeting", max_bytes=100) == b"hello"
    store.close()


def test_settings_point_to_these_servers(settings: Settings, database_url: str, s3: S3Place) -> None:
    assert settings.database_url.get_secret_value() == database_url
    assert settings.s3_bucket == s3.bucket
