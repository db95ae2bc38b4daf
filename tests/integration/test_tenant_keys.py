"""Keys over HTTP with scopes, rates counted by the minute, and the audit log of what they did."""

from collections.abc import Iterator
from typing import Any

import httpx
import openai
import pytest

from app.auth import Keys
from app.config import Settings
from app.db import Sessions
from app.main import build_app, wire
from tests.rows import Rows
from tests.serving import sdk, serving


@pytest.fixture
def url(settings: Settings) -> Iterator[str]:
    with serving(build_app(wire(settings))) as served:
        yield served


def key_of(db: Sessions, *scopes: str, tenant: str = "Ada") -> str:
    return Keys(sessions=db).create(tenant=tenant, name="test", scopes=scopes or ("*",)).secret


def ask(url: str, key: str, method: str, path: str, **options: Any) -> httpx.Response:
    headers = {"Authorization": f"Bearer {key}"}
    return httpx.request(method, f"{url}/v1{path}", headers=headers, timeout=30, **options)


@pytest.mark.parametrize(
    ("scope", "method", "path", "allowed"),
    [
        ("read", "GET", "/batches", True),
        ("read", "POST", "/batches", False),
        ("read", "GET", "/keys", False),
        ("write", "GET", "/batches", False),
        ("write", "POST", "/jobs", True),
        ("write", "PUT", "/answers/job_0000000000000001/review", True),
        ("review", "PUT", "/answers/job_0000000000000001/review", True),
        ("review", "POST", "/jobs", False),
        ("read", "PUT", "/answers/job_0000000000000001/review", False),
        ("write", "POST", "/chat/completions", False),
        ("chat", "POST", "/chat/completions", True),
        ("chat", "GET", "/models", True),
        ("chat", "DELETE", "/files/file-x", False),
        ("admin", "GET", "/audit", True),
        ("admin", "POST", "/jobs", False),
        ("*", "GET", "/keys", True),
    ],
)
def test_a_key_opens_what_its_scope_says(
    url: str, db: Sessions, scope: str, method: str, path: str, allowed: bool
) -> None:
    answer = ask(url, key_of(db, scope), method, path, json={} if method == "POST" else None)
    assert (answer.status_code != 403) == allowed, answer.text
    if not allowed:
        assert answer.json()["error"]["code"] == "insufficient_scope"


def test_any_key_is_told_its_own_scopes(url: str, db: Sessions) -> None:
    told = ask(url, key_of(db, "chat"), "GET", "/key").json()
    assert (told["object"], told["scopes"]) == ("api_key", ["chat"])
    assert "key" not in told


def test_the_sdk_takes_a_missing_scope_for_what_it_is(url: str, db: Sessions) -> None:
    with sdk(url, key_of(db, "chat")) as client, pytest.raises(openai.PermissionDeniedError, match="'read'"):
        client.batches.list()


def test_an_admin_makes_lists_and_revokes_keys(url: str, db: Sessions) -> None:
    admin = key_of(db, "admin", "read")
    made = ask(
        url, admin, "POST", "/keys", json={"name": "night", "scopes": ["read"], "expires_days": 1}
    ).json()
    assert ask(url, made["key"], "GET", "/batches").status_code == 200
    listed = {one["id"]: one for one in ask(url, admin, "GET", "/keys").json()["data"]}
    assert listed[made["id"]]["scopes"] == ["read"]
    assert listed[made["id"]]["last_used_at"] is not None
    assert "key" not in listed[made["id"]]
    assert ask(url, admin, "DELETE", f"/keys/{made['id']}").json()["revoked_at"] is not None
    assert ask(url, made["key"], "GET", "/batches").status_code == 401


def test_no_key_is_given_more_than_its_maker_has(url: str, db: Sessions) -> None:
    admin = key_of(db, "admin")
    for scopes in (["read"], ["*"], ["admin", "write"]):
        refused = ask(url, admin, "POST", "/keys", json={"scopes": scopes})
        assert (refused.status_code, refused.json()["error"]["param"]) == (403, "scopes")
    assert ask(url, admin, "POST", "/keys", json={"scopes": ["admin"]}).status_code == 200


def test_keys_of_others_are_neither_seen_nor_closed(url: str, db: Sessions) -> None:
    ada, eve = key_of(db), key_of(db, tenant="Eve")
    (other,) = ask(url, ada, "GET", "/keys").json()["data"]
    assert other["id"] not in ask(url, eve, "GET", "/keys").text
    assert ask(url, eve, "DELETE", f"/keys/{other['id']}").status_code == 404
    assert ask(url, ada, "GET", "/keys").status_code == 200


def test_a_tenant_who_asks_too_often_is_told_when_to_come_back(url: str, db: Sessions) -> None:
    key, other = key_of(db), key_of(db, tenant="Eve")
    Rows(db).run("UPDATE tenants SET requests_per_minute = 3 WHERE name = 'Ada'")
    answers = [ask(url, key, "GET", "/models") for _ in range(5)]
    assert [one.status_code for one in answers] == [200, 200, 200, 429, 429]
    left = [one.headers["x-ratelimit-remaining-requests"] for one in answers]
    assert left == ["2", "1", "0", "0", "0"]
    assert answers[0].headers["x-ratelimit-limit-requests"] == "3"
    assert answers[3].json()["error"]["code"] == "rate_limit_exceeded"
    assert 1 <= int(answers[3].headers["retry-after"]) <= 120
    free = ask(url, other, "GET", "/models")
    assert free.status_code == 200
    assert "x-ratelimit-limit-requests" not in free.headers


def test_without_redis_nobody_is_held_up(settings: Settings, db: Sessions) -> None:
    away = settings.model_copy(
        update={"redis_url": type(settings.redis_url)("redis://127.0.0.1:1/0"), "requests_per_minute": 1}
    )
    key = key_of(db)
    with serving(build_app(wire(away))) as url:
        assert [ask(url, key, "GET", "/models").status_code for _ in range(3)] == [200] * 3


def test_the_log_tells_who_did_what(url: str, db: Sessions) -> None:
    admin, writer = key_of(db, "admin"), key_of(db, "write", "read")
    with sdk(url, writer) as client:
        file = client.files.create(file=("in.jsonl", b"{}\n"), purpose="batch")
        batch = client.batches.create(
            input_file_id=file.id, endpoint="/v1/chat/completions", completion_window="24h"
        )
        client.batches.cancel(batch.id)
        client.files.delete(file.id)
    writers_id = Keys(sessions=db).recognise(writer).key_id
    entries = ask(url, admin, "GET", "/audit").json()["data"]
    done = [(one["action"], one["object_id"]) for one in entries if one["key_id"] == writers_id]
    assert done == [
        ("file.deleted", file.id),
        ("batch.cancelled", batch.id),
        ("batch.created", batch.id),
        ("file.created", file.id),
    ]
    assert all(one["request_id"].startswith("req_") for one in entries if one["key_id"])


def test_the_log_is_read_in_pages_and_by_its_tenant_only(url: str, db: Sessions) -> None:
    admin = key_of(db)
    for _ in range(4):
        ask(url, admin, "POST", "/keys", json={})
    pages, after = [], ""
    while True:
        page = ask(url, admin, "GET", f"/audit?limit=2{after}").json()
        pages += [one["id"] for one in page["data"]]
        if not page["has_more"]:
            break
        after = f"&after={page['last_id']}"
    assert len(pages) == len(set(pages)) == 5
    assert pages[0] not in ask(url, key_of(db, tenant="Eve"), "GET", "/audit").text


def test_what_is_refused_is_not_noted(url: str, db: Sessions) -> None:
    admin = key_of(db)
    assert ask(url, admin, "DELETE", "/files/file-nobody").status_code == 404
    actions = {one["action"] for one in ask(url, admin, "GET", "/audit").json()["data"]}
    assert actions == {"key.created"}
