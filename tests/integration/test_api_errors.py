"""What clients are told when they, or the servers below, are at fault."""

import socket
from collections.abc import Iterator

import httpx
import openai
import pytest
from openai import OpenAI
from pydantic import SecretStr
from sqlalchemy.exc import DataError

from app.config import Settings
from app.db import Sessions, transaction
from app.main import build_app, wire
from app.store import workers
from tests.rows import Rows
from tests.serving import new_key, sdk, serving

BATCH = {"input_file_id": "file-1", "endpoint": "/v1/chat/completions", "completion_window": "24h"}


@pytest.fixture
def dead_port() -> Iterator[int]:
    """A port on which nothing listens, and nothing else will while the test runs."""
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        yield holder.getsockname()[1]


@pytest.fixture
def without_postgres(settings: Settings, dead_port: int) -> Iterator[httpx.Client]:
    away = SecretStr(f"postgresql://vqueue@127.0.0.1:{dead_port}/vqueue")
    app = build_app(wire(settings.model_copy(update={"database_url": away})))
    with serving(app) as url, httpx.Client(base_url=url, headers={"Authorization": "Bearer vq_x"}) as http:
        yield http


@pytest.fixture
def without_objects(settings: Settings, dead_port: int, api_key: str) -> Iterator[OpenAI]:
    app = build_app(wire(settings.model_copy(update={"s3_endpoint_url": f"http://127.0.0.1:{dead_port}"})))
    with serving(app) as url, sdk(url, api_key) as client:
        yield client


@pytest.fixture
def without_broker(settings: Settings, dead_port: int, api_key: str) -> Iterator[httpx.Client]:
    away = SecretStr(f"redis://127.0.0.1:{dead_port}/0")
    app = build_app(wire(settings.model_copy(update={"broker_url": away})))
    headers = {"Authorization": f"Bearer {api_key}"}
    with serving(app) as url, httpx.Client(base_url=url, headers=headers) as http:
        yield http


@pytest.fixture
def without_disk(settings: Settings, api_key: str) -> Iterator[OpenAI]:
    app = build_app(wire(settings.model_copy(update={"disk_min_free_bytes": 2**60})))
    with serving(app) as url, sdk(url, api_key) as client:
        yield client


@pytest.fixture
def crowded(settings: Settings, db: Sessions) -> Iterator[httpx.Client]:
    """An API that takes three jobs at once, with four there."""
    rows = Rows(db)
    rows.add_jobs(2, batch_id=rows.add_batch())
    rows.add_jobs(2)
    app = build_app(wire(settings.model_copy(update={"backlog_max_jobs": 3})))
    headers = {"Authorization": f"Bearer {new_key(db)}"}
    with serving(app) as url, httpx.Client(base_url=url, headers=headers) as http:
        yield http


@pytest.mark.parametrize("headers", [{}, {"Authorization": "Basic x"}, {"Authorization": "Bearer vq_wrong"}])
def test_strangers_are_told_so(api_url: str, headers: dict[str, str], db: Sessions) -> None:
    answer = httpx.post(f"{api_url}/v1/batches", headers=headers, json=BATCH)
    assert answer.status_code == 401
    assert answer.json()["error"]["type"] == "invalid_request_error"
    assert answer.json()["error"]["code"].endswith("_api_key")
    assert answer.headers["www-authenticate"] == "Bearer"


@pytest.mark.parametrize(
    "path", ["/v1/files", "/v1/files/file-1/content", "/v1/batches", "/v1/models", "/v1/jobs/job_1"]
)
def test_no_path_is_open(api_url: str, db: Sessions, path: str) -> None:
    assert httpx.get(f"{api_url}{path}").status_code == 401


def test_a_revoked_key_opens_nothing(client: OpenAI, db: Sessions) -> None:
    client.models.list()
    Rows(db).run("UPDATE api_keys SET revoked_at = now()")
    with pytest.raises(openai.AuthenticationError) as refused:
        client.models.list()
    assert refused.value.code == "invalid_api_key"


def test_an_expired_key_opens_nothing(client: OpenAI, db: Sessions) -> None:
    Rows(db).run("UPDATE api_keys SET expires_at = now()")
    with pytest.raises(openai.AuthenticationError) as refused:
        client.models.list()
    assert refused.value.code == "expired_api_key"


def test_every_answer_has_an_id_of_its_own(http: httpx.Client) -> None:
    answers = [http.get("/v1/models"), http.get("/v1/files/none"), http.get("/nowhere"), http.get("/healthz")]
    ids = {answer.headers["x-request-id"] for answer in answers}
    assert len(ids) == 4
    assert all(name.startswith("req_") for name in ids)


def test_the_sdk_reads_our_errors(client: OpenAI) -> None:
    with pytest.raises(openai.NotFoundError) as refused:
        client.batches.retrieve("batch_none")
    error = refused.value
    assert (error.code, error.param, error.type) == ("batch_not_found", "batch_id", "invalid_request_error")
    assert error.request_id is not None


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/nowhere", 404),
        ("DELETE", "/v1/batches", 405),
        ("GET", "/v1/files?limit=many", 400),
        ("GET", "/v1/files?order=up", 400),
        ("GET", "/v1/files/a%00b", 400),
        ("GET", "/v1/files?purpose=%00", 400),
        ("GET", "/v1/files/%FF%FE", 404),
        ("GET", "/v1/batches/%F0%9F%98%80", 404),
    ],
)
def test_odd_requests_get_openais_errors(http: httpx.Client, method: str, path: str, status: int) -> None:
    answer = http.request(method, path)
    assert answer.status_code == status
    assert set(answer.json()["error"]) == {"message", "type", "param", "code"}


@pytest.mark.parametrize("body", [b"", b"{", b"\xff\xfe", b'{"a": "\\ud800"}', b"[" * 100_000, b"null"])
@pytest.mark.parametrize("path", ["/v1/batches", "/v1/jobs"])
def test_a_body_that_is_no_json(http: httpx.Client, path: str, body: bytes) -> None:
    answer = http.post(path, content=body, headers={"Content-Type": "application/json"})
    assert answer.status_code == 400
    assert set(answer.json()["error"]) == {"message", "type", "param", "code"}


def test_a_body_over_the_limit_is_told_so(http: httpx.Client) -> None:
    answer = http.post("/v1/batches", json=BATCH | {"metadata": {"key": "x" * 5_000_000}})
    assert (answer.status_code, answer.json()["error"]["code"]) == (413, "body_too_large")


def test_a_stranger_with_a_large_body_is_told_so(api_url: str, db: Sessions) -> None:
    answer = httpx.post(f"{api_url}/v1/jobs", content=b"x" * 20_000_000)
    assert answer.status_code == 401


@pytest.mark.parametrize(
    ("method", "path"), [("GET", "/v1/batches"), ("GET", "/v1/files/file-1"), ("POST", "/v1/jobs")]
)
def test_without_postgres_clients_are_asked_to_come_back(
    without_postgres: httpx.Client, method: str, path: str
) -> None:
    answer = without_postgres.request(method, path)
    assert answer.status_code == 503
    assert answer.headers["retry-after"] == "5"
    assert answer.json()["error"]["type"] == "server_error"


def test_without_postgres_the_api_lives_and_is_not_ready(without_postgres: httpx.Client) -> None:
    assert without_postgres.get("/healthz").status_code == 200
    ready = without_postgres.get("/readyz")
    assert ready.status_code == 503
    assert ready.json()["checks"] == {
        "database": "does not answer",
        "object_store": "ok",
        "broker": "ok",
        "workers": "not known: the database does not answer",
    }


def test_without_the_object_store_uploads_are_asked_to_come_back(without_objects: OpenAI) -> None:
    with pytest.raises(openai.InternalServerError) as refused:
        without_objects.files.create(file=("in.jsonl", b"{}"), purpose="batch")
    assert refused.value.status_code == 503
    assert refused.value.response.headers["retry-after"] == "5"


def test_a_ready_api_says_so(api_url: str) -> None:
    ready = httpx.get(f"{api_url}/readyz")
    assert ready.status_code == 200
    assert set(ready.json()["checks"]) == {"database", "object_store", "broker", "workers"}


def test_a_served_model_without_a_live_worker_is_told(api_url: str, db: Sessions) -> None:
    assert httpx.get(f"{api_url}/readyz").json()["checks"]["workers"] == "no live worker serves demo"
    with transaction(db) as session:
        workers.register(session, worker="w1", role="worker", model="demo", revision="1")
    ready = httpx.get(f"{api_url}/readyz")
    assert (ready.status_code, ready.json()["checks"]["workers"]) == (200, "ok")


def test_without_the_broker_work_is_still_accepted(without_broker: httpx.Client) -> None:
    ready = without_broker.get("/readyz", timeout=20)
    assert (ready.status_code, ready.json()["checks"]["broker"]) == (200, "does not answer")
    assert without_broker.post("/v1/jobs", json={"question": "Why?"}).status_code == 202


@pytest.mark.parametrize(("schema", "status"), [("0001", 503), ("of others", 503), ("9999", 200)])
def test_a_schema_is_as_new_as_the_api_or_newer(api_url: str, db: Sessions, schema: str, status: int) -> None:
    rows = Rows(db)
    newest = rows.one("SELECT version_num FROM alembic_version")
    rows.run("UPDATE alembic_version SET version_num = :schema", schema=schema)
    ready = httpx.get(f"{api_url}/readyz")
    rows.run("UPDATE alembic_version SET version_num = :newest", newest=newest)
    assert ready.status_code == status
    assert (schema in ready.json()["checks"]["database"]) == (status == 503)


def test_a_full_backlog_takes_no_more(crowded: httpx.Client) -> None:
    for path, body in (("/v1/batches", BATCH), ("/v1/jobs", {"question": "Why?"})):
        answer = crowded.post(path, json=body)
        assert (answer.status_code, answer.headers["retry-after"]) == (429, "30")
        assert answer.json()["error"]["type"] == "rate_limit_error"


def test_a_full_backlog_has_room_for_dry_runs(crowded: httpx.Client) -> None:
    answer = crowded.post("/v1/batches", json=BATCH | {"dry_run": True})
    assert answer.json()["error"]["code"] == "file_not_found", "it has got further than the backlog"


def test_a_full_disk_takes_no_dry_runs(without_disk: OpenAI) -> None:
    with pytest.raises(openai.RateLimitError) as refused:
        without_disk.post("/batches", body=BATCH | {"dry_run": True}, cast_to=object)
    assert refused.value.code == "disk_full"


def test_a_full_disk_takes_no_uploads(without_disk: OpenAI) -> None:
    with pytest.raises(openai.RateLimitError) as refused:
        without_disk.files.create(file=("in.jsonl", b"{}"), purpose="batch")
    assert refused.value.code == "disk_full"


def test_requests_are_counted_by_route(http: httpx.Client) -> None:
    http.get("/v1/batches/batch_secret")
    http.request("SURPRISE", "/v1/batches")
    metrics = http.get("/metrics").text
    assert 'vqueue_http_seconds_count{method="GET",route="/v1/batches/{batch_id}",status="404"}' in metrics
    assert 'method="other"' in metrics
    assert "batch_secret" not in metrics
    assert "SURPRISE" not in metrics


def test_the_model_is_the_one_that_is_set(client: OpenAI) -> None:
    assert [model.id for model in client.models.list()] == ["demo"]
    assert client.models.retrieve("demo").owned_by == "vqueue"
    with pytest.raises(openai.NotFoundError):
        client.models.retrieve("Qwen/Qwen3-VL-2B-Instruct")


def test_parameters_stay_out_of_database_errors(db: Sessions) -> None:
    with pytest.raises(DataError) as failed:
        Rows(db).run("SELECT 1 / 0 WHERE :question = :question", question="SECRET")
    assert "SECRET" not in str(failed.value)
