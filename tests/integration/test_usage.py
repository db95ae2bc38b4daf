"""What jobs use is counted once, by day, key and model, whatever dies in between; dry runs are not."""

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy.orm import Session

from app.db import Sessions, transaction
from app.finalize import Finalize
from app.ingest import Ingest
from app.store import usage
from app.store.results import FinalizeTask, end_batch, take_ended
from app.store.retention import delete_job, delete_old_jobs
from app.store.usage import COUNTS
from app.watch import Watch
from tests.desk import Desk, lines
from tests.rows import Rows

USED = f"SELECT {', '.join(f'coalesce(sum({name}), 0)::int' for name in COUNTS)} FROM usage"  # noqa: S608


@pytest.fixture
def rows(db: Sessions) -> Rows:
    rows = Rows(db)
    rows.add_batch()
    return rows


@pytest.fixture
def watch(db: Sessions) -> Watch:
    return Watch(sessions=db, every_s=10, block_rows=2)


def used(rows: Rows) -> tuple[int, ...]:
    """Completed, failed, and tokens: prompt, cached, completion."""
    return tuple(rows.table(USED)[0])


def test_a_batch_is_counted_as_it_goes(rows: Rows, watch: Watch) -> None:
    rows.run("UPDATE batches SET key_id = 'key_1'")
    ids = rows.add_jobs(5, batch_id="batch_1")
    rows.complete(*ids[:2])
    watch.step()
    assert used(rows) == (2, 0, 20, 4, 6)
    rows.complete(ids[2])
    rows.fail(ids[3])
    watch.step()
    watch.step()
    assert used(rows) == (3, 1, 30, 6, 9)
    assert rows.table("SELECT tenant_id, key_id, model FROM usage") == [("tenant_a", "key_1", "demo")]


def test_a_look_leaves_no_batch_out(rows: Rows, watch: Watch) -> None:
    for number in range(5):
        rows.complete(*rows.add_jobs(1, batch_id=rows.add_batch(f"more_{number}")))
    watch.step()
    assert used(rows)[0] == 5


def test_what_is_not_validated_yet_and_dry_runs_are_not_counted(rows: Rows, watch: Watch) -> None:
    rows.run("UPDATE batches SET failed = 2, status = 'validating'")
    rows.add_batch("dry")
    rows.run("UPDATE batches SET failed = 2, is_dry_run = true WHERE id = 'dry'")
    watch.step()
    assert used(rows) == (0, 0, 0, 0, 0)


def test_direct_jobs_are_counted_on_the_day_of_their_end(rows: Rows, watch: Watch) -> None:
    ids = rows.add_jobs(6, key_id="key_1")
    rows.complete(*ids[:3])
    rows.fail(ids[3])
    rows.run("UPDATE jobs SET state = 'cancelled', finished_at = now() WHERE id = :id", id=ids[4])
    rows.run("UPDATE jobs SET finished_at = '2026-01-01 23:59:59+00' WHERE id = :id", id=ids[0])
    watch.step()
    watch.step()
    assert used(rows) == (3, 2, 30, 6, 9)
    early = rows.table("SELECT key_id, completed FROM usage WHERE day = '2026-01-01'")
    assert early == [("key_1", 1)]
    assert rows.one("SELECT count(*) FROM jobs WHERE NOT metered") == 1, "one has not ended"


@pytest.mark.parametrize("is_seen", [False, True])
@pytest.mark.parametrize("way", ["asked", "old"])
def test_a_deleted_job_stays_counted(rows: Rows, watch: Watch, way: str, is_seen: bool) -> None:
    (job_id,) = rows.add_jobs(1)
    rows.complete(job_id)
    if is_seen:
        watch.step()
    with transaction(rows.sessions) as session:
        if way == "asked":
            assert delete_job(session, rows.tenant, job_id)
        else:
            assert delete_old_jobs(session, ended_before_s=-1, limit=9) == 1
    watch.step()
    assert used(rows) == (1, 0, 10, 2, 3)


def test_two_dispatchers_count_nothing_twice(rows: Rows, watch: Watch) -> None:
    rows.complete(*rows.add_jobs(2, batch_id="batch_1"), *rows.add_jobs(2))
    with transaction(rows.sessions) as other:
        assert usage.meter_batches(other, limit=9) == 1
        assert usage.meter_jobs(other, limit=9) == 2
        watch.step()
    watch.step()
    assert used(rows) == (4, 0, 40, 8, 12)


def test_a_fault_of_the_metering_keeps_no_batch_from_being_stopped(rows: Rows, watch: Watch) -> None:
    rows.run("ALTER TABLE usage ADD CONSTRAINT none_at_all CHECK (failed < 0)")
    try:
        rows.fail(*rows.add_jobs(5, batch_id="batch_1")[:4])
        rows.run("UPDATE batches SET brake_share = 0.5, brake_after = 4")
        watch.step()
    finally:
        rows.run("ALTER TABLE usage DROP CONSTRAINT none_at_all")
    assert rows.one("SELECT status FROM batches") == "finalizing"
    assert rows.one("SELECT metered FROM batches") is None


@pytest.fixture
def ingest(desk: Desk) -> Iterator[Ingest]:
    work = Ingest(sessions=desk.sessions, objects=desk.objects, settings=desk.settings)
    yield work
    work.close()


def test_a_batch_that_ends_between_two_looks_is_counted_to_its_last_job(desk: Desk, ingest: Ingest) -> None:
    rows, watch = Rows(desk.sessions), Watch(sessions=desk.sessions, every_s=10)
    batch_id = desk.submit([*lines(3), "{"])
    ingest.step()
    desk.answer(batch_id, count=2)
    watch.step()
    desk.answer(batch_id)
    Finalize(sessions=desk.sessions, objects=desk.objects, settings=desk.settings).step()
    watch.step()
    assert desk.counts(batch_id) == (4, 3, 1)
    assert used(rows) == (3, 1, 21, 9, 6)


def test_a_batch_that_is_rejected_has_used_nothing(desk: Desk, ingest: Ingest) -> None:
    rows, watch = Rows(desk.sessions), Watch(sessions=desk.sessions, every_s=10)
    batch_id = desk.submit(["{", *lines(2), *lines(1)])
    ingest.step()
    watch.step()
    assert desk.status(batch_id) == "failed"
    assert used(rows) == (0, 0, 0, 0, 0)


class Crash(Exception):
    pass


class World:
    """A batch and direct jobs, some of which end, are counted or go at random, as does the process."""

    def __init__(self, rows: Rows) -> None:
        self.rows = rows
        self.expected: Counter[str] = Counter()
        self.batch = rows.add_batch(rows.one("SELECT 'batch_' || (count(*) + 1) FROM batches"))
        self.jobs = rows.add_jobs(6, batch_id=self.batch)
        self.direct = rows.add_jobs(6)

    def work(self, *, jobs: str, answered: bool) -> None:
        waiting: list[int] = getattr(self, jobs)
        if not waiting:
            return
        if answered:
            self.rows.complete(waiting.pop())
            self.expected.update(dict(zip(COUNTS, (1, 0, 10, 2, 3), strict=True)))
        else:
            self.rows.fail(waiting.pop())
            self.expected["failed"] += 1

    def meter(self, *, dies: bool) -> None:
        self._do(lambda session: usage.meter_batches(session, limit=1), dies=dies)
        self._do(lambda session: usage.meter_jobs(session, limit=2), dies=dies)

    def delete(self, *, dies: bool) -> None:
        self._do(lambda session: delete_old_jobs(session, ended_before_s=-1, limit=1), dies=dies)

    def end(self, *, dies: bool) -> None:
        """As finalize does, once every job of the batch has ended."""
        with transaction(self.rows.sessions) as session:
            task = take_ended(session, lease_s=0)
        if task is not None:
            self._do(lambda session: _end(session, task), dies=dies)

    def settle(self) -> None:
        while self.jobs:
            self.work(jobs="jobs", answered=True)
        self.end(dies=False)
        for _ in range(9):
            self.meter(dies=False)

    def _do(self, act: Callable[[Session], object], *, dies: bool) -> None:
        with suppress(Crash), transaction(self.rows.sessions) as session:
            act(session)
            if dies:
                raise Crash


def _end(session: Session, task: FinalizeTask) -> None:
    assert end_batch(session, task, output_file_id=None, error_file_id=None)
    usage.meter_end(session, task.id)


WORK = st.tuples(
    st.just("work"),
    st.fixed_dictionaries({"jobs": st.sampled_from(["jobs", "direct"]), "answered": st.booleans()}),
)
DONE = st.tuples(st.sampled_from(["meter", "delete", "end"]), st.fixed_dictionaries({"dies": st.booleans()}))


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(WORK | DONE, min_size=5, max_size=30))
def test_in_whatever_order_and_whatever_dies_all_is_counted_once(
    rows: Rows, steps: list[tuple[str, dict[str, Any]]]
) -> None:
    before = used(rows)
    world = World(rows)
    for name, how in steps:
        getattr(world, name)(**how)
    world.settle()
    grown = [now - then for now, then in zip(used(rows), before, strict=True)]
    assert grown == [world.expected[name] for name in COUNTS]
