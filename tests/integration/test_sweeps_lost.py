"""A run that somebody else has by now, or whose sweep is gone, writes nothing and leaves nothing running."""

from collections.abc import Callable, Iterator
from typing import Any
from uuid import uuid4

import pytest
from sqlalchemy import text

from app.batches import Batches, Wish, make_batches
from app.db import transaction
from app.exports.opening import Exports
from app.limits import make_limits
from app.store import sweep_runs
from app.store.batches import BatchRow
from app.store.sweep_runs import LostRun, RunTask
from app.store.sweeps import SweepRow
from app.sweeps.checking import ContentCheck
from app.sweeps.collecting import Collector
from app.sweeps.runs import Runs
from app.sweeps.sources import Sources
from tests.desk import Desk
from tests.sweeping import World

LEASE_S = 60.0
WRITTEN = ("sweep_runs", "sweep_items", "sweep_changes", "images", "webhook_events")


@pytest.fixture
def world(desk: Desk) -> Iterator[World]:
    made = World(desk, prefix=f"sources/{uuid4().hex[:8]}/")
    for name in "abc":
        made.put(f"{name}.png", name)
    yield made
    made.close()


class Meanwhile(Batches):
    """Batches at whose submission something else happens first."""

    def __init__(self, batches: Batches, happens: Callable[[], object]) -> None:
        self.__dict__.update(batches.__dict__)
        self._happens = happens

    def submit(self, tenant_id: str, wish: Wish, **options: Any) -> BatchRow:
        self._happens()
        return super().submit(tenant_id, wish, **options)


def content_check(world: World) -> ContentCheck:
    return ContentCheck(sessions=world.desk.sessions, lease_s=LEASE_S)


def collector(world: World) -> Collector:
    exports = Exports(sessions=world.desk.sessions, objects=world.desk.objects, image_max_bytes=1)
    return Collector(
        sessions=world.desk.sessions, objects=world.desk.objects, exports=exports, lease_s=LEASE_S
    )


def runs_beside(world: World, happens: Callable[[], object]) -> Runs:
    """A dispatcher's runs, where something happens between its files and their batch."""
    sessions, objects, settings = world.desk.sessions, world.desk.objects, world.settings
    return Runs(
        sessions=sessions,
        objects=objects,
        batches=Meanwhile(make_batches(sessions, make_limits(sessions, settings), settings), happens),
        collector=collector(world),
        sources=Sources(objects=objects, settings=settings),
        settings=settings,
    )


def changed_sweep(world: World) -> SweepRow:
    """A sweep that has run, one of whose images has changed since."""
    sweep = world.create()
    world.run(sweep)
    world.put("b.png", "another b")
    return sweep


def lost(world: World, state: str) -> RunTask:
    """A run as somebody sees it who took it in this state and has lost it since."""
    run = world.sweeps.run(world.desk.tenant, changed_sweep(world).id)
    world.desk.execute("UPDATE sweep_runs SET moved_at = now()")
    for _ in range(40):
        world.no_waiting()
        with transaction(world.desk.sessions) as session:
            task = sweep_runs.take_run(session, lease_s=LEASE_S)
        assert task
        assert task.id == run.id
        if task.state == state:
            world.desk.execute("UPDATE sweep_runs SET attempt = attempt + 1 WHERE id = :id", id=run.id)
            return task
        world.turn()
    raise AssertionError(state)


def written(world: World) -> list[Any]:
    with transaction(world.desk.sessions) as session:
        return [
            sorted(session.execute(text(f"SELECT CAST({table} AS text) FROM {table}")).scalars())  # noqa: S608
            for table in WRITTEN
        ]


def test_who_has_lost_a_run_forgets_no_stored_image(world: World) -> None:
    task = lost(world, "listing")
    world.desk.execute("UPDATE sweep_items SET stale = true WHERE key LIKE '%b.png'")
    before = written(world)
    with pytest.raises(LostRun):
        content_check(world).begin(task)
    assert written(world) == before


def test_who_has_lost_a_run_takes_no_changed_image_for_the_same(world: World) -> None:
    task = lost(world, "checking")
    world.desk.execute("UPDATE sweep_items SET stale = true WHERE key LIKE '%a.png'")
    before = written(world)
    with pytest.raises(LostRun):
        content_check(world).settle(task)
    assert written(world) == before


def test_who_has_lost_a_run_notes_no_answers(world: World) -> None:
    task = lost(world, "running")
    before = written(world)
    with pytest.raises(LostRun):
        collector(world).finish(task, collector(world).ends(task))
    assert written(world) == before


def test_a_file_of_answers_does_not_appear_once_its_run_is_lost(world: World) -> None:
    bucket = world.desk.objects.bucket
    prefix = f"answers/{uuid4().hex}/"
    sweep = world.create(destination={"prefix": f"s3://{bucket}/{prefix}", "format": "csv"})
    run = world.sweeps.run(world.desk.tenant, sweep.id)
    step_until(world, world.runs, f"sweep_runs WHERE id = '{run.id}' AND state = 'running'")
    world.no_waiting()
    with transaction(world.desk.sessions) as session:
        task = sweep_runs.take_run(session, lease_s=LEASE_S)
    assert task
    blocks = collector(world)._holding(task, iter([b"answers"]))
    next(blocks)
    world.desk.execute("UPDATE sweep_runs SET attempt = attempt + 1")
    with pytest.raises(LostRun):
        next(blocks)


def test_a_source_that_fails_whoever_has_lost_its_run_ends_nothing(world: World) -> None:
    sweep = world.create()
    run = world.sweeps.run(world.desk.tenant, sweep.id)
    source = '{"kind": "bucket", "prefix": "s3://elsewhere/x"}'
    world.desk.execute("UPDATE sweeps SET source = CAST(:source AS json)", source=source)
    runs = runs_beside(world, lambda: None)
    check = runs._sources.check

    def taken_over(source: Any) -> None:
        world.desk.execute("UPDATE sweep_runs SET attempt = attempt + 1")
        check(source)

    runs._sources.check = taken_over
    assert runs.step()
    assert world.read(sweep, run.id).state == "listing"


def test_a_sweep_deleted_before_its_batch_is_made_makes_none(world: World) -> None:
    sweep = world.create()
    run = world.sweeps.run(world.desk.tenant, sweep.id)
    runs = runs_beside(world, lambda: world.sweeps.delete(world.desk.tenant, sweep.id))
    step_until(world, runs, "sweep_runs WHERE state = 'cancelled'")
    assert world.desk.count("batches") == 0
    assert world.desk.count(f"sweep_runs WHERE id = '{run.id}' AND batch_ids = '{{}}'") == 1


def test_a_sweep_deleted_once_its_batch_is_made_cancels_it(world: World) -> None:
    sweep = world.create()
    world.sweeps.run(world.desk.tenant, sweep.id)
    step_until(world, world.runs, "batches")
    world.sweeps.delete(world.desk.tenant, sweep.id)
    assert world.desk.count("batches WHERE status = 'cancelling'") == 1
    assert world.desk.count("audit_log WHERE action = 'batch.cancelled'") == 1


def test_a_sweep_deleted_between_two_batches_cancels_the_first_and_makes_no_second(desk: Desk) -> None:
    world = World(desk, prefix=f"sources/{uuid4().hex[:8]}/", batch_max_lines=4)
    for name in "abc":
        world.put(f"{name}.png", name)
    sweep = world.create()
    world.sweeps.run(desk.tenant, sweep.id)

    def delete() -> None:
        if desk.count("batches"):
            world.sweeps.delete(desk.tenant, sweep.id)

    step_until(world, runs_beside(world, delete), "sweep_runs WHERE state = 'cancelled'")
    assert (desk.count("batches"), desk.count("batches WHERE status = 'cancelling'")) == (1, 1)
    world.close()


def test_a_sweep_paused_before_its_batch_is_made_goes_on_with_the_run(world: World) -> None:
    sweep = world.create()
    run = world.sweeps.run(world.desk.tenant, sweep.id)
    step_until(world, runs_beside(world, lambda: world.sweeps.pause(world.desk.tenant, sweep.id)), "batches")
    ended = world.finish(sweep, run.id)
    assert (ended.state, ended.completed, len(ended.batch_ids)) == ("completed", 6, 1)


def test_a_sweep_changed_before_its_batch_is_made_has_one_batch(world: World) -> None:
    sweep = world.create()
    run = world.sweeps.run(world.desk.tenant, sweep.id)
    change = {"batch": {"priority": "background"}, "completion_window": "48h"}
    runs = runs_beside(world, lambda: world.sweeps.update(world.desk.tenant, sweep.id, change))
    step_until(world, runs, "batches")
    ended = world.finish(sweep, run.id)
    assert (ended.state, world.desk.count("batches")) == ("completed", 1)


def step_until(world: World, runs: Runs, there_is: str) -> None:
    for _ in range(20):
        if world.desk.count(there_is):
            return
        world.no_waiting()
        runs.step()
    raise AssertionError(there_is)
