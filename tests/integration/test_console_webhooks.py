"""The pages of webhooks: made, changed, tried, rotated and deleted, and what was sent to them."""

import re
from collections.abc import Iterator
from urllib.parse import urlsplit

import httpx
import pytest

from app.auth import Keys
from app.config import Settings
from app.db import Sessions, transaction
from app.main import build_app, wire
from app.store import events
from tests.console import Visitor, visiting
from tests.receiver import Receiver, receiving
from tests.rows import Rows
from tests.serving import new_key, serving

EVIL = "<script>alert(1)</script>"


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with receiving() as one:
        yield one


@pytest.fixture
def url(settings: Settings, receiver: Receiver) -> Iterator[str]:
    trusted = settings.model_copy(update={"fetch_allow_hosts": (urlsplit(receiver.url).netloc,)})
    with serving(build_app(wire(trusted))) as served:
        yield served


@pytest.fixture
def visitor(url: str, db: Sessions) -> Iterator[Visitor]:
    with visiting(url, new_key(db)) as one:
        yield one


@pytest.fixture
def rows(db: Sessions, visitor: Visitor) -> Rows:
    found = Rows(db)
    found.tenant = found.one("SELECT id FROM tenants")
    return found


def secret_of(answer: httpx.Response) -> str:
    found = re.search(r'id="secret"[^>]* value="([^"]+)"', answer.text)
    assert found is not None, answer.text
    return found[1]


def make(visitor: Visitor, url: str, name: str = "shop") -> str:
    """The path of a new endpoint."""
    answer = visitor.post("/webhooks", name=name, url=url, event_types="batch.completed")
    assert answer.status_code == 200, answer.text
    found = re.search(r'data-here="([^"]+)"', answer.text)
    assert found is not None
    return found[1]


def test_an_endpoint_is_made_and_its_secret_shown_once(
    visitor: Visitor, rows: Rows, receiver: Receiver
) -> None:
    answer = visitor.post("/webhooks", name="shop", url=receiver.url, event_types="batch.completed")
    secret = secret_of(answer)
    assert secret == rows.one("SELECT secret FROM webhook_endpoints").replace("+", "&#43;").replace(
        "&#43;", "+"
    )
    assert 'href="/webhooks/whe_' in visitor.get("/webhooks").text
    (path,) = re.findall(r"data-here=\"([^\"]+)\"", answer.text)
    assert secret not in visitor.get(path).text
    assert f"whsec_...{secret[-4:]}" in visitor.get(path).text


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ({"name": "", "event_types": "batch.completed"}, "An endpoint needs a name"),
        ({"name": "x"}, "Choose at least one event"),
        ({"name": "x", "event_types": "batch.nonsense"}, "Choose at least one event"),
        ({"name": "x", "event_types": "batch.failed", "url": "http://10.0.0.1/"}, "https://"),
    ],
)
def test_an_endpoint_that_cannot_be_is_told_and_keeps_what_was_written(
    visitor: Visitor, rows: Rows, receiver: Receiver, fields: dict[str, str], problem: str
) -> None:
    answer = visitor.post("/webhooks", **{"url": receiver.url, **fields})
    assert answer.status_code == 400
    assert problem in answer.text
    assert f'value="{fields.get("url", receiver.url)}"' in answer.text
    assert rows.one("SELECT count(*) FROM webhook_endpoints") == 0


def test_an_endpoint_is_changed_and_tried_again(visitor: Visitor, rows: Rows, receiver: Receiver) -> None:
    path = make(visitor, receiver.url)
    rows.run("UPDATE webhook_endpoints SET failures = 9, resting_until = 'infinity'")
    assert "410 Gone" in visitor.get(path).text
    answer = visitor.post(path, name="new name", url=receiver.url, event_types="batch.failed")
    assert answer.headers["location"] == path
    changed = rows.table("SELECT name, event_types, failures FROM webhook_endpoints")[0]
    assert tuple(changed) == ("new name", ["batch.failed"], 0)
    assert visitor.post(path, name="", url=receiver.url, event_types="batch.failed").status_code == 400


@pytest.mark.parametrize(("keep", "kept"), [("day", True), ("", False)])
def test_a_secret_is_rotated(visitor: Visitor, rows: Rows, receiver: Receiver, keep: str, kept: bool) -> None:
    path = make(visitor, receiver.url)
    old = rows.one("SELECT secret FROM webhook_endpoints")
    new = secret_of(visitor.post(f"{path}/rotate", keep=keep))
    assert new == rows.one("SELECT secret FROM webhook_endpoints") != old
    assert rows.one("SELECT old_secret IS NOT NULL FROM webhook_endpoints") is kept


def test_a_test_event_tells_how_it_was_answered(visitor: Visitor, receiver: Receiver) -> None:
    path = make(visitor, receiver.url)
    assert "taken, answered 204" in visitor.post(f"{path}/test", event_type="batch.failed").text
    assert len(receiver.received) == 1
    refused = visitor.post(f"{path}/test", event_type="batch.nonsense")
    assert (refused.status_code, "There is no such event" in refused.text) == (400, True)


def test_a_receiver_that_refuses_or_is_away_is_told_of(visitor: Visitor, receiver: Receiver) -> None:
    path = make(visitor, receiver.url)
    receiver.answer = lambda _: 500
    assert "not taken, answered 500" in visitor.post(f"{path}/test", event_type="batch.failed").text
    visitor.post(path, name="x", url="https://nobody.invalid/", event_types="batch.failed")
    answer = visitor.post(f"{path}/test", event_type="batch.failed")
    assert answer.status_code == 400
    assert "The test event could not be sent" in answer.text


def test_the_log_tells_what_was_sent_and_sends_it_again(
    visitor: Visitor, rows: Rows, receiver: Receiver
) -> None:
    path = make(visitor, receiver.url)
    rows.add_batch(status="completed")
    rows.run("UPDATE batches SET ended_at = now()")
    with transaction(rows.sessions) as session:
        events.tell_end(session, "batch_1")
    rows.run(
        "UPDATE webhook_deliveries SET state = 'failed', status_code = 503, error = :e, ended_at = now()",
        e=EVIL,
    )
    page = visitor.get(path).text
    assert re.search(r"batch\.completed</td>.*failed.*503", page, re.DOTALL)
    assert EVIL not in page
    again = re.search(rf'action="({path}/deliveries/[^"]+/redeliver)"', page)
    assert again is not None
    assert visitor.post(again[1]).status_code == 303
    assert rows.one("SELECT state FROM webhook_deliveries") == "pending"


def test_an_endpoint_is_deleted(visitor: Visitor, rows: Rows, receiver: Receiver) -> None:
    path = make(visitor, receiver.url)
    assert visitor.post(f"{path}/delete").headers["location"] == "/webhooks"
    assert visitor.get(path).status_code == 404
    assert rows.one("SELECT count(*) FROM webhook_endpoints") == 0


def test_names_and_addresses_are_never_markup(visitor: Visitor, receiver: Receiver) -> None:
    path = make(visitor, f"{receiver.url}?q={EVIL}", name=EVIL)
    for page in (visitor.get("/webhooks").text, visitor.get(path).text):
        assert EVIL not in page
        assert "&lt;script&gt;" in page


def test_only_admins_of_the_tenant_come_in(
    visitor: Visitor, url: str, db: Sessions, receiver: Receiver
) -> None:
    path = make(visitor, receiver.url)
    reader = Keys(sessions=db).create(tenant="Ada", name="reads", scopes=["read", "write"]).secret
    for key, status in ((reader, 403), (new_key(db, "Bob"), 404)):
        with visiting(url, key) as other:
            assert other.get(path).status_code == status
            for act in ("", "/rotate", "/test", "/delete", "/deliveries/whd_1/redeliver"):
                fields = {"name": "x", "url": receiver.url, "event_types": "batch.failed"}
                answer = other.post(f"{path}{act}", event_type="batch.failed", **fields)
                assert answer.status_code == status, act
