"""The object store: streams both ways, whole or not at all, and errors in our own words."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import replace
from typing import Any
from uuid import uuid4

import boto3
import pytest

from app.config import MIB
from app.errors import FatalWork, InvalidWork, TooLarge, TransientWork
from app.objects import PART_BYTES, ObjectMissing, ObjectStore
from tests.cutting import cutting
from tests.servers import S3Place

NOWHERE = "http://127.0.0.1:9"


@pytest.fixture
def store(s3: S3Place) -> Iterator[ObjectStore]:
    with closing(s3.store()) as store:
        yield store


@pytest.fixture
def key() -> str:
    return f"tests/{uuid4().hex}"


def chunks(count: int, *, size: int = MIB) -> Iterator[bytes]:
    for number in range(count):
        yield bytes([number % 256]) * size


@pytest.fixture
def plain(s3: S3Place) -> Iterator[Any]:
    """A client of boto3's, for what the store does not show; it is made at run time and has no type."""
    with closing(
        boto3.client(
            "s3",
            endpoint_url=s3.endpoint_url,
            region_name=s3.region,
            aws_access_key_id=s3.access_key_id,
            aws_secret_access_key=s3.secret_access_key,
        )
    ) as client:
        yield client


def unfinished(plain: Any, store: ObjectStore) -> list[str]:
    """Keys of uploads that were begun and neither completed nor aborted."""
    return [one["Key"] for one in plain.list_multipart_uploads(Bucket=store.bucket).get("Uploads", [])]


def test_what_is_put_is_read_back(store: ObjectStore, key: str) -> None:
    store.put(key, b"hello", content_type="text/plain")
    assert store.get(key, max_bytes=5) == b"hello"
    info = store.head(key)
    assert info is not None
    assert (info.bytes, info.content_type) == (5, "text/plain")


@pytest.mark.parametrize(("start", "rest"), [(0, b"hello"), (2, b"llo"), (5, b""), (99, b"")])
def test_reading_starts_where_it_is_told_to(store: ObjectStore, key: str, start: int, rest: bytes) -> None:
    store.put(key, b"hello", content_type="text/plain")
    assert b"".join(store.open(key, start=start)) == rest


def test_an_empty_object_is_one(store: ObjectStore, key: str) -> None:
    assert store.put_stream(key, [], content_type="text/plain") == 0
    assert b"".join(store.open(key)) == b""


@pytest.mark.parametrize("size", [1, PART_BYTES - 1, PART_BYTES, PART_BYTES + 1, 3 * PART_BYTES])
def test_a_stream_of_any_length_arrives_whole(store: ObjectStore, key: str, size: int) -> None:
    data = bytes(range(256)) * (size // 256 + 1)
    assert store.put_stream(key, [data[:size]], content_type="application/jsonl") == size
    assert store.get(key, max_bytes=size) == data[:size]
    info = store.head(key)
    assert info is not None
    assert info.content_type == "application/jsonl"


def test_a_stream_over_the_limit_leaves_nothing(store: ObjectStore, key: str, plain: Any) -> None:
    with pytest.raises(TooLarge, match="over 9,000,000 bytes"):
        store.put_stream(key, chunks(12), content_type="text/plain", max_bytes=9_000_000)
    assert store.head(key) is None
    assert key not in unfinished(plain, store)


def test_a_stream_at_the_limit_is_taken(store: ObjectStore, key: str) -> None:
    assert store.put_stream(key, chunks(2), content_type="text/plain", max_bytes=2 * MIB) == 2 * MIB


def test_a_stream_that_breaks_leaves_nothing(store: ObjectStore, key: str, plain: Any) -> None:
    def breaking() -> Iterator[bytes]:
        yield from chunks(20)
        raise ConnectionResetError("the client went away")

    with pytest.raises(ConnectionResetError):
        store.put_stream(key, breaking(), content_type="text/plain")
    assert store.head(key) is None
    assert key not in unfinished(plain, store)


def test_a_missing_object_is_told_at_once(store: ObjectStore, key: str) -> None:
    assert store.head(key) is None
    with pytest.raises(ObjectMissing, match=r"NoSuchKey.*not found") as caught:
        store.open(key)
    assert caught.value.code == "not_found"


def test_another_bucket_that_is_missing_is_the_callers_business(store: ObjectStore, key: str) -> None:
    with pytest.raises(ObjectMissing):
        store.get(key, max_bytes=1, bucket="no-such-bucket-here")
    with pytest.raises(InvalidWork, match="cannot name an object"):
        store.get(key, max_bytes=1, bucket="No Bucket")


def test_an_object_over_the_limit_is_not_read(store: ObjectStore, key: str) -> None:
    store.put(key, b"x" * 100, content_type="text/plain")
    with pytest.raises(InvalidWork, match="over 99 bytes"):
        store.get(key, max_bytes=99)


def test_deleting_twice_is_harmless(store: ObjectStore, key: str) -> None:
    store.put(key, b"x", content_type="text/plain")
    store.delete(key)
    store.delete(key)
    assert store.head(key) is None


@pytest.mark.parametrize("name", ["a+b", "a%2Fb", "scan?1", "seg#1", "a&b=c", "🧥", 'it\'s "new"'])
def test_a_key_may_hold_any_character(store: ObjectStore, key: str, name: str) -> None:
    store.put(f"{key}/{name}.jpg", name.encode(), content_type="image/jpeg")
    assert store.get(f"{key}/{name}.jpg", max_bytes=100) == name.encode()


def test_a_broken_connection_is_taken_up_where_it_ended(s3: S3Place, store: ObjectStore, key: str) -> None:
    data = b"".join(chunks(4))
    store.put(key, data, content_type="text/plain")
    assert s3.endpoint_url
    with (
        cutting(s3.endpoint_url, cuts=2, after=700_000) as proxy,
        closing(replace(s3, endpoint_url=proxy.url).store()) as through,
    ):
        assert b"".join(through.open(key)) == data
        assert proxy.connections == 3


def test_an_object_that_was_replaced_is_not_mixed_with_the_new_one(
    s3: S3Place, store: ObjectStore, key: str
) -> None:
    store.put(key, b"a" * 4 * MIB, content_type="text/plain")
    assert s3.endpoint_url
    with (
        cutting(s3.endpoint_url, cuts=1, after=700_000) as proxy,
        closing(replace(s3, endpoint_url=proxy.url).store()) as through,
    ):
        stream = through.open(key)
        next(stream)
        store.put(key, b"b" * 4 * MIB, content_type="text/plain")
        with pytest.raises(TransientWork) as caught:
            list(stream)
        assert caught.value.code == "object_changed"


def test_a_store_that_is_away_is_transient(s3: S3Place, key: str) -> None:
    with closing(replace(s3, endpoint_url=NOWHERE).store()) as away:
        assert not away.reachable()
        with pytest.raises(TransientWork) as caught:
            away.put(key, b"x", content_type="text/plain")
    assert caught.value.code == "object_store_unavailable"


def test_a_store_that_refuses_us_is_our_fault(s3: S3Place, key: str) -> None:
    with closing(replace(s3, secret_access_key="wrong").store()) as refused:
        assert not refused.reachable()
        with pytest.raises(FatalWork):
            refused.get(key, max_bytes=1)


def test_the_bucket_may_be_ensured_by_many_at_once(s3: S3Place, plain: Any) -> None:
    with (
        closing(replace(s3, bucket=f"vqueue-test-{uuid4().hex[:8]}").store()) as new,
        ThreadPoolExecutor(4) as threads,
    ):
        assert not new.reachable()
        list(threads.map(lambda _: new.ensure_bucket(), range(8)))
        assert new.reachable()
        plain.delete_bucket(Bucket=new.bucket)
