"""The engine answers exactly as the library's generate() does one job at a time."""

import json
import random
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from bench.oracle import Oracle, one_by_one
from tests.checkpoints import build_checkpoint
from tests.integration.engine.conftest import MIB, OpenEngine
from tests.integration.engine.steering import submit_together
from tests.observing import Recorder
from tests.requests import ask, mixed_requests, picture
from tests.waiting import eventually
from workers.engine.base import Answer, Engine, FeatureTier, Request, Sampling, TextPart, Turn
from workers.engine.load import Checkpoint, load_checkpoint

REQUESTS = mixed_requests(40, seed=3)


@pytest.fixture(scope="module")
def expected(folder: Path) -> dict[str, Answer]:
    answers, _ = one_by_one(folder, REQUESTS)
    return {request.id: answer for request, answer in zip(REQUESTS, answers, strict=True)}


def shuffled_answers(engine: Engine, requests: Sequence[Request]) -> dict[str, Answer]:
    """Submitted out of order by four threads at once."""
    order = random.Random(7).sample(requests, len(requests))
    with ThreadPoolExecutor(4) as pool:
        futures = list(pool.map(engine.submit, order))
    return {request.id: future.result(timeout=60) for request, future in zip(order, futures, strict=True)}


def test_the_requests_are_of_all_shapes(expected: dict[str, Answer]) -> None:
    assert {len(request.images) for request in REQUESTS} >= {0, 1, 2, 3}
    assert {request.turns[0].role for request in REQUESTS} == {"system", "user"}
    assert any(len(request.turns) > 2 for request in REQUESTS)
    assert {answer.finish_reason for answer in expected.values()} == {"stop", "length"}
    assert len({answer.text for answer in expected.values()}) > 30


def test_shuffled_requests_of_all_shapes_get_the_library_s_answers(
    open_engine: OpenEngine, expected: dict[str, Answer], recorder: Recorder
) -> None:
    assert shuffled_answers(open_engine(), REQUESTS) == expected
    usages = [answer.usage for answer in expected.values()]
    eventually(lambda: recorder.answer_tokens == sum(usage.completion_tokens for usage in usages))
    assert max(recorder.steps) == 4
    assert recorder.joined == len(REQUESTS)  # no step failed and was run again row by row
    assert recorder.prompt_tokens + recorder.cached_tokens == sum(usage.prompt_tokens for usage in usages)


def test_answers_from_cached_features_are_the_same(
    open_engine: OpenEngine, expected: dict[str, Answer], recorder: Recorder
) -> None:
    engine = open_engine(cache_bytes=16 * MIB)
    assert shuffled_answers(engine, REQUESTS) == expected
    encoded = recorder.encoded_images
    recorder.reads.clear()
    assert shuffled_answers(engine, REQUESTS) == expected
    assert recorder.encoded_images == encoded
    eventually(lambda: recorder.joined == 2 * len(REQUESTS))
    assert set(recorder.tiers()) == {FeatureTier.MEMORY}


def test_a_mixture_of_experts_answers_as_the_library_does(tmp_path: Path, open_engine: OpenEngine) -> None:
    folder = build_checkpoint(tmp_path, kind="moe")
    requests = mixed_requests(12, seed=5)
    answers, _ = one_by_one(folder, requests)
    engine = open_engine(checkpoint=load_checkpoint(str(folder)))
    assert list(shuffled_answers(engine, requests).values()) == shuffled_list(requests, answers)


def shuffled_list(requests: Sequence[Request], answers: Sequence[Answer]) -> list[Answer]:
    by_id = {request.id: answer for request, answer in zip(requests, answers, strict=True)}
    return [by_id[request.id] for request in random.Random(7).sample(requests, len(requests))]


def test_text_only_requests_among_pictures_answer_as_alone(
    open_engine: OpenEngine, checkpoint: Checkpoint, oracle: Oracle
) -> None:
    one, two = picture(1), picture(2, 200, 100)
    batch = [ask(one, "colour?"), ask("who?"), ask(two, "colour?"), ask("what is it?"), ask("why")]
    futures = submit_together(open_engine(step_rows=6), checkpoint, batch)
    assert [future.result(timeout=60) for future in futures] == [oracle.answer(each) for each in batch]


def test_a_long_answer_is_not_touched_by_a_request_that_comes_in_the_middle(
    open_engine: OpenEngine, oracle: Oracle, recorder: Recorder
) -> None:
    long, other = ask(picture(1), "tell me all", max_tokens=200), ask(picture(2), "colour?")
    engine = open_engine()
    first = engine.submit(long)
    eventually(lambda: recorder.steps)
    second = engine.submit(other)
    assert first.result(timeout=60) == oracle.answer(long)
    assert second.result(timeout=60) == oracle.answer(other)
    assert max(recorder.steps) == 2


def test_usage_counts_the_tokens_of_pictures_as_the_table_says(
    open_engine: OpenEngine, checkpoint: Checkpoint, shared_cases: Path
) -> None:
    """Field case model-usage-counts; the text alone and an image's two marks are counted beside."""
    table = json.loads((shared_cases / "cases/model/model_tokens.json").read_text())
    rows = [row for row in table if row["max_pixels"] == 262_144 and row["image_tokens"] < 60]
    preprocessor = replace(checkpoint.preprocessor, max_pixels=262_144)
    engine = open_engine(checkpoint=replace(checkpoint, preprocessor=preprocessor))
    pictures = [picture(1, row["width"], row["height"]) for row in rows]
    text = engine.submit(ask("colour?")).result(timeout=60).usage.prompt_tokens
    futures = [engine.submit(ask(image, "colour?")) for image in pictures]
    counted = [future.result(timeout=60).usage.prompt_tokens - text - 2 for future in futures]
    assert counted == [row["image_tokens"] for row in rows]


def test_swapping_two_images_changes_the_answer(open_engine: OpenEngine) -> None:
    engine = open_engine(step_rows=2)
    forth = engine.submit(ask(picture(3), picture(4), "which?", max_tokens=12))
    back = engine.submit(ask(picture(4), picture(3), "which?", max_tokens=12))
    assert forth.result(timeout=60) != back.result(timeout=60)


def test_the_tower_runs_once_for_an_image_that_many_rows_share(
    open_engine: OpenEngine, checkpoint: Checkpoint, recorder: Recorder
) -> None:
    shared = picture(1)
    requests = [ask(shared, f"question {number}") for number in range(5)]
    requests.append(ask(shared, picture(2), shared, "again"))
    futures = submit_together(open_engine(step_rows=7), checkpoint, requests)
    assert all(future.result(timeout=60).text for future in futures)
    assert recorder.joins == [1, 6]
    assert recorder.encoded_images == 2


def test_an_earlier_turn_counts(open_engine: OpenEngine) -> None:
    before = (Turn("user", (TextPart("hi"),)), Turn("assistant", (TextPart("ho"),)))
    engine = open_engine()
    plain, with_turns = ask("colour?", max_tokens=12), ask("colour?", before=before, max_tokens=12)
    assert engine.submit(plain).result(timeout=60) != engine.submit(with_turns).result(timeout=60)


def test_a_seed_gives_the_same_answer_in_any_company(open_engine: OpenEngine, checkpoint: Checkpoint) -> None:
    engine = open_engine()
    drawn = Sampling(max_tokens=12, temperature=1.5, top_p=0.9, top_k=40, seed=11)
    alone = engine.submit(ask(picture(1), "colour?", sampling=drawn)).result(timeout=60)
    requests = [ask(picture(1), "colour?", sampling=drawn), ask("a"), ask("b", sampling=drawn)]
    together = submit_together(engine, checkpoint, requests)
    assert together[0].result(timeout=60) == alone
    other = Sampling(max_tokens=12, temperature=1.5, top_p=0.9, top_k=40, seed=12)
    assert engine.submit(ask(picture(1), "colour?", sampling=other)).result(timeout=60) != alone


def test_a_stop_string_ends_one_row_only(
    open_engine: OpenEngine, checkpoint: Checkpoint, oracle: Oracle
) -> None:
    request = ask(picture(1), "tell me all", max_tokens=40)
    full = oracle.answer(request).text
    stop = full[5:7]
    stopped = ask(picture(1), "tell me all", sampling=Sampling(max_tokens=40, stop=(stop, "")))
    cut, whole = submit_together(open_engine(), checkpoint, [stopped, request])
    assert whole.result(timeout=60).text == full
    assert cut.result(timeout=60).text == full[: full.index(stop)]
    assert cut.result(timeout=60).finish_reason == "stop"
