"""An image is wished for by many and fetched once; the jobs that wait for it move with it."""

from threading import Thread

import pytest
from sqlalchemy.orm import Session

from app.db import Sessions, transaction
from app.states import JobState
from app.store import images, jobs
from app.store.images import FetchTask, ImageWish, StoredImage
from tests.rows import TEXT_PROMPT, Rows
from tests.waiting import eventually

WISH = ImageWish("url", "h1", "https://shop.example/a.jpg")
OTHER = ImageWish("url", "h2", "https://shop.example/b.jpg")
STORED = StoredImage("c" * 64, "JPEG", 640, 480, 9000)


@pytest.fixture
def rows(db: Sessions) -> Rows:
    rows = Rows(db)
    rows.add_tenant()
    return rows


def claim(session: Session, limit: int = 1, **active: int) -> list[FetchTask]:
    """Claimed fetches; two of a host at once, less those that are `active` (dots written as underscores)."""
    busy = {host.replace("_", "."): n for host, n in active.items()}
    return images.claim_fetches(session, limit=limit, lease_s=30, per_host=2, active=busy)


def want(db: Sessions, *wishes: ImageWish, reuse_s: int = 3600) -> dict[str, tuple[int, bool]]:
    with transaction(db) as session:
        found = images.want_images(session, "tenant_a", wishes, reuse_s=reuse_s)
    return {key: (image.id, image.stored) for key, image in found.items()}


def take(db: Sessions) -> FetchTask:
    with transaction(db) as session:
        (task,) = claim(session)
    return task


def add_job(db: Sessions, *image_ids: int) -> int:
    with transaction(db) as session:
        return jobs.insert_job(
            session,
            jobs.NewJob(
                "tenant_a", "demo", TEXT_PROMPT, {}, image_ids=image_ids, waiting_image_ids=image_ids
            ),
        )


def store(db: Sessions, task: FetchTask) -> int | None:
    with transaction(db) as session:
        return images.record_stored(session, task, STORED)


def test_the_same_reference_is_one_row_while_it_is_on_its_way(db: Sessions, rows: Rows) -> None:
    assert want(db, WISH, WISH) == want(db, WISH)
    assert rows.one("SELECT count(*) FROM images") == 1


def test_tenants_do_not_share_an_image_row(db: Sessions, rows: Rows) -> None:
    want(db, WISH)
    rows.add_tenant("tenant_b")
    with transaction(db) as session:
        images.want_images(session, "tenant_b", [WISH], reuse_s=3600)
    assert rows.one("SELECT count(*) FROM images") == 2


def test_a_download_serves_later_jobs_until_it_is_old(db: Sessions, rows: Rows) -> None:
    (first,) = want(db, WISH).values()
    store(db, take(db))
    assert want(db, WISH) == {"h1": (first[0], True)}
    rows.run("UPDATE images SET stored_at = now() - interval '2 hours'")
    assert want(db, WISH)["h1"][1] is False


def test_an_uploaded_file_never_grows_old(db: Sessions, rows: Rows) -> None:
    wish = ImageWish("file", "h3", "file-1")
    want(db, wish)
    store(db, take(db))
    rows.run("UPDATE images SET stored_at = now() - interval '1 year'")
    assert want(db, wish)["h3"][1] is True


def test_a_job_becomes_ready_with_the_last_of_its_images(db: Sessions, rows: Rows) -> None:
    ids = [image_id for image_id, _ in want(db, WISH, OTHER).values()]
    job_id = add_job(db, *ids)
    assert store(db, take(db)) == 0
    assert rows.states() == {job_id: JobState.WAITING}
    assert store(db, take(db)) == 1
    assert rows.states() == {job_id: JobState.READY}


def test_a_fetcher_that_lost_its_lease_records_nothing(db: Sessions, rows: Rows) -> None:
    ((image_id, _),) = want(db, WISH).values()
    add_job(db, image_id)
    first = take(db)
    rows.run("UPDATE images SET due_at = now() - interval '1 second'")
    second = take(db)
    assert store(db, first) is None
    assert store(db, second) == 1


def test_an_image_that_cannot_be_had_ends_its_waiting_jobs_with_the_reason(db: Sessions, rows: Rows) -> None:
    ((image_id, _),) = want(db, WISH).values()
    job_id = add_job(db, image_id)
    with transaction(db) as session:
        (task,) = claim(session)
        assert images.record_failed(session, task, "http_404", "The host says 404.") == 1
    assert rows.states() == {job_id: JobState.FAILED}
    assert rows.one("SELECT error_code FROM jobs") == "http_404"


def test_a_failed_image_is_tried_anew_for_the_next_job(db: Sessions, rows: Rows) -> None:
    ((first, _),) = want(db, WISH).values()
    with transaction(db) as session:
        (task,) = claim(session)
        images.record_failed(session, task, "http_404", "gone")
    ((second, stored),) = want(db, WISH).values()
    assert (second != first, stored) == (True, False)


def test_an_image_put_back_is_due_only_after_its_delay(db: Sessions, rows: Rows) -> None:
    want(db, WISH)
    with transaction(db) as session:
        (task,) = claim(session)
        assert images.record_later(session, task, 60)
        assert claim(session) == []


def test_no_more_of_a_host_is_claimed_than_can_be_started_at_once(db: Sessions, rows: Rows) -> None:
    want(db, *(ImageWish("url", f"s{number}", f"https://slow.example/{number}") for number in range(9)))
    want(db, ImageWish("url", "f1", "https://fast.example/1"))
    with transaction(db) as session:
        assert sorted(task.host for task in claim(session, 16)) == ["fast.example"] + 2 * ["slow.example"]
        assert claim(session, 16, slow_example=2) == []
        assert [task.host for task in claim(session, 16, slow_example=1)] == ["slow.example"]


def test_what_our_own_store_serves_knows_no_limit_per_host(db: Sessions, rows: Rows) -> None:
    want(db, *(ImageWish("file", f"f{number}", f"file-{number}") for number in range(9)))
    with transaction(db) as session:
        assert len(claim(session, 16)) == 9


def test_a_try_that_an_outage_of_ours_ended_does_not_count(db: Sessions, rows: Rows) -> None:
    want(db, WISH)
    with transaction(db) as session:
        (first,) = claim(session)
        images.record_later(session, first, 0, counts=False)
        rows_again = claim(session)
    assert [(task.attempt, task.tries) for task in (first, *rows_again)] == [(1, 1), (2, 1)]


def test_a_job_added_while_its_image_is_being_recorded_does_not_wait_for_ever(
    db: Sessions, rows: Rows
) -> None:
    """The fetcher's record must wait for whoever is about to add a waiting job, and then see that job."""
    want(db, WISH)
    task = take(db)
    with transaction(db) as session:
        found = images.want_images(session, "tenant_a", [WISH], reuse_s=3600)
        recorder = Thread(target=store, args=(db, task))
        recorder.start()
        eventually(lambda: rows.one("SELECT count(*) FROM pg_locks WHERE NOT granted") > 0)
        image_id = found["h1"].id
        job = jobs.NewJob(
            "tenant_a", "demo", TEXT_PROMPT, {}, image_ids=[image_id], waiting_image_ids=[image_id]
        )
        job_id = jobs.insert_job(session, job)
    recorder.join(10)
    assert rows.states() == {job_id: JobState.READY}
