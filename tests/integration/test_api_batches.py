"""Batches through the official SDK against the real app and Postgres."""

from concurrent.futures import ThreadPoolExecutor

import httpx
import openai
import pytest
import sqlalchemy
from openai import OpenAI
from openai.types import Batch
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from app.config import Settings
from app.db import Sessions, transaction
from app.main import build_app, wire
from app.models import batches
from tests.serving import sdk, serving

LINES = b'{"custom_id": "a"}\n'
ENDPOINT = "/v1/chat/completions"
KEY = {"Idempotency-Key": "night-1"}
RETRY = {"x-stainless-retry-count": "1"}


@pytest.fixture
def file_id(client: OpenAI) -> str:
    return client.files.create(file=("in.jsonl", LINES), purpose="batch").id


class LosesFirstAnswer:
    """Does what the first POST asks, but answers nothing: the server then cuts the connection."""

    def __init__(self, app: ASGIApp) -> None:
        self.losses = 0
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope.get("method") != "POST" or self.losses:
            await self._app(scope, receive, send)
            return
        self.losses += 1
        await self._app(scope, receive, lose)
        raise ConnectionError


async def lose(message: Message) -> None:
    """Takes an answer's message, and keeps it."""


def create(
    client: OpenAI,
    file_id: str,
    *,
    window: str = "24h",
    metadata: dict[str, str] | None = None,
    headers: dict[str, str] | None = None,
) -> Batch:
    return client.batches.create(
        input_file_id=file_id,
        endpoint=ENDPOINT,
        completion_window=window,  # pyright: ignore[reportArgumentType]
        metadata=metadata,
        extra_headers=headers,
    )


def update(db: Sessions, **values: object) -> None:
    with transaction(db) as session:
        session.execute(sqlalchemy.update(batches).values(**values))


def test_a_batch_may_ask_for_background_only(client: OpenAI, db: Sessions, file_id: str) -> None:
    for body in ({}, {"priority": "background"}):
        client.batches.create(
            input_file_id=file_id, endpoint=ENDPOINT, completion_window="24h", extra_body=body
        )
    with transaction(db) as session:
        stored = session.execute(sqlalchemy.select(batches.c.priority).order_by(batches.c.created_at))
        assert list(stored.scalars()) == ["standard", "background"]


@pytest.mark.parametrize("priority", ["interactive", "urgent", 1])
def test_a_batch_of_no_such_priority_is_refused(client: OpenAI, file_id: str, priority: object) -> None:
    with pytest.raises(openai.BadRequestError, match="'standard' or 'background'") as refused:
        client.batches.create(
            input_file_id=file_id,
            endpoint=ENDPOINT,
            completion_window="24h",
            extra_body={"priority": priority},
        )
    assert refused.value.param == "priority"


def test_a_new_batch_looks_as_the_sdk_expects(client: OpenAI, file_id: str) -> None:
    batch = create(client, file_id, metadata={"night": "1"})
    assert batch.id.startswith("batch_")
    assert (batch.object, batch.status, batch.endpoint) == ("batch", "validating", ENDPOINT)
    assert (batch.input_file_id, batch.completion_window) == (file_id, "24h")
    assert batch.metadata == {"night": "1"}
    assert batch.expires_at == batch.created_at + 86_400


def test_what_is_not_known_yet_is_null_and_the_counts_are_0(client: OpenAI, file_id: str) -> None:
    batch = create(client, file_id).model_dump()
    unknown = {"errors", "output_file_id", "error_file_id", "metadata", "model", "in_progress_at"} | {
        f"{step}_at" for step in ("finalizing", "completed", "failed", "expired", "cancelling", "cancelled")
    }
    assert {batch[name] for name in unknown} == {None}
    assert batch["request_counts"] == {"total": 0, "completed": 0, "failed": 0}
    assert batch["usage"]["total_tokens"] == 0


def test_a_batch_reads_back(client: OpenAI, file_id: str) -> None:
    batch = create(client, file_id)
    assert client.batches.retrieve(batch.id) == batch


def test_counts_usage_and_files_are_shown(client: OpenAI, file_id: str, db: Sessions) -> None:
    batch = create(client, file_id)
    update(db, status="completed", ingested_at=sqlalchemy.func.now(), total=5, completed=3, failed=2)
    update(db, output_file_id="file-1", model="demo")
    update(db, prompt_tokens=70, cached_tokens=20, completion_tokens=9)
    seen = client.batches.retrieve(batch.id).model_dump()
    assert seen["request_counts"] == {"total": 5, "completed": 3, "failed": 2}
    assert seen["usage"]["input_tokens_details"] == {"cached_tokens": 20}
    assert (seen["usage"]["input_tokens"], seen["usage"]["total_tokens"]) == (70, 79)
    assert (seen["output_file_id"], seen["error_file_id"], seen["model"]) == ("file-1", None, "demo")


def test_counts_wait_for_the_total(client: OpenAI, file_id: str, db: Sessions) -> None:
    batch = create(client, file_id)
    update(db, failed=2)
    counts = client.batches.retrieve(batch.id).model_dump()["request_counts"]
    assert counts == {"total": 0, "completed": 0, "failed": 0}


def test_the_errors_of_a_file_are_shown(client: OpenAI, file_id: str, db: Sessions) -> None:
    batch = create(client, file_id)
    error = {"code": "empty_file", "message": "It is empty.", "line": 1, "param": None}
    update(db, status="failed", errors=[error])
    errors = client.batches.retrieve(batch.id).errors
    assert errors is not None
    assert errors.object == "list"
    assert errors.data is not None
    assert (errors.data[0].code, errors.data[0].line) == ("empty_file", 1)


@pytest.mark.parametrize(("window", "seconds"), [("90s", 90), ("30m", 1800), ("1h", 3600), ("7d", 604_800)])
def test_other_windows_are_an_extension(client: OpenAI, file_id: str, window: str, seconds: int) -> None:
    batch = create(client, file_id, window=window)
    assert batch.expires_at == batch.created_at + seconds


@pytest.mark.parametrize(
    ("change", "param"),
    [
        ({"endpoint": "/v1/embeddings"}, "endpoint"),
        ({"completion_window": "0h"}, "completion_window"),
        ({"completion_window": "31d"}, "completion_window"),
        ({"completion_window": "soon"}, "completion_window"),
        ({"metadata": {str(n): "x" for n in range(17)}}, "metadata"),
        ({"metadata": {"vqueue_warm": "yes"}}, "metadata"),
        ({"metadata": {"key": "x" * 513}}, "metadata.key"),
        ({"metadata": {"key": "a\0b"}}, "metadata.key"),
        ({"metadata": {"key": 1}}, "metadata.key"),
        ({"output_expires_after": {"anchor": "created_at", "seconds": 5}}, "output_expires_after.seconds"),
        ({"input_file_id": 7}, "input_file_id"),
        ({"surprise": True}, "surprise"),
    ],
)
def test_a_parameter_that_is_refused(
    http: httpx.Client, file_id: str, change: dict[str, object], param: str
) -> None:
    body = {"input_file_id": file_id, "endpoint": ENDPOINT, "completion_window": "24h"} | change
    answer = http.post("/v1/batches", json=body)
    assert answer.status_code == 400
    assert answer.json()["error"]["type"] == "invalid_request_error"
    assert answer.json()["error"]["param"] == param


def test_a_parameter_that_is_missing(http: httpx.Client) -> None:
    answer = http.post("/v1/batches", json={"endpoint": ENDPOINT, "completion_window": "24h"})
    assert answer.status_code == 400
    assert answer.json()["error"] == {
        "message": "Missing required parameter: 'input_file_id'.",
        "type": "invalid_request_error",
        "param": "input_file_id",
        "code": "missing_parameter",
    }


def test_the_input_must_be_there(client: OpenAI) -> None:
    with pytest.raises(openai.NotFoundError) as refused:
        create(client, "file-0")
    assert refused.value.param == "input_file_id"


def test_the_input_must_be_ones_own(stranger: OpenAI, file_id: str) -> None:
    with pytest.raises(openai.NotFoundError):
        create(stranger, file_id)


def test_the_input_must_be_meant_for_batches(client: OpenAI) -> None:
    image = client.files.create(file=("a.png", b"png"), purpose="vision")
    with pytest.raises(openai.BadRequestError) as refused:
        create(client, image.id)
    assert refused.value.code == "invalid_purpose"


def test_another_tenants_batch_is_not_there(client: OpenAI, stranger: OpenAI, file_id: str) -> None:
    batch = create(client, file_id)
    for call in (stranger.batches.retrieve, stranger.batches.cancel):
        with pytest.raises(openai.NotFoundError):
            call(batch.id)
    assert stranger.batches.list().data == []
    assert client.batches.retrieve(batch.id).status == "validating"


def test_lists_page_newest_first_while_batches_arrive(client: OpenAI, file_id: str) -> None:
    made = [create(client, file_id).id for _ in range(5)]
    page = client.batches.list(limit=2)
    create(client, file_id)
    seen = [batch.id for batch in page]
    assert seen == made[::-1]
    assert page.has_more


@pytest.mark.parametrize("query", ["limit=0", "limit=101", "limit=x"])
def test_a_limit_out_of_range(http: httpx.Client, query: str) -> None:
    answer = http.get(f"/v1/batches?{query}")
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, "limit")


def test_an_unknown_cursor_is_not_there(client: OpenAI) -> None:
    with pytest.raises(openai.NotFoundError):
        client.batches.list(after="batch_0")


def test_cancelling_twice_is_harmless(client: OpenAI, file_id: str) -> None:
    batch = create(client, file_id)
    first = client.batches.cancel(batch.id)
    assert first.status == "cancelling"
    assert first.cancelling_at is not None
    assert client.batches.cancel(batch.id) == first


@pytest.mark.parametrize("status", ["finalizing", "completed", "failed", "expired", "cancelled"])
def test_a_batch_that_ended_cannot_be_cancelled(
    client: OpenAI, file_id: str, db: Sessions, status: str
) -> None:
    batch = create(client, file_id)
    update(db, status=status)
    with pytest.raises(openai.ConflictError, match=status) as refused:
        client.batches.cancel(batch.id)
    assert refused.value.response.headers["x-should-retry"] == "false"
    assert client.batches.retrieve(batch.id).status == status


def test_one_key_makes_one_batch(client: OpenAI, file_id: str) -> None:
    first, second = (create(client, file_id, headers=KEY) for _ in range(2))
    assert second == first
    assert len(client.batches.list().data) == 1


def test_one_key_for_two_requests_is_a_conflict(client: OpenAI, file_id: str) -> None:
    other = client.files.create(file=("other.jsonl", LINES), purpose="batch").id
    create(client, file_id, headers=KEY)
    with pytest.raises(openai.ConflictError) as refused:
        create(client, other, headers=KEY)
    assert refused.value.code == "idempotency_key_reused"


def test_a_key_belongs_to_its_tenant(client: OpenAI, stranger: OpenAI, file_id: str) -> None:
    theirs = stranger.files.create(file=("in.jsonl", LINES), purpose="batch").id
    first = create(client, file_id, headers=KEY)
    second = create(stranger, theirs, headers=KEY)
    assert first.id != second.id


def test_a_retry_of_the_sdk_makes_no_second_batch(client: OpenAI, file_id: str) -> None:
    first = create(client, file_id)
    retried = create(client, file_id, headers=RETRY)
    assert retried.id == first.id


def test_the_stock_sdk_whose_answer_is_lost_gets_its_batch(
    settings: Settings, api_key: str, file_id: str
) -> None:
    app = LosesFirstAnswer(build_app(wire(settings)))
    with serving(app) as url, sdk(url, api_key, max_retries=2) as client:
        batch = create(client, file_id)
        assert app.losses == 1
        assert [found.id for found in client.batches.list()] == [batch.id]


def test_a_retry_of_what_never_arrived_makes_a_batch(client: OpenAI, file_id: str) -> None:
    retried = create(client, file_id, headers=RETRY)
    assert client.batches.retrieve(retried.id).status == "validating"


def test_a_retry_that_says_something_else_is_new(client: OpenAI, file_id: str) -> None:
    first = create(client, file_id)
    other = create(client, file_id, metadata={"night": "2"}, headers=RETRY)
    assert other.id != first.id


def test_the_same_request_on_purpose_makes_a_second_batch(client: OpenAI, file_id: str) -> None:
    assert create(client, file_id).id != create(client, file_id).id


def test_retries_that_race_make_one_batch(client: OpenAI, file_id: str) -> None:
    def retry(_: int) -> str:
        return create(client, file_id, headers=RETRY).id

    with ThreadPoolExecutor(8) as threads:
        assert len(set(threads.map(retry, range(24)))) == 1
    assert len(client.batches.list().data) == 1


def test_a_file_deleted_after_the_batch_was_made_does_not_disturb_a_retry(
    client: OpenAI, file_id: str
) -> None:
    first = create(client, file_id)
    client.files.delete(file_id)
    retried = create(client, file_id, headers=RETRY)
    assert retried.id == first.id
