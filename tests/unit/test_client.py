"""The client package against a small HTTP server: retries, typed refusals, files that appear whole."""

import asyncio
import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.answering import Api, Reply, reply
from vqueue import (
    ApiError,
    AsyncClient,
    BatchFailed,
    Client,
    NotFound,
    RateLimited,
    ServerFault,
    Unauthorized,
    Unreachable,
    VqueueError,
)
from vqueue.trials import asked_pause

BATCH = {"id": "batch_1", "status": "completed", "request_counts": {"total": 2, "completed": 1, "failed": 1}}
BUSY = reply(429, {"error": {"message": "Full."}}, **{"Retry-After": "0"})
AWAY = reply(503, {"error": {"message": "Away."}})
Connect = Callable[..., Client]


@pytest.fixture
def api() -> Iterator[Api]:
    with Api() as api:
        yield api


@pytest.fixture
def client(api: Api) -> Iterator[Client]:
    with Client(api.url, "k", first_pause_s=0) as client:
        yield client


def page(*numbers: int, more: bool = False, ended: bool = True) -> Reply:
    data = [{"seq": number, "line": number} for number in numbers]
    return reply(200, {"data": data, "last_seq": numbers[-1], "has_more": more, "ended": ended})


def test_what_may_pass_is_sent_again_with_the_same_key(api: Api, client: Client) -> None:
    api.answers(BUSY, AWAY, reply(200, BATCH))
    assert client.create_batch("file-1", dry_run=True).request_counts.failed == 1
    keys = {sent.headers["Idempotency-Key"] for sent in api.sent}
    assert (len(api.sent), len(keys)) == (3, 1)
    assert json.loads(api.sent[2].body) == {
        "input_file_id": "file-1",
        "endpoint": "/v1/chat/completions",
        "completion_window": "24h",
        "dry_run": True,
    }


FAILED = {
    "id": "batch_1",
    "status": "failed",
    "errors": {
        "data": [
            {"code": "invalid_json", "message": "No JSON.", "line": 3},
            {"code": "missing_column", "message": "There is none.", "param": "table.id_column"},
        ]
    },
}
NOTHING = {"data": [], "last_seq": 0, "has_more": False, "ended": True}


@pytest.mark.parametrize("follow", [True, False])
def test_a_batch_whose_file_did_not_pass_has_no_results_but_reasons(
    api: Api, client: Client, follow: bool
) -> None:
    api.answers(reply(200, NOTHING), reply(200, FAILED))
    with pytest.raises(BatchFailed) as caught:
        list(client.results("batch_1", follow=follow))
    assert (caught.value.code, caught.value.line, caught.value.message) == ("invalid_json", 3, "No JSON.")
    assert str(caught.value).splitlines() == [
        "batch_1 did not pass:",
        "line 3: invalid_json: No JSON.",
        "table.id_column: missing_column: There is none.",
    ]


def test_async_code_is_told_of_a_batch_that_did_not_pass_too(api: Api) -> None:
    async def ask() -> None:
        async with AsyncClient(api.url, "k", first_pause_s=0) as client:
            [result async for result in client.results("batch_1", follow=True)]

    api.answers(reply(200, NOTHING), reply(200, FAILED))
    with pytest.raises(BatchFailed):
        asyncio.run(ask())


def test_a_batch_that_was_cancelled_early_has_just_no_results(api: Api, client: Client) -> None:
    api.answers(reply(200, NOTHING), reply(200, FAILED | {"status": "cancelled"}))
    assert list(client.results("batch_1", follow=True)) == []


def test_two_calls_have_two_keys_and_reading_has_none(api: Api, client: Client) -> None:
    api.answers(*[reply(200, BATCH)] * 3)
    for _ in range(2):
        client.retry("batch_1")
    client.batch("batch_1")
    first, second, third = (sent.headers.get("Idempotency-Key") for sent in api.sent)
    assert first != second
    assert third is None


def test_tries_come_to_an_end_and_the_last_refusal_says_why(api: Api, client: Client) -> None:
    api.answers(*[AWAY] * 9)
    with pytest.raises(ServerFault, match="Away") as caught:
        client.models()
    assert (len(api.sent), caught.value.may_pass) == (4, True)


def test_a_server_that_wants_long_waits_is_not_waited_for(api: Api, client: Client) -> None:
    api.answers(reply(429, {"error": {"message": "Tomorrow."}}, **{"Retry-After": "7200"}))
    with pytest.raises(RateLimited, match="Tomorrow"):
        client.models()


def test_a_refusal_tells_all_that_the_api_says(api: Api, client: Client) -> None:
    error = {"message": "No batch.", "code": "not_found", "param": "batch_id", "type": "x"}
    api.answers(reply(404, {"error": error}, **{"x-request-id": "req_1"}))
    with pytest.raises(NotFound) as caught:
        client.batch("batch_1")
    found = caught.value
    assert (found.status, found.code, found.param, found.request_id) == (
        404,
        "not_found",
        "batch_id",
        "req_1",
    )
    assert str(found) == "GET /batches/batch_1 was answered 404: No batch."


@pytest.mark.parametrize(("status", "kind"), [(401, Unauthorized), (418, ApiError)])
def test_a_refusal_without_json_is_one_too(
    api: Api, client: Client, status: int, kind: type[ApiError]
) -> None:
    api.answers(Reply(status, b"<html>no</html>"))
    with pytest.raises(kind, match="no"):
        client.models()


@pytest.mark.parametrize("body", [b"<html>", b"[]", b'{"id": 7}'])
def test_an_answer_of_another_service_is_told(api: Api, client: Client, body: bytes) -> None:
    api.answers(Reply(200, body))
    with pytest.raises(VqueueError, match="is this its API's URL"):
        client.batch("batch_1")


def test_nobody_there_is_told_in_plain_words() -> None:
    with Client("http://127.0.0.1:1/v1", "k", retries=0) as client, pytest.raises(Unreachable) as caught:
        client.models()
    assert str(caught.value) == "http://127.0.0.1:1/v1 does not answer: [Errno 111] Connection refused"


def test_a_url_without_v1_that_leads_nowhere_is_told_what_it_lacks(api: Api) -> None:
    api.answers(Reply(404, b""), Reply(404, b""))
    for url, told in ((api.url.removesuffix("/v1"), True), (api.url, False)):
        with Client(url, "k") as client, pytest.raises(NotFound) as caught:
            client.models()
        assert ("ends in /v1" in str(caught.value)) is told


def test_a_url_that_is_none_is_refused() -> None:
    with pytest.raises(ValueError, match="looks like http"):
        Client("localhost:8000/v1", "k")


def test_results_are_read_page_by_page_to_the_last_one(api: Api, client: Client) -> None:
    api.answers(page(1, 2, more=True), page(3), page(4))
    assert [result.seq for result in client.results("batch_1")] == [1, 2, 3]
    assert "after=2" in api.sent[1].path


def test_a_result_has_its_text_or_its_failure(api: Api, client: Client) -> None:
    answered = {"status_code": 200, "body": {"choices": [{"message": {"content": "Red."}}]}}
    failed = {"status_code": 400, "body": {"error": {"code": "http_404", "message": "Gone."}}}
    never = {"code": "batch_expired", "message": "Too late."}
    rows = [{"seq": 1, "response": answered}, {"seq": 2, "response": failed}, {"seq": 3, "error": never}]
    api.answers(reply(200, {"data": rows, "last_seq": 3, "ended": True}))
    found = list(client.results("batch_1"))
    assert [result.text for result in found] == ["Red.", None, None]
    assert [result.failure.code for result in found[1:] if result.failure] == ["http_404", "batch_expired"]


def test_a_file_is_uploaded_in_a_form_and_from_its_beginning_each_time(
    api: Api, client: Client, tmp_path: Path
) -> None:
    (tmp_path / "a.csv").write_text("id,image\n")
    api.answers(BUSY, reply(200, {"id": "file-1"}))
    assert client.upload(tmp_path / "a.csv", expires_after_s=3600).id == "file-1"
    for sent in api.sent:
        assert b'filename="a.csv"' in sent.body
        assert b"id,image\n" in sent.body
        assert b"created_at" in sent.body


def test_an_export_appears_whole(api: Api, client: Client, tmp_path: Path) -> None:
    api.answers(Reply(200, b"id,answer\n1,red\n"))
    out = client.export("batch_1", tmp_path / "a.csv", rows="failed")
    assert out.read_bytes() == b"id,answer\n1,red\n"
    assert api.sent[0].path == "/v1/batches/batch_1/export?format=csv&rows=failed&retries=true&columns=all"
    assert list(tmp_path.iterdir()) == [out]


def test_an_export_that_breaks_off_is_asked_for_again_and_leaves_nothing(
    api: Api, client: Client, tmp_path: Path
) -> None:
    out = tmp_path / "a.csv"
    api.answers(*[Reply(200, b"id,ans", cut=True)] * 4)
    with pytest.raises(Unreachable):
        client.export("batch_1", out)
    assert list(tmp_path.iterdir()) == []
    api.answers(Reply(200, b"id,ans", cut=True), Reply(200, b"id,answer\n"))
    assert client.export("batch_1", out).read_text() == "id,answer\n"


def test_a_refused_export_leaves_the_old_file_alone(api: Api, client: Client, tmp_path: Path) -> None:
    out = tmp_path / "a.csv"
    out.write_text("old")
    api.answers(reply(409, {"error": {"message": "It runs."}}))
    with pytest.raises(ApiError, match="It runs"):
        client.export("batch_1", out)
    assert out.read_text() == "old"


def test_async_code_has_the_same_calls(api: Api, tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("id\n")
    api.answers(
        BUSY, reply(200, {"id": "file-1"}), reply(200, BATCH), page(1, more=True), page(2), Reply(200, b"x")
    )

    async def use() -> tuple[str, str, list[int], Path]:
        async with AsyncClient(api.url, "k", first_pause_s=0) as client:
            file = await client.upload(tmp_path / "a.csv")
            batch = await client.create_batch(file.id, table={"image_columns": ["image"]})
            seen = [result.seq async for result in client.results(batch.id)]
            return file.id, batch.id, seen, await client.export(batch.id, tmp_path / "b.csv")

    assert asyncio.run(use()) == ("file-1", "batch_1", [1, 2], tmp_path / "b.csv")
    assert (tmp_path / "b.csv").read_bytes() == b"x"


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({}, None),
        ({"retry-after": "3"}, 3.0),
        ({"retry-after": "-3"}, 0.0),
        ({"retry-after-ms": "250", "retry-after": "9"}, 0.25),
        ({"retry-after": "Thu, 01 Jan 1970 00:01:40 GMT"}, 40.0),
        ({"retry-after": "soon"}, None),
    ],
)
def test_how_long_a_server_asks_us_to_wait(headers: dict[str, str], seconds: float | None) -> None:
    assert asked_pause(headers, now=60.0) == seconds


@given(st.text(max_size=30))
def test_no_header_of_a_server_breaks_the_client(value: str) -> None:
    pause = asked_pause({"retry-after": value}, now=0.0)
    assert pause is None or not pause < 0
