"""Dry runs and strict batches handed in through the official SDK, and what they answer."""

from typing import Any

import openai
import pytest
from openai import OpenAI
from openai.types import Batch

from app.config import Settings
from app.db import Sessions
from app.ingest import Ingest
from app.objects import ObjectStore
from app.report import Report
from tests.desk import line, lines
from tests.rows import Rows


def create(client: OpenAI, rows: list[str], **extra: Any) -> Batch:
    content = "".join(f"{row}\n" for row in rows).encode()
    file = client.files.create(file=("in.jsonl", content), purpose="batch")
    return client.batches.create(
        input_file_id=file.id, endpoint="/v1/chat/completions", completion_window="24h", extra_body=extra
    )


@pytest.fixture
def ingest(db: Sessions, objects: ObjectStore, settings: Settings) -> Ingest:
    return Ingest(sessions=db, objects=objects, settings=settings)


def extras(batch: Batch) -> dict[str, Any]:
    return (batch.model_extra or {})["vqueue"]


def test_a_dry_run_answers_with_its_report(client: OpenAI, db: Sessions, ingest: Ingest) -> None:
    asked = create(client, [*lines(3), line("bad", "x", model="nobody")], dry_run=True)
    assert (extras(asked)["dry_run"], extras(asked)["report"]) == (True, None)
    ingest.step()
    ended = client.batches.retrieve(asked.id)
    report = Report.model_validate(extras(ended)["report"], strict=True)
    assert (report.lines, report.requests, report.bad_lines) == (4, 3, 1)
    assert (ended.status, ended.request_counts and ended.request_counts.total) == ("completed", 0)
    assert Rows(db).all("SELECT count(*) FROM jobs") == [0]


def test_a_dry_run_is_another_batch_than_the_real_one(client: OpenAI) -> None:
    again = client.with_options(default_headers={"x-stainless-retry-count": "1"})
    asked = create(client, lines(1), dry_run=True)
    real = again.batches.create(
        input_file_id=asked.input_file_id, endpoint="/v1/chat/completions", completion_window="24h"
    )
    assert real.id != asked.id
    assert extras(real)["dry_run"] is False


def test_a_dry_run_has_nothing_to_retry(client: OpenAI, ingest: Ingest) -> None:
    asked = create(client, [*lines(2), line("bad", "x", model="nobody")], dry_run=True)
    ingest.step()
    with pytest.raises(openai.APIStatusError) as caught:
        client.post(f"/batches/{asked.id}/retry", body={}, cast_to=object)
    assert caught.value.status_code in (400, 409)
    assert caught.value.code == "nothing_to_retry"


def test_a_strict_batch_names_its_bad_lines(client: OpenAI, ingest: Ingest) -> None:
    asked = create(client, [*lines(2), line("bad", "x", model="nobody"), "{"], strict=True)
    ingest.step()
    failed = client.batches.retrieve(asked.id)
    found = (failed.errors and failed.errors.data) or []
    assert failed.status == "failed"
    assert [(one.code, one.line) for one in found] == [("model_not_found", 3), ("invalid_json_line", 4)]


@pytest.mark.parametrize("name", ["dry_run", "strict"])
def test_only_true_and_false_are_taken(client: OpenAI, name: str) -> None:
    with pytest.raises(openai.BadRequestError) as caught:
        create(client, lines(1), **{name: "yes"})
    assert caught.value.param == name


def test_a_strict_batch_stops_at_its_first_failure_unless_it_says_otherwise(
    client: OpenAI, db: Sessions, ingest: Ingest
) -> None:
    create(client, lines(3), strict=True)
    create(client, lines(3), strict=True, failure_brake={"share": 0.5, "after": 7})
    create(client, lines(3))
    brakes = Rows(db).table("SELECT brake_share > 0, brake_after FROM batches ORDER BY created_at")
    assert brakes[:2] == [(True, 1), (True, 7)]
    assert brakes[2][0] is None
