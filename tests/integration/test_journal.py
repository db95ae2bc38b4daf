"""A batch's results are numbered as they are committed, each once; its errors are counted by code."""

import threading
from collections.abc import Sequence

import pytest

from app.db import Sessions, transaction
from app.store import endings, images, jobs, lost, records
from app.store.endings import SweepTask
from app.store.images import ImageWish
from app.store.records import AnswerRow, FailureRow
from tests.rows import Rows

WISH = ImageWish("url", "a" * 64, "https://shop.example/1.jpg")


@pytest.fixture
def rows(db: Sessions) -> Rows:
    rows = Rows(db)
    rows.add_batch()
    return rows


def run(db: Sessions, job_ids: Sequence[int]) -> None:
    with transaction(db) as session:
        jobs.claim(session, job_ids, worker="w1", lease_s=60)


def complete(db: Sessions, job_ids: Sequence[int]) -> None:
    run(db, job_ids)
    answers = [AnswerRow(job_id, 1, "red", "stop", 10, 2, 3) for job_id in job_ids]
    with transaction(db) as session:
        records.record_answers(session, answers, model="demo", revision="r1")


def fail(db: Sessions, job_ids: Sequence[int], code: str = "bad_prompt") -> None:
    run(db, job_ids)
    with transaction(db) as session:
        records.record_failures(session, [FailureRow(job_id, 1, code, f"{code}!") for job_id in job_ids])


def journal(rows: Rows, batch_id: str = "batch_1") -> list[int]:
    """The jobs of a batch's results by their numbers; fails where a number is missing or there twice."""
    found = rows.table("SELECT seq, job_ids FROM results WHERE batch_id = :id ORDER BY seq", id=batch_id)
    numbered = [
        (seq - len(ids) + place, job_id) for seq, ids in found for place, job_id in enumerate(ids, start=1)
    ]
    assert [number for number, _ in numbered] == list(range(1, len(numbered) + 1))
    assert len(numbered) == sum(rows.counts(batch_id)[1:])
    return [job_id for _, job_id in numbered]


def errors(rows: Rows) -> dict[str, tuple[int, int, str]]:
    found = rows.table("SELECT code, jobs, line, message FROM batch_errors")
    return {code: (count, line, message) for code, count, line, message in found}


def test_answers_and_failures_are_numbered_as_they_are_recorded(db: Sessions, rows: Rows) -> None:
    ids = rows.add_jobs(5, batch_id="batch_1")
    complete(db, ids[3:])
    fail(db, ids[:2])
    assert journal(rows) == [*ids[3:], *ids[:2]]
    complete(db, ids[2:3])
    assert journal(rows) == [*ids[3:], *ids[:2], ids[2]]


def test_a_record_of_several_batches_numbers_each_by_itself(db: Sessions, rows: Rows) -> None:
    rows.add_batch("batch_2")
    first, second = rows.add_jobs(2, batch_id="batch_1"), rows.add_jobs(3, batch_id="batch_2")
    complete(db, [*first, *second])
    assert (journal(rows), journal(rows, "batch_2")) == (first, second)


def test_direct_jobs_have_no_number_and_no_errors_by_code(db: Sessions, rows: Rows) -> None:
    complete(db, rows.add_jobs(2))
    fail(db, rows.add_jobs(2))
    assert rows.one("SELECT count(*) FROM results") == 0
    assert errors(rows) == {}


def test_an_answer_that_comes_twice_has_one_number(db: Sessions, rows: Rows) -> None:
    ids = rows.add_jobs(3, batch_id="batch_1")
    complete(db, ids)
    complete(db, ids)
    assert journal(rows) == ids


def test_errors_are_counted_by_code_with_the_first_line_and_its_message(db: Sessions, rows: Rows) -> None:
    ids = rows.add_jobs(5, batch_id="batch_1")
    fail(db, ids[1:3])
    fail(db, ids[3:4], "step_failed")
    fail(db, ids[4:])
    assert errors(rows) == {"bad_prompt": (3, 2, "bad_prompt!"), "step_failed": (1, 4, "step_failed!")}


def test_a_job_that_processes_died_of_is_numbered_and_counted(db: Sessions, rows: Rows) -> None:
    ids = rows.add_jobs(2, batch_id="batch_1", state="running", lease_until="2020-01-01", crashes=2)
    with transaction(db) as session:
        lost.take_back_lapsed(session, crash_attempts=3)
    assert journal(rows) == ids
    assert errors(rows)["engine_crash"][0] == 2


def test_a_job_that_is_taken_back_is_not_numbered(db: Sessions, rows: Rows) -> None:
    rows.add_jobs(2, batch_id="batch_1", state="running", lease_until="2020-01-01")
    with transaction(db) as session:
        lost.take_back_lapsed(session, crash_attempts=3)
    assert journal(rows) == []


@pytest.mark.parametrize("ending", ["cancelled", "expired"])
def test_swept_jobs_are_numbered_and_are_no_errors(db: Sessions, rows: Rows, ending: str) -> None:
    ids = rows.add_jobs(3, batch_id="batch_1")
    complete(db, ids[1:2])
    with transaction(db) as session:
        endings.sweep_jobs(session, SweepTask("batch_1", ending), after_line=0, limit=10)
    assert journal(rows) == [ids[1], ids[0], ids[2]]
    assert errors(rows) == {}


def test_jobs_that_end_with_their_image_are_numbered_and_counted(db: Sessions, rows: Rows) -> None:
    with transaction(db) as session:
        (wanted,) = images.want_images(session, rows.tenant, [WISH], reuse_s=60).values()
    ids = rows.add_jobs(2, batch_id="batch_1", state="waiting", image_ids=[wanted.id], waiting_on=1)
    with transaction(db) as session:
        jobs.insert_waits(session, [(wanted.id, job_id) for job_id in ids])
        (task,) = images.claim_fetches(session, limit=1, lease_s=60, per_host=1, active={})
        images.record_failed(session, task, "http_404", "The host says 404.")
    assert journal(rows) == ids
    assert errors(rows) == {"http_404": (2, 1, "The host says 404.")}
    assert rows.one("SELECT image_failures FROM batches") == 2


def test_workers_that_record_at_the_same_time_leave_no_gap(db: Sessions, rows: Rows) -> None:
    ids = rows.add_jobs(80, batch_id="batch_1")
    threads = [
        threading.Thread(target=complete if start % 16 else fail, args=(db, ids[start : start + 8]))
        for start in range(0, 80, 8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(journal(rows)) == ids


def test_a_reader_behind_a_number_sees_all_that_came_before_it(db: Sessions, rows: Rows) -> None:
    """A record that has begun first but not committed keeps those behind it waiting, so none is missed."""
    ids = rows.add_jobs(2, batch_id="batch_1")
    run(db, ids)
    later = threading.Thread(target=complete, args=(db, ids[1:]))
    with transaction(db) as session:
        records.record_answers(
            session, [AnswerRow(ids[0], 1, "red", "stop", 1, 0, 1)], model="demo", revision="r1"
        )
        later.start()
        assert journal(rows) == []
    later.join()
    assert journal(rows) == ids
