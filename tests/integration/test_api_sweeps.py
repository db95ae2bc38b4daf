"""Sweeps over HTTP."""

from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from app.config import Settings
from app.db import Sessions
from app.main import build_app, wire
from tests.serving import new_key, serving

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
    ("change", "code"),
    [
        ({"cron": "61 * * * *"}, "invalid_cron"),
        ({"zone": "Mars/Olympus"}, "invalid_zone"),
        ({"source": {"kind": "bucket", "prefix": "s3://private/"}}, "blocked_bucket"),
        ({"source": {"kind": "table", "database": "x", "table": "t"}}, "unknown_source"),
        ({"source": {"kind": "table", "database": "postgresql://u:p@h/d", "table": "t"}}, "unknown_source"),
        ({"destination": {"prefix": "s3://photos/"}}, "blocked_bucket"),
        ({"model": "other"}, "model_not_found"),
        ({"body": {"temperature": -1}}, None),
        ({"questions": [{"name": "a:b", "ask": "?"}]}, None),
        ({"questions": [{"name": "a", "ask": "?"}, {"name": "A", "ask": "?"}]}, None),
        ({"name": "a/b"}, None),
    ],
)
def test_what_could_not_be_run_is_refused(
    http: httpx.Client, change: dict[str, Any], code: str | None
) -> None:
    refused = http.post("/v1/sweeps", json=WISH | change)
    assert refused.status_code in (400, 404)
    assert code in (None, refused.json()["error"]["code"])


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
