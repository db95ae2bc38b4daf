"""Settings choose an engine; what is missing for it is told in a sentence."""

import subprocess
import sys
from contextlib import closing
from importlib.util import find_spec

import pytest

from app.config import Settings
from app.errors import FatalWork, TransientWork
from tests.processes import free_port
from workers.engines import open_one


def test_a_remote_engine_needs_its_server_s_address() -> None:
    with pytest.raises(FatalWork, match=r"engine_settings: .*VQUEUE_REMOTE_URL"):
        open_one(Settings(engine="remote"))


def test_a_remote_server_that_is_away_may_come_back() -> None:
    away = Settings(engine="remote", remote_url=f"http://127.0.0.1:{free_port()}/v1")
    with pytest.raises(TransientWork, match="server_unreachable"):
        open_one(away)


def test_one_by_one_the_library_answers_and_no_worker_hoards() -> None:
    settings = Settings(engine_mode="single", device="cpu")
    with closing(open_one(settings)) as engine:
        assert type(engine).__name__ == "SingleEngine"
    assert (settings.rows_at_once, Settings().rows_at_once) == (1, 128)


def test_vllm_has_no_int8_of_ours() -> None:
    with pytest.raises(FatalWork, match=r"engine_settings: .*int8"):
        open_one(Settings(engine="vllm", dtype="int8"))


@pytest.mark.skipif(find_spec("vllm") is not None, reason="vLLM is installed here")
def test_vllm_that_is_not_installed_is_asked_for() -> None:
    with pytest.raises(FatalWork, match=r"engine_missing: .*vqueue\[vllm\]"):
        open_one(Settings(engine="vllm", model="models/demo"))


def test_the_remote_engine_needs_neither_torch_nor_transformers() -> None:
    code = "import sys, workers.engine.openai; print({'torch', 'transformers', 'vllm'} & set(sys.modules))"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == "set()"


def test_a_dead_engine_ends_the_process() -> None:
    code = "from workers.engines import end_process; end_process('it died'); print('still here')"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert ran.returncode == 70
    assert "engine_died" in ran.stdout + ran.stderr
    assert "still here" not in ran.stdout
