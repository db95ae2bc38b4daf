"""The page of keys: made and shown once, rotated, closed, and told of in the audit log."""

import re
from datetime import UTC, datetime, timedelta

import httpx
import pytest

from app.auth import Keys
from app.db import Sessions
from tests.console import Visitor, visiting
from tests.rows import Rows

EVIL = "<script>alert(1)</script>"


@pytest.fixture
def rows(db: Sessions) -> Rows:
    return Rows(db)


def secret_of(answer: httpx.Response) -> str:
    found = re.search(r'id="secret"[^>]* value="([^"]+)"', answer.text)
    assert found is not None, answer.text
    return found[1]


def opens(url: str, key: str) -> int:
    return httpx.get(f"{url}/v1/key", headers={"Authorization": f"Bearer {key}"}, timeout=60).status_code


def test_a_key_is_made_with_its_scopes_and_shown_once(visitor: Visitor, api_url: str, rows: Rows) -> None:
    answer = visitor.http.post(
        "/keys",
        data={"csrf": visitor.csrf(), "name": "bo", "scopes": ["read", "review"], "expires_days": "30"},
    )
    secret = secret_of(answer)
    assert re.findall(r'href="([^"]+)" aria-current="page"', answer.text) == ["/keys"]
    assert opens(api_url, secret) == 200
    assert secret not in visitor.get("/keys").text
    made = rows.table("SELECT name, scopes, expires_at - created_at FROM api_keys ORDER BY created_at DESC")[
        0
    ]
    assert tuple(made) == ("bo", ["read", "review"], timedelta(days=30))


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ({"name": "", "scopes": "read"}, "A key needs a name"),
        ({"name": "x"}, "A key needs at least one scope"),
        ({"name": "x", "scopes": "root"}, "A key needs at least one scope"),
        ({"name": "x", "scopes": "read", "expires_days": "0"}, "A key lasts from"),
        ({"name": "x", "scopes": "read", "expires_days": "soon"}, "A key lasts from"),
        ({"name": "x", "scopes": "read", "expires_days": "9" * 5000}, "A key lasts from"),
    ],
)
def test_a_key_that_cannot_be_is_told_on_the_page(
    visitor: Visitor, rows: Rows, fields: dict[str, str], problem: str
) -> None:
    answer = visitor.post("/keys", **fields)
    assert answer.status_code == 400
    assert problem in answer.text
    assert rows.one("SELECT count(*) FROM api_keys") == 1


def test_nobody_gives_away_more_than_they_have(api_url: str, db: Sessions, api_key: str, rows: Rows) -> None:
    wide = rows.one("SELECT id FROM api_keys")
    narrow = Keys(sessions=db).create(tenant="Ada", name="admin", scopes=["read", "admin"]).secret
    with visiting(api_url, narrow) as visitor:
        page = visitor.get("/keys").text
        assert re.findall(r'name="scopes" value="([^"]+)"', page) == ["read", "admin"]
        assert f"/keys/{wide}/rotate" not in page
        for answer in (
            visitor.post("/keys", name="x", scopes="write"),
            visitor.post(f"/keys/{wide}/rotate", keep="no"),
        ):
            assert answer.status_code == 400
            assert "only scopes that your own has" in answer.text
    assert opens(api_url, api_key) == 200


@pytest.mark.parametrize(("keep", "status"), [("no", 401), ("day", 200)])
def test_a_key_is_rotated_and_the_old_one_ends_now_or_in_a_day(
    visitor: Visitor, db: Sessions, api_url: str, rows: Rows, keep: str, status: int
) -> None:
    old = Keys(sessions=db).create(tenant="Ada", name="bo", scopes=["read"], expires_days=30)
    new = secret_of(visitor.post(f"/keys/{old.id}/rotate", keep=keep))
    assert (opens(api_url, old.secret), opens(api_url, new)) == (status, 200)
    names = rows.table("SELECT name, scopes, expires_at - created_at FROM api_keys WHERE name = 'bo'")
    assert sorted(row[2].days for row in names) == [1 if keep == "day" else 30, 30]
    assert all(row[1] == ["read"] for row in names)
    if keep == "day":
        ends = rows.one("SELECT expires_at FROM api_keys WHERE id = :id", id=old.id)
        assert abs(ends - datetime.now(UTC) - timedelta(days=1)) < timedelta(minutes=1)
    assert "key.rotated" in visitor.get("/keys").text


def test_a_rotation_never_lets_a_key_live_longer(visitor: Visitor, db: Sessions, rows: Rows) -> None:
    old = Keys(sessions=db).create(tenant="Ada", name="bo", expires_days=1)
    rows.run("UPDATE api_keys SET expires_at = now() + interval '1 hour' WHERE id = :id", id=old.id)
    visitor.post(f"/keys/{old.id}/rotate", keep="day")
    left = "SELECT expires_at - now() < interval '61 minutes' FROM api_keys WHERE id = :id"
    assert rows.one(left, id=old.id)


def test_a_key_is_revoked_and_stays_in_sight(visitor: Visitor, db: Sessions, api_url: str) -> None:
    other = Keys(sessions=db).create(tenant="Ada", name="leaked")
    assert visitor.post(f"/keys/{other.id}/revoke").headers["location"] == "/keys"
    assert opens(api_url, other.secret) == 401
    page = visitor.get("/keys").text
    assert "Closed keys</summary>" in page.replace(" (1)", "")
    assert f"/keys/{other.id}/revoke" not in page
    assert "key.revoked" in page
    assert visitor.post(f"/keys/{other.id}/rotate").status_code == 404


def test_many_keys_are_on_pages_the_open_ones_first(visitor: Visitor, rows: Rows) -> None:
    rows.run(
        "INSERT INTO api_keys (id, tenant_id, key_hash, prefix, name, scopes, created_at, revoked_at)"
        " SELECT 'key_' || n, tenant_id, sha256(n::text::bytea), prefix, 'old ' || n, scopes,"
        " now() + n * interval '1 s', now()"
        " FROM api_keys, generate_series(100, 249) AS n"
    )
    first = visitor.get("/keys").text
    assert first.count('class="named"') == 100
    assert 'action="/keys/' in first  # the one that is open
    assert "old 249<" in first
    following = re.search(r'href="(/keys\?after=key_\d+)[#"]', first)
    assert following is not None
    second = visitor.get(following[1]).text
    assert second.count('class="named"') == 51
    assert "old 100<" in second


def test_the_audit_log_goes_on_where_a_page_ended(visitor: Visitor, rows: Rows) -> None:
    tenant = rows.one("SELECT id FROM tenants")
    for number in range(40):
        rows.run(
            "INSERT INTO audit_log (tenant_id, action, object_id) VALUES (:t, 'x.done', :o)",
            t=tenant,
            o=f"thing{number:02}",
        )
    first = visitor.get("/keys").text
    older = re.search(r'href="(/keys\?audit_after=[^"#]+)', first)
    assert older is not None
    shown = [set(re.findall(r"thing\d\d", page)) for page in (first, visitor.get(older[1]).text)]
    assert shown[0] | shown[1] == {f"thing{number:02}" for number in range(40)}
    assert shown[0] & shown[1] == set()


def test_names_of_keys_and_details_are_never_markup(visitor: Visitor, db: Sessions) -> None:
    Keys(sessions=db).create(tenant="Ada", name=EVIL)
    page = visitor.get("/keys").text
    assert EVIL not in page
    assert "&lt;script&gt;" in page
    assert EVIL not in visitor.post("/keys", name=EVIL, scopes="read").text


def test_only_admins_come_in(api_url: str, db: Sessions, rows: Rows) -> None:
    made = Keys(sessions=db).create(tenant="Ada", name="writes", scopes=["read", "write"])
    with visiting(api_url, made.secret) as visitor:
        assert visitor.get("/keys").status_code == 403
        assert 'href="/keys"' not in visitor.get("/batches").text
        for path in ("/keys", f"/keys/{made.id}/rotate", f"/keys/{made.id}/revoke"):
            assert visitor.post(path, name="x", scopes="read").status_code == 403
    assert rows.one("SELECT count(*) FROM api_keys WHERE revoked_at IS NULL") == 1


def test_another_tenants_keys_are_not_there(visitor: Visitor, db: Sessions) -> None:
    theirs = Keys(sessions=db).create(tenant="Bob", name="bobs")
    assert "bobs" not in visitor.get("/keys").text
    for act in ("rotate", "revoke"):
        assert visitor.post(f"/keys/{theirs.id}/{act}").status_code == 404


def test_a_form_without_the_sessions_token_makes_no_key(visitor: Visitor, rows: Rows) -> None:
    assert visitor.http.post("/keys", data={"name": "x", "scopes": "read"}).status_code == 403
    assert rows.one("SELECT count(*) FROM api_keys") == 1
