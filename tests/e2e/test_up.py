"""`vqueue up` as a user starts it: real servers, real processes, a tiny real model."""

import base64
import io
import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest
from PIL import Image

from app.objects import ObjectStore
from tests.checkpoints import build_checkpoint
from tests.processes import free_port
from tests.waiting import eventually

UP_WITHIN_S = 120
STOP_WITHIN_S = 90
COMMAND = (sys.executable, "-m", "app.cli.main")


@dataclass
class Machine:
    """One `vqueue up` at work."""

    process: subprocess.Popen[bytes]
    data: Path
    port: int

    @property
    def key(self) -> str:
        return (self.data / "api-key").read_text()

    def said(self) -> str:
        return (self.data / "said.log").read_text()

    def ask(self) -> dict[str, Any]:
        """A job's JSON once it has ended."""
        with httpx.Client(base_url=f"http://127.0.0.1:{self.port}", timeout=20) as http:
            http.headers["Authorization"] = f"Bearer {self.key}"
            body = {"question": "What is it?", "image": picture(), "max_tokens": 4}
            job = http.post("/v1/jobs", json=body).raise_for_status().json()
            eventually(lambda: ended(http.get(f"/v1/jobs/{job['id']}").json()), within_s=UP_WITHIN_S)
            return http.get(f"/v1/jobs/{job['id']}").json()

    def child(self, command: str) -> psutil.Process:
        """The process of ours that runs this command."""
        children = psutil.Process(self.process.pid).children()
        return next(child for child in children if child.cmdline()[-1] == command)

    def stop(self) -> int:
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(STOP_WITHIN_S)


def picture() -> str:
    out = io.BytesIO()
    Image.new("RGB", (64, 64), "red").save(out, "PNG")
    return f"data:image/png;base64,{base64.b64encode(out.getvalue()).decode()}"


def ended(job: dict[str, Any]) -> bool:
    return job["status"] in ("completed", "failed")


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_checkpoint(tmp_path_factory.mktemp("models") / "tiny")


@pytest.fixture(scope="module")
def data() -> Iterator[Path]:
    """The data folder of `machine`."""
    with data_folder() as folder:
        yield folder


@contextmanager
def data_folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="vqueue-test-") as folder:
        Path(folder).chmod(0o711)  # PostgreSQL's own user has to pass through
        yield Path(folder)


def without_settings() -> dict[str, str]:
    """The environment of this process, free of our variables."""
    return {name: value for name, value in os.environ.items() if not name.startswith("VQUEUE_")}


def vqueue(*arguments: str) -> subprocess.CompletedProcess[str]:
    """A command that ends by itself."""
    return subprocess.run(
        [*COMMAND, *arguments], env=without_settings(), capture_output=True, text=True, check=False
    )


@contextmanager
def up(data: Path, model: Path, *options: str) -> Iterator[Machine]:
    """Start it and wait until it says so; killed at the end if it has not stopped by itself."""
    port = free_port()
    command = [*COMMAND, "up", "--data", str(data), "--port", str(port), *options]
    environment = without_settings() | {
        "VQUEUE_MODEL": str(model),
        "VQUEUE_TORCH_THREADS": "1",
        "VQUEUE_DTYPE": "float32",
        "VQUEUE_S3_SOURCE_BUCKETS": "photos",
        "VQUEUE_SWEEP_BUCKETS": "photos,answers",
    }
    said = data / "said.log"
    with (
        said.open("wb") as output,
        subprocess.Popen(command, env=environment, stdout=output, stderr=output) as process,
    ):
        try:
            eventually(
                lambda: "vqueue is up" in said.read_text() or process.poll() is not None, within_s=UP_WITHIN_S
            )
            assert process.poll() is None, said.read_text()
            yield Machine(process, data, port)
        finally:
            process.kill()


@pytest.fixture(scope="module")
def machine(data: Path, model: Path) -> Iterator[Machine]:
    """One that several tests use."""
    with up(data, model) as machine:
        yield machine


def test_one_command_answers_a_job(machine: Machine) -> None:
    assert machine.ask()["status"] == "completed"


def test_the_buckets_that_the_settings_name_are_there_and_the_store_is_told(machine: Machine) -> None:
    (told,) = (line for line in machine.said().splitlines() if line.startswith("  S3 "))
    secret = json.loads((machine.data / "state.json").read_text())["secrets"]["seaweed"]
    for bucket in ("photos", "answers"):
        store = ObjectStore(
            bucket=bucket, endpoint_url=told.split()[1], access_key_id="vqueue", secret_access_key=secret
        )
        assert store.reachable()
        store.close()


def test_processes_that_are_killed_come_back(machine: Machine) -> None:
    machine.child("dispatcher").kill()
    machine.child("worker").kill()
    assert machine.ask()["status"] == "completed"
    said = machine.said()
    assert "dispatcher ended (signal 9)" in said
    assert "worker ended (signal 9)" in said


def test_a_second_supervisor_of_the_folder_is_refused(machine: Machine) -> None:
    second = vqueue("up", "--data", str(machine.data), "--port", str(free_port()))
    assert second.returncode == 1
    assert f"is in use by another supervisor (pid {machine.process.pid}): stop it, or" in second.stdout


def test_keys_and_migrate_find_the_database_of_a_data_folder(machine: Machine) -> None:
    data = ("--data", str(machine.data))
    assert vqueue("migrate", *data).stdout.startswith("schema at ")
    made = vqueue("keys", "create", "--tenant", "Ada", *data)
    assert made.returncode == 0
    assert made.stdout[:9] in vqueue("keys", "list", *data).stdout


def test_a_model_that_is_refused_stops_everything_with_the_reason(tmp_path: Path) -> None:
    with data_folder() as data:
        command = [*COMMAND, "up", "--data", str(data), "--port", str(free_port())]
        done = subprocess.run(
            command,
            env=without_settings() | {"VQUEUE_MODEL": str(tmp_path / "none")},
            capture_output=True,
            text=True,
            check=False,
            timeout=UP_WITHIN_S,
        )
        assert done.returncode == 1
        assert "worker ended (exit code 78)" in done.stdout
        reason = "model_refused: model_not_found: The model 'none' cannot be loaded: no model at"
        assert f"{data}/logs/worker.log: {reason}" in done.stdout
        assert "again in" not in done.stdout
        assert len((data / "logs" / "worker.log").read_text().splitlines()) == 1


def test_rabbitmq_carries_the_messages_as_well_and_all_stop_cleanly(model: Path) -> None:
    with data_folder() as data, up(data, model, "--broker", "rabbitmq") as machine:
        assert machine.ask()["status"] == "completed"
        children = psutil.Process(machine.process.pid).children(recursive=True)
        assert machine.stop() == 0
        assert "killed" not in machine.said()
    # Helpers that a server had started end a moment after it.
    eventually(lambda: not any(child.is_running() for child in children))


def test_the_second_start_finds_the_key_and_a_kill_leaves_nothing_behind(model: Path) -> None:
    with data_folder() as data:
        with up(data, model, "--no-worker") as first:
            key = first.key
            assert key in first.said()
            assert first.stop() == 0
        with up(data, model, "--no-worker") as second:
            assert second.key == key
            assert key not in second.said()
            children = psutil.Process(second.process.pid).children(recursive=True)
            second.process.kill()
            eventually(lambda: not any(child.is_running() for child in children), within_s=30)
