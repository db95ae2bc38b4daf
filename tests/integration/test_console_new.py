"""Batches made from a page: a file dropped, its columns told, five rows tried, all run."""

import html
import re
from collections.abc import Mapping
from types import MappingProxyType

import httpx
import pytest
from openai import OpenAI

from app import previews
from app.auth import Keys
from app.config import Settings
from app.db import Sessions, transaction
from app.ingest import Ingest
from app.labels import Label
from app.objects import ObjectStore
from app.states import Priority
from app.store.labels import note_labels
from tests.console import Visitor, visiting
from tests.rows import Rows

EVIL = "<script>alert(1)</script>"
CSV = b"sku,photo,title\nA1,https://a.example/1.jpg,cup\nA2,,jug\n"
ENDPOINT = b"/v1/responses"
LINE = (
    b'{"custom_id": "%%b", "method": "POST", "url": "%b", "body": {"model": "demo", "input": "%%b"}}\n'
    % ENDPOINT
)
ASK = {"image": "photo", "id_column": "sku", "q0.name": "colour", "q0.ask": "What colour is the {title}?"}


def drop(
    visitor: Visitor,
    content: bytes = CSV,
    name: str = "shop.csv",
    *,
    headers: Mapping[str, str] = MappingProxyType({}),
) -> httpx.Response:
    """As the script does it."""
    return visitor.http.post(
        "/new",
        data={"purpose": "batch"},
        files={"file": (name, content)},
        headers={"x-csrf-token": visitor.csrf(), **headers},
    )


def dropped(visitor: Visitor, content: bytes = CSV, name: str = "shop.csv") -> str:
    """The page of a file."""
    answer = drop(visitor, content, name)
    assert answer.status_code == 303, answer.text
    return answer.headers["location"]


def beside(page: str, field: str) -> str:
    """What is said to be wrong with a field."""
    found = re.search(rf'id="{re.escape(field)}-problem">([^<]*)<', page)
    return html.unescape(found[1]) if found else ""


def preview_of(page: str) -> str:
    found = re.search(r'name="preview" value="([^"]*)"', page)
    return html.unescape(found[1]) if found else ""


def chosen(page: str, field: str) -> str:
    select = re.search(rf'<select id="{field}".*?</select>', page, re.DOTALL)
    found = re.search(r'value="([^"]*)" selected', select[0]) if select else None
    return found[1] if found else ""


def test_a_dropped_table_shows_its_first_rows_and_what_its_columns_seem_to_be(visitor: Visitor) -> None:
    page = visitor.get(dropped(visitor)).text
    assert all(text in page for text in ("https://a.example/1.jpg", "jug", "2 rows"))
    assert (chosen(page, "image"), chosen(page, "id_column")) == ("photo", "sku")


@pytest.mark.parametrize(
    ("count_s", "said"),
    [(60.0, "Run all (2,002 × 2)"), (-1.0, "Run all (over 6 × 2)")],
    ids=["all", "in vain"],
)
def test_the_rows_of_a_csv_are_counted_as_far_as_there_is_time(
    visitor: Visitor, monkeypatch: pytest.MonkeyPatch, count_s: float, said: str
) -> None:
    monkeypatch.setattr(previews, "COUNT_S", count_s)
    path = dropped(visitor, CSV + b"".join(b"B%d,,x%d\n" % (n, n) for n in range(2000)))
    page = visitor.post(path, do="add", **ASK).text
    assert said in page
    monkeypatch.setattr(previews, "COUNT_S", 60.0)
    assert said in visitor.post(path, do="add", **ASK).text


def test_a_table_of_files_on_ones_own_machine_says_so_once(visitor: Visitor) -> None:
    own = (
        b"file,sku\n" + b"img/1.JPG,A1\n" * 7 + b"https://a.example/1.jpg,A2\nfile:///tmp/2.png,A3\nn/a,A4\n"
    )
    page = dropped(visitor, own)
    assert "8 of 10 rows name files on your own machine" in visitor.get(page).text
    assert chosen(visitor.get(page).text, "image") == "file"
    assert 'id="local"' not in visitor.post(page, do="look", **ASK | {"image": "sku"}).text
    assert 'id="local"' not in visitor.get(dropped(visitor)).text


def test_only_the_head_of_a_file_is_shown(visitor: Visitor) -> None:
    page = visitor.get(dropped(visitor, CSV + b"".join(b"B%d,,x%d\n" % (n, n) for n in range(5)))).text
    assert ("x2" in page, "x3" in page) == (True, False)


def test_without_a_script_the_token_comes_first_in_the_form(visitor: Visitor) -> None:
    answer = visitor.http.post(
        "/new", data={"csrf": visitor.csrf(), "purpose": "batch"}, files={"file": ("shop.csv", CSV)}
    )
    assert answer.status_code == 303


@pytest.mark.parametrize(
    "headers",
    [
        {"x-csrf-token": "x"},
        {"x-csrf-token": ""},
        {"sec-fetch-site": "cross-site"},
        {"origin": "https://evil.example"},
    ],
)
def test_nobody_elses_upload_is_kept(visitor: Visitor, rows: Rows, headers: dict[str, str]) -> None:
    assert drop(visitor, headers=headers).status_code == 403
    assert rows.one("SELECT count(*) FROM files") == 0


def test_who_may_only_look_uploads_nothing(api_url: str, db: Sessions, rows: Rows) -> None:
    key = Keys(sessions=db).create(tenant="Ada", name="looks", scopes=["read"]).secret
    with visiting(api_url, key) as visitor:
        assert 'href="/new"' not in visitor.get("/batches").text
        assert visitor.get("/new").status_code == 403
        assert drop(visitor).status_code == 403
    assert rows.one("SELECT count(*) FROM files") == 0


def test_a_file_that_no_batch_reads_is_refused_by_name(visitor: Visitor, rows: Rows) -> None:
    answer = drop(visitor, name="shop.xlsx")
    assert answer.status_code == 400
    assert ".parquet" in answer.text
    assert rows.one("SELECT count(*) FROM files") == 0


def test_a_file_that_is_no_table_says_so_on_its_page(visitor: Visitor) -> None:
    assert "not Parquet" in visitor.get(dropped(visitor, b"nonsense", "shop.parquet")).text


def test_what_is_wrong_is_said_in_chinese_too(visitor: Visitor) -> None:
    path = dropped(visitor)
    visitor.http.cookies.set("vqueue_language", "zh")
    refused = visitor.post(path, do="run", **{**ASK, "image": ""}).text
    assert beside(refused, "image") == "缺少必填项 Choose the column that holds the images."
    missing = visitor.get("/new/file-none").text
    assert re.search(r'<p>没有此文件 <span class="detail" lang="en">[^<]+</span></p>', missing)


def test_another_tenants_file_is_not_found(visitor: Visitor, stranger: OpenAI) -> None:
    file = stranger.files.create(file=("shop.csv", CSV), purpose="batch")
    assert visitor.get(f"/new/{file.id}").status_code == 404
    assert visitor.post(f"/new/{file.id}", do="run", **ASK).status_code == 404


def test_run_makes_the_batch_that_the_api_would(
    visitor: Visitor, rows: Rows, db: Sessions, objects: ObjectStore, settings: Settings
) -> None:
    answer = visitor.post(dropped(visitor), do="run", once="1", max_tokens="8", strict="", **ASK)
    assert answer.status_code == 303, answer.text
    assert answer.headers["location"].removeprefix("/batches/") == rows.one("SELECT id FROM batches")
    ingest = Ingest(sessions=db, objects=objects, settings=settings)
    ingest.step()
    ingest.close()
    found = rows.table("SELECT custom_id, state, error_code FROM jobs ORDER BY line")
    assert [tuple(row) for row in found] == [("A1", "waiting", None), ("A2", "failed", "missing_image")]


def test_run_pressed_twice_makes_one_batch(visitor: Visitor) -> None:
    page = dropped(visitor)
    places = [visitor.post(page, do="run", once="1", **ASK).headers["location"] for _ in range(2)]
    again = visitor.post(page, do="run", once="2", **ASK).headers["location"]
    checked = visitor.post(page, do="run", once="1", dry_run="on", **ASK).headers["location"]
    assert (len(set(places)), len({*places, again, checked})) == (1, 3)


@pytest.mark.parametrize(
    ("fields", "field", "said"),
    [
        ({"image": ""}, "image", "Choose the column"),
        ({"q0.ask": ""}, "q0.ask", "what is to be asked"),
        ({"q0.ask": "Is it {"}, "q0.ask", "single '{'"),
        ({"q0.kind": "schema", "q0.schema": "{,"}, "q0.schema", "line 1, column 2"),
        ({"q0.kind": "schema", "q0.schema": '{"type": "nonsense"}'}, "q0.schema", "schema"),
        ({"max_tokens": "0"}, "max_tokens", "from 1"),
        ({"window": "99d"}, "window", "30 days"),
        ({"cache": "off", "near": "4"}, "", "near_duplicates"),
        ({"model": "none"}, "model", "not served"),
    ],
)
@pytest.mark.parametrize("action", ["run", "preview"])
def test_what_is_wrong_is_said_beside_its_field(
    visitor: Visitor, rows: Rows, fields: dict[str, str], field: str, said: str, action: str
) -> None:
    answer = visitor.post(dropped(visitor), do=action, **ASK | fields)
    assert (answer.status_code in (400, 404), said in html.unescape(answer.text)) == (True, True)
    assert said in beside(answer.text, field) or not field
    assert rows.one("SELECT (SELECT count(*) FROM jobs) + (SELECT count(*) FROM batches)") == 0


def test_a_column_that_is_not_there_is_said_before_all_run(visitor: Visitor) -> None:
    answer = visitor.post(dropped(visitor), do="preview", **ASK | {"q0.ask": "Is it {size}?"})
    assert "no column 'size'" in beside(answer.text, "q0.ask")


def test_a_preview_asks_the_first_rows_and_shows_what_comes(visitor: Visitor, rows: Rows) -> None:
    file = dropped(visitor)
    asked = visitor.post(file, do="preview", **ASK)
    assert "The image is missing" in asked.text
    assert 'data-waits="1"' in asked.text
    assert rows.all("SELECT priority FROM jobs") == [Priority.INTERACTIVE]
    rows.run(
        "UPDATE jobs SET state = 'ready', waiting_on = 0, image_ids = ARRAY[:image]", image=rows.add_image()
    )
    rows.complete(*rows.all("SELECT id FROM jobs"), text="blue")
    shown = visitor.post(file, do="look", preview=preview_of(asked.text), **ASK)
    assert 'data-waits="0"' in shown.text
    assert re.search(r'<td class="cell">blue</td>', shown.text)
    assert f"/{'a' * 64}/320?until=" in shown.text


def test_a_preview_is_a_try_that_nobody_reviews_and_one_line_of_the_audit_log(
    visitor: Visitor, rows: Rows, db: Sessions
) -> None:
    visitor.post(dropped(visitor, CSV.replace(b"A2,,", b"A2,https://a.example/2.jpg,")), do="preview", **ASK)
    previewed = rows.all("SELECT id FROM jobs")
    rows.run("UPDATE jobs SET state = 'ready', waiting_on = 0, image_ids = '{}'")
    mine = rows.add_jobs(1)
    rows.complete(*previewed, *mine)
    with transaction(db) as session:
        note_labels(session, {job_id: [Label("", 0, "red")] for job_id in (*previewed, *mine)})
    assert (len(previewed), rows.all("SELECT job_id FROM labels")) == (2, mine)
    noted = rows.table("SELECT action, details FROM audit_log WHERE action ~ '^(job|preview)'")
    told = [(row.action, len((row.details or {}).get("jobs", []))) for row in noted]
    assert told == [("preview.created", 2)]


def test_a_look_asks_nothing_and_keeps_what_is_filled_in(visitor: Visitor, rows: Rows) -> None:
    page = visitor.post(dropped(visitor), do="add", **ASK, system="Be brief.").text
    assert ("Be brief." in page, 'name="q1.ask"' in page, "What colour is the {title}?" in page) == (
        True,
    ) * 3
    assert rows.one("SELECT count(*) FROM jobs") == 0


def test_a_preview_shows_no_others_jobs(visitor: Visitor, rows: Rows) -> None:
    mine, rows.tenant = rows.tenant, "tenant_b"
    theirs = rows.add_jobs(1)
    rows.complete(*theirs, text="their secret")
    rows.tenant = mine
    page = visitor.post(
        dropped(visitor), do="look", preview=f'[[1, "a", "job_{theirs[0]:016x}", null]]', **ASK
    )
    assert page.status_code == 200
    assert "their secret" not in page.text


def test_requests_are_counted_shown_tried_and_run(visitor: Visitor, rows: Rows) -> None:
    file = dropped(visitor, LINE % (b"r1", b"Hello?") + b"\n{nonsense\n", "in.jsonl")
    page = visitor.get(file).text
    assert all(text in page for text in ("2 requests", "r1", "Hello?", "Line 3 is not"))
    assert chosen(page, "endpoint") == "/v1/responses"
    visitor.post(file, do="preview", endpoint="/v1/responses")
    assert rows.one("SELECT count(*) FROM jobs") == 1
    assert visitor.post(file, do="run", endpoint="/v1/responses").status_code == 303
    assert rows.one("SELECT endpoint FROM batches") == "/v1/responses"


def test_a_long_file_of_requests_is_counted_by_its_first_lines(visitor: Visitor) -> None:
    page = visitor.get(dropped(visitor, LINE % (b"r1", b"Hello?") * 2_000, "in.jsonl")).text
    assert "about 2,000 requests" in page


def test_nothing_in_a_file_is_markup(visitor: Visitor, rows: Rows) -> None:
    evil = EVIL.encode()
    table = dropped(
        visitor, b"%b,photo\n%b,https://a.example/1.jpg\n" % (evil, evil), f"{EVIL.replace('/', '')}.csv"
    )
    lines = dropped(visitor, LINE % (evil, evil), "in.jsonl")
    asked = visitor.post(table, do="preview", **ASK | {"q0.ask": EVIL, "id_column": "", "q0.name": EVIL})
    rows.run("UPDATE jobs SET state = 'ready', waiting_on = 0")
    rows.complete(*rows.all("SELECT id FROM jobs"), text=EVIL)
    shown = visitor.post(table, do="look", preview=preview_of(asked.text), **ASK)
    for page in (visitor.get(table), visitor.get(lines), asked, shown):
        assert "<script>" not in page.text
        assert "&lt;script&gt;" in page.text
