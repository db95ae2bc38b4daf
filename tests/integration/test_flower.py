"""Flower shows our chunks by name and number of jobs: no question, and nothing without the password."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from app.config import Settings
from app.db import Sessions
from app.dispatch import Dispatcher
from app.queue import RUN_CHUNK, ChunkSender, make_celery
from tests.asking import ask, dispatched, worker
from tests.processes import free_port
from tests.rows import Rows
from tests.waiting import eventually

LOGIN = ("vqueue", "secret")
CALLS = ("/api/tasks", "/api/workers?refresh=1", "/api/task/types", "/tasks", "/workers")


@pytest.fixture
def flower(on_broker: Settings, tmp_path: Path) -> Iterator[httpx.Client]:
    """Flower as docker-compose.yml starts it."""
    port = free_port()
    variables = {
        "CELERY_BROKER_URL": on_broker.broker_url.get_secret_value(),
        "FLOWER_BASIC_AUTH": ":".join(LOGIN),
        "FLOWER_READ_ONLY": "True",
        "FLOWER_PORT": str(port),
        "FLOWER_ADDRESS": "127.0.0.1",
    }
    with (tmp_path / "flower.log").open("wb") as log:
        command = [sys.executable, "-m", "celery", "flower"]
        process = subprocess.Popen(command, env={**os.environ, **variables}, stdout=log, stderr=log)
    with httpx.Client(base_url=f"http://127.0.0.1:{port}", auth=LOGIN, timeout=60) as client:
        yield client
    process.kill()
    process.wait()


def answers(flower: httpx.Client) -> bool:
    try:
        return flower.get("/healthcheck").status_code == 200
    except httpx.TransportError:
        return False


def shown(flower: httpx.Client) -> str:
    """All that Flower tells, while it runs or afterwards."""
    return "".join(flower.get(call).text for call in CALLS)


@pytest.mark.parametrize("broker_url", ["rabbitmq"], indirect=True)
def test_flower_shows_chunks_and_no_contents_and_takes_no_orders(
    flower: httpx.Client,
    db: Sessions,
    sender: ChunkSender,
    on_broker: Settings,
    tmp_path: Path,
) -> None:
    rows, gate = Rows(db), tmp_path / "private.jpg"
    dispatcher = Dispatcher(sessions=db, sender=sender, settings=on_broker)
    control = make_celery(on_broker).control
    with worker(on_broker, tmp_path):
        eventually(lambda: answers(flower), within_s=60)
        eventually(lambda: any(flower.get("/api/workers?status=1").json().values()), within_s=60)
        # Flower asks for events every 5 s: by then this chunk would be on its way.
        eventually(lambda: "already" in str(control.enable_events(reply=True)), within_s=60)
        ids = ask(rows, on_broker, f"wait for {gate}", 3)
        dispatcher.send()
        tasks = eventually(lambda: flower.get("/api/tasks").json(), within_s=30)
        running = shown(flower)
        gate.touch()
        eventually(lambda: dispatched(dispatcher, rows, ids), within_s=30)
        eventually(lambda: "SUCCESS" in flower.get("/api/tasks").text, within_s=30)
        refused = flower.post(f"/api/worker/shutdown/{tasks.popitem()[1]['worker']}").status_code
        done = shown(flower)
    (task,) = flower.get("/api/tasks").json().values()
    assert (task["name"], task["args"], task["kwargs"]) == (RUN_CHUNK, "(3 jobs)", "{}")
    assert "private.jpg" not in running + done
    assert "wait for" not in running + done
    assert refused == 403
    assert [httpx.get(f"{flower.base_url}{call}").status_code for call in CALLS] == [401] * len(CALLS)
