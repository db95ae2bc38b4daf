"""Webhook endpoints through the official SDK, and events on their way to a real receiver."""

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from urllib.parse import urlsplit

import httpx
import openai
import pytest
from openai import OpenAI
from prometheus_client import REGISTRY

from app.config import Settings
from app.db import Sessions, transaction
from app.deliveries import LEASE_S, PER_TENANT, Deliveries
from app.guard import FetchPolicy
from app.http_exchange import DirectTransport
from app.main import build_app, wire
from app.persistence import TRIPS_AFTER
from app.posting import Poster
from app.store import events
from tests.receiver import Receiver, receiving
from tests.rows import Rows
from tests.serving import new_key, sdk, serving
from tests.waiting import eventually

ENDS = ["batch.completed", "batch.failed", "batch.expired", "batch.cancelled"]


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with receiving() as one:
        yield one


@pytest.fixture
def trusted(settings: Settings, receiver: Receiver) -> Settings:
    host = urlsplit(receiver.url).netloc
    return settings.model_copy(update={"fetch_allow_hosts": (host,)})


@pytest.fixture
def url(trusted: Settings) -> Iterator[str]:
    with serving(build_app(wire(trusted))) as served:
        yield served


@pytest.fixture
def client(url: str, db: Sessions) -> Iterator[OpenAI]:
    with sdk(url, new_key(db)) as one:
        yield one


@pytest.fixture
def rows(db: Sessions) -> Rows:
    rows = Rows(db)
    rows.tenant = "tenant_a"
    return rows


@pytest.fixture
def deliveries(db: Sessions, trusted: Settings) -> Iterator[Deliveries]:
    work = Deliveries(
        sessions=db,
        poster=Poster(
            policy=FetchPolicy(allow_hosts=trusted.fetch_allow_hosts),
            transport=DirectTransport(connect_s=2, read_s=10),
        ),
        spread=lambda: 0.5,
    )
    yield work
    work.close()


def end(rows: Rows, client: OpenAI, batch_id: str = "batch_1", status: str = "completed") -> None:
    """A batch of the client's tenant that ends now."""
    rows.tenant = rows.one("SELECT id FROM tenants WHERE name = 'Ada'")
    rows.add_batch(batch_id, status=status)
    rows.run("UPDATE batches SET ended_at = now() WHERE id = :id", id=batch_id)
    with transaction(rows.sessions) as session:
        events.tell_end(session, batch_id)


def send_all(deliveries: Deliveries) -> None:
    while deliveries.step():
        assert deliveries.settle(30)


def make_due(rows: Rows) -> None:
    rows.run("UPDATE webhook_deliveries SET due_at = now() WHERE state = 'pending'")
    rows.run("UPDATE webhook_endpoints SET resting_until = now() WHERE resting_until < 'infinity'")


def test_the_sdk_manages_endpoints(client: OpenAI, receiver: Receiver) -> None:
    made = client.webhooks.create(name="mine", url=receiver.url, event_types=["batch.completed"])
    assert made.signing_secret.startswith("whsec_")
    assert client.webhooks.update(made.id, name="ours", event_types=["batch.failed"]).name == "ours"
    read = client.webhooks.retrieve(made.id)
    assert (read.name, read.url, read.event_types) == ("ours", receiver.url, ["batch.failed"])
    assert read.signing_secret_hint == f"whsec_...{made.signing_secret[-4:]}"
    other = client.webhooks.create(name="second", url=receiver.url, event_types=["batch.expired"])
    assert [one.id for one in client.webhooks.list(limit=1)] == [other.id, made.id]
    assert "batch.completed" in client.webhooks.event_types.list().data
    assert client.webhooks.delete(made.id).deleted
    with pytest.raises(openai.NotFoundError):
        client.webhooks.retrieve(made.id)


@pytest.mark.parametrize(
    ("target", "word"),
    [
        ("http://shop.example/hook", "https"),
        ("https://10.0.0.1/hook", "public"),
        ("https://localhost/hook", "public"),
        ("https://shop.example:22/hook", "port"),
        ("ftp://shop.example/", "https"),
        ("https://user@shop.example/", "user name"),
    ],
)
def test_an_endpoint_that_we_would_not_post_to_is_refused_at_once(
    client: OpenAI, target: str, word: str
) -> None:
    with pytest.raises(openai.BadRequestError, match=word) as refused:
        client.webhooks.create(name="bad", url=target, event_types=["batch.completed"])
    assert refused.value.param == "url"
    assert "image" not in refused.value.message.lower()


def test_another_tenant_sees_no_endpoint(client: OpenAI, url: str, db: Sessions, receiver: Receiver) -> None:
    made = client.webhooks.create(name="mine", url=receiver.url, event_types=["batch.completed"])
    with sdk(url, new_key(db, "Eve")) as eve:
        assert list(eve.webhooks.list()) == []
        for call in (eve.webhooks.retrieve, eve.webhooks.delete, eve.webhooks.rotate_secret):
            with pytest.raises(openai.NotFoundError):
                call(made.id)


@pytest.mark.parametrize("status", ["completed", "failed", "expired", "cancelled"])
def test_the_end_of_a_batch_arrives_signed(
    client: OpenAI, rows: Rows, deliveries: Deliveries, receiver: Receiver, status: str
) -> None:
    made = client.webhooks.create(name="mine", url=f"{receiver.url}/hook?a=b", event_types=list(ENDS))  # pyright: ignore[reportArgumentType]
    end(rows, client, status=status)
    send_all(deliveries)
    (one,) = receiver.received
    event = client.webhooks.unwrap(one.body, one.headers, secret=made.signing_secret)
    assert (one.path, event.type) == ("/hook?a=b", f"batch.{status}")
    assert (event.id, event.data.id) == (one.headers["webhook-id"], "batch_1")  # pyright: ignore[reportAttributeAccessIssue]


def test_nothing_is_written_for_those_who_want_no_event(
    client: OpenAI, rows: Rows, receiver: Receiver
) -> None:
    client.webhooks.create(name="mine", url=receiver.url, event_types=["batch.failed"])
    end(rows, client)
    assert rows.one("SELECT count(*) FROM webhook_events") == 0


def test_for_a_day_the_old_secret_signs_beside_the_new_one(
    client: OpenAI, rows: Rows, deliveries: Deliveries, receiver: Receiver
) -> None:
    made = client.webhooks.create(name="mine", url=receiver.url, event_types=["batch.completed"])
    changed = client.webhooks.rotate_secret(made.id, keep_old_secret_active_for_24_hours=True)
    end(rows, client)
    send_all(deliveries)
    for secret in (made.signing_secret, changed.signing_secret):
        client.webhooks.unwrap(receiver.received[0].body, receiver.received[0].headers, secret=secret)
    rows.run("UPDATE webhook_endpoints SET old_secret_until = now()")
    end(rows, client, "batch_2")
    send_all(deliveries)
    with pytest.raises(openai.InvalidWebhookSignatureError):
        client.webhooks.unwrap(
            receiver.received[1].body, receiver.received[1].headers, secret=made.signing_secret
        )


def test_a_message_that_was_not_taken_comes_again_with_its_id(
    client: OpenAI, rows: Rows, deliveries: Deliveries, receiver: Receiver
) -> None:
    made = client.webhooks.create(name="mine", url=receiver.url, event_types=["batch.completed"])
    receiver.answer = lambda _: 500 if len(receiver.received) < 3 else 200
    end(rows, client)
    send_all(deliveries)
    assert rows.table("SELECT state, status_code, error FROM webhook_deliveries") == [
        ("pending", 500, "answered 500")
    ]
    for _ in range(2):
        make_due(rows)
        send_all(deliveries)
    assert len({one.headers["webhook-id"] for one in receiver.received}) == 1
    assert rows.table("SELECT state, attempt, status_code FROM webhook_deliveries") == [("delivered", 3, 200)]
    assert client.webhooks.retrieve(made.id).failures == 0  # pyright: ignore[reportAttributeAccessIssue]


def test_a_receiver_that_asks_for_time_gets_it(
    client: OpenAI, rows: Rows, deliveries: Deliveries, receiver: Receiver
) -> None:
    client.webhooks.create(name="mine", url=receiver.url, event_types=["batch.completed"])
    receiver.answer, receiver.extra = lambda _: 429, {"Retry-After": "600"}
    end(rows, client)
    send_all(deliveries)
    wait_s = rows.one("SELECT extract(epoch FROM due_at - now())::int FROM webhook_deliveries")
    assert 590 <= wait_s <= 600


def test_a_redirect_is_not_followed(
    client: OpenAI, rows: Rows, deliveries: Deliveries, receiver: Receiver
) -> None:
    client.webhooks.create(name="mine", url=receiver.url, event_types=["batch.completed"])
    receiver.answer, receiver.extra = lambda _: 307, {"Location": f"{receiver.url}/other"}
    end(rows, client)
    send_all(deliveries)
    assert [one.path for one in receiver.received] == ["/"]


def test_after_a_day_a_message_is_given_up(
    client: OpenAI, rows: Rows, deliveries: Deliveries, receiver: Receiver
) -> None:
    client.webhooks.create(name="mine", url=receiver.url, event_types=["batch.completed"])
    receiver.answer = lambda _: 500
    end(rows, client)
    rows.run("UPDATE webhook_deliveries SET created_at = now() - interval '1 day'")
    send_all(deliveries)
    assert rows.one("SELECT state FROM webhook_deliveries") == "failed"


def test_an_endpoint_that_is_gone_gets_nothing_until_it_is_changed(
    client: OpenAI, rows: Rows, deliveries: Deliveries, receiver: Receiver
) -> None:
    made = client.webhooks.create(name="mine", url=receiver.url, event_types=["batch.completed"])
    receiver.answer = lambda _: 410 if len(receiver.received) == 1 else 200
    end(rows, client)
    end(rows, client, "batch_2")
    deliveries.step()
    assert deliveries.settle(30)
    rows.run("UPDATE webhook_deliveries SET due_at = now() WHERE state = 'pending'")
    sent = len(receiver.received)
    send_all(deliveries)
    assert client.webhooks.retrieve(made.id).status == "gone" or sent == 2  # pyright: ignore[reportAttributeAccessIssue]
    assert len(receiver.received) == sent
    client.webhooks.update(made.id, url=f"{receiver.url}/new")
    end(rows, client, "batch_3")
    send_all(deliveries)
    assert receiver.received[-1].path == "/new"


def test_an_endpoint_that_fails_again_and_again_rests_and_is_then_asked_by_one_message(
    client: OpenAI, rows: Rows, deliveries: Deliveries, receiver: Receiver
) -> None:
    client.webhooks.create(name="mine", url=receiver.url, event_types=["batch.completed"])
    receiver.answer = lambda _: 503
    for number in range(TRIPS_AFTER + 3):
        end(rows, client, f"batch_{number}")
    send_all(deliveries)
    tried = len(receiver.received)
    assert TRIPS_AFTER <= tried < TRIPS_AFTER + 2
    assert rows.one("SELECT resting_until > now() FROM webhook_endpoints")
    make_due(rows)
    send_all(deliveries)
    assert len(receiver.received) == tried + 1


def test_a_slow_endpoint_holds_up_no_other(
    client: OpenAI, rows: Rows, deliveries: Deliveries, receiver: Receiver
) -> None:
    client.webhooks.create(name="slow", url=f"{receiver.url}/slow", event_types=["batch.completed"])
    client.webhooks.create(name="quick", url=f"{receiver.url}/quick", event_types=["batch.completed"])
    for number in range(12):
        end(rows, client, f"batch_{number}")
    while sum(one.path == "/quick" for one in receiver.received) < 12:
        deliveries.step()
        deliveries.settle(0.05)
    assert sum(one.path == "/slow" for one in receiver.received) == 2
    receiver.held.set()


def test_a_message_of_a_process_that_died_is_sent_once_more_with_its_id(
    client: OpenAI, rows: Rows, db: Sessions, deliveries: Deliveries, receiver: Receiver
) -> None:
    client.webhooks.create(name="mine", url=receiver.url, event_types=["batch.completed"])
    end(rows, client)
    with transaction(db) as session:  # somebody claims it, and is never heard of again
        (task,) = events.claim(
            session,
            limit=1,
            per_endpoint=1,
            per_tenant=1,
            lease_s=LEASE_S,
            trips_after=TRIPS_AFTER,
            active={},
        )
    send_all(deliveries)
    assert receiver.received == []
    make_due(rows)
    send_all(deliveries)
    with transaction(db) as session:  # and wakes up after all
        events.note_failed(session, task, status_code=None, error="timeout", again_s=5, rest_s=0)
    assert receiver.received[0].headers["webhook-id"] == task.event_id
    assert rows.one("SELECT state FROM webhook_deliveries") == "delivered"


def test_what_was_sent_can_be_looked_at_and_sent_again(
    client: OpenAI, url: str, rows: Rows, deliveries: Deliveries, receiver: Receiver
) -> None:
    made = client.webhooks.create(name="mine", url=receiver.url, event_types=["batch.completed"])
    end(rows, client)
    send_all(deliveries)
    path = f"{url}/v1/webhook_endpoints/{made.id}/deliveries"
    headers = {"Authorization": f"Bearer {client.api_key}"}
    (one,) = httpx.get(path, headers=headers).json()["data"]
    assert (one["status"], one["status_code"], one["attempt"]) == ("delivered", 204, 1)
    again = httpx.post(f"{path}/{one['id']}/redeliver", headers=headers)
    assert again.json()["status"] == "pending"
    send_all(deliveries)
    assert [m.headers["webhook-id"] for m in receiver.received] == [one["event_id"]] * 2


@pytest.mark.parametrize(("status", "taken"), [(204, True), (302, False), (410, False), (429, False)])
def test_a_test_event_is_sent_at_once_and_its_answer_told(
    client: OpenAI, receiver: Receiver, status: int, taken: bool
) -> None:
    made = client.webhooks.create(name="mine", url=receiver.url, event_types=["batch.completed"])
    receiver.answer = lambda _: status
    result = client.webhooks.test(made.id, event_type="batch.failed")
    assert (result.success, result.status_code) == (taken, status)
    one = receiver.received[0]
    event = client.webhooks.unwrap(one.body, one.headers, secret=made.signing_secret)
    assert event.type == "batch.failed"


def test_tests_of_one_tenant_hold_up_nobody_else(client: OpenAI, db: Sessions, receiver: Receiver) -> None:
    stranger = client.copy(api_key=new_key(db, "Bob"))
    slow = client.webhooks.create(name="mine", url=f"{receiver.url}/slow", event_types=["batch.completed"])
    other = stranger.webhooks.create(name="mine", url=receiver.url, event_types=["batch.completed"])
    with ThreadPoolExecutor(4) as threads:
        held = [threads.submit(client.webhooks.test, slow.id, event_type="batch.failed") for _ in range(4)]
        eventually(lambda: len(receiver.received) == 4)
        with pytest.raises(openai.RateLimitError) as refused:
            client.webhooks.test(slow.id, event_type="batch.failed")
        assert stranger.webhooks.test(other.id, event_type="batch.failed").success
        receiver.held.set()
        assert all(one.result().success for one in held)
    assert (refused.value.code, refused.value.response.headers["retry-after"]) == (
        "too_many_webhook_tests",
        "5",
    )


def test_a_test_whose_receiver_is_slow_ends_soon(
    client: OpenAI, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("app.webhooks.TEST_S", 0.2)
    slow = client.webhooks.create(name="mine", url=f"{receiver.url}/slow", event_types=["batch.completed"])
    began = time.monotonic()
    with pytest.raises(openai.BadRequestError) as ended:
        client.webhooks.test(slow.id, event_type="batch.failed")
    assert (ended.value.code, time.monotonic() - began < 5) == ("webhook_timeout", True)


def test_a_test_event_that_reaches_nobody_says_why(client: OpenAI, receiver: Receiver) -> None:
    made = client.webhooks.create(name="mine", url=receiver.url, event_types=["batch.completed"])
    client.webhooks.update(made.id, url="https://no-such-host.invalid/")
    with pytest.raises(openai.BadRequestError, match=r"does not exist|gave no answer"):
        client.webhooks.test(made.id, event_type="batch.completed")


def test_each_quarter_of_a_batch_is_told_once(
    client: OpenAI, rows: Rows, deliveries: Deliveries, receiver: Receiver, db: Sessions
) -> None:
    client.webhooks.create(name="mine", url=receiver.url, event_types=["batch.progress"])  # pyright: ignore[reportArgumentType]
    rows.tenant = rows.one("SELECT id FROM tenants WHERE name = 'Ada'")
    ids = rows.add_jobs(8, batch_id=rows.add_batch())
    for job_id in ids:
        rows.complete(job_id)
        with transaction(db) as session:
            events.tell_progress(session)
    send_all(deliveries)
    told = [httpx.Response(200, content=one.body).json()["data"]["percent"] for one in receiver.received]
    assert sorted(told) == [25, 50, 75]


def test_what_is_old_is_forgotten_with_its_log(
    client: OpenAI, rows: Rows, db: Sessions, receiver: Receiver
) -> None:
    client.webhooks.create(name="mine", url=receiver.url, event_types=["batch.completed"])
    end(rows, client)
    end(rows, client, "batch_2")
    rows.run(
        "UPDATE webhook_events SET created_at = now() - interval '2 days' "
        "WHERE body ->> 'data' LIKE '%batch_1%'"
    )
    with transaction(db) as session:
        assert events.delete_old(session, older_than_s=86_400, limit=10) == 1
    assert rows.one("SELECT count(*) FROM webhook_deliveries") == 1


def test_a_delivery_is_no_fault_of_the_loop(
    client: OpenAI, rows: Rows, deliveries: Deliveries, receiver: Receiver
) -> None:
    client.webhooks.create(name="mine", url=receiver.url, event_types=["batch.completed"])
    labels = {"loop": "webhooks"}
    before = REGISTRY.get_sample_value("vqueue_loop_faults_total", labels) or 0.0
    end(rows, client)
    send_all(deliveries)
    assert (REGISTRY.get_sample_value("vqueue_loop_faults_total", labels) or 0.0) == before


def test_an_endpoint_that_is_gone_stays_so_whatever_was_under_way(
    client: OpenAI, rows: Rows, db: Sessions, receiver: Receiver
) -> None:
    made = client.webhooks.create(name="mine", url=receiver.url, event_types=["batch.completed"])
    for number in range(3):
        end(rows, client, f"batch_{number}")
    with transaction(db) as session:
        first, second, third = events.claim(
            session, limit=3, per_endpoint=3, per_tenant=3, lease_s=60, trips_after=TRIPS_AFTER, active={}
        )
        events.note_failed(session, first, status_code=410, error="gone", again_s=None, rest_s=None)
        events.note_failed(session, second, status_code=500, error="500", again_s=5, rest_s=0)
        events.note_delivered(session, third, 200)
    assert client.webhooks.retrieve(made.id).status == "gone"  # pyright: ignore[reportAttributeAccessIssue]


def test_a_try_that_was_overtaken_changes_neither_message_nor_endpoint(
    client: OpenAI, rows: Rows, db: Sessions, deliveries: Deliveries, receiver: Receiver
) -> None:
    made = client.webhooks.create(name="mine", url=receiver.url, event_types=["batch.completed"])
    end(rows, client)
    with transaction(db) as session:
        (late,) = events.claim(
            session, limit=1, per_endpoint=1, per_tenant=1, lease_s=60, trips_after=TRIPS_AFTER, active={}
        )
        events.send_again(session, late.id)
        events.note_failed(session, late, status_code=500, error="500", again_s=5, rest_s=0)
    send_all(deliveries)
    with transaction(db) as session:
        events.note_failed(session, late, status_code=410, error="gone", again_s=None, rest_s=None)
    assert client.webhooks.retrieve(made.id).status == "active"  # pyright: ignore[reportAttributeAccessIssue]
    assert rows.one("SELECT state FROM webhook_deliveries") == "delivered"


def test_the_slow_endpoints_of_one_tenant_hold_up_no_other_tenant(
    client: OpenAI, url: str, db: Sessions, rows: Rows, deliveries: Deliveries, receiver: Receiver
) -> None:
    for number in range(12):
        client.webhooks.create(name=f"{number}", url=f"{receiver.url}/slow", event_types=["batch.completed"])
    for number in range(3):
        end(rows, client, f"batch_{number}")
    with sdk(url, new_key(db, "Eve")) as eve:
        eve.webhooks.create(name="quick", url=f"{receiver.url}/quick", event_types=["batch.completed"])
        rows.tenant = rows.one("SELECT id FROM tenants WHERE name = 'Eve'")
        rows.add_batch("batch_eve", status="completed")
    rows.run("UPDATE batches SET ended_at = now() WHERE id = 'batch_eve'")
    with transaction(db) as session:
        events.tell_end(session, "batch_eve")
    while not any(one.path == "/quick" for one in receiver.received):
        deliveries.step()
        deliveries.settle(0.05)
    assert sum(one.path == "/slow" for one in receiver.received) <= PER_TENANT
    receiver.held.set()
