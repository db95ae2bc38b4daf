"""A worker takes chunks by class, hands back what had no turn and survives any message, on each broker."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from kombu.connection import Connection

from app.config import Settings
from app.db import Sessions
from app.dispatch import Dispatcher
from app.queue import RUN_CHUNK, ChunkSender, chunk_queue, is_amqp
from app.states import JobState, Priority
from tests.asking import ask, completed, dispatched, worker
from tests.rows import Rows
from tests.waiting import eventually


@pytest.fixture
def rows(db: Sessions) -> Rows:
    return Rows(db)


@pytest.fixture
def one_seat(on_broker: Settings) -> Settings:
    """A worker that runs one chunk at a time, a job each, and soon says what waits for its turn."""
    return on_broker.model_copy(update={"worker_threads": 1, "chunk_jobs": 1, "resend_s": 2.0})


@pytest.fixture
def dispatcher(db: Sessions, sender: ChunkSender, one_seat: Settings) -> Dispatcher:
    return Dispatcher(sessions=db, sender=sender, settings=one_seat)


def busy(rows: Rows, dispatcher: Dispatcher, settings: Settings, gate: Path) -> list[int]:
    """A job that takes the only seat until the gate is there."""
    ids = ask(rows, settings, f"wait for {gate}")
    dispatcher.send()
    eventually(lambda: rows.states()[ids[0]] == JobState.RUNNING, within_s=30)
    return ids


def held(rows: Rows) -> Sequence[int]:
    return rows.all("SELECT id FROM jobs WHERE state = 'queued' AND lease_until > now() ORDER BY id")


def test_standard_jobs_go_before_those_of_the_background(
    rows: Rows, db: Sessions, sender: ChunkSender, one_seat: Settings, tmp_path: Path
) -> None:
    gate = tmp_path / "gate"
    patient = one_seat.model_copy(update={"resend_s": 60.0, "turn_kept_s": 3.0})
    dispatcher = Dispatcher(sessions=db, sender=sender, settings=patient)
    with worker(patient, tmp_path):
        first = busy(rows, dispatcher, one_seat, gate)
        leisure = ask(rows, one_seat, "some day?", 3, priority="background")
        dispatcher.send()
        eventually(lambda: sender.depth(one_seat.served_model, Priority.BACKGROUND) == 2)
        standard = ask(rows, one_seat, "now?", 3)
        dispatcher.send()
        gate.touch()
        eventually(lambda: dispatched(dispatcher, rows, [*first, *leisure, *standard]), within_s=30)
    assert rows.all("SELECT id FROM jobs ORDER BY started_at") == [*first, *standard, *leisure]


def test_interactive_jobs_wait_for_no_chunk_to_end(
    rows: Rows, dispatcher: Dispatcher, one_seat: Settings, tmp_path: Path
) -> None:
    gate = tmp_path / "gate"
    with worker(one_seat, tmp_path) as process:
        busy(rows, dispatcher, one_seat, gate)
        ids = ask(rows, one_seat, "hello?", 5, priority="interactive")
        dispatcher.send()
        eventually(lambda: completed(rows, ids))
        gate.touch()
        assert process.terminate() == 0


def test_a_worker_told_to_stop_hands_back_unclaimed_what_had_no_turn(
    rows: Rows, dispatcher: Dispatcher, one_seat: Settings, tmp_path: Path
) -> None:
    gate = tmp_path / "gate"
    with worker(one_seat, tmp_path) as process:
        first = busy(rows, dispatcher, one_seat, gate)
        rest = ask(rows, one_seat, "later?", 4, priority="background")
        dispatcher.send()
        eventually(lambda: held(rows))
        process.send_stop()
        eventually(lambda: JobState.READY in rows.states().values())
        gate.touch()
        assert process.ended(within_s=30) == 0
    assert completed(rows, first)
    assert rows.all("SELECT attempt FROM jobs WHERE id = ANY(:ids)", ids=rest) == [0] * 4
    with worker(one_seat, tmp_path, "second"):
        eventually(lambda: dispatched(dispatcher, rows, rest), within_s=30)
    assert rows.all("SELECT DISTINCT attempt FROM jobs") == [1]


def test_a_killed_worker_loses_no_chunk_that_waited_for_its_turn(
    rows: Rows, dispatcher: Dispatcher, one_seat: Settings, tmp_path: Path
) -> None:
    gate = tmp_path / "gate"
    with worker(one_seat, tmp_path) as process:
        first = busy(rows, dispatcher, one_seat, gate)
        rest = ask(rows, one_seat, "later?", 3, priority="background")
        dispatcher.send()
        eventually(lambda: held(rows))
        process.kill()
    gate.touch()
    with worker(one_seat, tmp_path, "second"):
        eventually(lambda: dispatched(dispatcher, rows, [*first, *rest]), within_s=30)
    assert rows.all("SELECT attempt FROM jobs ORDER BY id") == [2, 1, 1, 1]


def test_what_a_killed_worker_had_in_hand_and_not_yet_claimed_runs_elsewhere_within_a_lease(
    rows: Rows, db: Sessions, sender: ChunkSender, one_seat: Settings, tmp_path: Path
) -> None:
    """Redis keeps such a message for an hour; nobody waits for that, nor for the queue to be empty."""
    gate = tmp_path / "gate"
    changed = one_seat.model_copy(update={"lease_s": 12.0, "heartbeat_s": 1.0, "resend_s": None})
    dispatcher = Dispatcher(sessions=db, sender=sender, settings=changed)
    with worker(changed, tmp_path, "first") as first:
        busy(rows, dispatcher, changed, gate)
        waiting = ask(rows, changed, "in hand?", priority="background")
        dispatcher.send()
        eventually(lambda: sender.depth(changed.served_model, Priority.BACKGROUND) == 0)
        with worker(changed, tmp_path, "second") as second:
            eventually(lambda: second.says("worker_ready"), within_s=30)
            first.kill()
            eventually(lambda: dispatched(dispatcher, rows, waiting), within_s=changed.lease_s + 5)
            gate.touch()
    assert rows.all("SELECT attempt FROM jobs WHERE id = :id", id=waiting[0]) == [1]


TASK = {"task": RUN_CHUNK, "id": "x", "lang": "py", "argsrepr": "", "kwargsrepr": ""}
EMBED = {"callbacks": None, "errbacks": None, "chain": None, "chord": None}
BAD_MESSAGES: dict[str, tuple[bytes, str, dict[str, Any]]] = {
    "no JSON": (b"{", "application/json", TASK),
    "no UTF-8": (b"\xff\xfe", "application/json", TASK),
    "a pickle": (b"\x80\x04N.", "application/x-python-serialize", TASK),
    "no task": (b'{"hello": 1}', "application/json", {}),
    "an unknown task": (
        json.dumps([[[1]], {}, EMBED]).encode(),
        "application/json",
        {**TASK, "task": "other"},
    ),
    "no ids": (json.dumps([["red"], {}, EMBED]).encode(), "application/json", TASK),
    "ids that are none": (json.dumps([[["red", None]], {}, EMBED]).encode(), "application/json", TASK),
    "ids too large": (json.dumps([[[2**70]], {}, EMBED]).encode(), "application/json", TASK),
    "no arguments": (json.dumps([[], {}, EMBED]).encode(), "application/json", TASK),
    "no list": (b"7", "application/json", TASK),
    "null": (b"null", "application/json", TASK),
}


def test_no_message_ends_a_worker(
    rows: Rows, dispatcher: Dispatcher, one_seat: Settings, broker_url: str, tmp_path: Path
) -> None:
    queue = chunk_queue(one_seat.served_model, amqp=is_amqp(broker_url))
    with worker(one_seat, tmp_path) as process, Connection(broker_url) as connection:
        for body, content_type, headers in BAD_MESSAGES.values():
            connection.Producer().publish(
                body,
                content_type=content_type,
                content_encoding="utf-8",
                headers=headers,
                exchange=queue.exchange,
                routing_key=queue.routing_key,
                declare=[queue],
            )
        ids = ask(rows, one_seat, "still there?", 3)
        dispatcher.send()
        eventually(lambda: completed(rows, ids), within_s=30)
        assert process.running()
        assert process.terminate() == 0
