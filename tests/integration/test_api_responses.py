"""The Responses API by the official SDK: as lines of a batch, and on the line."""

import json

import httpx
import pytest
from openai import BadRequestError, OpenAI
from openai.types import Batch
from openai.types.responses import Response
from sqlalchemy import text

from app.config import Settings
from app.db import Sessions, transaction
from app.finalize import Finalize
from app.ingest import Ingest
from app.objects import ObjectStore
from app.store.jobs import claim
from app.store.records import AnswerRow, record_answers
from tests.chatting import working
from tests.rows import Rows
from workers.engine.fake import FakeEngine

ENDPOINT = "/v1/responses"


def line(custom_id: str, *, url: str = ENDPOINT, **body: object) -> str:
    asked = {"model": "demo", "input": "What is it?", **body}
    return json.dumps({"custom_id": custom_id, "method": "POST", "url": url, "body": asked})


@pytest.fixture
def batch(client: OpenAI, db: Sessions, objects: ObjectStore, settings: Settings) -> Batch:
    """A batch of three lines that has ended: answered, told to use a tool, and for another endpoint."""
    lines = [line("good"), line("tools", tools=[{"type": "web_search"}]), line("url", url="/v1/embeddings")]
    file = client.files.create(file=("in.jsonl", "\n".join(lines).encode()), purpose="batch")
    made = client.batches.create(input_file_id=file.id, endpoint=ENDPOINT, completion_window="24h")
    while Ingest(sessions=db, objects=objects, settings=settings).step():
        pass
    with transaction(db) as session:
        ids = session.execute(text("SELECT id FROM jobs WHERE state = 'ready'")).scalars().all()
        claimed = claim(session, list(ids), worker="w1", lease_s=60)
        rows = [AnswerRow(job.id, job.attempt, "A mug.", "stop", 7, 3, 2) for job in claimed]
        record_answers(session, rows, model="demo", revision="rev1")
    Finalize(sessions=db, objects=objects, settings=settings).step()
    return client.batches.retrieve(made.id)


def test_the_output_file_has_responses(client: OpenAI, batch: Batch) -> None:
    assert (batch.status, batch.endpoint) == ("completed", ENDPOINT)
    assert batch.output_file_id is not None
    row = json.loads(client.files.content(batch.output_file_id).text)
    found = Response.model_validate(row["response"]["body"], strict=True)
    assert (row["custom_id"], row["response"]["status_code"], found.output_text) == ("good", 200, "A mug.")
    assert found.usage is not None
    assert (found.usage.input_tokens, found.usage.output_tokens) == (7, 2)


def test_the_error_file_says_what_is_not_served(client: OpenAI, batch: Batch) -> None:
    assert batch.error_file_id is not None
    rows = [json.loads(row) for row in client.files.content(batch.error_file_id).text.splitlines()]
    errors = [row["response"]["body"]["error"] for row in rows]
    assert [(row["custom_id"], error["param"]) for row, error in zip(rows, errors, strict=True)] == [
        ("tools", "body.tools"),
        ("url", "url"),
    ]


def test_results_while_it_runs_have_the_bytes_of_the_file(
    client: OpenAI, http: httpx.Client, batch: Batch
) -> None:
    assert batch.output_file_id is not None
    (whole,) = client.files.content(batch.output_file_id).text.splitlines()
    page = http.get(f"/v1/batches/{batch.id}/results?status=completed").text
    assert whole.removesuffix("}") in page


def test_a_response_is_made_on_the_line(db: Sessions, settings: Settings, client: OpenAI) -> None:
    with working(db, settings, FakeEngine()):
        found = client.responses.create(model="demo", input="what is it?", instructions="Be short.")
    assert (found.output_text, found.status) == ("what is it?", "completed")
    assert Rows(db).all("SELECT priority || ' ' || state FROM jobs") == ["interactive completed"]


def test_a_response_may_have_a_form(db: Sessions, settings: Settings, client: OpenAI) -> None:
    engine = FakeEngine()
    form = {"type": "json_schema", "name": "mug", "schema": {"type": "object"}}
    with working(db, settings, engine):
        client.responses.create(model="demo", input="?", extra_body={"text": {"format": form}})
    assert [request.constraint is not None for request in engine.joined] == [True]


def test_what_is_not_served_is_told_on_the_line(db: Sessions, settings: Settings, client: OpenAI) -> None:
    with working(db, settings, FakeEngine()), pytest.raises(BadRequestError) as caught:
        client.responses.create(model="demo", input="?", previous_response_id="resp_1")
    assert caught.value.param == "previous_response_id"
    assert "whole conversation" in caught.value.message
