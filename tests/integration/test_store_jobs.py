"""Each move of a job is one statement that happens once, whoever tries it twice."""

from concurrent.futures import ThreadPoolExecutor

import pytest
from sqlalchemy import text

from app.db import Sessions, transaction
from app.states import JobState
from app.store import jobs, records
from app.store.jobs import Held, NewJob
from app.store.records import AnswerRow, FailureRow, ReturnRow
from tests.rows import TEXT_PROMPT, Rows
from tests.waiting import eventually


@pytest.fixture
def rows(db: Sessions) -> Rows:
    return Rows(db)


def answer(job_id: int, attempt: int = 1, text: str = "red") -> AnswerRow:
    return AnswerRow(job_id, attempt, text, "stop", prompt_tokens=10, cached_tokens=2, completion_tokens=3)


def claim(db: Sessions, job_ids: list[int], worker: str = "w1", lease_s: float = 60) -> dict[int, int]:
    """Claimed job ids with their attempts."""
    with transaction(db) as session:
        return {job.id: job.attempt for job in jobs.claim(session, job_ids, worker=worker, lease_s=lease_s)}


def record(db: Sessions, *answers: AnswerRow) -> set[int]:
    with transaction(db) as session:
        return records.record_answers(session, answers, model="demo", revision="r1")


def test_a_claim_takes_ready_and_queued_jobs_once(db: Sessions, rows: Rows) -> None:
    rows.add_batch()
    ready, queued, waiting = (
        rows.add_jobs(1, batch_id="batch_1", state=state)[0] for state in ("ready", "queued", "waiting")
    )
    assert claim(db, [ready, queued, waiting]) == {ready: 1, queued: 1}
    assert claim(db, [ready, queued, waiting]) == {}


@pytest.mark.parametrize("status", ["validating", "cancelling", "finalizing", "completed"])
def test_jobs_of_a_batch_that_is_not_in_progress_are_not_claimed(
    db: Sessions, rows: Rows, status: str
) -> None:
    rows.add_batch(status=status)
    assert claim(db, rows.add_jobs(2, batch_id="batch_1", state="queued")) == {}


@pytest.mark.parametrize("column", ["expires_at", "deleted_at"])
def test_jobs_of_a_batch_past_its_time_or_deleted_are_not_claimed(
    db: Sessions, rows: Rows, column: str
) -> None:
    """Whether or not a sweep has seen it."""
    rows.add_batch()
    rows.run(f"UPDATE batches SET {column} = now() - interval '1 second'")  # noqa: S608 - one of two columns
    assert claim(db, rows.add_jobs(2, batch_id="batch_1", state="queued")) == {}


def test_a_direct_job_past_its_deadline_is_not_claimed(db: Sessions, rows: Rows) -> None:
    late = rows.add_jobs(1, deadline="2020-01-01")
    assert claim(db, late) == {}


def test_a_job_that_must_travel_alone_is_not_claimed_in_company(db: Sessions, rows: Rows) -> None:
    (poison,) = rows.add_jobs(1, alone=True)
    (other,) = rows.add_jobs(1)
    assert claim(db, [poison, other]) == {other: 1}
    assert claim(db, [poison]) == {poison: 1}


def test_a_claim_tells_the_tenant_s_name_and_what_the_batch_wishes(db: Sessions, rows: Rows) -> None:
    rows.add_batch()
    wishes = '{"vqueue_near_duplicates": "on", "vqueue_warm": "no"}'
    rows.run("UPDATE batches SET metadata = CAST(:wishes AS jsonb)", wishes=wishes)
    rows.run("UPDATE tenants SET name = 'Alice'")
    ids = [*rows.add_jobs(1, batch_id="batch_1"), *rows.add_jobs(1)]
    with transaction(db) as session:
        claimed = jobs.claim(session, ids, worker="w1", lease_s=60)
    assert [job.tenant_name for job in claimed] == ["Alice", "Alice"]
    assert [(job.near_duplicates, job.warm) for job in claimed] == [(True, False), (False, False)]


def awaited(db: Sessions, images: list[int], *, tenant: str = "tenant_a", model: str = "demo") -> set[int]:
    with transaction(db) as session:
        return jobs.awaited_images(
            session, images, models=[model], batch_ids=["batch_1"], tenant_ids=[tenant]
        )


@pytest.mark.parametrize(
    ("state", "waits"), [("ready", True), ("queued", True), ("running", False), ("completed", False)]
)
def test_an_image_is_awaited_by_jobs_that_nobody_has(
    db: Sessions, rows: Rows, state: str, waits: bool
) -> None:
    rows.add_batch()
    rows.add_jobs(1, batch_id="batch_1", state=state, image_group=7)
    rows.add_jobs(1, state=state, image_group=8)
    assert awaited(db, [7, 8, 9]) == ({7, 8} if waits else set())
    assert awaited(db, [7, 8, 9], model="large") == set()


def test_other_tenants_ready_jobs_make_no_image_awaited(db: Sessions, rows: Rows) -> None:
    rows.add_jobs(1, image_group=8)
    assert awaited(db, [8], tenant="tenant_b") == set()


def test_an_answer_is_recorded_once_and_counted_once(db: Sessions, rows: Rows) -> None:
    rows.add_batch()
    (job_id,) = rows.add_jobs(1, batch_id="batch_1")
    claim(db, [job_id])
    assert record(db, answer(job_id)) == {job_id}
    assert record(db, answer(job_id, text="blue")) == set()
    assert rows.counts() == (1, 1, 0)
    assert rows.all("SELECT text FROM answers") == ["red"]
    assert rows.one("SELECT prompt_tokens FROM batches") == 10


def test_a_worker_that_wakes_after_its_lease_cannot_record(db: Sessions, rows: Rows) -> None:
    (job_id,) = rows.add_jobs(1)
    claim(db, [job_id], worker="frozen")
    rows.run("UPDATE jobs SET state = 'ready'")
    assert claim(db, [job_id], worker="second") == {job_id: 2}
    assert record(db, answer(job_id, attempt=1, text="stale")) == set()
    assert record(db, answer(job_id, attempt=2, text="fresh")) == {job_id}
    assert rows.all("SELECT text FROM answers") == ["fresh"]


def test_a_failure_ends_the_job_and_counts_once(db: Sessions, rows: Rows) -> None:
    rows.add_batch()
    (job_id,) = rows.add_jobs(1, batch_id="batch_1")
    claim(db, [job_id])
    for expected in ({job_id}, set()):
        with transaction(db) as session:
            failed = records.record_failures(session, [FailureRow(job_id, 1, "corrupt_image", "cut off")])
        assert failed == expected
    assert rows.counts() == (1, 0, 1)
    assert rows.states() == {job_id: JobState.FAILED}


def test_a_job_handed_back_undone_keeps_its_tries_but_not_its_attempt(db: Sessions, rows: Rows) -> None:
    (job_id,) = rows.add_jobs(1)
    claim(db, [job_id])
    with transaction(db) as session:
        assert records.hand_back(session, [ReturnRow(job_id, 1, 0.0, counts=False)]) == {job_id}
    with transaction(db) as session:
        (again,) = jobs.claim(session, [job_id], worker="w2", lease_s=60)
    assert (again.attempt, again.tries) == (2, 1)
    assert record(db, answer(job_id, attempt=1)) == set()


def test_a_job_to_be_tried_later_is_not_ready_before(db: Sessions, rows: Rows) -> None:
    (job_id,) = rows.add_jobs(1)
    claim(db, [job_id])
    with transaction(db) as session:
        records.hand_back(session, [ReturnRow(job_id, 1, 100.0, counts=True)])
    assert rows.one("SELECT not_before > now() + interval '90 seconds' FROM jobs")


def test_a_heartbeat_renews_only_what_is_still_the_workers_own(db: Sessions, rows: Rows) -> None:
    mine, taken = rows.add_jobs(2)
    claim(db, [mine, taken], worker="w1", lease_s=1)
    rows.run("UPDATE jobs SET worker = 'w2' WHERE id = :id", id=taken)
    with transaction(db) as session:
        held = [Held(mine, 1), Held(taken, 1)]
        assert jobs.renew(session, held, worker="w1", lease_s=500) == {Held(mine, 1)}
    assert rows.one("SELECT lease_until > now() + interval '400 seconds' FROM jobs WHERE id = :id", id=mine)


def test_a_heartbeat_does_not_renew_the_next_attempt_by_the_one_that_was_lost(
    db: Sessions, rows: Rows
) -> None:
    (job_id,) = rows.add_jobs(1)
    claim(db, [job_id], worker="w1")
    rows.run("UPDATE jobs SET state = 'ready'")
    claim(db, [job_id], worker="w1")
    with transaction(db) as session:
        held = [Held(job_id, 1), Held(job_id, 2)]
        assert jobs.renew(session, held, worker="w1", lease_s=60) == {Held(job_id, 2)}


def test_a_direct_job_is_inserted_and_read_back_by_its_tenant_only(db: Sessions, rows: Rows) -> None:
    tenant = rows.add_tenant()
    with transaction(db) as session:
        job_id = jobs.insert_job(session, NewJob(tenant, "demo", TEXT_PROMPT, {"max_tokens": 4}))
    with transaction(db) as session:
        view = jobs.read_job(session, tenant, job_id)
        assert jobs.read_job(session, "tenant_b", job_id) is None
    assert view is not None
    assert (view.state, view.model, view.params) == (JobState.READY, "demo", {"max_tokens": 4})


def test_a_job_whose_images_are_on_their_way_waits_for_them(db: Sessions, rows: Rows) -> None:
    tenant = rows.add_tenant()
    with transaction(db) as session:
        job = NewJob(tenant, "demo", TEXT_PROMPT, {}, image_ids=[1, 2], waiting_image_ids=[2])
        job_id = jobs.insert_job(session, job)
    assert rows.states() == {job_id: JobState.WAITING}
    assert rows.all("SELECT image_id FROM job_waits") == [2]


def test_a_prompt_with_a_nul_character_is_kept_as_it_is(db: Sessions, rows: Rows) -> None:
    tenant = rows.add_tenant()
    prompt = {"turns": [{"role": "user", "parts": [{"text": "a\0b"}]}]}
    with transaction(db) as session:
        job_id = jobs.insert_job(session, NewJob(tenant, "demo", prompt, {}))
        (claimed,) = jobs.claim(session, [job_id], worker="w", lease_s=60)
    assert claimed.prompt == prompt


def test_jobs_are_handed_back_in_the_order_in_which_heartbeats_lock_them(db: Sessions, rows: Rows) -> None:
    """In any other the two wait for each other."""
    first, second = rows.add_jobs(2)
    claim(db, [second])  # leases that run out earlier are found earlier
    claim(db, [first])
    lock = "SELECT id FROM jobs WHERE id = {} FOR UPDATE NOWAIT"
    with ThreadPoolExecutor(1) as apart:
        with transaction(db) as heartbeat:
            heartbeat.execute(text(lock.format(first)))
            returned = apart.submit(_hand_back, db, [second, first])
            eventually(lambda: rows.one("SELECT count(*) FROM pg_locks WHERE NOT granted") > 0)
            heartbeat.execute(text(lock.format(second)))
        assert returned.result(10) == {first, second}


def _hand_back(db: Sessions, job_ids: list[int]) -> set[int]:
    with transaction(db) as session:
        return records.hand_back(session, [ReturnRow(job_id, 1, 0.0, counts=True) for job_id in job_ids])
