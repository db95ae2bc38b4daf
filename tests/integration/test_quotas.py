"""Tenants keep to their quotas: open jobs, bytes of files, images fetched in a day."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import httpx
import openai
import pytest
from openai import OpenAI

from app.batches import Brake
from app.db import Sessions, transaction
from app.errors import Overloaded
from app.ingest import Ingest
from app.limits import NO_LIMITS, Limits
from app.objects import ObjectStore
from app.retrying import Retries, RetryWish
from app.states import BatchStatus, JobState
from app.store import images, quotas
from app.store.images import ImageWish, StoredImage
from app.store.quotas import Quota
from tests.desk import Desk, lines
from tests.rows import Rows

STORED = StoredImage("c" * 64, "JPEG", 640, 480, 9000)
LINE = b"{}\n"


@pytest.fixture
def rows(db: Sessions) -> Rows:
    rows = Rows(db)
    rows.add_tenant()
    rows.add_tenant("tenant_b")
    return rows


@pytest.fixture
def ingest(desk: Desk) -> Iterator[Ingest]:
    work = Ingest(sessions=desk.sessions, objects=desk.objects, settings=desk.settings, block_lines=3)
    yield work
    work.close()


def allow(rows: Rows, **columns: int) -> None:
    for column, value in columns.items():
        rows.run(f"UPDATE tenants SET {column} = :value", value=value)  # noqa: S608 - names of columns


def limits(db: Sessions, quota: Quota = NO_LIMITS) -> Limits:
    return Limits(sessions=db, backlog_max_jobs=10**6, disk_min_free_bytes=0, data_dir=None, quota=quota)


def create(client: OpenAI, file_id: str, **extra: object) -> str:
    return client.batches.create(
        input_file_id=file_id,
        endpoint="/v1/chat/completions",
        completion_window="24h",
        extra_body=extra or None,
    ).id


def waiting_for(client: OpenAI, batch_id: str) -> object:
    extras = client.batches.retrieve(batch_id).model_extra
    assert extras
    return extras["vqueue"]["waiting_for"]


def refused(answer: httpx.Response) -> str:
    """The message of a request that is over a quota."""
    error = answer.json()["error"]
    assert (answer.status_code, error["code"]) == (429, "quota_exceeded")
    assert answer.headers["retry-after"] == "30"
    return error["message"]


def test_jobs_that_race_stay_within_the_quota(http: httpx.Client, db: Sessions) -> None:
    allow(Rows(db), quota_queued_jobs=5)
    with ThreadPoolExecutor(16) as threads:
        answers = list(threads.map(lambda _: http.post("/v1/jobs", json={"question": "?"}), range(64)))
    assert sorted(answer.status_code for answer in answers)[:6] == [202] * 5 + [429]


def test_a_tenant_with_all_of_its_jobs_open_is_given_no_more(
    client: OpenAI, http: httpx.Client, db: Sessions
) -> None:
    rows = Rows(db)
    file = client.files.create(file=("in.jsonl", LINE), purpose="batch")
    allow(rows, quota_queued_jobs=1)
    job = {"question": "What?", "model": "demo"}
    assert http.post("/v1/jobs", json=job).status_code in (200, 201, 202)
    assert "1 jobs that have not ended, and may have 1" in refused(http.post("/v1/jobs", json=job))
    rows.run("INSERT INTO workers (id, role, model) VALUES ('w1', 'worker', 'demo')")
    chat = {"model": "demo", "messages": [{"role": "user", "content": "What?"}]}
    refused(http.post("/v1/chat/completions", json=chat))
    with pytest.raises(openai.RateLimitError, match="cancel what is not needed"):
        create(client.with_options(max_retries=0), file.id)
    assert create(client, file.id, dry_run=True)


def test_jobs_are_counted_by_tenant_and_not_after_their_end(db: Sessions, rows: Rows) -> None:
    rows.add_batch()
    done, *_ = rows.add_jobs(3, batch_id="batch_1")
    rows.add_jobs(2)
    rows.complete(done)
    with transaction(db) as session:
        assert quotas.count_open_jobs(session, "tenant_a") == 4
        assert quotas.count_open_jobs(session, "tenant_a", without_batch="batch_1") == 2
        assert quotas.count_open_jobs(session, "tenant_b") == 0


@pytest.mark.parametrize(("default", "own", "lets_in"), [(1, None, False), (1, 0, True), (9, 1, False)])
def test_a_tenants_own_limit_counts_before_the_settings(
    db: Sessions, rows: Rows, default: int, own: int | None, lets_in: bool
) -> None:
    rows.add_jobs(1)
    rows.run("UPDATE tenants SET quota_queued_jobs = :own", own=own)
    with transaction(db) as session:
        if lets_in:
            limits(db, Quota(queued_jobs=default)).check_jobs(session, "tenant_a")
        else:
            with pytest.raises(Overloaded):
                limits(db, Quota(queued_jobs=default)).check_jobs(session, "tenant_a")


def test_a_file_that_brings_more_jobs_than_are_allowed_fails_in_validation(
    desk: Desk, ingest: Ingest
) -> None:
    rows = Rows(desk.sessions)
    rows.run(
        "INSERT INTO jobs (tenant_id, model, state, prompt, params, image_ids) "
        "VALUES (:tenant, 'demo', 'ready', '{}', '{}', '{}')",
        tenant=desk.tenant,
    )
    allow(rows, quota_queued_jobs=6)
    fits, too_long = desk.submit(lines(5)), desk.submit(lines(6))
    ingest.step()
    desk.answer(fits)
    ingest.step()
    assert desk.status(fits) is BatchStatus.IN_PROGRESS
    (error,) = desk.batch(too_long).errors
    assert (desk.status(too_long), error.code, error.param) == (
        BatchStatus.FAILED,
        "quota_exceeded",
        "input_file_id",
    )
    assert "You have 1 jobs that have not ended, and may have 6" in error.message


def test_a_dry_run_is_read_whatever_the_quota(desk: Desk, ingest: Ingest) -> None:
    allow(Rows(desk.sessions), quota_queued_jobs=1)
    batch_id = desk.submit(lines(5))
    desk.execute("UPDATE batches SET is_dry_run = true")
    ingest.step()
    assert desk.status(batch_id) is BatchStatus.COMPLETED


def test_a_retry_needs_room_for_all_of_its_jobs(desk: Desk, ingest: Ingest) -> None:
    batch_id = desk.submit(lines(2))
    ingest.step()
    desk.execute(
        "UPDATE batches SET status = 'cancelled', failed = 2, ended_at = now() WHERE id = :id", id=batch_id
    )
    desk.execute("UPDATE jobs SET state = 'cancelled', finished_at = now()")
    wish = RetryWish(states=[JobState.CANCELLED])
    for allowed in (1, 2):
        allow(Rows(desk.sessions), quota_queued_jobs=allowed)
        retries = Retries(sessions=desk.sessions, limits=limits(desk.sessions), brake=Brake(None, 100))
        if allowed == 1:
            with pytest.raises(Overloaded, match="no room for 2 more"):
                retries.submit(desk.tenant, batch_id, wish)
        else:
            assert retries.submit(desk.tenant, batch_id, wish).retry_of == batch_id


def test_files_come_to_no_more_bytes_than_are_allowed(
    client: OpenAI, db: Sessions, objects: ObjectStore
) -> None:
    once = client.with_options(max_retries=0)
    first = client.files.create(file=("a.jsonl", LINE * 3), purpose="batch")
    before = set(objects.keys("", bucket=objects.bucket))
    allow(Rows(db), quota_bytes=10)
    with pytest.raises(openai.RateLimitError, match="have 9 bytes of the 10") as caught:
        once.files.create(file=("b.jsonl", LINE), purpose="batch")
    assert (caught.value.code, caught.value.response.headers["retry-after"]) == ("quota_exceeded", "30")
    assert set(objects.keys("", bucket=objects.bucket)) == before
    client.files.delete(first.id)
    assert once.files.create(file=("b.jsonl", LINE), purpose="batch").bytes == 3


def test_what_batches_write_is_no_upload(db: Sessions, rows: Rows) -> None:
    for purpose, size in (("batch_output", 100), ("vision", 7)):
        rows.run(
            "INSERT INTO files (id, tenant_id, purpose, filename, content_type, bytes, object_key) "
            "VALUES (:purpose, 'tenant_a', :purpose, 'f', 'x', :size, :purpose)",
            purpose=purpose,
            size=size,
        )
    with transaction(db) as session:
        assert quotas.sum_bytes(session, "tenant_a") == 7


def want(db: Sessions, tenant: str, *refs: str, kind: str = "url") -> None:
    with transaction(db) as session:
        wishes = [ImageWish(kind, f"{kind} {ref}", f"https://shop.example/{ref}") for ref in refs]
        images.want_images(session, tenant, wishes, reuse_s=3600)


def fetch(db: Sessions, *, images_day: int = 0) -> list[str]:
    """One round of a fetcher for whom all goes well: the tenants whose images it has brought."""
    with transaction(db) as session:
        tasks = images.claim_fetches(
            session, limit=2, lease_s=60, per_host=2, active={}, images_day=images_day
        )
        for task in tasks:
            images.record_stored(session, task, STORED)
            if task.is_counted:
                quotas.count_fetch(session, task.tenant_id, default=images_day)
        return [task.tenant_id for task in tasks]


def test_images_over_the_quota_of_the_day_wait_and_hold_nobody_up(db: Sessions, rows: Rows) -> None:
    rows.run("UPDATE tenants SET quota_images_day = 2 WHERE id = 'tenant_a'")
    want(db, "tenant_a", *"abcdefgh")
    want(db, "tenant_b", "z")
    assert fetch(db) == ["tenant_a", "tenant_a"]
    assert fetch(db) == ["tenant_b"]
    assert fetch(db) == []
    rows.run("UPDATE image_days SET day = day - 1")  # midnight has passed
    assert fetch(db) == ["tenant_a", "tenant_a"]
    assert rows.one("SELECT fetched FROM image_days") == 2
    rows.run("UPDATE tenants SET quota_images_day = 3")
    assert len(fetch(db)) == 2


def test_uploaded_images_are_read_whatever_the_quota(db: Sessions, rows: Rows) -> None:
    want(db, "tenant_a", "a", kind="s3")
    assert fetch(db, images_day=1) == ["tenant_a"]
    want(db, "tenant_a", "b", kind="s3")
    want(db, "tenant_a", "c", "d", kind="file")
    assert fetch(db, images_day=1) == ["tenant_a", "tenant_a"]
    assert rows.all("SELECT ref_kind FROM images WHERE state = 'pending'") == ["s3"]


def test_fetches_of_tenants_without_a_limit_are_not_counted(db: Sessions, rows: Rows) -> None:
    want(db, "tenant_a", "a")
    assert fetch(db) == ["tenant_a"]
    assert rows.one("SELECT count(*) FROM image_days") == 0


def test_a_batch_says_that_the_images_of_the_day_are_spent(client: OpenAI, db: Sessions) -> None:
    rows = Rows(db)
    file = client.files.create(file=("in.jsonl", LINE), purpose="batch")
    batch_id = create(client, file.id)
    rows.run("UPDATE batches SET status = 'in_progress', ingested_at = now()")
    tenant = rows.one("SELECT tenant_id FROM batches")
    with transaction(db) as session:
        quotas.count_fetch(session, tenant, default=1)
    assert waiting_for(client, batch_id) == "image_quota"
    rows.run("UPDATE tenants SET quota_images_day = 2")
    assert waiting_for(client, batch_id) is None
