"""Chunks travel through a real broker, each kind of broker alike, to a real worker process."""

from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from uuid import uuid4

import pytest
from kombu.connection import Connection
from pydantic import SecretStr

from app.config import Settings, read_option
from app.db import Sessions
from app.dispatch import Dispatcher
from app.errors import TransientWork
from app.model_list import read_models
from app.planner import Chunk
from app.queue import ChunkSender, chunk_queue, is_amqp, make_celery
from app.states import JobState
from tests.asking import ask, completed, dispatched, worker
from tests.cutting import cutting
from tests.processes import Process
from tests.rows import Rows
from tests.waiting import eventually


@pytest.fixture
def rows(db: Sessions) -> Rows:
    return Rows(db)


@pytest.fixture
def dispatcher(db: Sessions, sender: ChunkSender, on_broker: Settings) -> Dispatcher:
    return Dispatcher(sessions=db, sender=sender, settings=on_broker)


def bound_queue(connection: Connection, settings: Settings) -> Any:  # kombu's entities are not typed
    amqp = is_amqp(settings.broker_url.get_secret_value())
    channel: Any = connection.channel()
    return chunk_queue(settings.served_model, amqp=amqp).bind(channel)


def test_published_chunks_wait_on_the_broker(sender: ChunkSender, on_broker: Settings) -> None:
    model = on_broker.served_model
    sender.send([Chunk(model, (number,)) for number in range(1500)])
    assert eventually(lambda: sender.depth(model) == 1500)


def test_a_message_is_json_with_ids_and_nothing_else(
    sender: ChunkSender, on_broker: Settings, broker_url: str
) -> None:
    sender.send([Chunk(on_broker.served_model, (7, 8))])
    with Connection(broker_url) as connection:
        message = eventually(lambda: bound_queue(connection, on_broker).get(no_ack=True))
    assert message.content_type == "application/json"
    assert message.payload[0] == [[7, 8]]


def test_a_broker_that_is_away_is_a_transient_error(on_broker: Settings, broker_url: str) -> None:
    scheme = broker_url.split("://")[0]
    away = on_broker.model_copy(update={"broker_url": SecretStr(f"{scheme}://127.0.0.1:1//")})
    sender = ChunkSender(celery=make_celery(away), amqp=is_amqp(broker_url))
    with pytest.raises(TransientWork, match="broker_unavailable"):
        sender.send([Chunk("m", (1,))])


def test_jobs_go_through_the_broker_to_a_worker_and_come_back_answered(
    rows: Rows, dispatcher: Dispatcher, on_broker: Settings, tmp_path: Path
) -> None:
    ids = ask(rows, on_broker, "red?", count=100)
    dispatcher.send()
    with worker(on_broker, tmp_path) as process:
        eventually(lambda: completed(rows, ids))
        assert process.terminate() == 0
    assert rows.all("SELECT DISTINCT text FROM answers") == ["red?"]
    assert rows.one("SELECT count(*) FROM workers") == 0


def test_a_killed_worker_loses_nothing_and_another_ends_its_jobs(
    rows: Rows, dispatcher: Dispatcher, on_broker: Settings, tmp_path: Path
) -> None:
    gate = tmp_path / "gate"
    ids = ask(rows, on_broker, f"wait for {gate}", count=3)
    dispatcher.send()
    with worker(on_broker, tmp_path, "first"):
        eventually(lambda: set(rows.states().values()) == {JobState.RUNNING})
    gate.touch()
    with worker(on_broker, tmp_path, "second"):
        eventually(lambda: dispatched(dispatcher, rows, ids), within_s=30)
    assert rows.all("SELECT attempt FROM jobs") == [2, 2, 2]
    assert rows.one("SELECT count(*) FROM answers") == 3


def test_a_worker_that_dies_between_record_and_ack_has_its_message_delivered_for_nothing(
    rows: Rows, dispatcher: Dispatcher, on_broker: Settings, tmp_path: Path
) -> None:
    marker = tmp_path / "die"
    marker.touch()
    ids = ask(rows, on_broker, "once?", count=3)
    dispatcher.send()
    log = tmp_path / "first.log"
    with Process("tests.fake_worker", on_broker, log, DIE_BEFORE_ACK=str(marker)) as process:
        eventually(lambda: not process.running(), within_s=40)
    assert completed(rows, ids)
    (after,) = ask(rows, on_broker, "another?")
    dispatcher.send()
    with worker(on_broker, tmp_path, "second"):
        eventually(lambda: completed(rows, [after]), within_s=30)
    assert rows.all("SELECT DISTINCT attempt FROM jobs") == [1]
    assert rows.one("SELECT count(*) FROM answers") == 4


def test_a_job_that_kills_every_worker_ends_as_engine_crash_and_spares_the_others(
    rows: Rows, dispatcher: Dispatcher, on_broker: Settings, tmp_path: Path
) -> None:
    (poison,) = ask(rows, on_broker, "die")
    others = ask(rows, on_broker, "fine?", count=2)
    for attempt in range(3):
        dispatcher.send()
        with worker(on_broker, tmp_path, f"worker{attempt}") as process:
            eventually(lambda process=process: not process.running(), within_s=40)
        eventually(lambda: dispatcher.reap() or JobState.RUNNING not in rows.states().values())
    dispatcher.send()
    with worker(on_broker, tmp_path, "last"):
        eventually(lambda: completed(rows, others), within_s=30)
    assert rows.one("SELECT error_code FROM jobs WHERE id = :id", id=poison) == "engine_crash"


def test_a_worker_told_to_stop_ends_what_runs_and_leaves_the_rest_to_others(
    rows: Rows, dispatcher: Dispatcher, on_broker: Settings, tmp_path: Path
) -> None:
    gate = tmp_path / "gate"
    held = ask(rows, on_broker, f"wait for {gate}", count=2)
    with worker(on_broker, tmp_path, "first") as process:
        dispatcher.send()
        eventually(lambda: set(rows.states().values()) == {JobState.RUNNING})
        process.send_stop()
        eventually(lambda: process.says("worker_drains"))
        rest = ask(rows, on_broker, "later?")
        dispatcher.send()
        gate.touch()
        assert process.ended(within_s=30) == 0
    assert completed(rows, held)
    with worker(on_broker, tmp_path, "second"):
        eventually(lambda: dispatched(dispatcher, rows, rest))
    assert rows.all("SELECT DISTINCT attempt FROM jobs") == [1]


def test_a_worker_that_cannot_end_in_time_hands_its_jobs_back(
    rows: Rows, dispatcher: Dispatcher, on_broker: Settings, tmp_path: Path
) -> None:
    """The one row of the fake engine is busy; it goes back with what waits when the grace time is over."""
    gate = tmp_path / "gate"
    hasty = on_broker.model_copy(update={"drain_s": 0.2, "step_rows": 1})
    ask(rows, on_broker, f"wait for {gate}")
    ask(rows, on_broker, "behind it?", count=3)
    dispatcher.send()
    with worker(hasty, tmp_path) as process:
        eventually(lambda: set(rows.states().values()) == {JobState.RUNNING})
        process.send_stop()
        eventually(lambda: set(rows.states().values()) == {JobState.READY})
        gate.touch()  # the fake engine cannot be interrupted
        assert process.ended(within_s=30) == 0
    assert set(rows.all("SELECT attempt - returns FROM jobs")) == {0}


def test_a_purged_queue_is_filled_again(
    rows: Rows, dispatcher: Dispatcher, on_broker: Settings, broker_url: str, tmp_path: Path
) -> None:
    ids = ask(rows, on_broker, "lost?", count=5)
    dispatcher.send()
    with Connection(broker_url) as connection:
        eventually(lambda: bound_queue(connection, on_broker).purge() > 0)
    with worker(on_broker, tmp_path):
        eventually(lambda: dispatched(dispatcher, rows, ids), within_s=30)


def test_a_message_delivered_twice_stores_one_answer(
    rows: Rows, dispatcher: Dispatcher, sender: ChunkSender, on_broker: Settings, tmp_path: Path
) -> None:
    ids = ask(rows, on_broker, "twice?", count=4)
    dispatcher.send()
    sender.send([Chunk(on_broker.served_model, tuple(ids))])
    with worker(on_broker, tmp_path) as process:
        eventually(lambda: process.output().count('"chunk_claimed"') == 2)
        eventually(lambda: completed(rows, ids))
    assert rows.one("SELECT count(*) FROM answers") == 4
    assert rows.all("SELECT DISTINCT attempt FROM jobs") == [1]


@pytest.fixture
def two_models(on_broker: Settings) -> Settings:
    """The same broker for two models of the test's own, neither yet with a queue."""
    names = [f"{size}{uuid4().hex[:8]}" for size in ("small", "large")]
    models = read_models(",".join(f"{name}=/models/{name}" for name in names), read_option)
    return on_broker.model_copy(update={"models": models, "chunk_jobs": 1})


def test_one_worker_serves_two_models_and_a_busy_one_holds_up_no_other(
    rows: Rows, db: Sessions, sender: ChunkSender, two_models: Settings, tmp_path: Path
) -> None:
    """The large model has more chunks than the worker has threads, and ends none of them for now."""
    small, large = two_models.served_models
    gate = tmp_path / "gate"
    dispatcher = Dispatcher(sessions=db, sender=sender, settings=two_models)
    for busy, quick in ((large, small), (small, large)):
        gate.unlink(missing_ok=True)
        with worker(two_models, tmp_path, f"{busy}-is-busy") as process:
            eventually(lambda process=process: process.says("worker_ready"), within_s=30)
            held = ask(rows, two_models, f"wait for {gate}", count=8, model=busy)
            dispatcher.send()
            eventually(lambda: "running" in rows.states().values())
            ids = ask(rows, two_models, "quick?", count=8, model=quick)
            dispatcher.send()
            eventually(lambda ids=ids: completed(rows, ids), within_s=20)
            gate.touch()
            eventually(lambda held=held: completed(rows, held), within_s=20)
            assert process.terminate() == 0
    assert rows.all("SELECT DISTINCT a.model = j.model FROM answers a JOIN jobs j ON j.id = a.job_id") == [
        True
    ]
    assert rows.all("SELECT DISTINCT attempt FROM jobs") == [1]


def test_two_workers_serve_a_model_each(
    rows: Rows, db: Sessions, sender: ChunkSender, two_models: Settings, tmp_path: Path
) -> None:
    small, large = two_models.served_models
    dispatcher = Dispatcher(sessions=db, sender=sender, settings=two_models)
    ids = ask(rows, two_models, "small?", model=small) + ask(rows, two_models, "large?", model=large)
    dispatcher.send()
    with worker(two_models.model_copy(update={"worker_models": (small,)}), tmp_path, "first") as first:
        eventually(lambda: completed(rows, ids[:1]), within_s=30)
        assert rows.states()[ids[1]] == JobState.QUEUED
        with worker(two_models.model_copy(update={"worker_models": (large,)}), tmp_path, "second") as second:
            eventually(lambda: completed(rows, ids), within_s=30)
            assert rows.all("SELECT model FROM workers ORDER BY model DESC") == [small, large]
            assert (first.terminate(), second.terminate()) == (0, 0)
    assert rows.one("SELECT count(DISTINCT worker) FROM jobs") == 2
    assert rows.one("SELECT count(*) FROM workers") == 0


def test_a_worker_of_two_models_goes_on_after_the_broker_has_dropped_it(
    rows: Rows, db: Sessions, sender: ChunkSender, two_models: Settings, broker_url: str, tmp_path: Path
) -> None:
    small, large = two_models.served_models
    dispatcher = Dispatcher(sessions=db, sender=sender, settings=two_models)
    with cutting(broker_url) as proxy:
        through = broker_url.replace(
            urlsplit(broker_url).netloc.rpartition("@")[2], urlsplit(proxy.url).netloc
        )
        behind = two_models.model_copy(update={"broker_url": SecretStr(through)})
        with worker(behind, tmp_path) as process:
            for turn in range(3):
                ids = [
                    *ask(rows, two_models, f"turn {turn}", 6, model=small),
                    *ask(rows, two_models, f"turn {turn}", 6, model=large),
                ]
                dispatcher.send()
                eventually(lambda ids=ids: completed(rows, ids), within_s=30)
                proxy.cut()
            assert process.running()
    assert proxy.connections >= 3
    assert rows.one("SELECT count(DISTINCT worker) FROM jobs") == 1
