"""The pages of batches, as they leave the server."""

import re

import pytest

from app.auth import Keys
from app.db import Sessions
from tests.console import Visitor, visiting
from tests.rows import Rows

EVIL = "<script>alert(1)</script>"


def test_without_batches_the_list_says_what_to_do(visitor: Visitor) -> None:
    assert "No batches yet" in visitor.get("/batches").text


def test_the_list_goes_on_where_a_page_ended(visitor: Visitor, rows: Rows) -> None:
    for number in range(27):
        rows.add_batch(f"batch_{number:03}")
    first = visitor.get("/batches").text
    older = re.search(r'href="(/batches\?after=[^"]+)"', first)
    assert older is not None
    shown = [set(re.findall(r"/batches/(batch_\d+)\"", page)) for page in (first, visitor.get(older[1]).text)]
    assert [len(one) for one in shown] == [25, 2]
    assert shown[0] & shown[1] == set()


def test_a_batch_tells_how_far_it_is(visitor: Visitor, rows: Rows) -> None:
    rows.add_batch()
    ids = rows.add_jobs(4, batch_id="batch_1")
    rows.complete(ids[0])
    rows.fail(ids[1])
    rows.claim([ids[2]])
    page = re.sub(r"\s+", " ", visitor.get("/batches/batch_1").text)
    states = dict(re.findall(r"</span>([a-z' ]+) <strong>(\d+)</strong>", page))
    assert states == {"answered": "1", "failed": "1", "running": "1", "sent": "0", "waiting": "1"}
    assert "bad_prompt" in page


def test_the_bar_tells_answered_cached_and_failed_apart(visitor: Visitor, rows: Rows) -> None:
    rows.add_batch(total=1000)
    rows.run("UPDATE batches SET completed = 500, cached_answers = 250, failed = 1")
    for path in ("/batches", "/batches/batch_1"):
        page = visitor.get(path).text
        parts = re.findall(r'<rect class="job-(\w+)" x="([\d.]+)%" width="([\d.]+)%"', page)
        assert parts == [("completed", "0.0", "25.0"), ("cached", "25.0", "25.0"), ("failed", "50.0", "0.5")]
        assert "<title>answered 500 (of these from cache 250) · failed 1 · Jobs 1,000</title>" in page


def test_a_batch_is_cancelled_from_its_page(visitor: Visitor, rows: Rows) -> None:
    rows.add_batch()
    rows.add_jobs(2, batch_id="batch_1")
    answer = visitor.post("/batches/batch_1/cancel")
    assert (answer.status_code, answer.headers["location"]) == (303, "/batches/batch_1")
    assert rows.one("SELECT status FROM batches") == "cancelling"


def test_failed_jobs_are_tried_again_once_however_often_it_is_pressed(visitor: Visitor, rows: Rows) -> None:
    rows.add_batch()
    rows.fail(*rows.add_jobs(2, batch_id="batch_1"))
    rows.run("UPDATE batches SET status = 'completed', ended_at = now()")
    answers = [visitor.post("/batches/batch_1/retry") for _ in range(2)]
    assert [answer.status_code for answer in answers] == [303, 303], answers[0].text
    first, second = (answer.headers["location"] for answer in answers)
    assert first == second != "/batches/batch_1"
    assert visitor.get("/batches").text.count('<span class="badge">retry</span>') == 1


@pytest.mark.parametrize("format", ["csv", "jsonl", "ndjson", "parquet"])
def test_answers_are_downloaded_in_each_format(visitor: Visitor, rows: Rows, format: str) -> None:
    rows.add_batch()
    rows.complete(*rows.add_jobs(2, batch_id="batch_1"))
    answer = visitor.get("/batches/batch_1/export", format=format)
    assert answer.status_code == 200
    assert "attachment" in answer.headers["content-disposition"]


def test_failed_rows_are_offered_while_the_page_is_open(visitor: Visitor, rows: Rows) -> None:
    rows.add_batch()
    rows.fail(*rows.add_jobs(1, batch_id="batch_1"))
    rows.run("UPDATE batches SET failed = 1")
    page = visitor.get("/batches/batch_1").text
    downloads = page[page.index('<section id="download" class="card" data-live') :]
    assert "rows=failed" in downloads


def test_what_clients_and_models_say_is_never_markup(visitor: Visitor, rows: Rows) -> None:
    rows.add_batch()
    rows.run("UPDATE batches SET metadata = jsonb_build_object('name', CAST(:evil AS text))", evil=EVIL)
    ids = rows.add_jobs(1, batch_id="batch_1")
    rows.fail(*ids, code=EVIL)
    for path in ("/batches", "/batches/batch_1"):
        page = visitor.get(path).text
        assert EVIL not in page
        assert "&lt;script&gt;" in page


def test_who_may_only_look_downloads_and_no_more(api_url: str, db: Sessions, rows: Rows) -> None:
    rows.add_batch(status="completed")
    rows.fail(*rows.add_jobs(1, batch_id="batch_1"))
    key = Keys(sessions=db).create(tenant="Ada", name="looks", scopes=["read"]).secret
    with visiting(api_url, key) as visitor:
        assert visitor.get("/batches/batch_1/export").status_code == 200
        assert visitor.post("/batches/batch_1/retry").status_code == 403
