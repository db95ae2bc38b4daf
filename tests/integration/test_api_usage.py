"""Reports of usage over HTTP and by the command: grouped, priced, and of one's own tenant only."""

from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from typer.testing import CliRunner, Result

from app.auth import Keys
from app.cli.main import app as command
from app.config import Settings
from app.db import Sessions
from app.main import Services, build_app, wire
from app.prices import Price
from tests.desk import Desk, lines
from tests.rows import Rows
from tests.serving import serving

PRICES = {"demo": Price(1.0, 0.5, 2.0)}
ROW = """
    INSERT INTO usage (tenant_id, day, key_id, model, completed, failed, prompt_tokens, cached_tokens,
                       completion_tokens)
    VALUES (:tenant, (now() AT TIME ZONE 'UTC')::date - CAST(:ago AS int), :key, :model,
            2, 1, 1000000, 0, 500000)
"""


@pytest.fixture(scope="module")
def services(settings: Settings) -> Services:
    return wire(settings.model_copy(update={"prices": PRICES}))


@pytest.fixture(scope="module")
def url(services: Services) -> Iterator[str]:
    with serving(build_app(services)) as served:
        yield served


@pytest.fixture
def key(db: Sessions) -> str:
    return Keys(sessions=db).create(tenant="Ada", name="test").secret


def add(db: Sessions, tenant: str, *, ago: int = 0, key: str = "key_1", model: str = "demo") -> None:
    rows = Rows(db)
    tenant_id = rows.one("SELECT id FROM tenants WHERE name = :name", name=tenant)
    rows.run(ROW, tenant=tenant_id, ago=ago, key=key, model=model)


def ask(url: str, key: str, **query: str) -> httpx.Response:
    headers = {"Authorization": f"Bearer {key}"}
    return httpx.get(f"{url}/v1/usage", params=query, headers=headers, timeout=30)


def report(url: str, key: str, **query: str) -> dict[str, Any]:
    answer = ask(url, key, **query)
    assert answer.status_code == 200, answer.text
    return answer.json()


def test_a_report_has_the_last_thirty_days_with_their_cost(url: str, db: Sessions, key: str) -> None:
    for ago in (0, 29, 30):
        add(db, "Ada", ago=ago)
    found = report(url, key)
    assert [row["key_id"] for row in found["data"]] == ["key_1", "key_1"]
    assert [row["day"] for row in found["data"]] == [found["start"], found["end"]]
    assert found["data"][0]["cost"] == {"amount": 2.0, "currency": "USD"}
    assert found["total"]["completed"] == 4
    assert found["total"]["cost"] == {"amount": 4.0, "currency": "USD"}


def test_a_report_is_grouped_as_asked(url: str, db: Sessions, key: str) -> None:
    add(db, "Ada")
    add(db, "Ada", key="key_2")
    add(db, "Ada", key="key_2", model="new")
    found = report(url, key, group_by="key")
    assert [(row["key_id"], row["day"], row["model"]) for row in found["data"]] == [
        ("key_1", None, None),
        ("key_2", None, None),
    ]
    assert [row["cost"] and row["cost"]["amount"] for row in found["data"]] == [2.0, None]
    assert found["total"]["cost"] is None, "one model has no price"
    assert [row["model"] for row in report(url, key, group_by="model")["data"]] == ["demo", "new"]
    (whole,) = report(url, key, group_by="")["data"]
    assert whole["failed"] == 3


def test_nobody_sees_what_another_tenant_used(url: str, db: Sessions, key: str) -> None:
    Keys(sessions=db).create(tenant="Bob", name="test")
    add(db, "Bob")
    assert report(url, key)["data"] == []


def test_a_report_wants_the_scope_admin(url: str, db: Sessions) -> None:
    reader = Keys(sessions=db).create(tenant="Ada", name="test", scopes=("read",)).secret
    assert ask(url, reader).status_code == 403


@pytest.mark.parametrize(
    ("query", "param"),
    [
        ({"start": "yesterday"}, "start"),
        ({"end": ""}, "end"),
        ({"start": "2026-01-02", "end": "2026-01-01"}, "start"),
        ({"group_by": "tenant"}, "group_by"),
        ({"group_by": "day" * 100}, "group_by"),
    ],
)
def test_a_report_that_makes_no_sense_is_refused(
    url: str, key: str, query: dict[str, str], param: str
) -> None:
    answer = ask(url, key, **query)
    assert answer.status_code == 400
    assert answer.json()["error"]["param"] == param


def test_batches_retries_and_jobs_know_their_key(url: str, db: Sessions, key: str, desk: Desk) -> None:
    key_id = Keys(sessions=db).recognise(key).key_id
    headers = {"Authorization": f"Bearer {key}"}
    with httpx.Client(base_url=f"{url}/v1", headers=headers, timeout=30) as http:
        content = "\n".join(lines(1)).encode()
        file = http.post("/files", data={"purpose": "batch"}, files={"file": ("a.jsonl", content)}).json()
        wish = {"endpoint": "/v1/chat/completions", "completion_window": "24h"}
        batch = http.post("/batches", json={"input_file_id": file["id"], **wish}).json()
        desk.execute("UPDATE batches SET status = 'cancelled', ended_at = now(), total = 1, failed = 1")
        retried = http.post(f"/batches/{batch['id']}/retry", json={"states": ["cancelled"]})
        assert retried.status_code == 200, retried.text
        assert http.post("/jobs", json={"question": "What is it?", "model": "demo"}).status_code == 202
    rows = Rows(db)
    assert rows.all("SELECT key_id FROM batches") == [key_id, key_id]
    assert rows.all("SELECT key_id FROM jobs") == [key_id]


def vqueue(*arguments: str) -> Result:
    return CliRunner().invoke(command, ["usage", *arguments])


@pytest.fixture
def used(db: Sessions, monkeypatch: pytest.MonkeyPatch, database_url: str) -> None:
    monkeypatch.setenv("VQUEUE_DATABASE_URL", database_url)
    monkeypatch.setenv("VQUEUE_PRICES", "demo input=1 cached=0.5 output=2")
    for name in ("Ada", "Bob"):
        Keys(sessions=db).create(tenant=name, name="test")
        add(db, name)
    add(db, "Bob", ago=1, model="new")


def test_the_command_shows_all_tenants(used: None) -> None:
    numbers = "2\t1\t1000000\t0\t500000"
    assert vqueue().stdout.splitlines() == [
        f"Ada\tdemo\t{numbers}\t2.000000\tUSD",
        f"Bob\tdemo\t{numbers}\t2.000000\tUSD",
        f"Bob\tnew\t{numbers}\t\t",
    ]


def test_the_command_shows_a_tenant_some_days_and_groups(used: None) -> None:
    (line,) = vqueue("--tenant", "Bob", "--days", "1", "--by", "key,day").stdout.splitlines()
    assert line.split("\t")[0::2][:2] == ["Bob", "key_1"]


def test_the_command_says_what_it_does_not_know(used: None) -> None:
    assert vqueue("--tenant", "Carol").stderr == "There is no tenant Carol.\n"
    assert vqueue("--by", "week").exit_code == 2
