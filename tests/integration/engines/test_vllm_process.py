"""vLLM in this process: whose prefixes are shared, and what its death does."""

import multiprocessing
import os
import signal
from collections.abc import Iterator
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

import psutil
import pytest

from app.errors import FatalWork
from tests.integration.engines.conftest import NO_VLLM, vllm_engine
from tests.requests import ask, picture
from tests.waiting import eventually
from workers.engine.base import Engine, Image

pytestmark = pytest.mark.skipif(find_spec("vllm") is None, reason=NO_VLLM)
BIG = picture(7, 300, 300)


@pytest.fixture(scope="module")
def deaths() -> list[str]:
    return []


@pytest.fixture(scope="module")
def vllm(folder: Path, deaths: list[str]) -> Iterator[Engine]:
    with vllm_engine(folder, on_death=deaths.append) as engine:
        yield engine


def cached(engine: Engine, image: Image, tenant: str, scope: str | None = None) -> int:
    request = replace(ask(image, "what is in this picture, please?", tenant=tenant), scope=scope)
    return engine.submit(request).result(timeout=60).usage.cached_tokens


def test_a_tenant_s_second_question_reads_its_prefix(vllm: Engine) -> None:
    assert cached(vllm, BIG, "ada") == 0
    assert cached(vllm, BIG, "ada") > 0


def test_tenants_share_prefixes_only_in_a_common_scope(vllm: Engine) -> None:
    cached(vllm, BIG, "ada")
    assert cached(vllm, BIG, "bob") == 0
    assert cached(vllm, BIG, "ada", scope="all") == 0
    assert cached(vllm, BIG, "bob", scope="all") > 0


def test_another_picture_under_the_same_question_is_not_taken_for_the_first(vllm: Engine) -> None:
    question = "what is in this picture, please?"
    first = vllm.submit(ask(picture(8), question, max_tokens=20)).result(timeout=60)
    second = vllm.submit(ask(picture(9), question, max_tokens=20)).result(timeout=60)
    assert first.text != second.text


def test_a_killed_engine_is_told_of_and_fails_what_it_had(vllm: Engine, deaths: list[str]) -> None:
    """The last test: nothing can be asked afterwards."""
    running = vllm.submit(ask("tell me all", max_tokens=3500))
    signal_core(signal.SIGKILL)
    with pytest.raises(FatalWork, match="engine_died"):
        running.result(timeout=20)
    eventually(lambda: deaths)
    with pytest.raises(FatalWork, match="engine_died"):
        vllm.submit(ask("anybody?")).result(timeout=20)
    assert len(deaths) == 1


def test_an_engine_that_says_nothing_for_too_long_is_given_up(folder: Path) -> None:
    deaths: list[str] = []
    with vllm_engine(folder, on_death=deaths.append, stall_s=2.0) as engine:
        engine.submit(ask("who?")).result(timeout=60)
        signal_core(signal.SIGSTOP)
        with pytest.raises(FatalWork, match="engine_died: vLLM gave no token for 2 s"):
            engine.submit(ask("anybody?")).result(timeout=20)
        assert len(deaths) == 1
        eventually(lambda: multiprocessing.active_children() == [])


def signal_core(number: int) -> None:
    """To vLLM's own processes below this one."""
    for child in psutil.Process().children(recursive=True):
        if child.cmdline() and child.cmdline()[0].startswith("VLLM::"):
            os.kill(child.pid, number)
