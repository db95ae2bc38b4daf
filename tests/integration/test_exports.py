"""Batches of lines as exports: whatever has become of the jobs, while they run and after retries."""

import csv
import io
import json

import httpx
import pyarrow.parquet as pq
import pytest

from app.db import Sessions, transaction
from app.errors import Conflict, NotFound, Overloaded
from app.exports import opening, reading
from app.exports.opening import Exports, ExportWish, Format
from app.exports.opening import Rows as Which
from app.objects import ObjectStore
from app.results import error_line, output_line
from app.states import Endpoint
from app.store.results import read_answered, read_unanswered
from tests.rows import Rows

EVIL = "<script>alert(1)</script>"


@pytest.fixture
def rows(db: Sessions) -> Rows:
    rows = Rows(db)
    rows.add_batch()
    return rows


@pytest.fixture
def exports(db: Sessions, objects: ObjectStore) -> Exports:
    return Exports(sessions=db, objects=objects, image_max_bytes=10**6)


def read(
    exports: Exports, format: Format = Format.NDJSON, batch_id: str = "batch_1", **wish: object
) -> bytes:
    return b"".join(exports.open("tenant_a", batch_id, ExportWish(format, **wish)).blocks)  # pyright: ignore[reportArgumentType]


def answers(content: bytes) -> list[tuple[object, ...]]:
    """Of NDJSON."""
    found = map(json.loads, content.splitlines())
    return [(row["custom_id"], row["status"], row["answer"]) for row in found]


def retry(rows: Rows, batch_id: str, of: str, *lines: int) -> list[int]:
    """A batch that tries these lines of another one again."""
    rows.add_batch(batch_id)
    rows.run("UPDATE batches SET retry_of = :of WHERE id = :id", of=of, id=batch_id)
    return [rows.add_jobs(1, batch_id=batch_id, line=line, custom_id=f"r{line}")[0] for line in lines]


def test_every_line_is_a_row_whatever_has_become_of_it(exports: Exports, rows: Rows) -> None:
    answered, failed, *_ = rows.add_jobs(3, batch_id="batch_1")
    rows.add_jobs(1, batch_id="batch_1", state="expired")
    rows.complete(answered)
    rows.fail(failed)
    assert [list(json.loads(line).values()) for line in read(exports).splitlines()] == [
        ["r1", 1, "completed", "red", "stop", None, None, 10, 3],
        ["r2", 2, "failed", None, None, "bad_prompt", "bad_prompt!", None, None],
        ["r3", 3, "ready", None, None, None, None, None, None],
        [
            "r4",
            4,
            "expired",
            None,
            None,
            "batch_expired",
            "This request could not be executed before the completion window expired.",
            None,
            None,
        ],
    ]


def test_a_spreadsheet_gets_the_same_and_runs_nothing(exports: Exports, rows: Rows) -> None:
    rows.complete(*rows.add_jobs(1, batch_id="batch_1"), text='=cmd|"/C calc"!A1')
    rows.add_jobs(1, batch_id="batch_1")
    found = list(csv.reader(io.StringIO(read(exports, Format.CSV).decode(), newline="")))
    assert found[1:] == [
        ["r1", "1", "completed", '\'=cmd|"/C calc"!A1', "stop", "", "", "10", "3"],
        ["r2", "2", "ready", "", "", "", "", "", ""],
    ]


def test_parquet_has_the_answers_as_they_are(exports: Exports, rows: Rows) -> None:
    rows.complete(*rows.add_jobs(2, batch_id="batch_1"), text="=1\u2028\U0001f9e5")
    table = pq.read_table(io.BytesIO(read(exports, Format.PARQUET)))
    assert table.column("answer").to_pylist() == ["=1\u2028\U0001f9e5"] * 2
    assert table.column("completion_tokens").to_pylist() == [3, 3]


def test_json_lines_are_those_of_the_files(exports: Exports, rows: Rows) -> None:
    failed, answered, _ = rows.add_jobs(3, batch_id="batch_1")
    rows.complete(answered)
    rows.fail(failed)
    with transaction(rows.sessions) as session:
        good = read_answered(session, "batch_1", after_line=0, limit=9)
        bad = read_unanswered(session, "batch_1", after_line=0, limit=9)
    assert read(exports, Format.JSONL) == error_line(bad[0]) + output_line(good[0], Endpoint.CHAT)


@pytest.mark.parametrize(
    ("which", "found"), [(Which.ALL, ["r1", "r2", "r3"]), (Which.COMPLETED, ["r1"]), (Which.FAILED, ["r2"])]
)
def test_rows_can_be_left_out(exports: Exports, rows: Rows, which: Which, found: list[str]) -> None:
    answered, failed, _ = rows.add_jobs(3, batch_id="batch_1")
    rows.complete(answered)
    rows.fail(failed)
    assert [row[0] for row in answers(read(exports, rows=which))] == found


def test_a_retry_answers_in_the_place_of_what_failed(exports: Exports, rows: Rows) -> None:
    rows.fail(*rows.add_jobs(3, batch_id="batch_1"))
    first, second = retry(rows, "batch_2", "batch_1", 1, 3)
    rows.complete(first, text="at last")
    rows.fail(second, code="http_404")
    (third,) = retry(rows, "batch_3", "batch_2", 3)
    rows.complete(third, text="in the end")
    assert answers(read(exports, retries=True)) == [
        ("r1", "completed", "at last"),
        ("r2", "failed", None),
        ("r3", "completed", "in the end"),
    ]
    assert [row[1] for row in answers(read(exports))] == ["failed"] * 3


def test_an_answer_is_not_lost_to_a_later_failure(exports: Exports, rows: Rows) -> None:
    rows.complete(*rows.add_jobs(1, batch_id="batch_1"), text="first")
    rows.fail(*retry(rows, "batch_2", "batch_1", 1))
    assert answers(read(exports, retries=True)) == [("r1", "completed", "first")]
    rows.complete(*retry(rows, "batch_3", "batch_1", 1), text="newer")
    assert answers(read(exports, retries=True)) == [("r1", "completed", "newer")]


def test_what_a_retry_has_answered_has_not_failed(exports: Exports, rows: Rows) -> None:
    rows.fail(*rows.add_jobs(2, batch_id="batch_1"))
    rows.complete(*retry(rows, "batch_2", "batch_1", 2))
    assert [row[0] for row in answers(read(exports, retries=True, rows=Which.FAILED))] == ["r1"]


@pytest.mark.parametrize(("page", "part"), [(1, 1), (2, 5), (3, 10**6)])
def test_pages_of_any_size_have_each_row_once(
    exports: Exports, rows: Rows, page: int, part: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reading, "PAGE_JOBS", page)
    monkeypatch.setattr(reading, "PART_BYTES", part)
    rows.complete(*rows.add_jobs(5, batch_id="batch_1"))
    rows.complete(*retry(rows, "batch_2", "batch_1", 2, 5), text="blue")
    found = answers(read(exports, retries=True))
    assert [row[2] for row in found] == ["red", "blue", "red", "red", "blue"]


def test_an_export_of_a_batch_that_is_deleted_meanwhile_does_not_look_whole(
    exports: Exports, rows: Rows
) -> None:
    rows.add_jobs(1, batch_id="batch_1")
    export = exports.open("tenant_a", "batch_1", ExportWish(Format.NDJSON))
    rows.run("DELETE FROM jobs")
    rows.run("UPDATE batches SET deleted_at = now()")
    with pytest.raises(NotFound):
        b"".join(export.blocks)


def test_a_batch_whose_file_did_not_pass_has_nothing_to_export(exports: Exports, rows: Rows) -> None:
    error = '[{"code": "invalid_json", "message": "No JSON.", "line": 3, "param": null}]'
    rows.run("UPDATE batches SET status = 'failed', errors = CAST(:errors AS jsonb)", errors=error)
    with pytest.raises(Conflict, match=r"invalid_json in line 3: No JSON\.") as caught:
        exports.open("tenant_a", "batch_1", ExportWish())
    assert caught.value.code == "batch_failed"


def test_a_batch_that_its_brake_stopped_is_exported(exports: Exports, rows: Rows) -> None:
    rows.fail(*rows.add_jobs(1, batch_id="batch_1"))
    rows.run("UPDATE batches SET status = 'failed'")
    assert answers(read(exports)) == [("r1", "failed", None)]


def test_a_batch_of_another_tenant_is_not_exported(exports: Exports, rows: Rows) -> None:
    assert rows
    with pytest.raises(NotFound):
        exports.open("tenant_b", "batch_1", ExportWish())


def test_a_tenant_makes_only_so_many_exports_at_once_and_leaves_room_for_others(
    exports: Exports, rows: Rows
) -> None:
    held = [exports.open("tenant_a", "batch_1", ExportWish()) for _ in range(opening.MOST_OPEN // 2)]
    with pytest.raises(Overloaded):
        exports.open("tenant_a", "batch_1", ExportWish())
    rows.tenant = "tenant_b"
    rows.add_batch("batch_2")
    exports.open("tenant_b", "batch_2", ExportWish()).blocks.close()
    held.clear()
    read(exports)


@pytest.mark.parametrize("format", list(Format))
def test_no_browser_shows_an_export_as_a_page(http: httpx.Client, db: Sessions, format: Format) -> None:
    rows = Rows(db)
    rows.tenant = rows.one("SELECT id FROM tenants")
    rows.add_batch()
    rows.complete(*rows.add_jobs(1, batch_id="batch_1"), text=EVIL)
    answer = http.get("/v1/batches/batch_1/export", params={"format": format.value})
    assert (answer.status_code, EVIL.encode() in answer.content) == (200, True)
    assert answer.headers["content-type"] == opening.CONTENT_TYPES[format]
    assert answer.headers["content-disposition"] == f'attachment; filename="batch_1.{format.value}"'
    assert answer.headers["x-content-type-options"] == "nosniff"


def test_failed_rows_are_saved_beside_all_rows(http: httpx.Client, db: Sessions) -> None:
    rows = Rows(db)
    rows.tenant = rows.one("SELECT id FROM tenants")
    rows.add_batch()
    rows.fail(*rows.add_jobs(1, batch_id="batch_1"))
    answer = http.get("/v1/batches/batch_1/export", params={"format": "csv", "rows": "failed"})
    assert answer.headers["content-disposition"] == 'attachment; filename="batch_1-failed.csv"'


@pytest.mark.parametrize("query", ["format=xlsx", "rows=some", "retries=2", "row=failed"])
def test_an_unknown_wish_is_refused_by_name(http: httpx.Client, rows: Rows, query: str) -> None:
    assert rows
    answer = http.get(f"/v1/batches/batch_1/export?{query}")
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, query.partition("=")[0])
