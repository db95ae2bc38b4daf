"""Batches in progress are measured, and stopped when too many of their requests fail."""

from datetime import timedelta

import pytest
from prometheus_client import REGISTRY

from app.db import Sessions
from app.watch import Watch
from tests.rows import Rows, stuck


@pytest.fixture
def rows(db: Sessions) -> Rows:
    rows = Rows(db)
    rows.add_batch()
    return rows


@pytest.fixture
def watch(db: Sessions) -> Watch:
    return Watch(sessions=db, every_s=10)


def pass_time(rows: Rows, seconds: float) -> None:
    """What the clock would do since the last measurement."""
    rows.run("UPDATE batches SET pace_at = coalesce(pace_at, now()) - :ago", ago=timedelta(seconds=seconds))


def set_brake(rows: Rows, *, share: float = 0.5, after: int = 4) -> None:
    rows.run("UPDATE batches SET brake_share = :share, brake_after = :after", share=share, after=after)


def pace(rows: Rows) -> float | None:
    return rows.one("SELECT pace FROM batches WHERE id = 'batch_1'")


def test_the_pace_is_what_ended_since_the_last_look(watch: Watch, rows: Rows) -> None:
    rows.run("UPDATE batches SET pace_at = now(), pace_ended = 0")
    done = rows.add_jobs(6, batch_id="batch_1")[:4]
    watch.step()
    assert pace(rows) is None, "measured just now"
    rows.complete(*done[:3])
    rows.fail(done[3])
    pass_time(rows, 8)
    watch.step()
    assert pace(rows) == pytest.approx(0.5, rel=0.05)
    assert rows.one("SELECT pace_ended FROM batches") == 4


def test_a_batch_that_another_dispatcher_measured_is_left_alone(watch: Watch, rows: Rows) -> None:
    rows.run("UPDATE batches SET pace_at = now(), pace_ended = 0")
    rows.complete(*rows.add_jobs(2, batch_id="batch_1"))
    pass_time(rows, 4)
    watch.step()
    assert pace(rows) is None


def test_a_batch_of_failures_is_stopped_and_says_why(watch: Watch, rows: Rows) -> None:
    set_brake(rows)
    ids = rows.add_jobs(9, batch_id="batch_1")
    rows.complete(*ids[:2])
    rows.fail(ids[2], code="out_of_memory")
    watch.step()
    assert rows.one("SELECT status FROM batches") == "in_progress", "too few have ended"
    rows.fail(*ids[3:5], code="http_403")
    watch.step()
    assert rows.table("SELECT status, ending FROM batches") == [("finalizing", "failed")]
    (error,) = rows.one("SELECT errors FROM batches")
    assert error["code"] == "too_many_failures"
    assert error["message"] == (
        "Stopped: 3 of the 5 requests that had run had failed (60%; the limit is 50%). "
        "The commonest error, 2 times: http_403: http_403!"
    )


def test_a_batch_within_its_limit_goes_on(watch: Watch, rows: Rows) -> None:
    set_brake(rows)
    ids = rows.add_jobs(9, batch_id="batch_1")
    rows.complete(*ids[:4])
    rows.fail(*ids[4:7])
    watch.step()
    assert rows.one("SELECT status FROM batches") == "in_progress"


def test_lines_that_are_no_request_pull_no_brake_and_are_not_its_reason(watch: Watch, rows: Rows) -> None:
    set_brake(rows)
    rows.add_jobs(7, batch_id="batch_1", state="failed", error_code="invalid_request", error_message="Bad.")
    rows.run("UPDATE jobs SET prompt = '{}'")
    rows.run("UPDATE batches SET failed = 7, bad_lines = 7")
    ids = rows.add_jobs(9, batch_id="batch_1")
    rows.complete(*ids[:3])
    rows.fail(*ids[3:5])
    watch.step()
    assert rows.one("SELECT status FROM batches") == "in_progress"
    rows.fail(ids[5])
    watch.step()
    (error,) = rows.one("SELECT errors FROM batches")
    assert "3 of the 6 requests" in error["message"]
    assert "3 times: bad_prompt" in error["message"]


def test_jobs_without_their_image_pull_the_brake_by_their_share_of_the_whole(
    watch: Watch, rows: Rows
) -> None:
    set_brake(rows)
    ids = rows.add_jobs(8, batch_id="batch_1")
    rows.fail(*ids[:3], code="http_404")
    rows.run("UPDATE batches SET image_failures = 3")
    rows.complete(ids[3])
    watch.step()
    assert rows.one("SELECT status FROM batches") == "in_progress", "3 of 4 have failed, but 4 of 8 still may"
    rows.fail(ids[4], code="http_404")
    rows.run("UPDATE batches SET image_failures = 4")
    watch.step()
    (error,) = rows.one("SELECT errors FROM batches")
    assert "Stopped: 4 of the 8 requests had failed" in error["message"]


def test_a_batch_without_a_brake_fails_to_the_end(watch: Watch, rows: Rows) -> None:
    rows.fail(*rows.add_jobs(5, batch_id="batch_1")[:4])
    watch.step()
    assert rows.one("SELECT status FROM batches") == "in_progress"


def test_a_batch_whose_last_job_has_ended_is_not_stopped(watch: Watch, rows: Rows) -> None:
    set_brake(rows)
    rows.fail(*rows.add_jobs(5, batch_id="batch_1"))
    watch.step()
    assert rows.one("SELECT status FROM batches") == "in_progress", "finalize completes it"


def test_a_batch_that_cannot_be_stopped_keeps_no_other_from_it(watch: Watch, rows: Rows) -> None:
    rows.add_batch("batch_2")
    for batch_id in ("batch_1", "batch_2"):
        rows.fail(*rows.add_jobs(5, batch_id=batch_id)[:4])
    set_brake(rows)
    rows.run("UPDATE batches SET pace_at = now(), pace_ended = 4")  # measured just now: only the brake writes
    with stuck(rows, "batches", "batch_1", "id"):
        watch.step()
    assert rows.all("SELECT status FROM batches ORDER BY id") == ["in_progress", "finalizing"]


def test_batches_that_stand_still_or_will_be_late_are_told(watch: Watch, rows: Rows) -> None:
    for batch_id, state in (("sent", "queued"), ("runs", "running"), ("waits", "ready")):
        rows.add_jobs(1, batch_id=rows.add_batch(batch_id), state=state)
    rows.run("UPDATE batches SET pace = 1e-6, pace_at = now() WHERE id <> 'batch_1'")
    watch.step()
    assert gauge("vqueue_batches_at_risk") == 2
    assert gauge("vqueue_batch_still_seconds", status="in_progress") == 0
    watch.step()
    assert 0 < gauge("vqueue_batch_still_seconds", status="in_progress") < 60


def gauge(name: str, **labels: str) -> float:
    value = REGISTRY.get_sample_value(name, labels)
    assert value is not None
    return value
