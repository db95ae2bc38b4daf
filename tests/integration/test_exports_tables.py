"""Tables that were asked about come back with the answers beside their rows, from whatever file."""

import csv
import io
import json
from collections.abc import Iterator
from contextlib import closing
from typing import Any
from zipfile import ZipFile

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from app.db import transaction
from app.errors import Conflict
from app.exports.opening import Columns, Exports, ExportWish, Format, Rows
from app.ingest import Ingest
from app.store.records import AnswerRow, FailureRow, record_answers, record_failures
from tests.desk import PIXEL, Desk

CSV = (
    b"sku;image_url;title\r\nA1;https://a.example/1.jpg;=Cup\r\n"
    b"A2;https://a.example/2.jpg;Pan\r\n;https://a.example/3.jpg;Hat\r\n"
)
SCHEMA = {"type": "object", "properties": {"size": {"type": "integer"}}}
TABLE = {
    "image_columns": ["image_url"],
    "id_column": "sku",
    "questions": [{"name": "colour", "ask": "Colour?"}, {"name": "it", "ask": "Size?", "schema": SCHEMA}],
    "body": {"model": "demo", "max_tokens": 8},
}
IMAGES = {
    "image_columns": ["image"],
    "questions": [{"name": "answer", "ask": "?"}],
    "body": {"model": "demo"},
}


@pytest.fixture
def ingest(desk: Desk) -> Iterator[Ingest]:
    with closing(Ingest(sessions=desk.sessions, objects=desk.objects, settings=desk.settings)) as ingest:
        yield ingest


@pytest.fixture
def exports(desk: Desk) -> Exports:
    return Exports(sessions=desk.sessions, objects=desk.objects, image_max_bytes=10**6)


def submitted(desk: Desk, ingest: Ingest, content: bytes = CSV, name: str = "in.csv", **table: Any) -> str:
    """A table all of whose images are there."""
    batch_id = desk.submit(content, filename=name, table=table or TABLE)
    assert ingest.step()
    desk.fetch()
    return batch_id


def work(desk: Desk, batch_id: str, answers: dict[str, str]) -> None:
    """Play a worker that knows these answers, and fails of all else."""
    names = {job.id: job.custom_id or "" for job in desk.jobs(batch_id)}
    claimed = desk.claim(batch_id)
    known = [job for job in claimed if names[job.id] in answers]
    with transaction(desk.sessions) as session:
        rows = [AnswerRow(job.id, job.attempt, answers[names[job.id]], "stop", 7, 3, 2) for job in known]
        record_answers(session, rows, model="demo", revision="rev1")
        failures = [FailureRow(job.id, job.attempt, "oops", "No.") for job in claimed if job not in known]
        record_failures(session, failures)


def read(exports: Exports, desk: Desk, batch_id: str, format: Format, **wish: Any) -> bytes:
    return b"".join(exports.open(desk.tenant, batch_id, ExportWish(format, **wish)).blocks)


def rows_of(exports: Exports, desk: Desk, batch_id: str, **wish: Any) -> list[dict[str, Any]]:
    return [json.loads(line) for line in read(exports, desk, batch_id, Format.NDJSON, **wish).splitlines()]


def test_a_csv_comes_back_with_the_answers_beside_its_rows(
    desk: Desk, ingest: Ingest, exports: Exports
) -> None:
    batch_id = submitted(desk, ingest)
    work(desk, batch_id, {"A1:colour": "red", "A1:it": '{"size": 5}', "A2:colour": "-blue"})
    content = read(exports, desk, batch_id, Format.CSV).decode()
    missing = (
        "missing_id: Row 3, column 'sku': The id is missing: give every row one, or leave id_column out."
    )
    assert list(csv.reader(io.StringIO(content, newline=""))) == [
        ["sku", "image_url", "title", "colour", "colour_error", "it.size", "it_error"],
        ["A1", "https://a.example/1.jpg", "'=Cup", "red", "", "5", ""],
        ["A2", "https://a.example/2.jpg", "Pan", "'-blue", "", "", "oops: No."],
        ["", "https://a.example/3.jpg", "Hat", "", missing, "", missing],
    ]


def test_rows_that_wait_for_answers_are_there_from_the_first_moment(
    desk: Desk, ingest: Ingest, exports: Exports
) -> None:
    batch_id = desk.submit(CSV, filename="in.csv", table=TABLE)
    empty = {"colour": None, "colour_error": None, "it.size": None, "it_error": None}
    first = rows_of(exports, desk, batch_id)
    assert [row["sku"] for row in first] == ["A1", "A2", ""]
    assert all(row.items() >= empty.items() for row in first)
    ingest.step()
    assert rows_of(exports, desk, batch_id)[0].items() >= empty.items()


def test_only_rows_that_are_answered_or_failed_if_so_wished(
    desk: Desk, ingest: Ingest, exports: Exports
) -> None:
    batch_id = submitted(desk, ingest)
    work(desk, batch_id, {"A1:colour": "red", "A1:it": "{}", "A2:colour": "blue"})
    assert [row["sku"] for row in rows_of(exports, desk, batch_id, rows=Rows.COMPLETED)] == ["A1"]
    assert [row["sku"] for row in rows_of(exports, desk, batch_id, rows=Rows.FAILED)] == ["A2", ""]


def test_parquet_comes_back_without_its_images_and_with_typed_answers(
    desk: Desk, ingest: Ingest, exports: Exports
) -> None:
    pixel = desk.pixel()
    table = pa.table({"id": [7], "image": [pixel], "more": [{"bytes": pixel, "path": "a"}]})
    file = io.BytesIO()
    pq.write_table(table, file)
    asked = {**IMAGES, "questions": TABLE["questions"], "id_column": "id"}
    batch_id = submitted(desk, ingest, file.getvalue(), "in.parquet", **asked)
    work(desk, batch_id, {"7:colour": "red", "7:it": '{"size": 5}'})
    found = pq.read_table(io.BytesIO(read(exports, desk, batch_id, Format.PARQUET)))
    assert found.to_pylist() == [
        {"id": "7", "colour": "red", "colour_error": None, "it.size": 5, "it_error": None}
    ]


def test_a_zip_comes_back_as_the_names_of_its_images(desk: Desk, ingest: Ingest, exports: Exports) -> None:
    file = io.BytesIO()
    with ZipFile(file, "w") as archive:
        archive.writestr("b/1.png", desk.pixel())
        archive.writestr("a.png", desk.pixel())
    batch_id = submitted(desk, ingest, file.getvalue(), "in.zip", **IMAGES)
    work(desk, batch_id, {"2": "red"})
    assert rows_of(exports, desk, batch_id) == [
        {"name": "b/1.png", "answer": None, "answer_error": "oops: No."},
        {"name": "a.png", "answer": "red", "answer_error": None},
    ]


def test_a_manifest_comes_back_with_answers(desk: Desk, ingest: Ingest, exports: Exports) -> None:
    batch_id = submitted(desk, ingest, f"# ours\n{PIXEL}\n".encode(), "in.txt", **IMAGES)
    work(desk, batch_id, {"1": "red"})
    assert [(row["image"], row["answer"]) for row in rows_of(exports, desk, batch_id)] == [(PIXEL, "red")]


def test_json_lines_of_a_table_are_those_of_its_files(desk: Desk, ingest: Ingest, exports: Exports) -> None:
    batch_id = submitted(desk, ingest)
    work(desk, batch_id, {"A2:it": "{}"})
    found = read(exports, desk, batch_id, Format.JSONL, rows=Rows.COMPLETED)
    assert [json.loads(line)["custom_id"] for line in found.splitlines()] == ["A2:it"]


def test_a_retry_is_about_its_own_rows_and_answers_in_those_of_the_first(
    desk: Desk, ingest: Ingest, exports: Exports
) -> None:
    first = submitted(desk, ingest)
    work(desk, first, {"A1:colour": "red", "A1:it": "{}", "A2:colour": "blue"})
    second = submitted(desk, ingest)
    desk.execute("UPDATE batches SET retry_of = :first WHERE id = :id", first=first, id=second)
    desk.execute("DELETE FROM jobs WHERE batch_id = :id AND line <> 4", id=second)
    work(desk, second, {"A2:it": '{"size": 9}'})
    assert [(row["sku"], row["it.size"]) for row in rows_of(exports, desk, second)] == [("A2", 9)]
    merged = rows_of(exports, desk, first, retries=True)
    assert [(row["colour"], row["it.size"]) for row in merged[:2]] == [("red", None), ("blue", 9)]


@pytest.mark.parametrize("statement", ["DELETE FROM files", "UPDATE files SET expires_at = now()"])
def test_answers_outlive_the_input(desk: Desk, ingest: Ingest, exports: Exports, statement: str) -> None:
    batch_id = submitted(desk, ingest)
    work(desk, batch_id, {"A1:colour": "red"})
    desk.execute(statement)
    with pytest.raises(Conflict, match="columns=answers") as caught:
        rows_of(exports, desk, batch_id)
    assert (caught.value.code, caught.value.param) == ("input_gone", "columns")
    found = rows_of(exports, desk, batch_id, columns=Columns.ANSWERS)
    assert [(row["row"], row["id"], row["colour"]) for row in found] == [
        (1, "A1", "red"),
        (2, "A2", None),
        (3, None, None),
    ]


def test_an_input_that_is_no_table_is_told_before_anything_is_sent(desk: Desk, exports: Exports) -> None:
    batch_id = desk.submit(b"nonsense", filename="in.parquet", table=TABLE)
    with pytest.raises(Conflict, match="not Parquet") as caught:
        rows_of(exports, desk, batch_id)
    assert caught.value.code == "input_unreadable"


def test_a_prefix_that_is_not_listed_yet_has_no_rows(desk: Desk, exports: Exports) -> None:
    batch_id = desk.submit_place("s3://photos/new", IMAGES)
    with pytest.raises(Conflict) as caught:
        rows_of(exports, desk, batch_id)
    assert caught.value.code == "not_listed_yet"
    assert rows_of(exports, desk, batch_id, columns=Columns.ANSWERS) == []


def test_parquet_comes_back_whatever_its_columns_are_called_and_hold(
    desk: Desk, ingest: Ingest, exports: Exports
) -> None:
    arrays = [
        pa.array(["https://a.example/1.jpg"]),
        pa.array(["x"]),
        pa.array(["y"]),
        pa.array([0], pa.timestamp("s", "Mars/Phobos")),
        pa.array([b"\xff"]).view(pa.string()),
    ]
    out = io.BytesIO()
    pq.write_table(pa.Table.from_arrays(arrays, names=["image", "a", "a", "when", "bad"]), out)
    batch_id = submitted(desk, ingest, out.getvalue(), "in.parquet", **IMAGES)
    work(desk, batch_id, {"1": "red"})
    (row,) = rows_of(exports, desk, batch_id)
    assert (row["a"], row["a_2"], row["when"]) == ("x", "y", "1970-01-01T00:00:00+00:00[Mars/Phobos]")
    assert (row["bad"], row["answer"]) == (None, "red")
