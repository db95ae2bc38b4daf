"""Two models resident in one process answer side by side as each does alone, and neither is loaded again."""

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from app.config import Settings, read_option
from app.model_list import read_models
from bench.oracle import Oracle
from tests.checkpoints import build_checkpoint
from tests.requests import mixed_requests
from workers.engines import open_one
from workers.pool import EnginePool, open_pool


@pytest.fixture(scope="module")
def other(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_checkpoint(tmp_path_factory.mktemp("other"), seed=1)


@pytest.fixture
def pool(folder: Path, other: Path) -> Iterator[EnginePool]:
    models = read_models(f"first={folder} step_rows=4, second={other} step_rows=3", read_option)
    changes = {"models": models, "feature_cache_redis_bytes": 0, "torch_threads": 1}
    with closing(open_pool(Settings().model_copy(update=changes), open_one)) as pool:
        yield pool


def test_both_answer_at_once_as_each_does_alone(pool: EnginePool, folder: Path, other: Path) -> None:
    requests = mixed_requests(24, seed=5)
    first, second = (pool.resident(name).engine for name in ("first", "second"))
    asked = [(first.submit(request), second.submit(request)) for request in requests]
    answers = [(a.result(60).text, b.result(60).text) for a, b in asked]
    oracles = Oracle(folder), Oracle(other)
    expected = [tuple(oracle.answer(request).text for oracle in oracles) for request in requests]
    assert answers == expected
    assert first.revision != second.revision
