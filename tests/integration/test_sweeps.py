"""A sweep asks what it must and nothing else, whatever changes at its source and whatever dies meanwhile."""

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any
from uuid import uuid4

import pytest

from app.errors import RequestError
from app.objects import ObjectStore
from app.retention import Retention
from app.sweeps.runs import Runs, make_runs
from app.sweeps.sources import Sources
from app.sweeps.stalls import Stalls
from tests.desk import Desk
from tests.sweeping import QUESTIONS, World

COLOUR, SHAPE = QUESTIONS


@pytest.fixture
def world(desk: Desk) -> Iterator[World]:
    made = World(desk, prefix=f"sources/{uuid4().hex[:8]}/")
    yield made
    made.close()


@pytest.fixture
def three(world: World) -> World:
    for name in "abc":
        world.put(f"{name}.png", name)
    return world


def ids(world: World, *names: str) -> list[str]:
    return [f"{world.prefix}{name}" for name in names]


def test_the_first_run_asks_every_question_of_every_image(three: World) -> None:
    three.put("notes.txt", "no picture")
    run = three.run(three.create())
    assert (run.state, run.listed, run.new, run.asked, run.completed) == ("completed", 3, 3, 6, 6)
    assert three.desk.count("batches WHERE metadata->>'name' = 'nightly'") == 1
    assert three.asked(run)[:2] == ids(three, "a.png:colour", "a.png:shape")


def test_a_second_run_asks_nothing_where_nothing_has_changed(three: World) -> None:
    sweep = three.create()
    three.run(sweep)
    again = three.run(sweep)
    assert (again.state, again.unchanged, again.asked, list(again.batch_ids)) == ("completed", 3, 0, [])


def test_only_what_is_new_or_changed_is_asked_about(three: World) -> None:
    sweep = three.create(questions=[COLOUR])
    three.run(sweep)
    three.put("b.png", "another b")
    three.put("d.png", "d")
    three.remove("c.png")
    run = three.run(sweep)
    assert (run.new, run.changed, run.unchanged, run.deleted) == (1, 1, 1, 1)
    assert three.asked(run) == ids(three, "b.png:colour", "d.png:colour")


def test_an_answer_to_a_changed_image_is_about_what_it_shows_now(three: World) -> None:
    sweep = three.create(questions=[COLOUR])
    first = three.run(sweep)
    three.put("b.png", "another b")
    run = three.run(sweep)
    (change,) = three.sweeps.diff(three.desk.tenant, sweep.id, run.id, limit=9, after=("", "")).rows
    assert (change.key, change.question) == (f"{three.prefix}b.png", "colour")
    assert change.before != change.after
    assert (first.differing, run.differing) == (0, 1)


def test_another_version_of_the_same_content_is_not_asked_about(three: World) -> None:
    sweep = three.create()
    three.run(sweep)
    three.desk.execute("UPDATE sweep_items SET version = 'other' WHERE key LIKE '%b.png'")
    run = three.run(sweep)
    assert (run.state, run.changed, run.unchanged, run.asked) == ("completed", 0, 3, 0)


def test_what_has_failed_is_asked_again_by_the_next_run(three: World) -> None:
    sweep = three.create()
    three.fails = frozenset(ids(three, "a.png:shape"))
    first = three.run(sweep)
    three.fails = frozenset()
    run = three.run(sweep)
    assert (first.completed, first.failed) == (5, 1)
    assert three.asked(run) == ids(three, "a.png:shape")


def test_a_changed_image_that_was_not_answered_stays_to_be_asked(three: World) -> None:
    sweep = three.create(questions=[COLOUR])
    three.run(sweep)
    three.put("b.png", "another b")
    three.fails = frozenset(ids(three, "b.png:colour"))
    three.run(sweep)
    three.fails = frozenset()
    assert three.asked(three.run(sweep)) == ids(three, "b.png:colour")


def test_a_changed_image_is_asked_again_what_failed_beside_an_answer(three: World) -> None:
    sweep = three.create()
    three.run(sweep)
    three.put("b.png", "another b")
    three.fails = frozenset(ids(three, "b.png:shape"))
    three.run(sweep)
    three.fails = frozenset()
    assert three.asked(three.run(sweep)) == ids(three, "b.png:shape")


def test_no_job_takes_an_image_that_was_stored_before_it_changed(three: World) -> None:
    sweep = three.create(questions=[COLOUR])
    three.fails = frozenset(ids(three, "b.png:colour"))
    three.run(sweep)
    three.fails = frozenset()
    three.put("b.png", "another b")
    three.run(sweep)
    shown = hashlib.sha256(b"another b").hexdigest()
    assert three.desk.count(f"sweep_items WHERE content_hash = '{shown}'") == 1


def test_a_new_policy_version_asks_only_the_questions_that_have_changed(three: World) -> None:
    sweep = three.create()
    three.run(sweep)
    asked = [COLOUR, {"name": "shape", "ask": "Round or square?"}]
    three.sweeps.update(three.desk.tenant, sweep.id, {"questions": asked, "policy_version": "2"})
    run = three.run(sweep)
    assert three.asked(run) == ids(three, "a.png:shape", "b.png:shape", "c.png:shape")
    assert run.policy_version == "2"
    assert three.desk.count("batches WHERE metadata->>'vqueue_policy_version' = '2'") == 1


@pytest.mark.parametrize("change", [{"questions": [COLOUR]}, {"body": {"max_tokens": 9}}])
def test_what_changes_answers_needs_another_policy_version(three: World, change: dict[str, Any]) -> None:
    sweep = three.create()
    with pytest.raises(RequestError, match="new policy_version"):
        three.sweeps.update(three.desk.tenant, sweep.id, change)


def test_a_cell_that_changes_asks_the_question_that_names_its_column_again(three: World) -> None:
    rows = {name: {"sku": name, "image": f"{three.place}{name}.png", "title": "a cap"} for name in "abc"}
    catalog = Catalog(rows)
    questions = [{"name": "fits", "ask": "Is it {title}?"}, COLOUR]
    source = {"kind": "catalog", "url": "https://shop.example/x", "id_column": "sku", "image_column": "image"}
    sweep = three.create(source=source, questions=questions)
    runs = make_runs(three.settings, sessions=three.desk.sessions, objects=three.desk.objects)
    runs._sources = Sources(objects=three.desk.objects, settings=three.settings, downloader=catalog)  # pyright: ignore[reportArgumentType]
    three.runs = runs
    assert three.run(sweep).asked == 6
    assert three.run(sweep).asked == 0
    rows["b"]["title"] = "a hat"
    run = three.run(sweep)
    assert (run.changed, run.unchanged, three.asked(run)) == (0, 3, ["b:fits"])
    assert three.desk.count("jobs WHERE prompt::text LIKE '%Is it a hat?%'") == 1
    assert three.run(sweep).asked == 0


class Catalog:
    """A web server's JSON lines, as they are now."""

    def __init__(self, rows: Mapping[str, Mapping[str, str]]) -> None:
        self._rows = rows

    def pour(self, url: str, take: Callable[[bytes], object]) -> None:
        for row in self._rows.values():
            take(json.dumps(row).encode() + b"\n")


def test_a_deleted_image_that_comes_back_is_not_asked_about_again(three: World) -> None:
    sweep = three.create()
    three.run(sweep)
    three.remove("c.png")
    three.run(sweep)
    three.put("c.png", "c")
    run = three.run(sweep)
    assert (run.new, run.unchanged, run.asked) == (1, 2, 0)


def test_the_batches_of_a_run_are_as_the_sweep_wants_them(three: World) -> None:
    wishes = {"near_duplicates": {"distance": 3}, "priority": "background"}
    sweep = three.create(batch=wishes)
    three.sweeps.run(three.desk.tenant, sweep.id)
    for _ in range(4):
        three.no_waiting()
        three.runs.step()
    asked = "near_distance = 3 AND cache = 'on' AND priority = 'background'"
    assert three.desk.count(f"batches WHERE {asked}") == 1


def test_a_run_of_more_than_a_batch_may_have_makes_several(desk: Desk) -> None:
    world = World(desk, prefix=f"sources/{uuid4().hex[:8]}/", batch_max_lines=4)
    for name in "abcde":
        world.put(f"{name}.png", name)
    sweep = world.create()
    run = world.run(sweep)
    assert (run.asked, run.completed, len(run.batch_ids)) == (10, 10, 3)
    assert world.run(sweep).asked == 0
    world.close()


def test_the_answers_of_a_run_are_written_to_the_sweeps_bucket(three: World) -> None:
    bucket = three.desk.objects.bucket
    to = {"prefix": f"s3://{bucket}/answers/{uuid4().hex}/", "format": "csv"}
    run = three.run(three.create(destination=to))
    prefix = to["prefix"].removeprefix(f"s3://{bucket}/")
    (key,) = three.desk.objects.keys(prefix, bucket=bucket)
    assert run.id in key
    assert three.desk.objects.get(key, max_bytes=10_000).decode().count("completed") == 6


def test_a_destination_without_a_slash_at_its_end_is_a_folder_too(three: World) -> None:
    bucket, folder = three.desk.objects.bucket, f"answers/{uuid4().hex}"
    run = three.run(three.create(destination={"prefix": f"s3://{bucket}/{folder}", "format": "csv"}))
    (key,) = three.desk.objects.keys(folder, bucket=bucket)
    assert key.startswith(f"{folder}/nightly/")
    assert run.id in key


class Killed(Exception):
    """The process is dead at this line."""


class Dying(ObjectStore):
    """Dies when it is told to: `lists` pages in, or once so many objects are put."""

    def __init__(self, store: ObjectStore, *, puts: int | None = None) -> None:
        self.__dict__.update(store.__dict__)
        self._puts_left = puts

    def put(self, key: str, data: bytes, *, content_type: str, bucket: str | None = None) -> None:
        super().put(key, data, content_type=content_type, bucket=bucket)
        raise Killed

    def pages(self, prefix: str, *, bucket: str) -> Iterator[Any]:
        for page in super().pages(prefix, bucket=bucket):
            yield page if self._puts_left is not None else page[:2]
            if self._puts_left is None:
                raise Killed


@pytest.mark.parametrize("puts", [None, 1])
def test_a_death_in_the_middle_of_a_run_leaves_one_batch_with_everything(
    three: World, puts: int | None
) -> None:
    sweep = three.create()
    dying = Dying(three.desk.objects, puts=puts)
    runs = make_runs(three.settings, sessions=three.desk.sessions, objects=dying)
    run = three.sweeps.run(three.desk.tenant, sweep.id)
    with pytest.raises(Killed):
        step_on(three, runs)
    ended = three.finish(sweep, run.id)
    assert (ended.state, ended.new, ended.completed) == ("completed", 3, 6)
    assert three.desk.count("batches") == 1
    assert three.desk.count("files WHERE purpose = 'batch'") == 1


def test_a_death_between_the_batch_and_its_note_makes_no_second_one(three: World) -> None:
    sweep = three.create()
    run = three.sweeps.run(three.desk.tenant, sweep.id)
    while not three.desk.count("batches"):
        three.no_waiting()
        three.runs.step()
    three.desk.execute("UPDATE sweep_runs SET state = 'submitting', batch_ids = '{}'")
    ended = three.finish(sweep, run.id)
    assert (ended.state, ended.completed, three.desk.count("batches")) == ("completed", 6, 1)


def test_a_death_while_answers_are_noted_counts_none_twice(three: World) -> None:
    sweep = three.create(questions=[COLOUR])
    three.run(sweep)
    three.put("b.png", "another b")
    run = three.run(sweep)
    three.desk.execute("UPDATE sweep_runs SET state = 'running', ended_at = NULL WHERE id = :id", id=run.id)
    again = three.finish(sweep, run.id)
    assert (again.state, again.differing) == ("completed", 1)


def test_a_paused_sweep_begins_no_run_but_one_that_is_asked_for(three: World) -> None:
    sweep = three.create(cron="* * * * *")
    three.sweeps.pause(three.desk.tenant, sweep.id)
    three.desk.execute("UPDATE sweeps SET next_due_at = now() - interval '1 hour'")
    assert not three.due.step()
    assert three.run(sweep).state == "completed"
    three.sweeps.resume(three.desk.tenant, sweep.id)
    assert three.sweeps.read(three.desk.tenant, sweep.id).next_due_at is not None


def test_of_scheduled_runs_that_wait_the_newest_is_run(three: World) -> None:
    sweep = three.create(cron="0 * * * *")
    for _ in range(3):
        three.desk.execute("UPDATE sweep_runs SET due_at = due_at - interval '1 hour'")
        three.desk.execute("UPDATE sweeps SET next_due_at = date_trunc('hour', now())")
        assert three.due.step()
    page = three.sweeps.runs(three.desk.tenant, sweep.id, limit=9, after=None)
    newest = max(page.rows, key=lambda run: run.due_at)
    assert three.finish(sweep, newest.id).state == "completed"
    others = [three.read(sweep, run.id) for run in page.rows if run.id != newest.id]
    assert [(run.state, run.error_code) for run in others] == [("cancelled", "overtaken")] * 2


def test_a_source_that_cannot_be_read_ends_the_run_with_the_reason(three: World) -> None:
    sweep = three.create()
    source = {"kind": "bucket", "prefix": "s3://elsewhere/x"}
    three.desk.execute(
        "UPDATE sweeps SET source = CAST(:source AS json)", source=str(source).replace("'", '"')
    )
    run = three.run(sweep)
    assert (run.state, run.error_code) == ("failed", "blocked_bucket")


def test_a_run_that_stands_still_is_told_of_once(three: World) -> None:
    listen(three, "sweep.run.stalled")
    sweep = three.create(alert_after_s=60)
    run = three.sweeps.run(three.desk.tenant, sweep.id)
    stalls = Stalls(sessions=three.desk.sessions)
    stalls.step()
    assert three.events() == []
    three.desk.execute("UPDATE sweep_runs SET moved_at = now() - interval '61 seconds'")
    stalls.step()
    stalls.step()
    (event,) = three.events()
    assert (event["type"], event["data"]["id"]) == ("sweep.run.stalled", run.id)
    assert three.read(sweep, run.id).stalled_at is not None


def test_the_end_of_a_run_is_told(three: World) -> None:
    listen(three, "sweep.run.completed")
    run = three.run(three.create())
    assert [(event["type"], event["data"]["id"]) for event in three.events()] == [
        ("sweep.run.completed", run.id)
    ]


def test_a_deleted_sweep_leaves_no_rows_and_its_name_free(three: World) -> None:
    sweep = three.create()
    three.run(sweep)
    three.sweeps.delete(three.desk.tenant, sweep.id)
    three.create()
    while three.runs.step():
        pass
    assert (three.desk.count("sweep_items"), three.desk.count("sweep_runs")) == (0, 0)
    assert three.desk.count("sweeps") == 1


def test_old_runs_go_with_their_changes_but_the_newest_stays(three: World) -> None:
    sweep = three.create(questions=[COLOUR])
    runs = []
    for content in ("one", "two", "three"):
        three.put("b.png", content)
        runs.append(three.run(sweep))
    waiting = three.sweeps.run(three.desk.tenant, sweep.id)
    three.desk.execute(
        "UPDATE sweep_runs SET ended_at = now() - interval '8 days' WHERE ended_at IS NOT NULL"
    )
    settings = three.settings.model_copy(update={"retention_sweep_runs_s": 7 * 86_400})
    retention = Retention(sessions=three.desk.sessions, settings=settings, block_rows=1)
    while retention.step():
        pass
    kept = three.sweeps.runs(three.desk.tenant, sweep.id, limit=9, after=None).rows
    assert [run.id for run in kept] == [waiting.id, runs[-1].id]
    assert three.desk.count("sweep_changes") == three.desk.count(
        f"sweep_changes WHERE run_id = '{runs[-1].id}'"
    )
    assert three.desk.count("sweep_items") == 3


def step_on(world: World, runs: Runs) -> None:
    for _ in range(5):
        world.no_waiting()
        runs.step()


def listen(world: World, event_type: str) -> None:
    world.desk.execute(
        """
        INSERT INTO webhook_endpoints (id, tenant_id, name, url, event_types, secret)
        VALUES ('whe_1', :tenant, 'x', 'https://x.example', ARRAY[:type], 'whsec_x')
        """,
        tenant=world.desk.tenant,
        type=event_type,
    )
