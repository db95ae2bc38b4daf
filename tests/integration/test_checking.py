"""Dry runs and strict batches: everything is read, nothing runs, and what is wrong or will cost is told."""

import time
from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from app.config import Settings
from app.db import transaction
from app.finalize import Finalize
from app.ingest import Ingest
from app.prices import Price
from app.states import BatchStatus
from app.store.batches import cancel_batch
from app.sweep import Sweeper
from tests.desk import PIXEL, Desk, image, line, lines

URL = "https://shop.example/{}.jpg"
CSV = b"sku,image_url\nA1,https://a.example/1.jpg\nA2,https://a.example/2.jpg\nA1,https://a.example/3.jpg\n"
TABLE = {
    "image_columns": ["image_url"],
    "id_column": "sku",
    "questions": [{"name": "a", "ask": "A?", "schema": None}, {"name": "b", "ask": "B?", "schema": None}],
    "body": {"model": "demo", "max_tokens": 5},
}


@pytest.fixture
def quick(settings: Settings) -> Settings:
    """No waiting for sampled images, which no test's fetcher brings; and a price."""
    price = Price(input=1.0, cached=0.1, output=2.0)
    return settings.model_copy(update={"check_wait_s": 0.0, "check_images": 5, "prices": {"demo": price}})


@pytest.fixture
def ingest(desk: Desk, quick: Settings) -> Iterator[Ingest]:
    work = Ingest(sessions=desk.sessions, objects=desk.objects, settings=quick, block_lines=3, turn_s=0.0)
    yield work
    work.close()


def handed_in(desk: Desk, content: bytes | Sequence[str], what: str = "is_dry_run", **options: Any) -> str:
    batch_id = desk.submit(content, **options)
    desk.execute(
        "UPDATE batches SET is_dry_run = :dry, is_strict = :strict WHERE id = :id",
        id=batch_id,
        dry=what == "is_dry_run",
        strict=what == "is_strict",
    )
    return batch_id


def report_of(desk: Desk, ingest: Ingest, content: bytes | Sequence[str], **options: Any) -> dict[str, Any]:
    batch_id = handed_in(desk, content, **options)
    while ingest.step():
        pass
    batch = desk.batch(batch_id)
    assert (batch.status, batch.total, desk.jobs(batch_id)) == (BatchStatus.COMPLETED, 0, [])
    assert desk.count("checked") == 0
    assert batch.report is not None
    return dict(batch.report)


def test_a_dry_run_counts_every_line_and_runs_none(desk: Desk, ingest: Ingest) -> None:
    content = [*lines(7), "{", line("bad", "x", model="nobody"), "", line("worse", "x", model="nobody")]
    report = report_of(desk, ingest, content)
    assert (report["lines"], report["requests"], report["bad_lines"]) == (10, 7, 3)
    assert [(one["code"], one["count"], one["line"]) for one in report["errors"]] == [
        ("model_not_found", 2, 9),
        ("invalid_json_line", 1, 8),
    ]
    assert report["models"] == {"demo": 7}


def test_images_are_counted_once_and_a_sample_is_asked_for(desk: Desk, ingest: Ingest) -> None:
    content = [line(f"r{number}", [image(URL.format(number % 8))]) for number in range(16)]
    report = report_of(desk, ingest, content)
    images = report["images"]
    assert (images["references"], images["distinct"], images["stored"]) == (16, 8, 0)
    assert (images["sample"]["asked"], images["sample"]["pending"]) == (5, 5)
    assert report["requests_per_image"] == 2
    assert desk.count("images") == 5, "they will be there for the batch itself"
    assert report["tokens"]["visual"] is None, "no image's size is known"


def test_what_the_sample_finds_is_told_and_extrapolated(
    desk: Desk, settings: Settings, quick: Settings
) -> None:
    patient = quick.model_copy(update={"check_wait_s": 60.0})
    ingest = Ingest(sessions=desk.sessions, objects=desk.objects, settings=patient)
    batch_id = handed_in(desk, [line(f"r{number}", [image(URL.format(number))]) for number in range(20)])
    ingest.step()
    assert desk.batch(batch_id).status is BatchStatus.VALIDATING
    desk.execute(
        "UPDATE images SET state = 'stored', width = 640, height = 480, content_hash = 'h', stored_at = now()"
    )
    desk.execute(
        "UPDATE images SET state = 'failed', error_code = 'http_404', error_message = 'gone' "
        "WHERE id = (SELECT min(id) FROM images)"
    )
    desk.execute("UPDATE batches SET lease_until = now()")
    ingest.step()
    ingest.close()
    report = dict(desk.batch(batch_id).report or {})
    sample = report["images"]["sample"]
    assert (sample["stored"], sample["failed"], sample["failed_share"]) == (4, 1, 0.2)
    assert [(one["code"], one["count"]) for one in sample["errors"]] == [("http_404", 1)]
    assert report["tokens"]["visual"] == 20 * 300


def test_images_that_are_known_already_are_told(desk: Desk, ingest: Ingest) -> None:
    content = [line(f"r{number}", [image(URL.format(number))]) for number in range(4)]
    report_of(desk, ingest, content)
    desk.execute(
        "UPDATE images SET state = 'stored', width = 640, height = 480, stored_at = now() "
        "WHERE id < (SELECT max(id) FROM images)"
    )
    desk.execute("UPDATE images SET state = 'failed', error_code = 'http_404' WHERE state = 'pending'")
    report = report_of(desk, ingest, [*content, line("new", [image(URL.format("new"))])])
    images = report["images"]
    assert (images["distinct"], images["stored"], images["failed_lately"]) == (5, 3, 1)
    assert report["tokens"]["visual"] == 5 * 300


def test_an_image_that_could_be_used_again_is_stored_whatever_failed_later(
    desk: Desk, ingest: Ingest
) -> None:
    content = [line("r1", [image(URL.format(1))])]
    report_of(desk, ingest, content)
    desk.execute("UPDATE images SET state = 'failed', error_code = 'http_404'")
    report_of(desk, ingest, content)
    desk.execute("UPDATE images SET state = 'stored', stored_at = now() WHERE state = 'pending'")
    images = report_of(desk, ingest, content)["images"]
    assert (images["stored"], images["failed_lately"]) == (1, 0)


def test_images_that_came_along_are_looked_at(desk: Desk, ingest: Ingest) -> None:
    broken = "data:image/png;base64,aGVsbG8="
    content = [line("r1", [image(PIXEL)]), line("r2", [image(PIXEL)]), line("r3", [image(broken)])]
    report = report_of(desk, ingest, content)
    assert (report["images"]["inline"], report["images"]["distinct"]) == (1, 1)
    assert [one["code"] for one in report["errors"]] == ["not_an_image"]
    assert report["tokens"]["visual"] == 2 * 64
    assert report["tokens"]["cached"] == 64
    assert desk.count("images") == 0


def test_cost_and_time_are_by_the_price_table_and_by_batches_of_late(desk: Desk, ingest: Ingest) -> None:
    earlier = desk.submit(lines(1))
    desk.execute(
        "UPDATE batches SET status = 'completed', model = 'demo', completed = 100, completion_tokens = 400, "
        "ingested_at = now(), ended_at = now(), in_progress_at = now() - interval '50 seconds', "
        "finalizing_at = now() WHERE id = :id",
        id=earlier,
    )
    content = [line(f"r{number}", "word", max_tokens=10) for number in range(4)]
    report = report_of(desk, ingest, content)
    assert report["time"] == {"seconds": 2.0, "jobs_per_second": 2.0, "based_on_batches": 1}
    tokens = report["tokens"]
    assert (tokens["text"], tokens["output_expected"], tokens["output_most"]) == (4, 16, 40)
    assert report["cost"] == {"currency": "USD", "expected": 0.000036, "most": 0.000084}


def test_rows_of_a_table_are_counted_question_by_question(desk: Desk, ingest: Ingest) -> None:
    report = report_of(desk, ingest, CSV, filename="in.csv", table=TABLE)
    assert (report["lines"], report["requests"], report["bad_lines"]) == (6, 4, 2)
    assert report["errors"][0]["code"] == "duplicate_id"
    assert report["errors"][0]["message"].startswith("Row 3")
    assert report["images"]["distinct"] == 2, "no question is about the picture of the row that repeats an id"


@pytest.mark.parametrize(
    ("content", "code"),
    [
        (b"", "empty_file"),
        ([line("same"), line("other"), line("x"), line("same")], "duplicate_custom_id"),
        (["{", "["], "invalid_json_line"),
    ],
)
def test_a_dry_run_fails_where_the_batch_would(
    desk: Desk, ingest: Ingest, content: bytes | Sequence[str], code: str
) -> None:
    batch_id = handed_in(desk, content)
    while ingest.step():
        pass
    batch = desk.batch(batch_id)
    assert (batch.status, batch.total, batch.errors[0].code) == (BatchStatus.FAILED, 0, code)
    assert batch.report is None
    assert desk.count("checked") == 0


def test_a_process_that_dies_counts_nothing_twice(desk: Desk, quick: Settings, ingest: Ingest) -> None:
    batch_id = handed_in(desk, lines(8))
    ingest.step()  # one block of three, since a turn is over at once
    assert desk.count("checked") == 3
    desk.execute("UPDATE batches SET lease_until = now()")
    other = Ingest(sessions=desk.sessions, objects=desk.objects, settings=quick, block_lines=2, turn_s=0.0)
    while other.step():
        pass
    other.close()
    assert dict(desk.batch(batch_id).report or {})["requests"] == 8


@pytest.mark.parametrize("turns", [0, 1, 4], ids=["unread", "half read", "waiting for its sample"])
def test_a_dry_run_can_be_cancelled(desk: Desk, quick: Settings, turns: int) -> None:
    patient = quick.model_copy(update={"check_wait_s": 60.0})
    ingest = Ingest(sessions=desk.sessions, objects=desk.objects, settings=patient, block_lines=3, turn_s=0.0)
    batch_id = handed_in(desk, [line(f"r{number}", [image(URL.format(number))]) for number in range(7)])
    for _ in range(turns):
        ingest.step()
    with transaction(desk.sessions) as session:
        assert cancel_batch(session, desk.tenant, batch_id) is not None
    desk.execute("UPDATE batches SET lease_until = now()")
    ingest.step()
    ingest.close()
    Sweeper(sessions=desk.sessions, again_after_s=0).step()
    Finalize(sessions=desk.sessions, objects=desk.objects, settings=quick).step()
    batch = desk.batch(batch_id)
    assert (batch.status, batch.total, batch.report) == (BatchStatus.CANCELLED, 0, None)
    assert (batch.output_file_id, batch.error_file_id, desk.count("checked")) == (None, None, 0)


def test_a_strict_batch_fails_for_one_bad_line_and_names_it(desk: Desk, ingest: Ingest) -> None:
    batch_id = handed_in(desk, [*lines(4), line("bad", "x", model="nobody")], "is_strict")
    while ingest.step():
        pass
    batch = desk.batch(batch_id)
    assert (batch.status, desk.jobs(batch_id)) == (BatchStatus.FAILED, [])
    assert [(one.code, one.line, one.param) for one in batch.errors] == [("model_not_found", 5, "body.model")]


def test_a_strict_batch_without_fault_runs(desk: Desk, ingest: Ingest) -> None:
    batch_id = handed_in(desk, lines(4), "is_strict")
    while ingest.step():
        pass
    assert desk.batch(batch_id).status is BatchStatus.IN_PROGRESS


def test_a_report_tells_how_long_it_took(desk: Desk, ingest: Ingest) -> None:
    began = time.time()
    took_s = report_of(desk, ingest, lines(3))["took_s"]
    assert 0 <= took_s <= time.time() - began + 1


def test_a_strict_dry_run_fails_for_one_bad_line(desk: Desk, ingest: Ingest) -> None:
    batch_id = handed_in(desk, [*lines(4), line("bad", "x", model="nobody")])
    desk.execute("UPDATE batches SET is_strict = true")
    while ingest.step():
        pass
    batch = desk.batch(batch_id)
    assert (batch.status, batch.errors[0].code, batch.errors[0].line) == (
        BatchStatus.FAILED,
        "model_not_found",
        5,
    )
