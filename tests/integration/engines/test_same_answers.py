"""Every engine gives the library's answers, and keeps the same promises."""

import json
import random
import time
from collections.abc import Sequence
from concurrent.futures import CancelledError, ThreadPoolExecutor, wait
from dataclasses import replace
from typing import Any

import pytest
import torch

from app.errors import ImageError, InvalidWork, TransientWork
from bench.oracle import Oracle
from tests.integration.engines.conftest import ROWS
from tests.requests import ask, mixed_requests, picture
from tests.waiting import eventually
from workers.engine.base import (
    Answer,
    Choice,
    Engine,
    Image,
    ImagePart,
    JsonObject,
    JsonSchema,
    Note,
    Pixels,
    Request,
    Sampling,
    TextPart,
    Turn,
)

ENDLESS = "tell me all"  # the answer to this never ends by itself
SCHEMA = {
    "type": "object",
    "properties": {"a": {"enum": ["x", "y"]}},
    "required": ["a"],
    "additionalProperties": False,
}
BEFORE = (Turn("user", (TextPart("hi"),)), Turn("assistant", (TextPart("ho"),)))


def answered(engine: Engine, request: Request) -> Answer:
    return engine.submit(request).result(timeout=120)


def answered_all(engine: Engine, requests: Sequence[Request]) -> dict[str, Answer]:
    """Submitted out of order by four threads at once."""
    order = random.Random(7).sample(requests, len(requests))
    with ThreadPoolExecutor(4) as pool:
        futures = list(pool.map(engine.submit, order))
    return {request.id: future.result(timeout=120) for request, future in zip(order, futures, strict=True)}


def essence(answer: Answer) -> tuple[object, ...]:
    return answer.text, answer.finish_reason, answer.usage


def test_requests_of_all_shapes_get_the_library_s_answers(engine: Engine, oracle: Oracle) -> None:
    requests = mixed_requests(40, seed=3)
    got = answered_all(engine, requests)
    expected = {request.id: oracle.answer(request) for request in requests}
    assert {name: essence(answer) for name, answer in got.items()} == {
        name: essence(answer) for name, answer in expected.items()
    }
    assert {answer.finish_reason for answer in expected.values()} == {"stop", "length"}


@pytest.mark.parametrize(
    "request_",
    [
        ask("who?", max_tokens=12),
        ask(picture(1), picture(2, 200, 100), picture(1), "which?", max_tokens=12),
        ask("before", picture(1), "after", max_tokens=12),
        ask(picture(1), "colour?", system="be brief", max_tokens=12),
        ask(picture(1), "colour?", before=BEFORE, max_tokens=12),
        ask(picture(3, 20, 400), "thin?", max_tokens=12),
    ],
    ids=["text", "images", "image-after-text", "system", "turns", "thin"],
)
def test_each_shape_alone(engine: Engine, oracle: Oracle, request_: Request) -> None:
    assert essence(answered(engine, request_)) == essence(oracle.answer(request_))


def test_control_tokens_in_a_text_are_plain_characters(engine: Engine, kind: str) -> None:
    if kind == "vllm-serve":
        pytest.skip("other servers read them as control tokens: docs/engine.md says so")
    plain, marked = answered(engine, ask("x")), answered(engine, ask("<|im_end|>"))
    assert marked.usage.prompt_tokens - plain.usage.prompt_tokens == len("<|im_end|>") - 1


def test_two_images_in_another_order_are_another_question(engine: Engine) -> None:
    forth = answered(engine, ask(picture(3), picture(4), "which?", max_tokens=12))
    back = answered(engine, ask(picture(4), picture(3), "which?", max_tokens=12))
    assert forth.text != back.text


def test_a_lower_pixel_budget_costs_fewer_tokens(engine: Engine) -> None:
    image = picture(1, 400, 400)
    most, fewer = ask(image, "colour?"), ask(image, "colour?", max_pixels=4 * 32 * 32)
    assert answered(engine, most).usage.prompt_tokens - answered(engine, fewer).usage.prompt_tokens == 9 - 4


def test_a_stop_string_ends_the_answer_before_it(engine: Engine, oracle: Oracle) -> None:
    full = oracle.answer(ask(ENDLESS, max_tokens=40)).text
    stop = full[6:8]
    cut = answered(engine, ask(ENDLESS, sampling=Sampling(max_tokens=40, stop=(stop, ""))))
    assert (cut.text, cut.finish_reason) == (full[: full.index(stop)], "stop")


def test_a_seed_draws_the_same_answer_again(engine: Engine) -> None:
    drawn = Sampling(max_tokens=16, temperature=1.5, top_p=0.95, top_k=40, seed=11)
    first = answered(engine, ask(ENDLESS, sampling=drawn))
    others = [ask(ENDLESS, sampling=drawn), ask("a"), ask("b", sampling=replace(drawn, seed=12))]
    futures = [engine.submit(request) for request in others]
    assert essence(futures[0].result(timeout=120)) == essence(first)
    assert answered(engine, ask(ENDLESS, sampling=replace(drawn, seed=12))).text != first.text


def test_a_repetition_penalty_is_the_library_s(engine: Engine, oracle: Oracle) -> None:
    request = ask(picture(1), ENDLESS, max_tokens=24)
    penalised = replace(request, sampling=Sampling(max_tokens=24, repetition_penalty=1.3))
    inputs = oracle.inputs([request])
    output = oracle.model.generate(**inputs, max_new_tokens=24, do_sample=False, repetition_penalty=1.3)
    expected = oracle.processor.decode(output[0, inputs["input_ids"].shape[1] :], skip_special_tokens=True)
    assert answered(engine, penalised).text == expected != oracle.answer(request).text


def test_logprobs_are_the_model_s_own(engine: Engine, oracle: Oracle) -> None:
    request = ask(picture(1), ENDLESS, sampling=Sampling(max_tokens=6, logprobs=3))
    found = answered(engine, request).logprobs
    assert found is not None
    for token, (chosen, top) in zip(found, library_logprobs(oracle, request), strict=True):
        assert token.logprob == pytest.approx(chosen, abs=1e-3)
        assert [share for _, share in token.top] == pytest.approx(top, abs=1e-3)
        assert token.top[0] == (token.token, token.logprob)


def library_logprobs(oracle: Oracle, request: Request) -> list[tuple[float, list[float]]]:
    """Of each token of a greedy answer, and of the three likeliest."""
    with torch.inference_mode():
        output: Any = oracle.model.generate(
            **oracle.inputs([request]),
            max_new_tokens=request.sampling.max_tokens,
            do_sample=False,
            return_dict_in_generate=True,
            output_logits=True,
        )
    rows = [logits[0].log_softmax(-1).topk(3).values.tolist() for logits in output.logits]
    return [(row[0], row) for row in rows]


def test_answers_without_logprobs_have_none(engine: Engine) -> None:
    assert answered(engine, ask("who?")).logprobs is None


def test_an_answer_held_to_json_is_json(engine: Engine) -> None:
    request = replace(ask(picture(1), "colour?", max_tokens=200), constraint=JsonObject())
    answer = answered(engine, request)
    assert answer.finish_reason == "length" or isinstance(json.loads(answer.text), dict)


def test_an_answer_held_to_a_schema_fits_it(engine: Engine) -> None:
    request = replace(ask(picture(1), "colour?", max_tokens=400), constraint=JsonSchema(json.dumps(SCHEMA)))
    assert json.loads(answered(engine, request).text)["a"] in ("x", "y")


def test_an_answer_held_to_a_list_is_one_of_it(engine: Engine) -> None:
    options = ("dark red", "green", "a (b)|c")
    futures = [
        engine.submit(replace(ask(picture(number), "colour?", max_tokens=30), constraint=Choice(options)))
        for number in range(4)
    ]
    assert {future.result(timeout=120).text for future in futures} <= set(options)


def test_json_that_max_tokens_cut_says_so(engine: Engine) -> None:
    request = replace(ask(picture(1), "colour?", max_tokens=2), constraint=JsonSchema(json.dumps(SCHEMA)))
    assert answered(engine, request).finish_reason == "length"


def test_text_is_handed_out_as_it_comes(engine: Engine, oracle: Oracle) -> None:
    pieces: list[str] = []
    request = ask(ENDLESS, max_tokens=20)
    answer = answered(engine, replace(request, on_text=pieces.append))
    assert essence(answer) == essence(oracle.answer(request))
    assert "".join(pieces) == answer.text
    assert len(pieces) > 5


def test_notes_tell_of_circles_and_of_nothing_said(engine: Engine) -> None:
    assert Note.REPETITION in answered(engine, ask(ENDLESS, max_tokens=150)).notes
    assert answered(engine, ask("who?", sampling=Sampling(8, stop=("",)))).notes in ((), (Note.EMPTY,))
    first = answered(engine, ask(ENDLESS, max_tokens=1)).text
    assert Note.EMPTY in answered(engine, ask(ENDLESS, sampling=Sampling(8, stop=(first,)))).notes


def test_cancelled_requests_give_their_rows_to_others(engine: Engine, oracle: Oracle) -> None:
    running = [engine.submit(ask(ENDLESS, max_tokens=3500, tenant=f"{number}")) for number in range(4)]
    assert wait(running, timeout=0.5).done == set()
    for future in running:
        future.cancel()
    request = ask("who?")
    assert essence(engine.submit(request).result(timeout=10)) == essence(oracle.answer(request))
    for future in running:
        with pytest.raises(CancelledError):
            future.result(timeout=10)


def test_a_deadline_ends_a_request(engine: Engine) -> None:
    late = ask("one", deadline=time.monotonic() - 1)
    too_long = ask(ENDLESS, max_tokens=3500, deadline=time.monotonic() + 0.5)
    for future in (engine.submit(late), engine.submit(too_long)):
        with pytest.raises(TransientWork, match="job_timeout"):
            future.result(timeout=10)


def test_what_no_engine_could_answer_is_the_job_s_own_fault(engine: Engine) -> None:
    def broken() -> Pixels:
        raise ImageError("image_corrupt", "half a picture")

    nowhere = replace(ask("where?"), turns=(Turn("user", (ImagePart(2), TextPart("?"))),))
    cases = {
        "invalid_image": ask(picture(1, 804, 4), "colour?"),
        "invalid_max_tokens": ask("colour?", max_tokens=0),
        "context_length_exceeded": ask("x" * 5000),
        "invalid_prompt": nowhere,
        "image_corrupt": ask(Image("hash", 64, 64, broken), "colour?"),
    }
    codes: dict[str, str] = {}
    for code, request in cases.items():
        with pytest.raises(InvalidWork) as caught:
            answered(engine, request)
        codes[code] = caught.value.code
    assert codes == {code: code for code in cases}


def test_close_ends_what_runs_and_sends_the_rest_back(another_engine: Engine) -> None:
    heard: list[list[str]] = [[] for _ in range(ROWS)]
    long = ask(ENDLESS, max_tokens=600)
    running = [another_engine.submit(replace(long, on_text=pieces.append)) for pieces in heard]
    eventually(lambda: all(heard))
    waiting = [another_engine.submit(long) for _ in range(2 * ROWS)]
    another_engine.close()
    another_engine.close()
    assert [future.result(timeout=0).usage.completion_tokens for future in running] == [600] * ROWS
    for future in (*waiting, another_engine.submit(ask("two"))):
        with pytest.raises(TransientWork, match="engine_closed"):
            future.result(timeout=10)


def test_an_engine_says_what_it_serves(engine: Engine) -> None:
    assert (engine.model, bool(engine.revision)) == ("tiny", True)
