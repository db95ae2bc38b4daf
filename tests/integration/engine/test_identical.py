"""Random jobs answer as `generate()` does, and the comparison notices when the model is fed wrongly."""

from typing import Any

from bench.identical import compare, random_talks
from bench.oracle import Oracle
from tests.integration.engine.conftest import MIB, OpenEngine
from tests.requests import mixed_requests
from workers.engine.load import Checkpoint

TALKS = random_talks(60, seed=2)


def equal(engine: Any, oracle: Oracle) -> int:
    return sum(same for _, same in compare(engine, oracle, TALKS))


def test_random_jobs_and_their_next_turns_get_the_library_s_answers(
    open_engine: OpenEngine, oracle: Oracle
) -> None:
    assert equal(open_engine(cache_bytes=MIB), oracle) == 60


def test_wrong_rope_positions_are_noticed(
    open_engine: OpenEngine, oracle: Oracle, checkpoint: Checkpoint
) -> None:
    rope: Any = checkpoint.model.model.language_model.rotary_emb
    right = rope.forward

    def wrong(x: Any, position_ids: Any) -> Any:
        """Heights where the widths belong."""
        return right(x, position_ids[[0, 2, 1]] if len(position_ids) == 3 else position_ids)

    rope.forward = wrong
    assert equal(open_engine(), oracle) < 60


def test_features_in_the_wrong_order_are_noticed(
    open_engine: OpenEngine, oracle: Oracle, checkpoint: Checkpoint
) -> None:
    tower: Any = checkpoint.model.model.visual
    right = tower.forward

    def wrong(*args: Any, **options: Any) -> Any:
        output = right(*args, **options)
        output.pooler_output = output.pooler_output.flip(0)
        return output

    tower.forward = wrong
    assert equal(open_engine(), oracle) < 60


def test_batched_generate_answers_as_one_by_one(oracle: Oracle) -> None:
    """The yardstick's two ways agree, so that either may stand for the library."""
    requests = mixed_requests(12, seed=9)
    assert oracle.answer_batches(requests, 5) == [oracle.answer(request) for request in requests]
