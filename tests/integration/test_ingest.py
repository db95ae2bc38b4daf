"""A batch's file becomes job rows: whole, resumable, each image once; or the batch fails and says why."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Event

import pytest

from app.db import Sessions, transaction
from app.errors import TransientWork
from app.ingest import Ingest
from app.objects import ObjectStore
from app.states import BatchStatus
from app.store.batches import BatchRow
from app.store.ingest import Step, advance, take_batch
from app.store.rejections import delete_jobs
from tests.desk import PIXEL, Desk, image, line, lines
from tests.faulty import FaultyStore
from tests.rows import Rows
from tests.servers import S3Place
from tests.waiting import eventually


@pytest.fixture
def ingest(desk: Desk) -> Iterator[Ingest]:
    work = Ingest(sessions=desk.sessions, objects=desk.objects, settings=desk.settings, block_lines=3)
    yield work
    work.close()


@contextmanager
def reading(desk: Desk, objects: ObjectStore, **changes: object) -> Iterator[Ingest]:
    """Another process that reads files."""
    settings = desk.settings.model_copy(update=changes)
    work = Ingest(sessions=desk.sessions, objects=objects, settings=settings, block_lines=3)
    yield work
    work.close()


def failed_batch(desk: Desk, ingest: Ingest, content: bytes | list[str]) -> BatchRow:
    batch_id = desk.submit(content)
    assert ingest.step()
    batch = desk.batch(batch_id)
    assert batch.status is BatchStatus.FAILED
    assert desk.jobs(batch_id) == []
    assert (batch.total, batch.completed, batch.failed) == (0, 0, 0)
    return batch


def test_no_batch_is_no_work(ingest: Ingest) -> None:
    assert not ingest.step()


def test_every_line_becomes_a_job(desk: Desk, ingest: Ingest) -> None:
    batch_id = desk.submit(lines(8))
    assert ingest.step()
    assert [job.custom_id for job in desk.jobs(batch_id)] == [f"r{number}" for number in range(1, 9)]
    assert {job.state for job in desk.jobs(batch_id)} == {"ready"}
    batch = desk.batch(batch_id)
    assert (batch.status, batch.total, batch.failed, batch.model) == (BatchStatus.IN_PROGRESS, 8, 0, "demo")
    assert batch.in_progress_at is not None


def test_jobs_have_the_priority_of_their_batch(desk: Desk, ingest: Ingest) -> None:
    batch_id = desk.submit(lines(2))
    Rows(desk.sessions).run("UPDATE batches SET priority = 'background'")
    ingest.step()
    assert Rows(desk.sessions).all("SELECT priority FROM jobs WHERE batch_id = :id", id=batch_id) == [
        "background",
        "background",
    ]


def test_a_prompt_is_stored_as_the_engine_wants_it(desk: Desk, ingest: Ingest) -> None:
    content = [image(PIXEL), {"type": "text", "text": "a\0b\u2028\\ \t\n'é"}]
    batch_id = desk.submit([line("tab\t\\N\n", content, max_tokens=4)])
    ingest.step()
    job = desk.jobs(batch_id)[0]
    assert job.custom_id == "tab\t\\N\n"
    assert job.prompt["turns"][0]["parts"] == [{"image": 0}, {"text": "a\0b\u2028\\ \t\n'é"}]
    assert job.params == {"max_tokens": 4}


def test_blank_lines_are_counted_as_lines_only(desk: Desk, ingest: Ingest) -> None:
    batch_id = desk.submit(b"\xef\xbb\xbf\n" + line("r2").encode() + b"\r\n  \n\n" + line("r5").encode())
    ingest.step()
    assert [(job.line, job.custom_id) for job in desk.jobs(batch_id)] == [(2, "r2"), (5, "r5")]
    assert desk.batch(batch_id).total == 2


def test_a_bad_line_is_a_failed_job_of_its_own(desk: Desk, ingest: Ingest) -> None:
    batch_id = desk.submit([line("r1"), "{", line("r3", temperature=9), line("r4")])
    ingest.step()
    found = [(job.custom_id, job.state, job.error_code) for job in desk.jobs(batch_id)]
    assert found == [
        ("r1", "ready", None),
        (None, "failed", "invalid_json_line"),
        ("r3", "failed", "invalid_request"),
        ("r4", "ready", None),
    ]
    assert desk.jobs(batch_id)[2].error_param == "body.temperature"
    assert desk.counts(batch_id) == (4, 0, 2)


def test_bad_lines_are_the_first_results_and_are_explained(desk: Desk, ingest: Ingest, db: Sessions) -> None:
    batch_id = desk.submit([line("r1"), "{", line("r3", temperature=9), line("r4"), "["])
    ingest.step()
    ids = {job.line: job.id for job in desk.jobs(batch_id)}
    rows = Rows(db)
    assert rows.table("SELECT seq, job_ids FROM results ORDER BY seq") == [
        (2, [ids[2], ids[3]]),
        (3, [ids[5]]),
    ]
    found = rows.table("SELECT code, jobs, line FROM batch_errors ORDER BY code")
    assert found == [("invalid_json_line", 2, 2), ("invalid_request", 1, 3)]


def test_a_rejected_batch_leaves_no_results(desk: Desk, ingest: Ingest, db: Sessions) -> None:
    desk.submit(["{", "["])
    ingest.step()
    rows = Rows(db)
    assert rows.table("SELECT * FROM results") == rows.table("SELECT * FROM batch_errors") == []


def test_the_bytes_of_a_data_url_are_stored_once(desk: Desk, s3: S3Place) -> None:
    batch_id = desk.submit([line(f"r{number}", [image(PIXEL)]) for number in range(7)])
    store = FaultyStore(s3, at=lambda: None)
    with reading(desk, store) as work:
        work.step()
    key = f"images/{desk.tenant}/{desk.content_hash(PIXEL)[:2]}/{desk.content_hash(PIXEL)}"
    assert (store.puts, desk.count("images")) == ([key], 1)
    found = desk.jobs(batch_id)
    assert {job.state for job in found} == {"ready"}
    assert len({tuple(job.image_ids) for job in found}) == 1
    stored = desk.objects.head(key)
    assert stored is not None
    assert (stored.bytes, stored.content_type) == (70, "image/png")


def test_a_job_waits_for_each_image_that_is_still_to_be_fetched(desk: Desk, ingest: Ingest) -> None:
    url = "https://example.com/a.png"
    batch_id = desk.submit(
        [
            line("r1", [image(url), image(PIXEL), image(url), image("s3://shop/b.png")]),
            line("r2", [image(url)]),
        ]
    )
    ingest.step()
    assert [(job.state, job.waiting_on) for job in desk.jobs(batch_id)] == [("waiting", 2), ("waiting", 1)]
    assert desk.count("job_waits") == 3
    assert desk.fetch() == 2
    assert [(job.state, job.waiting_on) for job in desk.jobs(batch_id)] == [("ready", 0), ("ready", 0)]
    first = desk.jobs(batch_id)[0].image_ids
    assert len(first) == 4
    assert first[0] == first[2]


def test_an_unreadable_image_fails_its_job_only(desk: Desk, ingest: Ingest) -> None:
    bad = "data:image/png;base64,AAAA"
    batch_id = desk.submit([line("r1", [image(PIXEL)]), line("r2", [image(PIXEL), image(bad)])])
    ingest.step()
    job = desk.jobs(batch_id)[1]
    assert (job.state, job.error_code) == ("failed", "not_an_image")
    assert job.error_param == "body.messages[0].content[1].image_url.url"
    assert desk.counts(batch_id) == (2, 0, 1)


def test_requests_with_unusable_images_alone_are_still_a_batch(desk: Desk, ingest: Ingest) -> None:
    urls = ["data:image/png;base64,AAAA", "data:,", "file:///etc/passwd"]
    batch_id = desk.submit([line(url, [image(url)]) for url in urls])
    ingest.step()
    assert desk.status(batch_id) is BatchStatus.IN_PROGRESS
    assert desk.counts(batch_id) == (3, 0, 3)


@pytest.mark.parametrize("content", [b"", b"\n \r\n\n", b"\xef\xbb\xbf"])
def test_an_empty_file_fails_its_batch(desk: Desk, ingest: Ingest, content: bytes) -> None:
    batch = failed_batch(desk, ingest, content)
    assert [error.code for error in batch.errors] == ["empty_file"]
    assert "no requests" in batch.errors[0].message


def test_a_file_without_one_request_fails_its_batch(desk: Desk, ingest: Ingest) -> None:
    content = json.dumps([json.loads(row) for row in lines(3)], indent=1)
    batch = failed_batch(desk, ingest, content.encode())
    assert (batch.errors[0].code, batch.errors[0].line) == ("invalid_json_line", 1)
    assert "one JSON object per line" in batch.errors[0].message
    assert len(batch.errors) == len(content.split("\n"))


def test_errors_of_a_batch_are_cut_at_a_hundred(desk: Desk, ingest: Ingest) -> None:
    batch = failed_batch(desk, ingest, ["nonsense"] * 150)
    assert [error.line for error in batch.errors] == list(range(1, 101))


@pytest.mark.parametrize(("again", "after"), [(2, 1), (7, 6)])
def test_a_custom_id_used_twice_fails_the_batch(desk: Desk, ingest: Ingest, again: int, after: int) -> None:
    content = lines(9)
    content[again - 1] = line(f"r{after}")
    batch = failed_batch(desk, ingest, content)
    assert [(error.code, error.line, error.param) for error in batch.errors] == [
        ("duplicate_custom_id", again, "custom_id")
    ]
    assert f"line {after}:" in batch.errors[0].message


def test_too_many_lines_fail_the_batch(desk: Desk) -> None:
    with reading(desk, desk.objects, batch_max_lines=4) as ingest:
        batch = failed_batch(desk, ingest, lines(5))
    assert [error.code for error in batch.errors] == ["too_many_tasks"]
    assert "limit is 4" in batch.errors[0].message


def test_a_deleted_file_fails_the_batch(desk: Desk, ingest: Ingest) -> None:
    batch_id = desk.submit(lines(1))
    desk.execute("DELETE FROM files")
    ingest.step()
    assert desk.batch(batch_id).errors[0].code == "file_not_found"


def test_a_large_file_gives_others_their_turn(desk: Desk) -> None:
    ingest = Ingest(
        sessions=desk.sessions, objects=desk.objects, settings=desk.settings, block_lines=2, turn_s=0
    )
    large, small = desk.submit(lines(6)), desk.submit(lines(2))
    ingest.step()
    ingest.step()
    assert (desk.counts(large)[0], desk.counts(small)[0]) == (2, 2)
    while ingest.step():
        pass
    assert desk.status(large) is desk.status(small) is BatchStatus.IN_PROGRESS
    assert desk.counts(large) == (6, 0, 0)
    ingest.close()


def test_a_stopping_process_leaves_after_the_block_in_hand(desk: Desk) -> None:
    stopping = Event()
    stopping.set()
    ingest = Ingest(
        sessions=desk.sessions, objects=desk.objects, settings=desk.settings, block_lines=2, stopping=stopping
    )
    batch_id = desk.submit(lines(5))
    ingest.step()
    assert (desk.status(batch_id), desk.counts(batch_id)[0]) == (BatchStatus.VALIDATING, 2)
    ingest.close()


def size_of(content: list[str]) -> int:
    return sum(len(row) + 1 for row in content)


def test_what_breaks_off_goes_on_after_the_last_block(desk: Desk, ingest: Ingest, s3: S3Place) -> None:
    content = [line(f"r{number}", [image(PIXEL)]) for number in range(1, 9)]
    batch_id = desk.submit(content)
    faulty = FaultyStore(s3, readable=size_of(content[:7]) + 20)
    with reading(desk, faulty) as broken, pytest.raises(TransientWork):
        broken.step()
    assert desk.counts(batch_id)[0] == 6
    assert not ingest.step(), "the lease of the one that broke off still runs"
    desk.pass_leases()
    assert ingest.step()
    assert [job.line for job in desk.jobs(batch_id)] == list(range(1, 9))
    assert desk.status(batch_id) is BatchStatus.IN_PROGRESS


def test_of_two_that_read_one_batch_one_adds_each_block(desk: Desk, ingest: Ingest, s3: S3Place) -> None:
    def overtake() -> None:
        # The reader is ahead of what is added: a block that is committed just now renews the lease.
        eventually(lambda: desk.pass_leases() or ingest.step())

    content = lines(9)
    batch_id = desk.submit(content)
    with reading(desk, FaultyStore(s3, readable=size_of(content[:4]), at=overtake)) as slow:
        assert slow.step()
    assert [job.line for job in desk.jobs(batch_id)] == list(range(1, 10))
    assert (desk.status(batch_id), desk.counts(batch_id)) == (BatchStatus.IN_PROGRESS, (9, 0, 0))


def test_a_batch_cancelled_while_it_is_read_is_read_to_its_end(desk: Desk, s3: S3Place) -> None:
    content = lines(9)
    batch_id = desk.submit(content)
    faulty = FaultyStore(s3, readable=size_of(content[:4]), at=lambda: desk.cancel(batch_id))
    with reading(desk, faulty) as work:
        assert work.step()
        assert not work.step()
    assert (desk.status(batch_id), desk.counts(batch_id)) == (BatchStatus.CANCELLING, (9, 0, 0))
    assert [job.line for job in desk.jobs(batch_id)] == list(range(1, 10))


def test_a_rejected_batch_is_cleared_by_whoever_comes_next(desk: Desk, ingest: Ingest) -> None:
    batch_id = desk.submit(lines(3))
    ingest.step()
    desk.execute(
        "UPDATE batches SET status = 'validating', ingested_at = NULL, errors = :errors", errors="[]"
    )
    assert ingest.step()
    assert desk.status(batch_id) is BatchStatus.FAILED
    assert (desk.count("jobs"), desk.counts(batch_id)) == (0, (0, 0, 0))


def test_a_block_counts_only_where_the_last_one_ended(desk: Desk) -> None:
    desk.submit(lines(1))
    step = Step(bytes=10, lines=1, jobs=0, failed=(), bad_lines=0, model=None)
    with transaction(desk.sessions) as session:
        task = take_batch(session, lease_s=60)
        assert task
        assert advance(session, task, step, lease_s=60)
        assert not advance(session, task, step, lease_s=60)


def test_rows_of_a_cancelled_batch_are_not_deleted(desk: Desk, ingest: Ingest) -> None:
    batch_id = desk.submit(lines(3))
    ingest.step()
    desk.cancel(batch_id)
    desk.execute("UPDATE batches SET errors = '[]'")
    with transaction(desk.sessions) as session:
        assert delete_jobs(session, batch_id, limit=10, lease_s=60) is None
