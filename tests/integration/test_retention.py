"""What is old enough is removed with all that belongs to it; nothing that somebody needs is."""

from collections.abc import Iterator
from threading import Event, Thread
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from prometheus_client import REGISTRY
from sqlalchemy import text

from app.config import DAY_S, Settings
from app.db import transaction
from app.deleter import Deleter
from app.finalize import Finalize
from app.ids import file_key, image_key
from app.ingest import Ingest
from app.references import parse_reference, ref_hash
from app.removal import remove_file
from app.retention import Retention
from app.states import BatchStatus
from app.store import images
from app.store.images import ImageWish, StoredImage, find_kept, keep_image, want_images
from app.store.retention import mark_batch
from app.sweep import Sweeper
from tests.desk import PIXEL, Desk, image, line, lines
from tests.rows import Rows, stuck
from tests.waiting import eventually

LIFE_S = 30 * DAY_S
WISH = ImageWish("url", "h1", "https://shop.example/a.jpg")


@pytest.fixture
def ingest(desk: Desk) -> Iterator[Ingest]:
    work = Ingest(sessions=desk.sessions, objects=desk.objects, settings=desk.settings)
    yield work
    work.close()


@pytest.fixture
def finalize(desk: Desk) -> Finalize:
    return Finalize(sessions=desk.sessions, objects=desk.objects, settings=desk.settings)


@pytest.fixture
def retention(desk: Desk) -> Retention:
    return Retention(sessions=desk.sessions, settings=desk.settings, block_rows=2)


@pytest.fixture
def deleter(desk: Desk) -> Iterator[Deleter]:
    work = Deleter(sessions=desk.sessions, objects=desk.objects)
    yield work
    work.close()


def settle(*loops: Retention | Deleter) -> None:
    """Run the loops until none finds anything to do."""
    busy = True
    while busy:
        busy = bool([loop for loop in loops if loop.step()])


def ended(desk: Desk, ingest: Ingest, finalize: Finalize, content: list[str]) -> str:
    """A batch that has run to its end; a line of the model `bad` is none."""
    batch_id = desk.submit(content)
    assert ingest.step()
    desk.answer(batch_id)
    assert finalize.step()
    return batch_id


def age(desk: Desk, seconds: float) -> None:
    """What the clock would do to all that is there."""
    for table, names in (
        ("batches", "created_at expires_at ended_at deleted_at"),
        ("jobs", "created_at finished_at deadline"),
        ("images", "created_at stored_at used_at"),
        ("files", "created_at expires_at"),
        ("doomed_objects", "doomed_at"),
    ):
        older = ", ".join(f"{name} = {name} - make_interval(secs => :s)" for name in names.split())
        desk.execute(f"UPDATE {table} SET {older}", s=seconds)  # noqa: S608 - the names above


def tables(desk: Desk) -> dict[str, int]:
    """How many rows are left of a batch and its jobs."""
    names = ("batches", "jobs", "answers", "results", "batch_errors", "job_waits")
    return {name: desk.count(name) for name in names if desk.count(name)}


def stored_image(desk: Desk, data: bytes = b"bytes", *, ref_hash: str = "r1") -> tuple[int, str]:
    """An image as ingest leaves it: its id and the key of its bytes."""
    stored = StoredImage(f"{data.hex():0>64}"[:64], "PNG", 1, 1, len(data))
    key = image_key(desk.tenant, stored.content_hash)
    desk.objects.put(key, data, content_type="image/png")
    with transaction(desk.sessions) as session:
        return keep_image(session, desk.tenant, ref_hash, stored), key


def removed(table: str) -> float:
    """Rows that retention has removed in this process."""
    return REGISTRY.get_sample_value("vqueue_rows_deleted_total", {"table": table}) or 0.0


def doomed(desk: Desk) -> list[str]:
    with transaction(desk.sessions) as session:
        return list(session.execute(text("SELECT key FROM doomed_objects ORDER BY key")).scalars())


def test_an_expired_file_goes_with_its_bytes(desk: Desk, retention: Retention, deleter: Deleter) -> None:
    batch_id = desk.submit(lines(1))
    desk.execute("UPDATE batches SET status = 'in_progress' WHERE id = :id", id=batch_id)
    key = file_key(desk.tenant, desk.batch(batch_id).input_file_id)
    desk.execute("UPDATE files SET expires_at = now()")
    settle(retention, deleter)
    assert desk.count("files") == desk.count("doomed_objects") == 0
    assert desk.objects.head(key) is None


@pytest.mark.parametrize("status", ["validating", "cancelling", "finalizing"])
def test_an_expired_file_that_a_batch_still_reads_stays(
    desk: Desk, retention: Retention, status: str
) -> None:
    batch_id = desk.submit(lines(1))
    desk.execute("UPDATE batches SET status = :status WHERE id = :id", status=status, id=batch_id)
    desk.execute("UPDATE files SET expires_at = now()")
    settle(retention)
    assert desk.count("files") == 1


def test_several_at_once_remove_each_row_once(
    desk: Desk, ingest: Ingest, finalize: Finalize, retention: Retention, settings: Settings
) -> None:
    for _ in range(3):
        ended(desk, ingest, finalize, lines(5))
    age(desk, LIFE_S + 1)
    before = removed("jobs"), removed("batches")
    other = Retention(sessions=desk.sessions, settings=settings, block_rows=2)
    threads = [Thread(target=settle, args=(loop,)) for loop in (retention, other)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    settle(retention)
    assert tables(desk) == {}
    assert (removed("jobs") - before[0], removed("batches") - before[1]) == (15, 3)


def test_an_expired_picture_stays_while_a_batch_may_need_it(desk: Desk, retention: Retention) -> None:
    batch_id = desk.submit(lines(1))
    desk.execute("UPDATE batches SET status = 'in_progress' WHERE id = :id", id=batch_id)
    desk.execute("UPDATE files SET purpose = 'vision', expires_at = now()")
    settle(retention)
    assert desk.count("files") == 1
    desk.execute("UPDATE batches SET status = 'completed', ended_at = now()")
    settle(retention)
    assert desk.count("files") == 0


def test_a_batch_that_ended_long_ago_goes_with_all_its_rows_and_files(
    desk: Desk, ingest: Ingest, finalize: Finalize, retention: Retention, deleter: Deleter
) -> None:
    batch_id = ended(desk, ingest, finalize, [*lines(5), line("r9", "x", model="bad")])
    batch = desk.batch(batch_id)
    assert batch.output_file_id
    assert batch.error_file_id
    age(desk, LIFE_S + 1)
    settle(retention, deleter)
    assert tables(desk) == {}
    for file_id in (batch.output_file_id, batch.error_file_id):
        assert desk.objects.head(file_key(desk.tenant, file_id)) is None
    assert desk.objects.head(file_key(desk.tenant, batch.input_file_id))


def test_a_batch_that_ended_lately_stays(
    desk: Desk, ingest: Ingest, finalize: Finalize, retention: Retention
) -> None:
    ended(desk, ingest, finalize, lines(3))
    before = tables(desk)
    age(desk, LIFE_S - 60)
    settle(retention)
    assert tables(desk) == before


def test_an_open_batch_stays_however_old_it_is(desk: Desk, ingest: Ingest, retention: Retention) -> None:
    desk.submit(lines(3))
    ingest.step()
    age(desk, 3 * LIFE_S)
    settle(retention)
    assert tables(desk) == {"batches": 1, "jobs": 3}


def test_zero_keeps_batches_and_images_for_ever(
    desk: Desk, ingest: Ingest, finalize: Finalize, settings: Settings
) -> None:
    chosen = settings.model_copy(update={"retention_batches_s": 0, "retention_images_s": 0})
    ended(desk, ingest, finalize, [line("r1", [image(PIXEL)])])
    before = tables(desk)
    age(desk, 100 * LIFE_S)
    settle(Retention(sessions=desk.sessions, settings=chosen))
    assert tables(desk) == before
    assert desk.count("images") == 1


def test_a_removal_that_breaks_off_is_taken_up_by_the_next(
    desk: Desk, ingest: Ingest, finalize: Finalize, settings: Settings, retention: Retention
) -> None:
    batch_id = ended(desk, ingest, finalize, lines(5))
    with transaction(desk.sessions) as session:
        assert mark_batch(session, desk.tenant, batch_id)
    stopping = StopAfter(blocks=1)
    Retention(sessions=desk.sessions, settings=settings, stopping=stopping, block_rows=2).step()
    assert desk.count("jobs") == desk.count("answers") == 3
    settle(retention)
    assert tables(desk) == {}


def test_a_batch_that_cannot_be_removed_keeps_no_other_from_it(
    desk: Desk, ingest: Ingest, finalize: Finalize, retention: Retention
) -> None:
    first, second = (ended(desk, ingest, finalize, lines(2)) for _ in range(2))
    for batch_id in (first, second):
        with transaction(desk.sessions) as session:
            assert mark_batch(session, desk.tenant, batch_id)
    with stuck(Rows(desk.sessions), "jobs", first):
        settle(retention)
    assert Rows(desk.sessions).all("SELECT id FROM batches") == [first]


def test_a_kind_that_cannot_be_removed_keeps_no_other_from_it(
    desk: Desk, ingest: Ingest, finalize: Finalize, retention: Retention
) -> None:
    batch_id = ended(desk, ingest, finalize, lines(2))
    age(desk, LIFE_S + 1)
    with transaction(desk.sessions) as session:
        assert mark_batch(session, desk.tenant, batch_id)
    desk.execute("UPDATE files SET expires_at = now() WHERE purpose = 'batch_output'")
    with stuck(Rows(desk.sessions), "files", desk.tenant, "tenant_id"):
        settle(retention)
    assert desk.count("batches") == 0


def test_a_deleted_batch_waits_for_the_retry_that_copies_its_jobs(
    desk: Desk, ingest: Ingest, finalize: Finalize, retention: Retention
) -> None:
    batch_id = ended(desk, ingest, finalize, lines(2))
    retry = desk.submit(lines(1))
    desk.execute("UPDATE batches SET retry_of = :of WHERE id = :id", of=batch_id, id=retry)
    with transaction(desk.sessions) as session:
        assert mark_batch(session, desk.tenant, batch_id)
    settle(retention)
    assert desk.count("jobs") == 2
    desk.execute("UPDATE batches SET status = 'in_progress' WHERE id = :id", id=retry)
    settle(retention)
    assert tables(desk) == {"batches": 1}


def test_a_direct_job_that_ended_long_ago_goes_with_its_answer(desk: Desk, retention: Retention) -> None:
    old, young = (add_job(desk, "completed", finished=days) for days in (31, 29))
    open_one = add_job(desk, "ready")
    desk.execute(
        "INSERT INTO answers (job_id, text, finish_reason, prompt_tokens, completion_tokens, model, revision)"
        " SELECT id, 'A cat.', 'stop', 1, 1, 'demo', 'rev1' FROM jobs WHERE state = 'completed'"
    )
    settle(retention)
    assert job_ids(desk) == [young, open_one]
    assert desk.count("answers") == 1
    assert old not in job_ids(desk)


def test_an_image_that_nobody_used_for_long_goes_with_its_bytes(
    desk: Desk, retention: Retention, deleter: Deleter
) -> None:
    _, key = stored_image(desk)
    age(desk, LIFE_S + 3601)
    settle(retention, deleter)
    assert desk.count("images") == 0
    assert desk.objects.head(key)  # its grace is not over yet
    age(desk, 3601)
    settle(deleter)
    assert desk.objects.head(key) is None
    assert doomed(desk) == []


def test_an_image_that_could_not_be_had_goes_too(desk: Desk, retention: Retention) -> None:
    with transaction(desk.sessions) as session:
        want_images(session, desk.tenant, [WISH], reuse_s=3600)
        (task,) = images.claim_fetches(session, limit=1, lease_s=30, per_host=2, active={})
        images.record_failed(session, task, "not_found", "404")
    age(desk, LIFE_S + 3601)
    settle(retention)
    assert desk.count("images") == 0
    assert doomed(desk) == []


def test_bytes_stay_while_another_reference_has_the_same_content(
    desk: Desk, retention: Retention, deleter: Deleter
) -> None:
    _, key = stored_image(desk, ref_hash="r1")
    age(desk, LIFE_S + 7200)
    stored_image(desk, ref_hash="r2")
    settle(retention)
    age(desk, 3601)
    settle(deleter)
    assert desk.count("images") == 1
    assert desk.objects.head(key)
    assert doomed(desk) == []


def test_an_image_stays_while_a_batch_is_open_that_is_older_than_its_last_use(
    desk: Desk, ingest: Ingest, retention: Retention
) -> None:
    desk.submit([line("r1", [image(PIXEL)])])
    ingest.step()
    age(desk, 2 * LIFE_S)
    settle(retention)
    assert desk.count("images") == 1
    desk.execute("UPDATE batches SET status = 'expired', ended_at = now()")
    settle(retention)
    assert desk.count("images") == 0


@pytest.mark.parametrize("state", ["waiting", "ready", "queued", "running"])
def test_an_image_stays_while_a_direct_job_needs_it(desk: Desk, retention: Retention, state: str) -> None:
    image_id, _ = stored_image(desk)
    add_job(desk, state, image_ids=[image_id])
    age(desk, 2 * LIFE_S)
    settle(retention)
    assert desk.count("images") == 1


def test_an_image_that_is_wanted_again_counts_as_used(desk: Desk, retention: Retention) -> None:
    with transaction(desk.sessions) as session:
        want_images(session, desk.tenant, [WISH], reuse_s=10 * LIFE_S)
    desk.fetch()
    age(desk, LIFE_S)
    with transaction(desk.sessions) as session:
        want_images(session, desk.tenant, [WISH], reuse_s=10 * LIFE_S)
    age(desk, LIFE_S)
    settle(retention)
    assert desk.count("images") == 1


def test_an_image_that_comes_along_again_counts_as_used(desk: Desk, retention: Retention) -> None:
    stored_image(desk)
    age(desk, LIFE_S)
    with transaction(desk.sessions) as session:
        assert find_kept(session, desk.tenant, ["r1"])
    age(desk, LIFE_S)
    settle(retention)
    assert desk.count("images") == 1


def test_a_use_within_the_hour_is_not_written_again(desk: Desk) -> None:
    stored_image(desk)
    age(desk, 3000)
    before = versions(desk)
    with transaction(desk.sessions) as session:
        assert find_kept(session, desk.tenant, ["r1"])
    assert versions(desk) == before


def test_retention_leaves_an_image_that_a_job_refers_to_at_this_moment(
    desk: Desk, retention: Retention
) -> None:
    stored_image(desk)
    age(desk, LIFE_S + 7200)
    with transaction(desk.sessions) as session:
        assert find_kept(session, desk.tenant, ["r1"])
        settle(retention)
    settle(retention)
    assert desk.count("images") == 1


def test_a_job_that_refers_to_an_image_that_is_being_removed_gets_a_new_one(desk: Desk) -> None:
    stored_image(desk)
    age(desk, LIFE_S + 7200)
    found: list[dict[str, int]] = []

    def look() -> None:
        with transaction(desk.sessions) as session:
            found.append(find_kept(session, desk.tenant, ["r1"]))

    with transaction(desk.sessions) as session:
        session.execute(text("DELETE FROM images"))
        looking = Thread(target=look)
        looking.start()
        eventually(lambda: waits_for_a_lock(desk))
    looking.join()
    assert found == [{}]


def test_a_deleted_picture_goes_with_the_image_that_was_made_of_it(desk: Desk, deleter: Deleter) -> None:
    batch_id = desk.submit(lines(1))
    file_id = desk.batch(batch_id).input_file_id
    reference = parse_reference(file_id)
    with transaction(desk.sessions) as session:
        wish = ImageWish(reference.kind, ref_hash(reference), reference.ref)
        want_images(session, desk.tenant, [wish], reuse_s=3600)
    desk.fetch()
    with transaction(desk.sessions) as session:
        assert remove_file(session, desk.tenant, file_id)
    assert desk.count("images") == 0
    assert len(doomed(desk)) == 2
    age(desk, 3601)
    settle(deleter)
    assert doomed(desk) == []


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(ages=st.lists(st.tuples(st.integers(0, 70), st.sampled_from("abc"), st.booleans()), max_size=6))
def test_whatever_the_ages_no_row_lacks_its_object_and_no_object_its_row(
    desk: Desk, retention: Retention, deleter: Deleter, ages: list[tuple[int, str, bool]]
) -> None:
    for number, (days, content, is_open) in enumerate(ages):
        image_id, _ = stored_image(desk, content.encode(), ref_hash=f"r{number}")
        job = add_job(
            desk, "ready" if is_open else "failed", image_ids=[image_id], finished=None if is_open else days
        )
        desk.execute(
            "UPDATE images SET used_at = now() - make_interval(days => :d) WHERE id = :i", d=days, i=image_id
        )
        desk.execute(
            "UPDATE jobs SET created_at = now() - make_interval(days => :d) WHERE id = :j", d=days, j=job
        )
    settle(retention, deleter)
    age(desk, 3601)
    settle(deleter)
    assert doomed(desk) == []
    needed = {image_key(desk.tenant, content) for content in contents(desk)}
    assert {item.key for item in desk.objects.page(f"images/{desk.tenant}/", after="")} == needed
    assert open_images(desk) <= image_ids(desk)
    desk.execute("TRUNCATE images, jobs")
    for key in needed:
        desk.objects.delete(key)


def test_a_short_window_ends_a_batch_and_keeps_what_is_done(
    desk: Desk, ingest: Ingest, finalize: Finalize
) -> None:
    batch_id = desk.submit(lines(3), window_s=1)
    ingest.step()
    desk.answer(batch_id, count=2)
    sweeper = Sweeper(sessions=desk.sessions)
    assert eventually(lambda: sweeper.step() and finalize.step())
    batch = desk.batch(batch_id)
    assert batch.status is BatchStatus.EXPIRED
    assert desk.ids(batch.output_file_id) == ["r1", "r2"]
    assert [row["error"]["code"] for row in desk.result_lines(batch.error_file_id)] == ["batch_expired"]


class StopAfter(Event):
    """Is set once it was asked `blocks` times."""

    def __init__(self, *, blocks: int) -> None:
        super().__init__()
        self._left = blocks

    def is_set(self) -> bool:
        self._left -= 1
        return self._left < 0


def add_job(
    desk: Desk, state: str, *, image_ids: list[int] | None = None, finished: int | None = None
) -> int:
    """A direct job; `finished` is how many days ago it ended."""
    with transaction(desk.sessions) as session:
        return session.execute(
            text(
                """
                INSERT INTO jobs (tenant_id, model, state, prompt, params, image_ids, finished_at)
                VALUES (:tenant, 'demo', :state, '{}', '{}', :images,
                        now() - make_interval(days => CAST(:finished AS int)))
                RETURNING id
                """
            ),
            {"tenant": desk.tenant, "state": state, "images": image_ids or [], "finished": finished},
        ).scalar_one()


def column(desk: Desk, statement: str) -> list[Any]:
    with transaction(desk.sessions) as session:
        return list(session.execute(text(statement)).scalars())


def job_ids(desk: Desk) -> list[int]:
    return column(desk, "SELECT id FROM jobs ORDER BY id")


def image_ids(desk: Desk) -> set[int]:
    return set(column(desk, "SELECT id FROM images"))


def open_images(desk: Desk) -> set[int]:
    """Images that a job needs which has not ended."""
    return set(column(desk, "SELECT unnest(image_ids) FROM jobs WHERE finished_at IS NULL"))


def contents(desk: Desk) -> set[str]:
    return set(column(desk, "SELECT content_hash FROM images"))


def versions(desk: Desk) -> list[str]:
    return column(desk, "SELECT ctid::text FROM images")


def waits_for_a_lock(desk: Desk) -> bool:
    return bool(column(desk, "SELECT pid FROM pg_locks WHERE NOT granted"))
