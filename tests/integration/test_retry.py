"""A batch is retried: its failed jobs, as they were, in a new batch that ends like any other."""

from collections.abc import Iterator
from typing import Any

import pytest

from app.batches import Brake
from app.copying import Copier
from app.db import transaction
from app.errors import Conflict, NotFound, RequestError
from app.finalize import Finalize
from app.ingest import Ingest
from app.limits import Limits
from app.retrying import Retries, RetryWish
from app.states import BatchStatus, JobState
from app.store import images as image_store
from app.store.batches import BatchRow
from app.store.ingest import LostBatch, take_batch
from app.store.records import FailureRow, record_failures
from app.sweep import Sweeper
from tests.desk import PIXEL, Desk, image, line, lines

URL = "https://example.com/a.png"
OTHER_URL = "https://example.com/b.png"


@pytest.fixture
def ingest(desk: Desk) -> Iterator[Ingest]:
    """Of two lines at a time."""
    work = Ingest(sessions=desk.sessions, objects=desk.objects, settings=desk.settings, block_lines=2)
    yield work
    work.close()


@pytest.fixture
def finalize(desk: Desk) -> Finalize:
    return Finalize(sessions=desk.sessions, objects=desk.objects, settings=desk.settings)


@pytest.fixture
def retries(desk: Desk) -> Retries:
    limits = Limits(sessions=desk.sessions, backlog_max_jobs=10**6, disk_min_free_bytes=0, data_dir=None)
    return Retries(sessions=desk.sessions, limits=limits, brake=Brake(None, 100))


def fail(desk: Desk, batch_id: str, *custom_ids: str, code: str = "out_of_memory") -> None:
    """Play a worker for whom these jobs fail."""
    names = {job.id: job.custom_id for job in desk.jobs(batch_id)}
    claimed = [job for job in desk.claim(batch_id) if names[job.id] in custom_ids]
    with transaction(desk.sessions) as session:
        rows = [FailureRow(job.id, job.attempt, code, "No.") for job in claimed]
        assert len(record_failures(session, rows)) == len(custom_ids)
    desk.execute("UPDATE jobs SET state = 'ready' WHERE state = 'running'")


def ended(desk: Desk, ingest: Ingest, finalize: Finalize, content: list[str], *failing: str) -> str:
    """A completed batch in which these jobs have failed."""
    batch_id = desk.submit(content)
    ingest.step()
    desk.fetch()
    fail(desk, batch_id, *failing)
    desk.answer(batch_id)
    assert finalize.step()
    assert desk.status(batch_id) is BatchStatus.COMPLETED
    return batch_id


def retry(desk: Desk, retries: Retries, batch_id: str, *states: str, **more: Any) -> BatchRow:
    wish = RetryWish(states=[JobState(state) for state in states or ("failed",)], **more)
    return retries.submit(desk.tenant, batch_id, wish)


def names(desk: Desk, batch_id: str) -> dict[str | None, str]:
    return {job.custom_id: job.state for job in desk.jobs(batch_id)}


def test_failed_jobs_run_again_as_they_were(
    desk: Desk, ingest: Ingest, finalize: Finalize, retries: Retries
) -> None:
    content = [line(f"r{number}", f"Question {number}?", seed=number) for number in range(1, 8)]
    old = ended(desk, ingest, finalize, content, "r2", "r3", "r7")
    new = retry(desk, retries, old)
    assert (new.status, new.retry_of) == (BatchStatus.VALIDATING, old)
    assert new.input_file_id == desk.batch(old).input_file_id
    ingest.step()
    before = {job.custom_id: (job.line, job.prompt, job.params) for job in desk.jobs(old)}
    after = {job.custom_id: (job.line, job.prompt, job.params) for job in desk.jobs(new.id)}
    assert after == {name: before[name] for name in ("r2", "r3", "r7")}
    desk.answer(new.id)
    assert finalize.step()
    assert desk.ids(desk.batch(new.id).output_file_id) == ["r2", "r3", "r7"]
    assert (desk.counts(new.id), desk.counts(old)) == ((3, 3, 0), (7, 4, 3))


def test_lines_that_are_no_request_are_not_tried_again(
    desk: Desk, ingest: Ingest, finalize: Finalize, retries: Retries
) -> None:
    content = [line("r1"), "{", line("r3", n=9), line("r4", [image("data:image/png;base64,AAAA")])]
    old = ended(desk, ingest, finalize, content, "r1")
    new = retry(desk, retries, old)
    ingest.step()
    assert names(desk, new.id) == {"r1": "ready"}


def test_what_never_ran_is_retried_by_name_only(
    desk: Desk, ingest: Ingest, finalize: Finalize, retries: Retries
) -> None:
    old = desk.submit(lines(4))
    ingest.step()
    fail(desk, old, "r1")
    desk.cancel(old)
    Sweeper(sessions=desk.sessions).step()
    finalize.step()
    some, all_of_them = retry(desk, retries, old), retry(desk, retries, old, "failed", "cancelled")
    assert ingest.step()
    assert ingest.step()
    assert list(names(desk, some.id)) == ["r1"]
    assert list(names(desk, all_of_them.id)) == ["r1", "r2", "r3", "r4"]


def test_a_stored_picture_is_used_again_and_one_that_failed_is_fetched_anew(
    desk: Desk, ingest: Ingest, finalize: Finalize, retries: Retries
) -> None:
    content = [
        line("url", [image(URL)]),
        line("data", [image(PIXEL)]),
        line("both", [image(PIXEL), image(OTHER_URL), image(URL)]),
    ]
    old = desk.submit(content)
    ingest.step()
    stored = fetch_all_but(desk, OTHER_URL)
    fail(desk, old, "url", "data")
    assert finalize.step()
    new = retry(desk, retries, old)
    ingest.step()
    assert names(desk, new.id) == {"url": "ready", "data": "ready", "both": "waiting"}
    jobs = {job.custom_id: job.image_ids for job in desk.jobs(new.id)}
    assert list(jobs["url"]) == [stored]
    assert (jobs["both"][0], jobs["both"][2]) == (jobs["data"][0], stored)
    assert desk.fetch() == 1
    assert names(desk, new.id)["both"] == "ready"


@pytest.mark.parametrize("gone", ["DELETE FROM images", "UPDATE images SET state = 'failed'"])
def test_a_job_whose_picture_is_gone_fails_and_says_so(
    desk: Desk, ingest: Ingest, finalize: Finalize, retries: Retries, gone: str
) -> None:
    old = ended(desk, ingest, finalize, [line("r1", [image(PIXEL)]), line("r2")], "r1", "r2")
    desk.execute(gone)
    new = retry(desk, retries, old)
    ingest.step()
    job, _ = desk.jobs(new.id)
    assert (job.state, job.error_code) == ("failed", "image_deleted")
    assert desk.counts(new.id) == (2, 0, 1)
    desk.answer(new.id)
    assert finalize.step()
    again = retry(desk, retries, new.id)
    ingest.step()
    assert names(desk, again.id) == {"r1": "failed"}


def test_a_job_whose_model_is_gone_fails_and_says_so(
    desk: Desk, finalize: Finalize, ingest: Ingest, retries: Retries
) -> None:
    old = ended(desk, ingest, finalize, lines(1), "r1")
    new = retry(desk, retries, old)
    renamed = desk.settings.model_copy(update={"model_name": "other"})
    Ingest(sessions=desk.sessions, objects=desk.objects, settings=renamed).step()
    (job,) = desk.jobs(new.id)
    assert (job.state, job.error_code) == ("failed", "model_not_found")
    assert finalize.step()


def test_a_copy_goes_on_where_the_last_block_ended(
    desk: Desk, ingest: Ingest, finalize: Finalize, retries: Retries
) -> None:
    failing = [f"r{number}" for number in range(1, 8)]
    old = ended(desk, ingest, finalize, lines(9), *failing)
    new = retry(desk, retries, old)
    brief = Ingest(
        sessions=desk.sessions, objects=desk.objects, settings=desk.settings, block_lines=2, turn_s=0
    )
    brief.step()
    assert (desk.status(new.id), list(names(desk, new.id))) == (BatchStatus.VALIDATING, ["r1", "r2"])
    while brief.step():
        pass
    assert desk.status(new.id) is BatchStatus.IN_PROGRESS
    assert list(names(desk, new.id)) == failing
    assert desk.counts(new.id) == (7, 0, 0)
    brief.close()


def test_a_copier_that_lost_its_lease_adds_nothing_twice(
    desk: Desk, ingest: Ingest, finalize: Finalize, retries: Retries
) -> None:
    old = ended(desk, ingest, finalize, lines(4), "r1", "r2", "r3", "r4")
    new = retry(desk, retries, old)
    with transaction(desk.sessions) as session:
        task = take_batch(session, lease_s=0)
    assert task is not None
    ingest.step()
    slow = Copier(sessions=desk.sessions, models=("demo",), reuse_s=0, lease_s=60)
    with pytest.raises(LostBatch):
        slow.add(task)
    assert desk.counts(new.id) == (4, 0, 0)
    assert desk.status(new.id) is BatchStatus.IN_PROGRESS


def test_a_stopped_batch_is_retried_whole(
    desk: Desk, ingest: Ingest, finalize: Finalize, retries: Retries
) -> None:
    old = desk.submit(lines(4))
    ingest.step()
    fail(desk, old, "r2")
    desk.answer(old, count=1)
    desk.execute("UPDATE batches SET status = 'finalizing', ending = 'failed'")
    Sweeper(sessions=desk.sessions).step()
    finalize.step()
    new = retry(desk, retries, old)
    ingest.step()
    assert list(names(desk, new.id)) == ["r2", "r3", "r4"]


def test_a_batch_that_runs_is_not_retried(desk: Desk, ingest: Ingest, retries: Retries) -> None:
    batch_id = desk.submit(lines(1))
    ingest.step()
    with pytest.raises(Conflict, match="its status is in_progress"):
        retry(desk, retries, batch_id)


def test_a_batch_of_another_tenant_is_not_there(
    desk: Desk, ingest: Ingest, finalize: Finalize, retries: Retries
) -> None:
    old = ended(desk, ingest, finalize, lines(1), "r1")
    with pytest.raises(NotFound):
        retries.submit("tenant_x", old, RetryWish())


def test_where_nothing_failed_nothing_is_retried(
    desk: Desk, ingest: Ingest, finalize: Finalize, retries: Retries
) -> None:
    old = ended(desk, ingest, finalize, [line("r1"), "{"])
    with pytest.raises(RequestError) as refused:
        retry(desk, retries, old, "failed", "expired")
    assert refused.value.code == "nothing_to_retry"
    assert refused.value.message == (
        f"Batch {old} has no failed or expired jobs that could be retried. "
        "Lines that are no requests (1) would fail again."
    )


def test_what_else_could_be_retried_is_told(
    desk: Desk, ingest: Ingest, finalize: Finalize, retries: Retries
) -> None:
    old = desk.submit(lines(3))
    ingest.step()
    desk.cancel(old)
    Sweeper(sessions=desk.sessions).step()
    finalize.step()
    with pytest.raises(RequestError, match="There are 3 cancelled ones: name them in 'states'"):
        retry(desk, retries, old)


def fetch_all_but(desk: Desk, url: str) -> int:
    """Play a fetcher that cannot have one of the pictures; the image that it got."""
    with transaction(desk.sessions) as session:
        tasks = image_store.claim_fetches(session, limit=9, lease_s=60, per_host=9, active={})
        (good,) = [task for task in tasks if task.ref != url]
        (bad,) = [task for task in tasks if task.ref == url]
        image_store.record_stored(session, good, image_store.StoredImage("b" * 64, "PNG", 1, 1, 70))
        image_store.record_failed(session, bad, "http_503", "No.")
    return good.id
