"""A table's rows become jobs: one for each question, bad rows alone at fault, resumable at any block."""

import base64
import io
from collections.abc import Iterator
from threading import Event
from typing import Any
from zipfile import ZipFile

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from app.ids import image_key
from app.ingest import Ingest
from app.states import BatchStatus
from tests.desk import PIXEL, Desk

CSV = "sku,image_url,title\nA1,https://a.example/1.jpg,Cup\nA2,https://a.example/2.jpg,Pan\n"
QUESTIONS = [
    {"name": "colour", "ask": "Colour of the {title}?", "schema": None},
    {
        "name": "text",
        "ask": "Any text?",
        "schema": {"type": "object", "properties": {"a": {"type": "string"}}},
    },
]


def table(**changes: Any) -> dict[str, Any]:
    """A table as it is stored with a batch."""
    return {
        "image_columns": ["image_url"],
        "id_column": "sku",
        "questions": QUESTIONS,
        "body": {"model": "demo", "max_tokens": 8},
    } | changes


@pytest.fixture
def ingest(desk: Desk) -> Iterator[Ingest]:
    work = Ingest(sessions=desk.sessions, objects=desk.objects, settings=desk.settings, block_lines=3)
    yield work
    work.close()


def submitted(desk: Desk, content: str, *, filename: str = "in.csv", **changes: Any) -> str:
    return desk.submit(content.encode(), filename=filename, table=table(**changes))


def refusal(desk: Desk, ingest: Ingest, content: str, **changes: Any) -> tuple[str, str | None, str]:
    """Code, param and message of a batch that failed."""
    batch_id = submitted(desk, content, **changes)
    ingest.step()
    batch = desk.batch(batch_id)
    assert (batch.status, batch.total, desk.jobs(batch_id)) == (BatchStatus.FAILED, 0, [])
    return batch.errors[0].code, batch.errors[0].param, batch.errors[0].message


def test_every_row_and_question_becomes_a_job(desk: Desk, ingest: Ingest) -> None:
    batch_id = submitted(desk, CSV)
    assert ingest.step()
    jobs = desk.jobs(batch_id)
    assert [(job.line, job.custom_id) for job in jobs] == [
        (1, "A1:colour"),
        (2, "A1:text"),
        (3, "A2:colour"),
        (4, "A2:text"),
    ]
    assert jobs[2].prompt["turns"][0]["parts"] == [{"image": 0}, {"text": "Colour of the Pan?"}]
    assert jobs[2].params == {"max_tokens": 8}
    assert "json_schema" in jobs[3].params["constraint"]
    assert desk.batch(batch_id).status is BatchStatus.IN_PROGRESS


def test_a_bad_row_fails_its_own_jobs_only(desk: Desk, ingest: Ingest) -> None:
    batch_id = submitted(desk, CSV + "A3,photos/3.jpg,Hat\nA4,https://a.example/4.jpg,x,y\nA5,,Bag\n")
    ingest.step()
    jobs = desk.jobs(batch_id)
    assert [job.error_code for job in jobs[4:]] == [
        *["bad_url"] * 2,
        *["wrong_cell_count"] * 2,
        *["missing_image"] * 2,
    ]
    assert (jobs[4].error_message or "").startswith(
        "Row 3, column 'image_url': The image is given as neither"
    )
    assert jobs[4].error_param == "image_url"
    assert desk.counts(batch_id) == (10, 0, 6)


def test_a_repeated_id_is_the_fault_of_the_later_row(desk: Desk, ingest: Ingest) -> None:
    batch_id = submitted(desk, CSV + "A1,https://a.example/3.jpg,Hat\nA4,https://a.example/4.jpg,Bag\n")
    ingest.step()
    found = [(job.custom_id, job.error_code) for job in desk.jobs(batch_id)][4:]
    assert found == [(None, "duplicate_id")] * 2 + [("A4:colour", None), ("A4:text", None)]
    assert "Row 3, column 'sku': The id is that of row 1" in (desk.jobs(batch_id)[4].error_message or "")


def test_reading_goes_on_at_the_row_where_it_stopped(desk: Desk) -> None:
    stopping = Event()
    stopping.set()  # a turn ends after its first block
    content = CSV + "".join(f"B{n},https://a.example/{n}.jpg,x\n" for n in range(8))
    batch_id = submitted(desk, content)
    work = Ingest(
        sessions=desk.sessions, objects=desk.objects, settings=desk.settings, block_lines=3, stopping=stopping
    )
    turns = 0
    while work.step():
        turns += 1
    work.close()
    assert turns > 3
    assert [job.line for job in desk.jobs(batch_id)] == list(range(1, 21))


def test_rows_are_numbered_where_no_column_has_ids(desk: Desk, ingest: Ingest) -> None:
    batch_id = submitted(desk, CSV, id_column=None, questions=QUESTIONS[:1])
    ingest.step()
    assert [job.custom_id for job in desk.jobs(batch_id)] == ["1", "2"]


def test_an_unknown_column_fails_the_batch_before_anything_runs(desk: Desk, ingest: Ingest) -> None:
    found = refusal(desk, ingest, CSV, questions=[{"name": "a", "ask": "What is {titel}?"}])
    assert found[:2] == ("missing_column", "table.questions[0].ask")
    assert "no column 'titel'" in found[2]
    assert "'sku', 'image_url', 'title'" in found[2]


def test_a_table_without_rows_is_empty(desk: Desk, ingest: Ingest) -> None:
    assert refusal(desk, ingest, "sku,image_url,title\n")[0] == "empty_file"


def test_a_table_has_a_limit_of_jobs_of_its_own(desk: Desk) -> None:
    settings = desk.settings.model_copy(update={"table_max_jobs": 3, "batch_max_lines": 1})
    work = Ingest(sessions=desk.sessions, objects=desk.objects, settings=settings)
    assert refusal(desk, work, CSV)[0] == "too_many_tasks"
    work.close()


def test_a_table_that_breaks_off_late_leaves_nothing(desk: Desk, ingest: Ingest) -> None:
    rows = "".join(f"B{n},https://a.example/{n}.jpg,x\n" for n in range(8))
    assert refusal(desk, ingest, CSV + rows + 'C1,"never closed\n')[0] == "invalid_csv"


def one_question(**changes: Any) -> dict[str, Any]:
    return table(
        image_columns=["image"], id_column="name", questions=[{"name": "a", "ask": "What?"}], **changes
    )


def test_images_in_a_parquet_are_stored_like_data_urls(desk: Desk, ingest: Ingest) -> None:
    png = base64.b64decode(PIXEL.partition(",")[2])
    images = [{"bytes": png, "path": "1.png"}, {"bytes": png, "path": None}, {"bytes": b"x", "path": None}]
    out = io.BytesIO()
    pq.write_table(pa.table({"image": images, "name": [7, 8, 9]}), out)
    batch_id = desk.submit(out.getvalue(), filename="in.parquet", table=one_question())
    ingest.step()
    jobs = desk.jobs(batch_id)
    assert [(job.custom_id, job.state, job.error_code) for job in jobs] == [
        ("7", "ready", None),
        ("8", "ready", None),
        ("9", "failed", "not_an_image"),
    ]
    assert jobs[0].image_ids == jobs[1].image_ids
    assert (jobs[2].error_message or "").startswith("Row 3, column 'image': ")
    stored = desk.objects.head(image_key(desk.tenant, desk.content_hash(PIXEL)))
    assert stored is not None
    assert stored.bytes == len(png)


def test_a_parquet_with_too_many_rows_is_refused_before_it_is_read(desk: Desk) -> None:
    settings = desk.settings.model_copy(update={"table_max_jobs": 2})
    out = io.BytesIO()
    pq.write_table(pa.table({"image": ["u"] * 3, "name": ["n"] * 3}), out)
    batch_id = desk.submit(out.getvalue(), filename="in.parquet", table=one_question())
    work = Ingest(sessions=desk.sessions, objects=desk.objects, settings=settings)
    work.step()
    work.close()
    assert desk.batch(batch_id).errors[0].code == "too_many_tasks"


def test_a_file_that_is_no_parquet_fails_its_batch(desk: Desk, ingest: Ingest) -> None:
    batch_id = desk.submit(CSV.encode(), filename="in.parquet", table=one_question())
    ingest.step()
    assert [error.code for error in desk.batch(batch_id).errors] == ["invalid_parquet"]


def test_a_zip_of_images_is_a_table(desk: Desk, ingest: Ingest) -> None:
    out = io.BytesIO()
    with ZipFile(out, "w") as target:
        target.writestr("a/1.png", base64.b64decode(PIXEL.partition(",")[2]))
        target.writestr("2.png", b"nothing")
    batch_id = desk.submit(out.getvalue(), filename="photos.zip", table=one_question())
    ingest.step()
    found = [(job.custom_id, job.error_code) for job in desk.jobs(batch_id)]
    assert found == [("a/1.png", None), ("2.png", "not_an_image")]


def test_a_manifest_is_a_table(desk: Desk, ingest: Ingest) -> None:
    content = b"# photos\nhttps://a.example/1.jpg\n\nhttps://a.example/2.jpg\n"
    batch_id = desk.submit(content, filename="urls.txt", table=one_question())
    ingest.step()
    assert [job.custom_id for job in desk.jobs(batch_id)] == ["1.jpg", "2.jpg"]


def test_a_bucket_prefix_is_listed_once_into_the_input_file(desk: Desk, ingest: Ingest) -> None:
    for key in ("1.jpg", "b,2.PNG", "notes.txt", "c/"):
        desk.objects.put(f"{desk.tenant}/in/{key}", b"x", content_type="image/jpeg")
    place = f"s3://{desk.objects.bucket}/{desk.tenant}/in/"
    batch_id = desk.submit_place(place, one_question(system="A file of {size} bytes"))
    ingest.step()
    jobs = desk.jobs(batch_id)
    assert [job.custom_id for job in jobs] == [f"{desk.tenant}/in/{key}" for key in ("1.jpg", "b,2.PNG")]
    assert jobs[0].prompt["turns"][0]["parts"] == [{"text": "A file of 1 bytes"}]
    listing = desk.content(desk.batch(batch_id).input_file_id).decode()
    assert listing.splitlines()[1].startswith(f"{place}1.jpg,{desk.tenant}/in/1.jpg,1,")


def test_an_empty_prefix_fails_its_batch(desk: Desk, ingest: Ingest) -> None:
    batch_id = desk.submit_place(f"s3://{desk.objects.bucket}/{desk.tenant}/none/", one_question())
    ingest.step()
    assert [error.code for error in desk.batch(batch_id).errors] == ["empty_file"]


def test_a_bucket_that_is_not_there_fails_its_batch(desk: Desk, ingest: Ingest) -> None:
    batch_id = desk.submit_place("s3://no-such-bucket/a/", one_question())
    ingest.step()
    assert [error.code for error in desk.batch(batch_id).errors] == ["listing_failed"]
