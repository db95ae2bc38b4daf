"""Sweeps over HTTP."""

import asyncio
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import httpx
import pytest

from app.config import Settings
from app.db import Sessions
from app.main import build_app, wire
from tests.serving import new_key, serving
from vqueue import AsyncClient, Client, NotFound, SweepQuestion, SweepSource

WISH: dict[str, Any] = {
    "name": "nightly",
    "source": {"kind": "bucket", "prefix": "s3://photos/incoming/"},
    "questions": [{"name": "weapon", "ask": "Is a weapon shown?", "choices": ["yes", "no"]}],
    "policy_version": "1",
    "cron": "30 2 * * *",
    "zone": "Europe/Berlin",
}


@pytest.fixture(scope="module")
def url(settings: Settings) -> Iterator[str]:
    allowed = {"s3_source_buckets": ("photos",), "sweep_buckets": ("answers",), "model_name": "demo"}
    with serving(build_app(wire(settings.model_copy(update=allowed)))) as url:
        yield url


@pytest.fixture
def http(url: str, db: Sessions) -> Iterator[httpx.Client]:
    headers = {"Authorization": f"Bearer {new_key(db)}"}
    with httpx.Client(base_url=url, headers=headers, timeout=60) as http:
        yield http


def made(http: httpx.Client, **changes: Any) -> dict[str, Any]:
    answer = http.post("/v1/sweeps", json=WISH | changes)
    assert answer.status_code == 200, answer.text
    return answer.json()


def test_a_sweep_is_made_read_listed_and_deleted(http: httpx.Client) -> None:
    sweep = made(http)
    assert (sweep["status"], sweep["model"], sweep["next_due_at"] > sweep["created_at"]) == (
        "active",
        "demo",
        True,
    )
    assert http.get(f"/v1/sweeps/{sweep['id']}").json() == sweep
    assert http.get("/v1/sweeps").json()["data"] == [sweep]
    assert http.delete(f"/v1/sweeps/{sweep['id']}").json()["deleted"]
    assert http.get(f"/v1/sweeps/{sweep['id']}").status_code == 404
    assert made(http)["id"] != sweep["id"]


def test_a_sweep_is_changed_in_what_is_given(http: httpx.Client) -> None:
    sweep = made(http)
    changed = http.patch(f"/v1/sweeps/{sweep['id']}", json={"cron": None, "alert_after_s": 60}).json()
    assert (changed["cron"], changed["next_due_at"], changed["alert_after_s"]) == (None, None, 60)
    assert changed["questions"] == sweep["questions"]


def test_questions_change_only_with_their_policy_version(http: httpx.Client) -> None:
    path = f"/v1/sweeps/{made(http)['id']}"
    asked = [{"name": "weapon", "ask": "Is a gun shown?"}]
    refused = http.patch(path, json={"questions": asked})
    assert (refused.status_code, refused.json()["error"]["code"]) == (400, "policy_version_unchanged")
    assert http.patch(path, json={"questions": asked, "policy_version": "2"}).status_code == 200


def test_a_sweep_is_paused_resumed_run_and_back_filled(http: httpx.Client) -> None:
    path = f"/v1/sweeps/{made(http)['id']}"
    assert http.post(f"{path}/pause").json()["next_due_at"] is None
    assert http.post(f"{path}/resume").json()["status"] == "active"
    run = http.post(f"{path}/run").json()
    assert (run["kind"], run["status"], run["policy_version"]) == ("manual", "waiting", None)
    week = {"from": "2026-03-26T00:00:00+01:00", "to": "2026-04-01T23:00:00+02:00"}
    assert http.post(f"{path}/backfill", json=week).json()["runs"] == 7
    assert http.post(f"{path}/backfill", json=week).json()["runs"] == 0
    assert len(http.get(f"{path}/runs").json()["data"]) == 8
    assert http.get(f"{path}/runs/{run['id']}/diff").json()["data"] == []


@pytest.mark.parametrize(
    ("change", "code", "param"),
    [
        ({"cron": "61 * * * *"}, "invalid_cron", "cron"),
        ({"zone": "Mars/Olympus"}, "invalid_zone", "zone"),
        ({"source": {"kind": "bucket", "prefix": "s3://private/"}}, "blocked_bucket", "source.prefix"),
        ({"source": {"kind": "table", "database": "x", "table": "t"}}, "unknown_source", "source.database"),
        (
            {"source": {"kind": "table", "database": "postgresql://u:p@h/d", "table": "t"}},
            "unknown_source",
            "source.database",
        ),
        ({"destination": {"prefix": "s3://photos/"}}, "blocked_bucket", "destination.prefix"),
        ({"model": "other"}, "model_not_found", "model"),
        ({"body": {"temperature": -1}}, "invalid_request", "body.temperature"),
        ({"questions": [{"name": "a:b", "ask": "?"}]}, "invalid_value", "questions[0].name"),
        ({"name": "a/b"}, "invalid_value", "name"),
        ({"questions": [{"name": "a", "ask": "Is it a {title}?"}]}, "missing_column", "questions[0].ask"),
        ({"questions": [{"name": "a", "ask": "Is it a {?"}]}, "invalid_template", "questions[0].ask"),
        (
            {"batch": {"cascade": {"model": "other", "threshold": 0.5}}},
            "model_not_found",
            "batch.cascade.model",
        ),
        ({"batch": {"cascade": {"model": "demo", "threshold": 0.5}}}, "invalid_value", "batch.cascade.model"),
        ({"batch": {"near_duplicates": {"distance": 8}}}, "invalid_value", "batch.near_duplicates.distance"),
        ({"batch": {"near_duplicates": {}, "cache": "off"}}, "invalid_value", "batch"),
        (
            {"batch": {"near_duplicates": {}}, "body": {"temperature": 0.7}},
            "invalid_value",
            "batch.near_duplicates",
        ),
        ({"batch": {"cache": "read"}, "body": {"temperature": 0.7}}, "invalid_value", "batch.cache"),
    ],
)
def test_what_could_not_be_run_is_refused_by_the_name_of_its_field(
    http: httpx.Client, change: dict[str, Any], code: str, param: str
) -> None:
    refused = http.post("/v1/sweeps", json=WISH | change)
    assert refused.status_code in (400, 404)
    error = refused.json()["error"]
    assert (error["code"], error["param"]) == (code, param)


def test_a_name_that_two_questions_have_is_told(http: httpx.Client) -> None:
    questions = [{"name": "a", "ask": "?"}, {"name": "gun", "ask": "?"}, {"name": "GUN", "ask": "?"}]
    refused = http.post("/v1/sweeps", json=WISH | {"questions": questions})
    assert refused.status_code == 400
    assert "two are named 'gun'" in refused.json()["error"]["message"]


def test_a_name_is_taken_once(http: httpx.Client) -> None:
    made(http)
    refused = http.post("/v1/sweeps", json=WISH)
    assert (refused.status_code, refused.json()["error"]["code"]) == (409, "sweep_name_taken")


def test_a_sweep_is_its_tenants_own(http: httpx.Client, url: str, db: Sessions) -> None:
    sweep = made(http)
    headers = {"Authorization": f"Bearer {new_key(db, 'Bob')}"}
    with httpx.Client(base_url=url, headers=headers) as bob:
        assert bob.get("/v1/sweeps").json()["data"] == []
        for call in ("pause", "run"):
            assert bob.post(f"/v1/sweeps/{sweep['id']}/{call}").status_code == 404


def test_a_run_asked_for_again_with_its_key_is_the_same_run(http: httpx.Client) -> None:
    path = f"/v1/sweeps/{made(http)['id']}/run"
    first, again, other = (
        http.post(path, headers={"Idempotency-Key": key}).json()["id"] for key in ("k1", "k1", "k2")
    )
    assert first == again != other
    assert len(http.get(path + "s").json()["data"]) == 2


def test_a_key_that_has_made_a_run_makes_none_of_another_sweep(http: httpx.Client) -> None:
    sweeps = [made(http), made(http, name="other")]
    answers = [
        http.post(f"/v1/sweeps/{sweep['id']}/run", headers={"Idempotency-Key": "k1"}) for sweep in sweeps
    ]
    assert [answer.status_code for answer in answers] == [200, 409]
    assert answers[1].json()["error"]["code"] == "idempotency_key_reused"


def test_a_sweep_made_again_with_its_key_is_the_same_sweep(http: httpx.Client) -> None:
    answers = [http.post("/v1/sweeps", json=WISH, headers={"Idempotency-Key": "k1"}) for _ in range(2)]
    assert answers[0].json() == answers[1].json()
    assert len(http.get("/v1/sweeps").json()["data"]) == 1


SOURCE: SweepSource = {"kind": "bucket", "prefix": "s3://photos/"}
GUN: SweepQuestion = {"name": "gun", "ask": "Is a gun shown?"}


def test_the_client_has_all_calls(url: str, db: Sessions) -> None:
    with Client(f"{url}/v1", new_key(db)) as api:
        made = api.create_sweep("s", source=SOURCE, questions=[GUN], policy_version="1", cron="0 0 * * *")
        assert api.sweep(made.id) == made == api.sweeps().data[0]
        assert api.update_sweep(made.id, {"cron": None}).cron is None
        assert api.update_sweep(made.id, {"cron": "0 0 * * *"}).next_due_at
        assert (api.pause_sweep(made.id).status, api.resume_sweep(made.id).status) == ("paused", "active")
        run = api.run_sweep(made.id)
        assert not run.ended
        assert api.sweep_run(made.id, run.id) == run == api.sweep_runs(made.id).data[0]
        assert api.backfill_sweep(made.id, datetime(2026, 1, 1, tzinfo=UTC), datetime(2026, 1, 2, tzinfo=UTC))
        assert api.sweep_diff(made.id, run.id).data == []
        assert (api.image_clusters().data, api.look_at_images()) == ([], 0)
        with pytest.raises(NotFound):
            api.near_images("a" * 64)
        api.delete_sweep(made.id)


def test_the_async_client_has_them_too(url: str, db: Sessions) -> None:
    async def ask() -> None:
        async with AsyncClient(f"{url}/v1", new_key(db)) as api:
            made = await api.create_sweep("s", source=SOURCE, questions=[GUN], policy_version="1")
            run = await api.run_sweep(made.id, idempotency_key="k")
            assert run == await api.run_sweep(made.id, idempotency_key="k")
            assert (await api.image_clusters()).data == []

    asyncio.run(ask())
