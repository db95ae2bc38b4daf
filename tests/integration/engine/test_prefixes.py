"""What requests have in common is computed once, as long as it is kept, and only within a scope."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from bench.latency import next_turn
from bench.oracle import Oracle
from tests.integration.engine.conftest import MIB, OpenEngine
from tests.integration.engine.steering import submit_together
from tests.observing import Recorder
from tests.requests import ask, picture
from tests.waiting import eventually
from workers.engine.base import Answer, Request
from workers.engine.load import Checkpoint
from workers.engine.transformers import TransformersEngine

INSTRUCTIONS = "answer in one word and say nothing else at all, please"
START = 7  # tokens of "<|im_start|>user\n" and an image's first mark
IMAGE = 6  # tokens of `picture(n)`, without its marks


def run(engine: TransformersEngine, request: Request) -> Answer:
    return engine.submit(request).result(timeout=60)


def cached(engine: TransformersEngine, request: Request) -> int:
    return run(engine, request).usage.cached_tokens


def test_ten_questions_about_an_image_compute_it_once(
    open_engine: OpenEngine, checkpoint: Checkpoint, oracle: Oracle, recorder: Recorder
) -> None:
    requests = [ask(picture(1), f"question {number}") for number in range(10)]
    futures = submit_together(open_engine(step_rows=11), checkpoint, requests)
    answers = [future.result(timeout=60) for future in futures]
    assert answers == [oracle.answer(request) for request in requests]
    prefix = START + IMAGE + 1
    assert sum(answer.usage.cached_tokens for answer in answers) == 9 * prefix
    busy = oracle.answer(ask("busy")).usage.prompt_tokens
    prompts = sum(answer.usage.prompt_tokens for answer in answers)
    assert recorder.prompt_tokens == busy + prompts - 9 * prefix


def test_a_later_question_computes_its_own_words_only(
    open_engine: OpenEngine, oracle: Oracle, recorder: Recorder
) -> None:
    engine = open_engine(prefix_cache_bytes=MIB)
    first, second = ask(picture(1), "colour?"), ask(picture(1), "who is it?")
    assert run(engine, first) == oracle.answer(first)
    answer = run(engine, second)
    assert answer == oracle.answer(second)
    assert answer.usage.cached_tokens == START + IMAGE + 1
    assert recorder.encoded_images == 1


def test_the_least_recently_asked_image_leaves_a_full_cache(
    open_engine: OpenEngine, checkpoint: Checkpoint, recorder: Recorder
) -> None:
    prefix = START + IMAGE + 1
    budget = int(2.5 * prefix * checkpoint.kv_shape.token_bytes)
    engine = open_engine(prefix_cache_bytes=budget)
    asked = [1, 2, 1, 3, 1, 2, 3]
    found = [cached(engine, ask(picture(seed), f"{number}?")) for number, seed in enumerate(asked)]
    assert found == [0, 0, prefix, 0, prefix, 0, 0]


def test_nothing_is_kept_without_a_budget(open_engine: OpenEngine) -> None:
    engine = open_engine()
    assert [cached(engine, ask(picture(1), "colour?")) for _ in range(2)] == [0, 0]


def test_scopes_share_nothing_unless_they_are_one(open_engine: OpenEngine, recorder: Recorder) -> None:
    engine = open_engine(prefix_cache_bytes=MIB)
    request = ask(picture(1), "colour?", system=INSTRUCTIONS * 2)
    assert cached(engine, request) == 0
    assert cached(engine, replace(request, tenant="other")) == 0
    assert cached(engine, replace(request, scope="both")) == 0
    assert cached(engine, replace(request, tenant="other", scope="both")) > 100
    assert recorder.encoded_images == 3


SHAPES: dict[str, Callable[[], Request]] = {
    "an image": lambda: ask(picture(1), "who?", max_tokens=20),
    "several images": lambda: ask(picture(1), picture(2), "both?", max_tokens=20),
    "instructions": lambda: ask(picture(1), "who?", system=INSTRUCTIONS, max_tokens=20),
    "text before": lambda: ask("look at this: ", picture(1), "who?", max_tokens=20),
    "text alone": lambda: ask("who?", max_tokens=20),
    "a long text": lambda: ask("so " * 60, max_tokens=20),
    "an early end": lambda: ask(picture(2), "colour?", max_tokens=20),
}


@pytest.mark.parametrize("shape", SHAPES)
def test_a_next_turn_computes_its_own_words_only(
    open_engine: OpenEngine, oracle: Oracle, recorder: Recorder, shape: str
) -> None:
    """All but the answer's last token, which was never fed where max_tokens ended it, and its end."""
    engine = open_engine(prefix_cache_bytes=8 * MIB)
    first = SHAPES[shape]()
    request, answer, words = first, run(engine, first), ""
    for words in ("and why?", "how many?"):
        known = answer.usage.prompt_tokens + answer.usage.completion_tokens - 1
        request = next_turn(request, answer, words)
        answer = run(engine, request)
        assert answer == oracle.answer(request)
        assert answer.usage.cached_tokens == known
    assert recorder.encoded_images == len(first.images)


def test_another_answer_than_the_engine_s_reuses_what_is_before_it(
    open_engine: OpenEngine, oracle: Oracle
) -> None:
    engine = open_engine(prefix_cache_bytes=MIB)
    first = ask(picture(1), "who?", max_tokens=20)
    answer = run(engine, first)
    request = next_turn(first, replace(answer, text="nobody"), "and why?")
    told = run(engine, request)
    assert told == oracle.answer(request)
    assert told.usage.cached_tokens == START + IMAGE + 1


def test_images_in_another_order_share_only_what_is_before_both(
    open_engine: OpenEngine, oracle: Oracle
) -> None:
    engine = open_engine(prefix_cache_bytes=MIB)
    one, two = picture(1), picture(2)
    first, second, third = ask(one, two, "both?"), ask(two, one, "both?"), ask(one, two, "who?")
    answers = [run(engine, request) for request in (first, second, third)]
    assert answers == [oracle.answer(request) for request in (first, second, third)]
    both = START + 2 * (IMAGE + 2) - 1
    assert [answer.usage.cached_tokens for answer in answers] == [0, 0, both]


def test_long_instructions_are_shared_by_texts_and_images(open_engine: OpenEngine, oracle: Oracle) -> None:
    engine = open_engine(prefix_cache_bytes=8 * MIB)
    system = INSTRUCTIONS * 4
    requests = [ask(picture(seed), "who?", system=system) for seed in (1, 2)] + [ask("who?", system=system)]
    answers = [run(engine, request) for request in requests]
    assert answers == [oracle.answer(request) for request in requests]
    assert answers[0].usage.cached_tokens == 0
    assert min(answer.usage.cached_tokens for answer in answers[1:]) >= len(system)


def test_what_rows_held_is_all_given_back(open_engine: OpenEngine, oracle: Oracle) -> None:
    """No piece is held once nobody runs, and no slot is taken."""
    engine = open_engine(prefix_cache_bytes=8 * MIB)
    requests = [ask(picture(number % 3), "who?", max_tokens=number % 9 + 1) for number in range(20)]
    futures = [engine.submit(request) for request in requests]
    for future in futures[::4]:
        future.cancel()
    for future in futures:
        assert future.cancelled() or future.result(timeout=60)
    steps = engine._steps
    eventually(lambda: not len(steps))
    prefixes = steps._prefixes
    eventually(lambda: prefixes.held == prefixes.kept)
    assert prefixes.held > 0
    assert steps._slots.used == 0
