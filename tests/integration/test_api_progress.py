"""What is ours of a batch over HTTP: pace and errors by code on its object, retries, the failure brake."""

from typing import Any

import httpx
import openai
import pytest
from openai import OpenAI
from openai.types import Batch

from app.config import Settings
from app.db import Sessions
from app.main import build_app, wire
from tests.rows import Rows
from tests.serving import sdk, serving

KEY = {"Idempotency-Key": "again-1"}
RETRY = {"x-stainless-retry-count": "1"}


@pytest.fixture
def rows(db: Sessions, api_key: str) -> Rows:
    """A batch in progress of the tenant whose key the clients have."""
    assert api_key
    rows = Rows(db)
    rows.tenant = rows.one("SELECT id FROM tenants")
    rows.add_batch()
    return rows


@pytest.fixture
def ended(rows: Rows) -> Rows:
    """The batch has ended: one job is answered and two have failed."""
    ids = rows.add_jobs(3, batch_id="batch_1")
    rows.complete(ids[0])
    rows.fail(*ids[1:])
    rows.run("UPDATE batches SET status = 'completed', ended_at = now()")
    return rows


def extras(client: OpenAI) -> dict[str, Any]:
    return client.batches.retrieve("batch_1").model_dump()["vqueue"]


def retry(client: OpenAI, body: object = None, headers: dict[str, str] | None = None) -> Batch:
    options: Any = {"headers": headers or {}}
    return client.post("/batches/batch_1/retry", body=body, cast_to=Batch, options=options)


def brake_of(rows: Rows, batch_id: str) -> tuple[float | None, int | None]:
    (found,) = rows.table("SELECT brake_share, brake_after FROM batches WHERE id = :id", id=batch_id)
    return tuple(found)


def create(client: OpenAI, **more: object) -> Batch:
    file = client.files.create(file=("in.jsonl", b'{"custom_id": "a"}\n'), purpose="batch")
    return client.batches.create(
        input_file_id=file.id, endpoint="/v1/chat/completions", completion_window="24h", extra_body=more
    )


def test_the_end_is_estimated_from_the_pace(client: OpenAI, rows: Rows) -> None:
    rows.add_jobs(10, batch_id="batch_1")
    unknown = extras(client)
    assert (unknown["pace"], unknown["estimated_completion_at"]) == (None, None)
    rows.run("UPDATE batches SET pace = 0.5, pace_ended = 4, pace_at = :at", at="2026-01-01T00:00:00Z")
    known = extras(client)
    assert (known["pace"], known["estimated_completion_at"]) == (0.5, 1767225600 + 12)
    rows.run("UPDATE batches SET status = 'completed'")
    assert extras(client)["estimated_completion_at"] is None


def test_the_commonest_errors_are_on_the_batch(client: OpenAI, rows: Rows) -> None:
    ids = rows.add_jobs(9, batch_id="batch_1")
    rows.fail(*ids[1:4], code="http_403")
    rows.fail(ids[0], code="http_503")
    rows.fail(ids[4], code="out_of_memory")
    first, second, third = extras(client)["errors_by_code"]
    assert first == {
        "code": "http_403",
        "count": 3,
        "line": 2,
        "message": "http_403!",
        "type": "invalid_request_error",
        "retryable": False,
    }
    assert (second["code"], second["type"], second["retryable"]) == (
        "http_503",
        "invalid_request_error",
        True,
    )
    assert (third["code"], third["type"], third["retryable"]) == ("out_of_memory", "server_error", True)


def test_all_codes_are_told_when_asked_for(client: OpenAI, http: httpx.Client, rows: Rows) -> None:
    for number, job_id in enumerate(rows.add_jobs(7, batch_id="batch_1")):
        rows.fail(job_id, code=f"http_40{number}")
    assert len(extras(client)["errors_by_code"]) == 5
    found = http.get("/v1/batches/batch_1/errors").json()
    assert [error["code"] for error in found["data"]] == [f"http_40{number}" for number in range(7)]
    assert http.get("/v1/batches/batch_2/errors").status_code == 404


def test_a_retry_is_a_new_batch_that_names_the_old_one(client: OpenAI, ended: Rows) -> None:
    batch = retry(client)
    assert batch.id != "batch_1"
    assert (batch.status, batch.completion_window, batch.input_file_id) == ("validating", "24h", "file-x")
    assert batch.expires_at is not None
    assert batch.expires_at - batch.created_at == 86_400
    assert batch.model_dump()["vqueue"]["retry_of"] == "batch_1"
    assert ended.one("SELECT retry_states FROM batches WHERE id = :id", id=batch.id) == ["failed"]


def test_a_retry_keeps_what_the_old_batch_was_asked_with(client: OpenAI, ended: Rows) -> None:
    ended.run(
        """
        UPDATE batches SET metadata = '{"night": "1"}', priority = 'background', brake_share = 0.5,
            brake_after = 7, output_expires_after_s = 3600
        """
    )
    batch = retry(client)
    assert (batch.metadata, batch.model_dump()["vqueue"]["priority"]) == ({"night": "1"}, "background")
    assert brake_of(ended, batch.id) == (0.5, 7)
    assert ended.one("SELECT output_expires_after_s FROM batches WHERE id = :id", id=batch.id) == 3600


def test_a_retry_may_differ_in_what_it_names(client: OpenAI, ended: Rows) -> None:
    ended.run("UPDATE batches SET brake_share = 0.5, brake_after = 7")
    batch = retry(
        client,
        {
            "completion_window": "2h",
            "metadata": {"night": "2"},
            "priority": "background",
            "failure_brake": {"share": 0},
        },
    )
    assert (batch.completion_window, batch.metadata) == ("2h", {"night": "2"})
    assert batch.expires_at == batch.created_at + 7200
    assert brake_of(ended, batch.id) == (None, 7)


def test_a_retry_sent_twice_is_one_batch(client: OpenAI, ended: Rows) -> None:
    first = retry(client)
    assert retry(client, headers=RETRY).id == first.id
    assert retry(client).id != first.id, "on purpose"
    made = ended.one("SELECT count(*) FROM batches")
    retry(client, {"states": ["failed", "expired"]}, headers=RETRY)
    assert ended.one("SELECT count(*) FROM batches") == made + 1, "another wish"
    keyed = retry(client, headers=KEY)
    assert retry(client, headers=KEY).id == keyed.id
    with pytest.raises(openai.ConflictError) as refused:
        retry(client, {"metadata": {"a": "b"}}, headers=KEY)
    assert refused.value.code == "idempotency_key_reused"


def test_retries_of_two_batches_are_two(client: OpenAI, ended: Rows) -> None:
    first = retry(client, headers=RETRY)
    ended.run("UPDATE batches SET id = 'batch_2' WHERE id = :id", id=first.id)
    ended.run("UPDATE batches SET status = 'completed', failed = 1 WHERE id = 'batch_2'")
    ended.run("INSERT INTO batch_errors VALUES ('batch_2', 'dns', 1, 1, 'No.')")
    again = client.post("/batches/batch_2/retry", cast_to=Batch, options={"headers": RETRY})
    assert again.model_dump()["vqueue"]["retry_of"] == "batch_2"


def test_a_batch_that_runs_cannot_be_retried(client: OpenAI, ended: Rows) -> None:
    ended.run("UPDATE batches SET status = 'finalizing'")
    with pytest.raises(openai.ConflictError, match="finalizing") as refused:
        retry(client)
    assert refused.value.code == "batch_not_ended"
    assert refused.value.response.headers["x-should-retry"] == "false"


def test_nothing_to_retry_is_a_bad_request(client: OpenAI, ended: Rows) -> None:
    assert ended.counts() == (3, 1, 2)
    with pytest.raises(openai.BadRequestError) as refused:
        retry(client, {"states": ["expired"]})
    assert (refused.value.code, refused.value.param) == ("nothing_to_retry", "states")
    assert "There are 2 failed ones" in refused.value.message


@pytest.mark.parametrize(
    "body", [{"states": []}, {"states": ["completed"]}, {"input_file_id": "f"}, {"completion_window": "x"}]
)
def test_a_retry_that_makes_no_sense_is_refused(client: OpenAI, ended: Rows, body: object) -> None:
    with pytest.raises(openai.BadRequestError):
        retry(client, body)
    assert ended.one("SELECT count(*) FROM batches") == 1


def test_a_batch_may_have_a_brake(client: OpenAI, rows: Rows) -> None:
    assert brake_of(rows, create(client).id)[0] is None
    braked = create(client, failure_brake={"share": 0.25, "after": 10})
    assert brake_of(rows, braked.id) == (0.25, 10)
    assert brake_of(rows, create(client, failure_brake={"share": 1}).id) == (1.0, 100)
    for wrong in ({"share": 1.5}, {"share": 0.5, "after": 0}, {"after": 5}, {"share": 0.5, "at": 1}):
        with pytest.raises(openai.BadRequestError):
            create(client, failure_brake=wrong)


def test_an_installation_may_brake_every_batch(settings: Settings, api_key: str, rows: Rows) -> None:
    braking = settings.model_copy(update={"brake_share": 0.5, "brake_after": 20})
    with serving(build_app(wire(braking))) as url, sdk(url, api_key) as client:
        assert brake_of(rows, create(client).id) == (0.5, 20)
        assert brake_of(rows, create(client, failure_brake={"share": 0.9}).id) == (0.9, 20)
        assert brake_of(rows, create(client, failure_brake={"share": 0}).id)[0] is None


def test_a_stopped_batch_shows_its_counts_and_its_reason(client: OpenAI, ended: Rows) -> None:
    error = '[{"code": "too_many_failures", "message": "Stopped.", "line": null, "param": null}]'
    ended.run("UPDATE batches SET status = 'failed', errors = CAST(:errors AS jsonb)", errors=error)
    batch = client.batches.retrieve("batch_1")
    assert batch.errors is not None
    assert batch.errors.data is not None
    assert [found.code for found in batch.errors.data] == ["too_many_failures"]
    assert batch.request_counts is not None
    assert (batch.request_counts.total, batch.request_counts.failed) == (3, 2)
