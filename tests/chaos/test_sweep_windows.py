"""A dispatcher dies, or is frozen, at each line of a sweep's run: the run happens once, with one batch."""

from collections.abc import Iterator
from typing import Any
from uuid import uuid4

import pytest
from sqlalchemy import text

from app.config import Settings
from app.db import transaction
from app.store.sweep_runs import RunRow
from app.store.sweeps import SweepRow
from tests.chaos.conftest import Start
from tests.chaos.dying import EXIT_CODE
from tests.chaos.pictures import picture
from tests.desk import Desk
from tests.sweeping import DONE, World
from tests.waiting import eventually

YEARLY = "0 0 1 1 *"
SLOW_S = 60.0
DEATHS = {
    "due, uncommitted": "after app.store.sweep_runs:insert_run",
    "due": "after app.sweeps.due:Due.step",
    "taken": "before app.sweeps.runs:Runs._turn",
    "page listed, uncommitted": "after app.store.sweep_items:see",
    "listed": "before app.store.sweep_runs:note_listed",
    "files written": "after app.sweeps.writing:Writer.write",
    "batch made, uncommitted": "after app.store.sweep_runs:note_batch",
    "batch made and noted": "after app.batches:Batches.submit",
    "answers noted": "after app.sweeps.collecting:Collector._note",
    "answers delivered": "before app.sweeps.collecting:Collector.end",
}
FREEZES = {
    "before it writes files": "before app.sweeps.writing:Writer.write",
    "before it submits": "before app.batches:Batches.submit",
    "before it notes answers": "before app.sweeps.collecting:Collector.finish",
    "before it ends": "before app.sweeps.collecting:Collector.end",
}
# All that runs write.
WRITTEN = (
    "* FROM sweep_runs ORDER BY id",
    "* FROM sweep_items ORDER BY key",
    "* FROM sweep_changes ORDER BY run_id",
    "id, status FROM batches ORDER BY id",
    "id FROM files ORDER BY id",
    "id, stored_at, content_hash FROM images ORDER BY id",
    "id FROM webhook_events ORDER BY id",
)


@pytest.fixture
def allowed(hasty: Settings, desk: Desk) -> Settings:
    bucket = desk.objects.bucket
    return hasty.model_copy(update={"s3_source_buckets": (bucket,), "sweep_buckets": (bucket,)})


@pytest.fixture
def world(desk: Desk, allowed: Settings) -> Iterator[World]:
    made = World(desk, prefix=f"sources/{uuid4().hex[:8]}/", **allowed.model_dump(exclude_unset=True))
    for number in range(3):
        key = f"{made.prefix}{number}.jpg"
        desk.objects.put(key, picture(number), content_type="image/jpeg")
    yield made
    made.close()


def due_now(world: World) -> SweepRow:
    """A sweep whose only due time for long has just come."""
    bucket, folder = world.desk.objects.bucket, uuid4().hex
    to = {"prefix": f"s3://{bucket}/answers/{folder}/", "format": "csv"}
    sweep = world.create(model=world.settings.served_model, cron=YEARLY, destination=to)
    world.desk.execute("UPDATE sweeps SET next_due_at = now()")
    return sweep


def ended(world: World, sweep: SweepRow) -> RunRow | None:
    runs = world.sweeps.runs(world.desk.tenant, sweep.id, limit=9, after=None).rows
    return next((run for run in runs if run.state in DONE), None)


def written(world: World) -> list[Any]:
    with transaction(world.desk.sessions) as session:
        return [session.execute(text(f"SELECT {what}")).all() for what in WRITTEN]


def happened_once(world: World, sweep: SweepRow) -> bool:
    runs = world.sweeps.runs(world.desk.tenant, sweep.id, limit=9, after=None).rows
    assert [(run.kind, run.state, run.new, run.asked, run.completed) for run in runs] == [
        ("scheduled", "completed", 3, 6, 6)
    ]
    assert world.desk.count("batches") == len(runs[0].batch_ids) == 1
    assert world.desk.count("answers") == world.desk.count("jobs") == 6
    assert world.desk.count("sweep_items WHERE asked ? 'colour' AND asked ? 'shape'") == 3
    (key,) = world.desk.objects.keys(delivered_to(sweep), bucket=world.desk.objects.bucket)
    return runs[0].id in key


def delivered_to(sweep: SweepRow) -> str:
    assert sweep.destination
    return sweep.destination["prefix"].removeprefix("s3://").partition("/")[2]


@pytest.mark.parametrize("at", DEATHS.values(), ids=DEATHS)
def test_a_run_happens_once_though_its_dispatcher_dies(
    world: World, allowed: Settings, start: Start, at: str
) -> None:
    sweep = due_now(world)
    start("fetcher", allowed)
    start("worker", allowed)
    assert start("dispatcher", allowed, at=at).ended(SLOW_S) == EXIT_CODE
    start("dispatcher", allowed)
    eventually(lambda: ended(world, sweep), within_s=SLOW_S)
    assert happened_once(world, sweep)


@pytest.mark.parametrize("at", FREEZES.values(), ids=FREEZES)
def test_a_dispatcher_that_wakes_behind_its_lease_writes_nothing(
    world: World, allowed: Settings, start: Start, at: str
) -> None:
    sweep = due_now(world)
    start("fetcher", allowed)
    start("worker", allowed)
    frozen = start("dispatcher", allowed, at=at, by="freeze")
    eventually(frozen.stopped, within_s=SLOW_S)
    start("dispatcher", allowed)
    eventually(lambda: ended(world, sweep), within_s=SLOW_S)
    before = written(world)
    frozen.resume()
    eventually(lambda: frozen.says("sweep_run_lost"))
    assert written(world) == before
    assert happened_once(world, sweep)
