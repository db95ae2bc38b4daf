"""Files through the official SDK against the real app, Postgres and S3."""

import re
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlsplit

import boto3
import httpx
import openai
import pytest
from openai import OpenAI
from sqlalchemy import text

from app.config import Settings
from app.db import Sessions, transaction
from app.main import build_app, wire
from tests.servers import S3Place
from tests.serving import new_key, sdk, serving
from tests.waiting import eventually

WORDS = "Invalid file format for Batch API. Must be .jsonl"
LINES = b'{"custom_id": "a"}\n{"custom_id": "b"}\n'


@pytest.fixture
def small_client(settings: Settings, db: Sessions) -> Iterator[OpenAI]:
    """A client of an app that takes 1,000 bytes per batch file."""
    app = build_app(wire(settings.model_copy(update={"file_max_bytes": 1000})))
    with serving(app) as url, sdk(url, new_key(db)) as client:
        yield client


def object_names(s3: S3Place) -> set[str]:
    with s3_client(s3) as store:
        pages = store.get_paginator("list_objects_v2").paginate(Bucket=s3.bucket, Prefix="files/")
        return {entry["Key"] for page in pages for entry in page.get("Contents", [])}


def unfinished_uploads(s3: S3Place) -> int:
    with s3_client(s3) as store:
        return len(store.list_multipart_uploads(Bucket=s3.bucket).get("Uploads", []))


@contextmanager
def s3_client(s3: S3Place) -> Iterator[Any]:  # boto3 makes its clients at run time: there is no type to name
    client = boto3.client(
        "s3",
        endpoint_url=s3.endpoint_url,
        region_name=s3.region,
        aws_access_key_id=s3.access_key_id,
        aws_secret_access_key=s3.secret_access_key,
    )
    yield client
    client.close()


def test_an_upload_is_described(client: OpenAI) -> None:
    file = client.files.create(file=("in.jsonl", LINES), purpose="batch")
    assert file.id.startswith("file-")
    assert (file.object, file.filename, file.purpose, file.status) == (
        "file",
        "in.jsonl",
        "batch",
        "processed",
    )
    assert file.bytes == len(LINES)
    assert file.expires_at == file.created_at + 30 * 86_400


def test_a_file_reads_back_byte_for_byte(client: OpenAI) -> None:
    file = client.files.create(file=("in.jsonl", LINES), purpose="batch")
    content = client.files.content(file.id)
    assert content.read() == LINES
    assert content.response.headers["content-disposition"] == "attachment; filename*=UTF-8''in.jsonl"
    assert content.response.headers["content-type"] == "application/jsonl"


def test_a_file_with_boundaries_inside_reads_back(client: OpenAI) -> None:
    data = b"\r\n--\r\n-----boundary\r\n" * 20_000
    file = client.files.create(file=("noise.bin", data), purpose="user_data")
    assert client.files.content(file.id).read() == data


def test_a_file_waits_for_nothing(client: OpenAI) -> None:
    file = client.files.create(file=("in.jsonl", LINES), purpose="batch")
    assert client.files.wait_for_processing(file.id).status == "processed"
    assert client.files.retrieve(file.id) == file


def test_expiry_is_as_asked(client: OpenAI) -> None:
    file = client.files.create(
        file=("in.jsonl", LINES), purpose="batch", expires_after={"anchor": "created_at", "seconds": 3600}
    )
    assert file.expires_at == file.created_at + 3600


def test_files_of_other_purposes_stay(client: OpenAI) -> None:
    assert client.files.create(file=("a.png", b"png"), purpose="vision").expires_at is None


@pytest.mark.parametrize(("asked", "lives"), [(None, 7200), (3600, 3600), (86_400, 7200)])
def test_no_file_outlives_the_operators_limit(
    settings: Settings, db: Sessions, asked: int | None, lives: int
) -> None:
    app = build_app(wire(settings.model_copy(update={"retention_files_s": 7200})))
    expiry = {"anchor": "created_at", "seconds": asked} if asked else openai.NOT_GIVEN
    with serving(app) as url, sdk(url, new_key(db)) as client:
        file = client.files.create(file=("a.png", b"x"), purpose="vision", expires_after=expiry)  # pyright: ignore[reportArgumentType]
    assert file.expires_at == file.created_at + lives


def test_an_expired_file_is_gone(client: OpenAI, db: Sessions) -> None:
    file = client.files.create(file=("in.jsonl", LINES), purpose="batch")
    with transaction(db) as session:
        session.execute(text("UPDATE files SET expires_at = now()"))
    with pytest.raises(openai.NotFoundError):
        client.files.retrieve(file.id)
    with pytest.raises(openai.NotFoundError):
        client.files.content(file.id)
    assert client.files.list().data == []


def test_a_deleted_file_is_gone_with_its_bytes(client: OpenAI, s3: S3Place) -> None:
    before = object_names(s3)
    file = client.files.create(file=("in.jsonl", LINES), purpose="batch")
    assert object_names(s3) > before
    deleted = client.files.delete(file.id)
    assert (deleted.id, deleted.deleted, deleted.object) == (file.id, True, "file")
    assert object_names(s3) == before
    with pytest.raises(openai.NotFoundError):
        client.files.delete(file.id)


def test_lists_page_in_both_orders(client: OpenAI) -> None:
    made = [client.files.create(file=(f"{n}.jsonl", LINES), purpose="batch").id for n in range(5)]
    assert [file.id for file in client.files.list(limit=2)] == made[::-1]
    assert [file.id for file in client.files.list(limit=2, order="asc")] == made
    page = client.files.list(limit=2)
    assert (page.has_more, page.data[0].id) == (True, made[-1])


def test_a_list_can_be_of_one_purpose(client: OpenAI) -> None:
    client.files.create(file=("in.jsonl", LINES), purpose="batch")
    image = client.files.create(file=("a.png", b"png"), purpose="vision")
    assert [file.id for file in client.files.list(purpose="vision")] == [image.id]


def test_another_tenants_file_is_not_there(client: OpenAI, stranger: OpenAI) -> None:
    file = client.files.create(file=("in.jsonl", LINES), purpose="batch")
    for call in (stranger.files.retrieve, stranger.files.content, stranger.files.delete):
        with pytest.raises(openai.NotFoundError):
            call(file.id)
    assert stranger.files.list().data == []
    with pytest.raises(openai.NotFoundError):
        stranger.files.list(after=file.id)


@pytest.mark.parametrize(
    ("name", "data", "purpose", "code"),
    [
        ("in.xlsx", LINES, "batch", "invalid_file_format"),
        ("in.jsonl", b"", "batch", "empty_file"),
        ("in.jsonl", LINES, "fine-tune", "invalid_value"),
        ("folder/", LINES, "user_data", "invalid_value"),
    ],
)
def test_a_file_that_is_not_taken(
    client: OpenAI, s3: S3Place, name: str, data: bytes, purpose: str, code: str
) -> None:
    before = object_names(s3)
    with pytest.raises(openai.BadRequestError) as refused:
        client.files.create(file=(name, data), purpose=purpose)  # pyright: ignore[reportArgumentType]
    assert refused.value.code == code
    assert object_names(s3) == before


def test_openais_words_for_a_wrong_extension(client: OpenAI) -> None:
    with pytest.raises(openai.BadRequestError, match=re.escape(WORDS)):
        client.files.create(file=("in.json", LINES), purpose="batch")


@pytest.mark.parametrize("size", [1001, 30 * 10**6])
def test_a_file_over_the_limit_is_told_so(small_client: OpenAI, s3: S3Place, size: int) -> None:
    before = object_names(s3)
    with pytest.raises(openai.BadRequestError, match="File is too large"):
        small_client.files.create(file=("in.jsonl", b"x" * size), purpose="batch")
    assert object_names(s3) == before


def test_a_file_at_the_limit_is_taken(small_client: OpenAI) -> None:
    assert small_client.files.create(file=("in.jsonl", b"x" * 1000), purpose="batch").bytes == 1000


def test_the_fields_may_follow_the_file(http: httpx.Client) -> None:
    form = (
        b'--X\r\nContent-Disposition: form-data; name="file"; filename="in.jsonl"\r\n\r\n' + LINES + b"\r\n"
        b'--X\r\nContent-Disposition: form-data; name="purpose"\r\n\r\nbatch\r\n--X--\r\n'
    )
    answer = http.post("/v1/files", content=form, headers={"Content-Type": "multipart/form-data; boundary=X"})
    assert answer.status_code == 200
    assert answer.json()["bytes"] == len(LINES)


@pytest.mark.parametrize(
    ("content_type", "form", "code"),
    [
        ("application/json", b"{}", "invalid_form"),
        ("multipart/form-data", b"", "invalid_form"),
        ("multipart/form-data; boundary=X", b"", "invalid_form"),
        ("multipart/form-data; boundary=X", b"nonsense", "invalid_form"),
        ("multipart/form-data; boundary=X", b"--X--\r\n", "missing_parameter"),
        ("multipart/form-data; boundary=X", b"--X\r\n\r\nbatch\r\n--X--\r\n", "invalid_form"),
        (
            "multipart/form-data; boundary=X",
            b'--X\r\nContent-Disposition: form-data; name="purpose"\r\n\r\nbatch\r\n--X--\r\n',
            "missing_parameter",
        ),
    ],
)
def test_a_form_that_is_none(http: httpx.Client, content_type: str, form: bytes, code: str) -> None:
    answer = http.post("/v1/files", content=form, headers={"Content-Type": content_type})
    assert (answer.status_code, answer.json()["error"]["code"]) == (400, code)


def test_an_upload_that_breaks_off_leaves_nothing(api_url: str, api_key: str, s3: S3Place) -> None:
    before = object_names(s3)
    head = (
        f"POST /v1/files HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {api_key}\r\n"
        "Content-Length: 90000000\r\nContent-Type: multipart/form-data; boundary=X\r\n\r\n"
        '--X\r\nContent-Disposition: form-data; name="file"; filename="in.jsonl"\r\n\r\n'
    )
    with socket.create_connection((urlsplit(api_url).hostname, urlsplit(api_url).port)) as connection:
        connection.sendall(head.encode() + b"x" * 20_000_000)
        eventually(lambda: unfinished_uploads(s3) == 1)
    eventually(lambda: unfinished_uploads(s3) == 0)
    assert object_names(s3) == before
