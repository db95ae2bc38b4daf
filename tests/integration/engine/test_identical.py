"""Random jobs of every shape, in any order: each is answered as `generate()` does alone, if all is right."""

from dataclasses import replace

import pytest
import torch

from bench.identical import Talk, compare, random_talks
from bench.oracle import Oracle
from tests.integration.engine.conftest import MIB, OpenEngine
from tests.observing import Recorder
from workers.engine import forward
from workers.engine.layout import Packed
from workers.engine.load import QwenModel

JOBS = 500
TALKS = random_talks(JOBS, seed=4)
FEW = random_talks(30, seed=5)


def differing(open_engine: OpenEngine, oracle: Oracle, talks: list[Talk]) -> list[str]:
    """Jobs that another answer was given to; rows come and go, and prefixes have to leave, too."""
    engine = open_engine(step_rows=8, prefix_cache_bytes=MIB, cache_bytes=MIB)
    return [name for name, same in compare(engine, oracle, talks) if not same]


def test_every_job_is_answered_as_alone(open_engine: OpenEngine, oracle: Oracle, recorder: Recorder) -> None:
    assert differing(open_engine, oracle, TALKS) == []
    assert max(recorder.steps) > 4
    assert recorder.cached_tokens > 0.2 * recorder.prompt_tokens


def test_the_jobs_are_of_every_shape() -> None:
    requests = [talk.first for talk in TALKS]
    assert sum(talk.jobs for talk in TALKS) == JOBS
    assert {len(request.images) for request in requests} >= {0, 1, 2, 3}
    assert {len(talk.next) for talk in TALKS} == {0, 1, 2}
    assert any(talk.disturbed for talk in TALKS)
    assert any(request.turns[0].role == "system" for request in requests)
    assert len({image for request in requests for image in request.images}) < len(requests) / 4


def test_broken_positions_show(
    open_engine: OpenEngine, oracle: Oracle, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Text that follows an image is one place further on than it should be."""
    step = forward.step

    def shifted(model: QwenModel, packed: Packed) -> torch.Tensor:
        positions = packed.positions.clone()
        text, rope = positions[0], positions[1:]
        rope[(rope < text).expand_as(rope) & (rope[0] == rope[1]) & (rope[1] == rope[2])] += 1
        return step(model, replace(packed, positions=positions))

    monkeypatch.setattr(forward, "step", shifted)
    with_images = [talk for talk in FEW if talk.first.images]
    assert len(differing(open_engine, oracle, with_images)) > len(with_images) / 4


def test_swapped_features_show(
    open_engine: OpenEngine, oracle: Oracle, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two images of the same size, each with what the tower gave for the other."""
    step = forward.step

    def swapped(model: QwenModel, packed: Packed) -> torch.Tensor:
        return step(model, replace(packed, features=packed.features[::-1]))

    monkeypatch.setattr(forward, "step", swapped)
    several = [talk for talk in random_talks(60, seed=6) if len(talk.first.images) > 1]
    assert len(differing(open_engine, oracle, several)) > len(several) / 4
