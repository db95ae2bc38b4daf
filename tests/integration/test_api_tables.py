"""Tables handed in through the official SDK: what is refused at once, and what is kept of the rest."""

from typing import Any

import openai
import pytest
from openai import OpenAI
from openai.types import Batch

from app.config import Settings
from app.db import Sessions
from app.errors import RequestError
from app.ingest import Ingest
from app.objects import ObjectStore
from app.tables.checks import table_checks
from app.tables.places import read_place
from tests.rows import Rows

CSV = b"sku,image_url\nA1,https://a.example/1.jpg\n"
TABLE = {
    "image_columns": ["image_url"],
    "id_column": "sku",
    "questions": [{"name": "colour", "ask": "What colour?"}],
    "body": {"max_tokens": 8},
}


def create(client: OpenAI, table: dict[str, Any] | None, *, filename: str = "in.csv") -> Batch:
    file = client.files.create(file=(filename, CSV), purpose="batch")
    return client.batches.create(
        input_file_id=file.id,
        endpoint="/v1/chat/completions",
        completion_window="24h",
        extra_body={"table": table} if table else None,
    )


def refusal(client: OpenAI, table: dict[str, Any] | None, **options: Any) -> tuple[str | None, str | None]:
    with pytest.raises(openai.BadRequestError) as caught:
        create(client, table, **options)
    return caught.value.code, caught.value.param


def test_a_table_is_handed_in_like_a_file_of_lines(
    client: OpenAI, db: Sessions, objects: ObjectStore, settings: Settings
) -> None:
    batch = create(client, TABLE)
    ingest = Ingest(sessions=db, objects=objects, settings=settings)
    ingest.step()
    ingest.close()
    read = client.batches.retrieve(batch.id)
    assert (read.status, read.request_counts and read.request_counts.total) == ("in_progress", 1)
    assert Rows(db).all("SELECT input_table -> 'body' ->> 'model' FROM batches") == ["demo"]


def test_the_same_table_with_another_question_is_another_batch(client: OpenAI) -> None:
    again = client.with_options(default_headers={"x-stainless-retry-count": "1"})
    first = create(client, TABLE)
    second = again.batches.create(
        input_file_id=first.input_file_id,
        endpoint="/v1/chat/completions",
        completion_window="24h",
        extra_body={"table": {**TABLE, "questions": [{"ask": "What size?"}]}},
    )
    assert second.id != first.id


@pytest.mark.parametrize("filename", ["in.csv", "IN.TSV", "a.parquet", "a.zip", "urls.txt"])
def test_a_table_may_be_uploaded_for_a_batch(client: OpenAI, filename: str) -> None:
    assert client.files.create(file=(filename, CSV), purpose="batch").filename == filename


def test_a_table_needs_to_be_told_what_it_holds(client: OpenAI) -> None:
    assert refusal(client, None) == ("missing_parameter", "table")


def test_a_file_of_lines_takes_no_table(client: OpenAI) -> None:
    assert refusal(client, TABLE, filename="in.jsonl") == ("invalid_value", "table")


def place(client: OpenAI, name: str, table: dict[str, Any] | None = None) -> Batch:
    return client.batches.create(
        input_file_id=name,
        endpoint="/v1/chat/completions",
        completion_window="24h",
        extra_body={"table": table} if table else None,
    )


@pytest.mark.parametrize(
    ("name", "table", "code"),
    [
        ("s3://secret/a/", TABLE, "blocked_bucket"),
        ("s3://photos/a/", None, "missing_parameter"),
        ("s3:///a/", TABLE, "invalid_value"),
        ("s3://photos/a/", {**TABLE, "delimiter": ";"}, "invalid_request"),
    ],
)
def test_a_bucket_prefix_that_is_not_taken(
    settings: Settings, name: str, table: dict[str, Any] | None, code: str
) -> None:
    checks = table_checks(settings.model_copy(update={"s3_source_buckets": ("photos",)}))
    with pytest.raises(RequestError) as caught:
        checks.check_place(read_place(name), table)
    assert caught.value.code == code


def test_a_bucket_must_be_named_by_the_operator(client: OpenAI) -> None:
    with pytest.raises(openai.BadRequestError) as caught:
        place(client, "s3://photos/a/", TABLE)
    assert caught.value.code == "blocked_bucket"


@pytest.mark.parametrize(
    ("changes", "param"),
    [
        ({"questions": [{"ask": "What is {title"}]}, "table.questions[0].ask"),
        ({"questions": [{"ask": "x", "schema": {"type": "strange"}}]}, "table.questions[0].schema"),
        ({"system": "You are {"}, "table.system"),
        ({"body": {"temperature": 9}}, "table.body.temperature"),
        ({"body": {"model": "unknown"}}, "table.body.model"),
        ({"body": {"messages": []}}, "table.body.messages"),
        ({"body": {"detail": "huge"}}, "table.body.detail"),
        ({"image_columns": [f"image_{n}" for n in range(16)] + ["one"]}, "table.image_columns"),
        ({"questions": [{"name": "a", "ask": "x"}, {"name": "A", "ask": "y"}]}, "table"),
        ({"questions": []}, "table"),
        ({"questions": [{"name": "x", "ask": "a"}, {"name": "y:x", "ask": "b"}]}, "table.questions[1].name"),
        ({"questions": [{"ask": ""}]}, "table.questions[0].ask"),
        ({"encoding": "rot13"}, "table.encoding"),
        ({"delimiter": "x"}, "table.delimiter"),
    ],
)
def test_what_no_row_could_do_is_refused_at_once(client: OpenAI, changes: dict[str, Any], param: str) -> None:
    with pytest.raises((openai.BadRequestError, openai.NotFoundError)) as caught:
        create(client, {**TABLE, **changes})
    assert caught.value.param == param
