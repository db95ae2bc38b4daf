"""Signing in to the console: by key, for a while, and for nobody else's forms."""

import httpx
import pytest
from openai import OpenAI

from app.auth import Keys
from app.db import Sessions
from tests.console import visiting
from tests.rows import Rows


@pytest.fixture
def rows(db: Sessions) -> Rows:
    return Rows(db)


def key_of(db: Sessions, *scopes: str) -> str:
    return Keys(sessions=db).create(tenant="Ada", name="someone", scopes=scopes or ("*",)).secret


def browse(url: str, path: str, **headers: str) -> httpx.Response:
    return httpx.get(f"{url}{path}", headers={"Accept": "text/html", **headers}, timeout=60)


def test_a_stranger_is_sent_to_sign_in_and_back(api_url: str, db: Sessions) -> None:
    answer = browse(api_url, "/batches?after=x")
    assert (answer.status_code, answer.headers["location"]) == (303, "/sign-in?next=/batches%3Fafter%3Dx")


def test_a_key_opens_a_session(api_url: str, api_key: str) -> None:
    with visiting(api_url, api_key) as visitor:
        assert visitor.get("/batches").status_code == 200
        cookie = visitor.http.cookies.jar
        assert all(one.has_nonstandard_attr("HttpOnly") for one in cookie)
        assert api_key not in visitor.get("/batches").text


@pytest.mark.parametrize("key", ["", "vq_wrong"])
def test_a_wrong_key_opens_nothing_and_says_so(api_url: str, db: Sessions, key: str) -> None:
    answer = httpx.post(f"{api_url}/sign-in", data={"key": key}, timeout=60)
    assert answer.status_code == 401
    assert 'role="alert"' in answer.text
    assert "set-cookie" not in answer.headers


def test_a_key_that_may_not_look_opens_nothing(api_url: str, db: Sessions) -> None:
    answer = httpx.post(f"{api_url}/sign-in", data={"key": key_of(db, "chat")}, timeout=60)
    assert answer.status_code == 403


def test_closing_the_key_closes_its_sessions(api_url: str, db: Sessions, rows: Rows) -> None:
    with visiting(api_url, key_of(db)) as visitor:
        rows.run("UPDATE api_keys SET revoked_at = now()")
        assert visitor.get("/batches").status_code == 303


def test_a_session_ends_by_itself(api_url: str, db: Sessions, rows: Rows) -> None:
    with visiting(api_url, key_of(db)) as visitor:
        rows.run("UPDATE console_sessions SET expires_at = now()")
        assert visitor.get("/batches").status_code == 303


def test_signing_out_ends_it_for_good(api_url: str, db: Sessions, rows: Rows) -> None:
    with visiting(api_url, key_of(db)) as visitor:
        kept = dict(visitor.http.cookies)
        visitor.post("/sign-out")
        assert httpx.get(f"{api_url}/batches", cookies=kept, timeout=60).status_code == 303
    assert rows.one("SELECT count(*) FROM console_sessions") == 0


def test_signing_in_again_ends_the_session_before(api_url: str, db: Sessions, rows: Rows) -> None:
    key = key_of(db)
    with visiting(api_url, key) as visitor:
        assert visitor.http.post("/sign-in", data={"key": "vq_wrong"}).status_code == 401
        assert visitor.get("/batches").status_code == 200
        assert visitor.http.post("/sign-in", data={"key": key}).status_code == 303
        assert visitor.get("/batches").status_code == 200
    assert rows.one("SELECT count(*) FROM console_sessions") == 1


def test_only_a_hash_of_the_token_is_stored(api_url: str, db: Sessions, rows: Rows) -> None:
    with visiting(api_url, key_of(db)) as visitor:
        token = visitor.http.cookies["vqueue_session"]
        assert token.encode() not in bytes(rows.one("SELECT token_hash FROM console_sessions"))


def test_a_form_without_the_sessions_token_does_nothing(api_url: str, db: Sessions, rows: Rows) -> None:
    with visiting(api_url, key_of(db)) as visitor:
        rows.tenant = rows.one("SELECT id FROM tenants")
        rows.add_batch()
        answer = visitor.http.post("/batches/batch_1/cancel", data={"csrf": "x"})
        assert answer.status_code == 403
    assert rows.one("SELECT status FROM batches") == "in_progress"


@pytest.mark.parametrize(
    "headers",
    [
        {"sec-fetch-site": "cross-site"},
        {"sec-fetch-site": "same-site"},
        {"origin": "https://evil.example"},
        {"origin": "http://["},
    ],
)
def test_another_sites_form_does_nothing(
    api_url: str, db: Sessions, rows: Rows, headers: dict[str, str]
) -> None:
    with visiting(api_url, key_of(db)) as visitor:
        rows.tenant = rows.one("SELECT id FROM tenants")
        rows.add_batch()
        answer = visitor.http.post("/batches/batch_1/cancel", data={"csrf": visitor.csrf()}, headers=headers)
        assert answer.status_code == 403
    assert rows.one("SELECT status FROM batches") == "in_progress"


@pytest.mark.parametrize(
    ("content", "content_type", "status"),
    [
        (b"field=a%00b", "application/x-www-form-urlencoded", 400),
        (
            b'--x\r\nContent-Disposition: form-data; name="a"\r\n\r\n\\ud800\r\n--x--\r\n',
            "multipart/form-data; boundary=x; charset=unicode_escape",
            400,
        ),
        (b"&".join(b"k%d=" % at + b"x" * 2**20 for at in range(3)), "application/x-www-form-urlencoded", 413),
    ],
    ids=["nul", "half a pair", "large"],
)
def test_a_form_that_nobody_could_fill_in_is_refused(
    api_url: str, db: Sessions, content: bytes, content_type: str, status: int
) -> None:
    answer = httpx.post(
        f"{api_url}/sign-in", content=content, headers={"content-type": content_type}, timeout=60
    )
    assert answer.status_code == status


def test_a_viewer_is_offered_nothing_and_may_do_nothing(api_url: str, db: Sessions, rows: Rows) -> None:
    with visiting(api_url, key_of(db, "read")) as visitor:
        rows.tenant = rows.one("SELECT id FROM tenants")
        rows.add_batch()
        assert "/batches/batch_1/cancel" not in visitor.get("/batches/batch_1").text
        assert visitor.post("/batches/batch_1/cancel").status_code == 403
    assert rows.one("SELECT status FROM batches") == "in_progress"


@pytest.mark.parametrize("next", ["https://evil.example", "//evil.example", "/\\evil.example", "batches"])
def test_signing_in_leads_nowhere_else(api_url: str, api_key: str, next: str) -> None:
    answer = httpx.post(f"{api_url}/sign-in", data={"key": api_key, "next": next}, timeout=60)
    assert answer.headers["location"] == "/batches"


def test_pages_run_nothing_that_is_written_into_them(api_url: str, api_key: str) -> None:
    with visiting(api_url, api_key) as visitor:
        answer = visitor.get("/batches")
    policy = answer.headers["content-security-policy"]
    assert "script-src 'self'" in policy
    assert "unsafe" not in policy
    assert answer.headers["cache-control"] == "no-store"


def test_another_tenants_batch_is_not_found(api_url: str, api_key: str, stranger: OpenAI, rows: Rows) -> None:
    rows.tenant = rows.one("SELECT id FROM tenants WHERE name = 'Bob'")
    rows.add_batch()
    with visiting(api_url, api_key) as visitor:
        answer = visitor.get("/batches/batch_1")
    assert (answer.status_code, answer.headers["content-type"]) == (404, "text/html; charset=utf-8")


def test_api_clients_get_their_errors_as_json(api_url: str, api_key: str) -> None:
    for path in ("/v1/nonsense", "/v1/batches"):
        answer = browse(api_url, path)
        assert answer.json()["error"]["message"]


def test_a_wrong_address_is_a_page_for_eyes_and_json_for_others(api_url: str, api_key: str) -> None:
    assert browse(api_url, "/nonsense").headers["content-type"].startswith("text/html")
    assert browse(api_url, "/nonsense", Accept="*/*").headers["content-type"] == "application/json"


def test_the_language_stays_chosen(api_url: str, api_key: str) -> None:
    with visiting(api_url, api_key) as visitor:
        visitor.post("/look", language="zh", theme="dark", next="/batches")
        page = visitor.get("/batches").text
    assert '<html lang="zh" data-theme="dark">' in page
    assert "批次" in page
