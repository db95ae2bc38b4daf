"""A worker process around vLLM: it answers jobs, and ends when vLLM dies, so that another takes them."""

import os
import signal
from collections.abc import Iterator
from contextlib import ExitStack
from importlib.util import find_spec
from pathlib import Path

import httpx
import psutil
import pytest

from app.auth import Keys
from app.config import Settings
from app.db import Sessions
from bench.oracle import Oracle
from tests.integration.engines.conftest import NO_VLLM, answers
from tests.processes import Process, free_port
from tests.requests import ask
from tests.waiting import eventually

pytestmark = pytest.mark.skipif(find_spec("vllm") is None, reason=NO_VLLM)
START_S = 150


@pytest.fixture
def chosen(settings: Settings, folder: Path) -> Settings:
    return settings.model_copy(
        update={
            "engine": "vllm",
            "model": str(folder),
            "model_name": "tiny",
            "port": free_port(),
            "lease_s": 3.0,
            "heartbeat_s": 0.5,
            "step_rows": 4,
        }
    )


@pytest.fixture
def http(chosen: Settings, db: Sessions, tmp_path: Path) -> Iterator[httpx.Client]:
    """The API and the dispatcher run; a client of theirs."""
    key = Keys(sessions=db).create(tenant="ada", name="test").secret
    url = f"http://127.0.0.1:{chosen.port}"
    with ExitStack() as stack:
        stack.enter_context(Process("app.main", chosen, tmp_path / "api.log"))
        stack.enter_context(Process("app.dispatcher", chosen, tmp_path / "dispatcher.log"))
        eventually(lambda: answers(f"{url}/healthz"), within_s=60)
        headers = {"Authorization": f"Bearer {key}"}
        yield stack.enter_context(httpx.Client(base_url=f"{url}/v1", headers=headers, timeout=60))


def submitted(http: httpx.Client, question: str, max_tokens: int) -> str:
    reply = http.post("/jobs", json={"model": "tiny", "question": question, "max_tokens": max_tokens})
    assert reply.is_success, reply.text
    return reply.json()["id"]


def state(http: httpx.Client, job: str) -> str:
    return http.get(f"/jobs/{job}").json()["status"]


def test_a_worker_ends_with_its_vllm_and_another_answers_its_job(
    chosen: Settings, http: httpx.Client, oracle: Oracle, tmp_path: Path
) -> None:
    with Process("workers.main", chosen, tmp_path / "worker.log") as worker:
        first = submitted(http, "who?", 8)
        eventually(lambda: state(http, first) == "completed", within_s=START_S)
        assert oracle.answer(ask("who?", max_tokens=8)).text in http.get(f"/jobs/{first}").text
        second = submitted(http, "tell me all", 1000)
        eventually(lambda: state(http, second) == "running")
        kill_core(worker)
        assert worker.ended(30) == os.EX_SOFTWARE
        assert worker.says("engine_died")
    with Process("workers.main", chosen, tmp_path / "worker2.log") as other:
        eventually(lambda: state(http, second) == "completed", within_s=START_S)
        assert other.terminate(60) == 0


def kill_core(worker: Process) -> None:
    for child in psutil.Process(worker.pid).children(recursive=True):
        if "EngineCore" in " ".join(child.cmdline()):
            os.kill(child.pid, signal.SIGKILL)
