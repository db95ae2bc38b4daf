"""Fixtures: one small checkpoint, the library's answers from it, and every engine that this machine has."""

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from importlib.util import find_spec
from pathlib import Path

import httpx
import pytest
import torch
from transformers.utils import logging

from bench.checkpoint import WIDE_HEADS, build_tiny
from bench.oracle import Oracle
from tests.openai_server import openai_app
from tests.processes import free_port
from tests.serving import serving
from tests.waiting import eventually
from workers.engine.base import Engine, Silent
from workers.engine.openai import RemoteEngine
from workers.engine.vllm_arguments import VllmSettings

SEED = 5  # of weights with which some answers end by themselves and one goes on for ever
ROWS = 4
NO_VLLM = "vLLM is not installed: scripts/vllm_env builds an environment for scripts/vllm_tests"
VLLM_ENVIRONMENT = {
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    "VLLM_LOGGING_LEVEL": "ERROR",
    "HF_HUB_OFFLINE": "1",
    "OMP_NUM_THREADS": "1",
}


@contextmanager
def transformers_engine(folder: Path) -> Iterator[Engine]:
    from workers.engine.transformers import open_engine

    with closing(
        open_engine(model=str(folder), name="tiny", normaliser="1", observer=Silent(), step_rows=ROWS)
    ) as engine:
        yield engine


@contextmanager
def single_engine(folder: Path) -> Iterator[Engine]:
    from workers.engine.single import open_engine

    with closing(open_engine(model=str(folder), name="tiny", observer=Silent())) as engine:
        yield engine


@contextmanager
def remote_engine(folder: Path) -> Iterator[Engine]:
    """Over HTTP to our own engine."""
    with (
        transformers_engine(folder) as behind,
        serving(openai_app(behind)) as url,
        remote(f"{url}/v1") as engine,
    ):
        yield engine


@contextmanager
def vllm_engine(
    folder: Path, on_death: Callable[[str], None] = pytest.fail, stall_s: float = 300.0
) -> Iterator[Engine]:
    from workers.engine.vllm import open_engine

    settings = VllmSettings(max_num_seqs=ROWS, images_per_prompt=4)
    with closing(
        open_engine(
            model=str(folder),
            name="tiny",
            normaliser="1",
            observer=Silent(),
            settings=settings,
            on_death=on_death,
            stall_s=stall_s,
        )
    ) as engine:
        yield engine


@contextmanager
def vllm_server(folder: Path) -> Iterator[Engine]:
    """Over HTTP to `vllm serve`."""
    port = free_port()
    command = [sys.executable, "-m", "vllm.entrypoints.cli.main", "serve", str(folder), "--port", str(port)]
    command += ["--served-model-name", "tiny", "--dtype", "float32", "--enforce-eager", "--block-size", "32"]
    command += ["--max-num-seqs", str(ROWS), "--limit-mm-per-prompt", '{"image": 4}']
    command += ["--structured-outputs-config", '{"backend": "guidance"}']
    server = subprocess.Popen(command)
    try:
        eventually(lambda: answers(f"http://127.0.0.1:{port}/health"), within_s=240)
        with remote(f"http://127.0.0.1:{port}/v1") as engine:
            yield engine
    finally:
        server.terminate()
        server.wait(60)


def remote(url: str) -> "closing[RemoteEngine]":
    return closing(
        RemoteEngine(
            name="tiny",
            model="tiny",
            url=url,
            observer=Silent(),
            max_pixels=WIDE_HEADS.max_pixels,
            concurrency=8,
        )
    )


def answers(url: str) -> bool:
    try:
        return httpx.get(url).is_success
    except httpx.TransportError:
        return False


KINDS = {"transformers": transformers_engine, "single": single_engine, "remote": remote_engine}
if find_spec("vllm") is not None:
    KINDS |= {"vllm": vllm_engine, "vllm-serve": vllm_server}


@pytest.fixture(scope="session", autouse=True)
def _quiet() -> Iterator[None]:
    """One thread, as the machine is shared, and no progress bars."""
    torch.set_num_threads(1)
    logging.disable_progress_bar()
    with pytest.MonkeyPatch.context() as patch:
        for name, value in VLLM_ENVIRONMENT.items():
            patch.setenv(name, os.environ.get(name, value))
        yield


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_tiny(tmp_path_factory.mktemp("checkpoint"), seed=SEED, shape=WIDE_HEADS)


@pytest.fixture(scope="session")
def oracle(folder: Path) -> Oracle:
    return Oracle(folder)


@pytest.fixture(scope="module", params=KINDS)
def kind(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


@pytest.fixture(scope="module")
def engine(kind: str, folder: Path) -> Iterator[Engine]:
    """One engine of each kind for all tests of a module."""
    with KINDS[kind](folder) as engine:
        yield engine


@pytest.fixture
def another_engine(kind: str, folder: Path) -> Iterator[Engine]:
    """One that a test may close."""
    with ExitStack() as stack:
        yield stack.enter_context(KINDS[kind](folder))
