"""A chunk is run, recorded and forgotten; whatever fails in it fails alone."""

import json
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from threading import Event, Thread

import numpy as np
import pytest
from sqlalchemy import Engine as Database
from sqlalchemy import create_engine

from app.config import Settings, read_option
from app.db import Sessions, make_sessions
from app.errors import ImageError, InvalidWork, TransientWork
from app.model_list import read_models
from app.states import JobState
from app.store.images import ImageRow
from app.store.jobs import Held
from tests.rows import Rows
from tests.waiting import eventually
from workers.engine.base import Image, Pixels, Request
from workers.engine.fake import FakeEngine, echo
from workers.leases import Leases
from workers.pool import EnginePool, Resident
from workers.runner import Runner

PIXELS = np.zeros((4, 4, 3), np.uint8)
PICTURE_PROMPT = '{"turns": [{"role": "user", "parts": [{"image": 0}, {"text": "Colour?"}]}]}'


def read_image(row: ImageRow) -> Image:
    return Image.of(row.content_hash, PIXELS)


@pytest.fixture
def rows(db: Sessions) -> Rows:
    rows = Rows(db)
    rows.add_batch()
    return rows


@pytest.fixture
def readers() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(4) as pool:
        yield pool


MakeRunner = Callable[..., Runner]


@pytest.fixture
def urgent_readers() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(1) as pool:
        yield pool


@pytest.fixture
def make_runner(
    db: Sessions, settings: Settings, readers: ThreadPoolExecutor, urgent_readers: ThreadPoolExecutor
) -> MakeRunner:
    def make(
        engine: FakeEngine | None = None,
        *,
        read: Callable[[ImageRow], Image] = read_image,
        sessions: Sessions = db,
        leases: Leases | None = None,
        others: Mapping[str, FakeEngine] | None = None,
        pause: Callable[[float], None] = lambda _: None,
        **changes: object,
    ) -> Runner:
        chosen = settings.model_copy(update=changes)
        engines = {"demo": engine or FakeEngine(rows=4), **(others or {})}
        return Runner(
            sessions=sessions,
            pool=EnginePool({name: Resident(one, chosen.for_model(name)) for name, one in engines.items()}),
            leases=leases or Leases(sessions=db, worker="w1", settings=chosen),
            read_image=read,
            readers=readers,
            urgent_readers=urgent_readers,
            settings=chosen,
            worker="w1",
            spread=lambda: 0.0,
            pause=pause,
        )

    return make


def test_every_job_of_a_chunk_gets_its_answer(rows: Rows, make_runner: MakeRunner) -> None:
    ids = rows.add_jobs(3, batch_id="batch_1", state="queued")
    assert make_runner().run(ids) == 3
    assert rows.all("SELECT text FROM answers") == ["Hello?"] * 3
    assert rows.counts() == (3, 3, 0)


def test_an_answer_under_a_choice_list_or_a_schema_leaves_its_labels(
    rows: Rows, make_runner: MakeRunner
) -> None:
    chosen, filled, *_ = ids = rows.add_jobs(4, batch_id="batch_1", state="queued")
    schema = {"json_schema": json.dumps({"type": "object"})}
    held = [{"choice": ["a", "b"]}, schema, schema, None]
    echoes = ["b", '{"colour": "red"}', '{"colour": "re', "a"]
    for job_id, constraint, echoed in zip(ids, held, echoes, strict=True):
        rows.run(
            "UPDATE jobs SET params = :params, prompt = :prompt WHERE id = :id",
            id=job_id,
            params=json.dumps({"max_tokens": 8, "constraint": constraint}),
            prompt=json.dumps({"turns": [{"role": "user", "parts": [{"text": echoed}]}]}),
        )
    assert make_runner().run(ids) == 4
    assert rows.table("SELECT job_id, field, value FROM labels ORDER BY job_id") == [
        (chosen, "", "b"),
        (filled, "colour", "red"),
    ]


def test_each_job_is_answered_by_its_model_under_the_limits_of_that(
    rows: Rows, make_runner: MakeRunner
) -> None:
    models = read_models("demo=x max_new_tokens=7, large=y max_new_tokens=9", read_option)
    demo, large = (FakeEngine(model=name, revision=f"{name}-1") for name in ("demo", "large"))
    ids = [*rows.add_jobs(1), *rows.add_jobs(2, model="large")]
    rows.run("UPDATE jobs SET params = '{}'")
    assert make_runner(demo, others={"large": large}, models=models).run(ids) == 3
    assert [request.sampling.max_tokens for request in demo.joined + large.joined] == [7, 9, 9]
    assert rows.all("SELECT model || ' ' || revision FROM answers ORDER BY job_id") == [
        "demo demo-1",
        "large large-1",
        "large large-1",
    ]


def test_a_job_whose_model_is_not_here_is_left_to_another_worker(rows: Rows, make_runner: MakeRunner) -> None:
    (job_id,) = rows.add_jobs(1, model="large")
    assert make_runner().run([job_id]) == 1
    assert rows.states() == {job_id: JobState.READY}


def test_a_chunk_delivered_twice_is_answered_once(rows: Rows, make_runner: MakeRunner) -> None:
    engine = FakeEngine()
    ids = rows.add_jobs(2, batch_id="batch_1", state="queued")
    runner = make_runner(engine)
    assert (runner.run(ids), runner.run(ids)) == (2, 0)
    assert len(engine.joined) == 2


def test_an_image_shared_by_a_chunk_is_read_once(rows: Rows, make_runner: MakeRunner) -> None:
    image = rows.add_image("f" * 64)
    read: list[int] = []

    def count(row: ImageRow) -> Image:
        read.append(row.id)
        return read_image(row)

    ids = rows.add_jobs(3, batch_id="batch_1", state="queued", image_ids=[image])
    rows.run("UPDATE jobs SET prompt = :prompt", prompt=PICTURE_PROMPT)
    make_runner(read=count).run(ids)
    assert read == [image]
    assert rows.all("SELECT text FROM answers") == ["Colour? ffffffff"] * 3


def test_pictures_of_an_interactive_job_are_read_beside_all_others(
    rows: Rows, make_runner: MakeRunner, readers: ThreadPoolExecutor
) -> None:
    gate = Event()
    for _ in range(4):
        readers.submit(gate.wait, 20)
    image = rows.add_image("f" * 64)
    ids = rows.add_jobs(1, priority="interactive", state="queued", image_ids=[image])
    rows.run("UPDATE jobs SET prompt = :prompt", prompt=PICTURE_PROMPT)
    try:
        assert make_runner().run(ids) == 1
    finally:
        gate.set()


def test_the_engine_is_told_how_often_an_image_is_wanted(rows: Rows, make_runner: MakeRunner) -> None:
    known, once = rows.add_image("a" * 64), rows.add_image("b" * 64)
    engine = FakeEngine()
    ids = [
        job_id
        for image, count in ((known, 2), (once, 1))
        for job_id in rows.add_jobs(count, batch_id="batch_1", image_ids=[image], image_group=image)
    ]
    rows.add_jobs(1, batch_id="batch_1", image_ids=[known], image_group=known)
    rows.run("UPDATE jobs SET prompt = :prompt", prompt=PICTURE_PROMPT)
    make_runner(engine).run(ids)
    uses = {(image.expected_uses, image.later_uses) for request in engine.joined for image in request.images}
    assert uses == {(3, 1), (1, 0)}


def test_an_image_that_cannot_be_read_fails_its_own_jobs_only(rows: Rows, make_runner: MakeRunner) -> None:
    image = rows.add_image()

    def broken(row: ImageRow) -> Image:
        raise ImageError("corrupt_image", "cut off")

    (bad,) = rows.add_jobs(1, batch_id="batch_1", state="queued", image_ids=[image])
    (good,) = rows.add_jobs(1, batch_id="batch_1", state="queued")
    make_runner(read=broken).run([bad, good])
    assert rows.states() == {bad: JobState.FAILED, good: JobState.COMPLETED}
    assert rows.one("SELECT error_code FROM jobs WHERE id = :id", id=bad) == "corrupt_image"


def test_an_image_that_cannot_be_decoded_fails_its_own_jobs_only(rows: Rows, make_runner: MakeRunner) -> None:
    image = rows.add_image()

    def load() -> Pixels:
        raise ImageError("corrupt_image", "cut off")

    (bad,) = rows.add_jobs(1, batch_id="batch_1", state="queued", image_ids=[image])
    (good,) = rows.add_jobs(1, batch_id="batch_1", state="queued")
    make_runner(read=lambda row: Image(row.content_hash, row.width, row.height, load)).run([bad, good])
    assert rows.states() == {bad: JobState.FAILED, good: JobState.COMPLETED}
    assert rows.one("SELECT error_code FROM jobs WHERE id = :id", id=bad) == "corrupt_image"


def test_an_object_store_that_is_away_sends_the_job_back_for_later(
    rows: Rows, make_runner: MakeRunner
) -> None:
    image = rows.add_image()

    def away(row: ImageRow) -> Image:
        raise TransientWork("object_store_unavailable", "away")

    (job_id,) = rows.add_jobs(1, batch_id="batch_1", state="queued", image_ids=[image])
    make_runner(read=away).run([job_id])
    assert rows.states() == {job_id: JobState.READY}
    assert rows.one("SELECT not_before > now() FROM jobs")
    assert rows.one("SELECT attempt - returns FROM jobs") == 0


def test_a_process_that_was_frozen_keeps_the_lease_of_the_attempt_that_it_took_anew(
    rows: Rows, db: Sessions, settings: Settings
) -> None:
    leases = Leases(sessions=db, worker="w1", settings=settings)
    (job_id,) = rows.add_jobs(1, state="running", worker="w1", attempt=2, lease_until="2100-01-01")
    with leases.holding([Held(job_id, 2)]):
        with leases.holding([Held(job_id, 1)]):
            leases.step()
        leases.step()
        assert (leases.held(), leases.left_s([Held(job_id, 1)])) == (1, 0.0)
        assert leases.left_s([Held(job_id, 2)]) > 0


def test_a_deleted_image_ends_the_job_with_a_reason(rows: Rows, make_runner: MakeRunner) -> None:
    (job_id,) = rows.add_jobs(1, batch_id="batch_1", state="queued", image_ids=[4711])
    make_runner().run([job_id])
    assert rows.one("SELECT error_code FROM jobs") == "image_deleted"


@pytest.mark.parametrize(
    ("error", "state"),
    [
        (InvalidWork("context_length_exceeded", "5000 > 4096"), JobState.FAILED),
        (TransientWork("out_of_memory", "full"), JobState.READY),
        (RuntimeError("a bug"), JobState.READY),
    ],
)
def test_what_the_engine_raises_decides_what_becomes_of_the_job(
    rows: Rows, make_runner: MakeRunner, error: Exception, state: JobState
) -> None:
    def refuse(request: Request) -> str:
        raise error

    (job_id,) = rows.add_jobs(1, batch_id="batch_1", state="queued")
    make_runner(FakeEngine(answer=refuse)).run([job_id])
    assert rows.states() == {job_id: state}


def test_the_last_attempt_ends_a_job_that_always_fails(rows: Rows, make_runner: MakeRunner) -> None:
    def refuse(request: Request) -> str:
        raise TransientWork("out_of_memory", "full")

    (job_id,) = rows.add_jobs(1, batch_id="batch_1", state="queued", attempt=4)
    make_runner(FakeEngine(answer=refuse), job_attempts=5).run([job_id])
    assert rows.states() == {job_id: JobState.FAILED}
    assert rows.counts() == (1, 0, 1)


def test_a_job_that_takes_too_long_is_dropped_and_tried_later(rows: Rows, make_runner: MakeRunner) -> None:
    engine = FakeEngine(gate=Event())
    (job_id,) = rows.add_jobs(1, batch_id="batch_1", state="queued")
    make_runner(engine, job_timeout_s=0.05).run([job_id])
    engine.close()
    assert rows.states() == {job_id: JobState.READY}


def test_a_chunk_may_take_longer_than_one_job_as_long_as_answers_come(
    rows: Rows, make_runner: MakeRunner
) -> None:
    def slow(request: Request) -> str:
        Event().wait(0.2)
        return "late"

    ids = rows.add_jobs(5, batch_id="batch_1", state="queued")
    make_runner(FakeEngine(answer=slow, rows=1), job_timeout_s=0.6).run(ids)
    assert rows.counts() == (5, 5, 0)


def test_a_drained_worker_hands_back_what_has_not_run_without_a_lost_try(
    rows: Rows, make_runner: MakeRunner
) -> None:
    engine = FakeEngine(gate=Event(), rows=1)
    ids = rows.add_jobs(2, batch_id="batch_1", state="queued")
    running = Thread(target=make_runner(engine).run, args=(ids,))
    running.start()
    eventually(lambda: len(engine.submitted) == 2 and engine.joined)
    engine.close()
    running.join(10)
    assert sorted(rows.states().values()) == [JobState.COMPLETED, JobState.READY]
    assert rows.one("SELECT attempt - returns FROM jobs WHERE state = 'ready'") == 0


def test_a_worker_that_gives_up_hands_back_what_runs_and_keeps_what_is_answered(
    rows: Rows, make_runner: MakeRunner
) -> None:
    engine = FakeEngine(gate=Event(), rows=2)
    ids = rows.add_jobs(2, batch_id="batch_1", state="queued")
    runner = make_runner(engine)
    running = Thread(target=runner.run, args=(ids,))
    running.start()
    eventually(lambda: len(engine.joined) == 2)
    runner.give_up()
    running.join(10)
    engine.close()
    assert set(rows.states().values()) == {JobState.READY}
    assert rows.all("SELECT attempt - returns FROM jobs") == [0, 0]


def test_an_answer_with_characters_postgres_cannot_hold_is_stored(
    rows: Rows, make_runner: MakeRunner
) -> None:
    (job_id,) = rows.add_jobs(1, batch_id="batch_1", state="queued")
    make_runner(FakeEngine(answer=lambda _: "a\0b\ud83d")).run([job_id])
    assert rows.all("SELECT text FROM answers") == ["a\ufffdb\ufffd"]


def test_a_heartbeat_keeps_the_lease_while_the_model_runs(
    rows: Rows, make_runner: MakeRunner, db: Sessions, settings: Settings
) -> None:
    leases = Leases(sessions=db, worker="w1", settings=settings)
    gate = Event()
    (job_id,) = rows.add_jobs(1, batch_id="batch_1", state="queued")
    running = Thread(target=make_runner(FakeEngine(gate=gate), leases=leases).run, args=([job_id],))
    running.start()
    eventually(lambda: rows.states()[job_id] == JobState.RUNNING and leases.held())
    rows.run("UPDATE jobs SET lease_until = now() + interval '1 second'")
    leases.step()
    assert rows.one("SELECT lease_until > now() + interval '30 seconds' FROM jobs")
    gate.set()
    running.join(10)
    assert (rows.states()[job_id], leases.held()) == (JobState.COMPLETED, 0)


def test_a_worker_whose_job_was_given_to_another_drops_its_answer(
    rows: Rows, make_runner: MakeRunner
) -> None:
    gate = Event()
    engine = FakeEngine(gate=gate, answer=lambda request: f"by the slow one {echo(request)}")
    (job_id,) = rows.add_jobs(1, batch_id="batch_1", state="queued")
    slow = Thread(target=make_runner(engine).run, args=([job_id],))
    slow.start()
    eventually(lambda: engine.joined)
    rows.run("UPDATE jobs SET state = 'ready'")
    make_runner(FakeEngine(answer=lambda _: "by the second")).run([job_id])
    gate.set()
    slow.join(10)
    assert rows.all("SELECT text FROM answers") == ["by the second"]
    assert rows.counts() == (1, 1, 0)


def test_finished_answers_are_kept_through_an_outage_of_postgres(
    rows: Rows, make_runner: MakeRunner, database: Database
) -> None:
    """The runner's database moves away between claim and record, and comes back after some tries."""
    dead = create_engine("postgresql+psycopg2://nobody@127.0.0.1:1/none", connect_args={"connect_timeout": 1})
    sessions = make_sessions(database)
    pauses: list[float] = []

    def move_away(request: Request) -> str:
        sessions.configure(bind=dead)
        return "kept"

    def come_back(pause_s: float) -> None:
        pauses.append(pause_s)
        if len(pauses) == 3:
            sessions.configure(bind=database)

    (job_id,) = rows.add_jobs(1, batch_id="batch_1", state="queued")
    make_runner(FakeEngine(answer=move_away), sessions=sessions, pause=come_back).run([job_id])
    assert rows.all("SELECT text FROM answers") == ["kept"]
    assert len(pauses) == 3
