"""A batch's results over HTTP while it runs: each once, none missed, with the bytes of the files."""

import json
from math import ceil
from typing import Any

import httpx
import pytest
from openai import OpenAI

from app.db import Sessions, transaction
from app.results import error_line, output_line
from app.states import Endpoint
from app.store.endings import SweepTask, sweep_jobs
from app.store.results import read_answered, read_unanswered
from tests.rows import Rows


@pytest.fixture
def rows(db: Sessions, api_key: str) -> Rows:
    """A batch in progress of the tenant whose key the clients have."""
    assert api_key
    rows = Rows(db)
    rows.tenant = rows.one("SELECT id FROM tenants")
    rows.add_batch()
    return rows


def page(http: httpx.Client, query: str = "") -> dict[str, Any]:
    answer = http.get(f"/v1/batches/batch_1/results?{query}")
    assert answer.status_code == 200, answer.text
    return answer.json()


def names(found: dict[str, Any]) -> list[str]:
    return [result["custom_id"] for result in found["data"]]


def test_results_come_in_the_order_in_which_they_ended(http: httpx.Client, rows: Rows) -> None:
    first, second, third = rows.add_jobs(3, batch_id="batch_1")
    rows.complete(third)
    rows.fail(first)
    found = page(http)
    assert [(one["seq"], one["line"], one["custom_id"]) for one in found["data"]] == [
        (1, 3, "r3"),
        (2, 1, "r1"),
    ]
    assert (found["has_more"], found["ended"], found["batch_status"]) == (False, False, "in_progress")
    rows.complete(second)
    assert names(page(http, f"after={found['last_seq']}")) == ["r2"]
    assert page(http)["ended"]


def test_a_result_has_the_bytes_of_its_line(http: httpx.Client, rows: Rows) -> None:
    answered, failed = rows.add_jobs(2, batch_id="batch_1")
    rows.complete(answered, text="a\u2028b\x85 \U0001f9e5 </script>")
    rows.fail(failed)
    with transaction(rows.sessions) as session:
        lines = [
            *(
                output_line(job, Endpoint.CHAT)
                for job in read_answered(session, "batch_1", after_line=0, limit=9)
            ),
            *map(error_line, read_unanswered(session, "batch_1", after_line=0, limit=9)),
        ]
    body = http.get("/v1/batches/batch_1/results").content
    for line in lines:
        assert line.removesuffix(b"}\n") + b',"seq":' in body
    assert [{**json.loads(line)} for line in lines] == [
        {name: value for name, value in one.items() if name not in ("seq", "line")}
        for one in json.loads(body)["data"]
    ]


@pytest.mark.parametrize("limit", [1, 2, 3, 5, 7, 16, 100])
def test_pages_of_any_size_have_each_result_once(http: httpx.Client, rows: Rows, limit: int) -> None:
    ids = rows.add_jobs(16, batch_id="batch_1")
    for part in (ids[:1], ids[1:6], ids[6:8], ids[8:]):
        rows.complete(*part)
    seen: list[str] = []
    pages, after, more = 0, 0, True
    while more:
        found = page(http, f"after={after}&limit={limit}")
        seen, after, more = seen + names(found), found["last_seq"], found["has_more"]
        pages += 1
    assert seen == [f"r{number}" for number in range(1, 17)]
    assert pages == ceil(16 / limit)


def test_a_page_behind_the_last_result_is_empty_and_keeps_the_cursor(http: httpx.Client, rows: Rows) -> None:
    rows.complete(*rows.add_jobs(2, batch_id="batch_1"))
    found = page(http, "after=2")
    assert (found["data"], found["first_id"], found["last_id"]) == ([], None, None)
    assert (found["last_seq"], found["has_more"], found["ended"]) == (2, False, True)


def test_a_status_picks_results_within_pages_of_all(http: httpx.Client, rows: Rows) -> None:
    good, bad, late = rows.add_jobs(3, batch_id="batch_1")
    rows.complete(good)
    rows.fail(bad)
    rows.complete(late)
    found = page(http, "status=failed&limit=1")
    assert (names(found), found["last_seq"], found["has_more"]) == ([], 1, True)
    assert names(page(http, "status=failed&limit=1&after=1")) == ["r2"]
    assert names(page(http, "status=completed")) == ["r1", "r3"]


def test_what_never_ran_is_a_result_too(http: httpx.Client, rows: Rows) -> None:
    rows.add_jobs(2, batch_id="batch_1")
    rows.run("UPDATE batches SET status = 'cancelling', ending = 'cancelled'")
    assert not page(http)["ended"]
    with transaction(rows.sessions) as session:
        sweep_jobs(session, SweepTask("batch_1", "cancelled"), after_line=0, limit=9)
    found = page(http)
    assert [one["error"]["code"] for one in found["data"]] == ["batch_cancelled"] * 2
    assert found["ended"]


def test_results_of_a_batch_that_is_still_read_may_be_polled(http: httpx.Client, rows: Rows) -> None:
    rows.run("UPDATE batches SET status = 'validating', ingested_at = NULL")
    found = page(http)
    assert (found["data"], found["ended"], found["batch_status"]) == ([], False, "validating")


@pytest.mark.parametrize("query", ["after=-1", "after=x", "limit=0", "limit=1001", "status=odd"])
def test_a_cursor_or_limit_that_is_none_is_refused(http: httpx.Client, rows: Rows, query: str) -> None:
    answer = http.get(f"/v1/batches/batch_1/results?{query}")
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, query.partition("=")[0])


def test_results_are_their_owner_s_alone(http: httpx.Client, rows: Rows, stranger: OpenAI) -> None:
    missing = http.get("/v1/batches/batch_2/results")
    assert (missing.status_code, missing.json()["error"]["code"]) == (404, "batch_not_found")
    rows.complete(*rows.add_jobs(1, batch_id="batch_1"))
    theirs = http.get("/v1/batches/batch_1/results", headers={"Authorization": f"Bearer {stranger.api_key}"})
    assert theirs.status_code == 404


def test_a_page_ends_where_its_answers_are_too_large_and_the_next_goes_on(
    http: httpx.Client, rows: Rows, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("app.progress.PAGE_BYTES", 250)
    rows.complete(*rows.add_jobs(3, batch_id="batch_1"), text="x" * 100)
    rows.complete(*rows.add_jobs(1, batch_id="batch_1"), text="y" * 1000)
    seen: list[list[str]] = []
    found: dict[str, Any] = {"has_more": True, "last_seq": 0}
    while found["has_more"]:
        found = page(http, f"after={found['last_seq']}")
        seen.append(names(found))
    assert seen == [["r1", "r2"], ["r3"], ["r4"]]
