"""Rows join, run and leave step by step, and nobody's answer depends on who else is there."""

import json
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import jsonschema
import pytest
import torch
from torch.utils.hooks import RemovableHandle

from app.errors import FatalWork, TransientWork
from bench.oracle import Oracle
from tests.integration.engine.conftest import MIB, OpenEngine
from tests.integration.engine.steering import (
    Pass,
    after_pass,
    before_pass,
    held,
    joining_with,
    submit_together,
    while_busy,
)
from tests.observing import Recorder
from tests.requests import ask, picture
from tests.waiting import eventually
from workers.engine.base import Choice, JsonObject, JsonSchema, Note, Sampling
from workers.engine.load import Checkpoint
from workers.engine.slots import SLOT_TOKENS

LONG = ask("both?", max_tokens=60)  # the model goes on to the end
SCHEMA = {
    "type": "object",
    "properties": {"colour": {"enum": ["red", "blue"]}, "count": {"type": "integer", "maximum": 99}},
    "required": ["colour", "count"],
    "additionalProperties": False,
}


def test_rows_join_while_others_run_and_leave_when_they_are_done(
    open_engine: OpenEngine, checkpoint: Checkpoint, oracle: Oracle, recorder: Recorder
) -> None:
    engine = open_engine()
    lengths = [2, 5, 3]
    requests = [ask(picture(1), "who?", max_tokens=length) for length in lengths]
    with while_busy(engine, checkpoint, replace(LONG, sampling=Sampling(10))) as futures:
        futures += [engine.submit(request) for request in requests]
    assert [future.result(timeout=60) for future in futures[1:]] == [oracle.answer(each) for each in requests]
    eventually(lambda: len(recorder.steps) == 10)
    assert recorder.joins == [1, 3]
    assert recorder.steps == [1, 4, 4, 3, 2, 2, 1, 1, 1, 1]


def test_no_more_rows_run_than_a_step_may_have(
    open_engine: OpenEngine, oracle: Oracle, recorder: Recorder
) -> None:
    requests = [ask(picture(number % 3), "how many?", max_tokens=number % 7 + 1) for number in range(20)]
    engine = open_engine(step_rows=3)
    futures = [engine.submit(request) for request in requests]
    assert [future.result(timeout=60) for future in futures] == [oracle.answer(each) for each in requests]
    assert max(recorder.steps) == 3


def test_little_memory_and_small_steps_still_answer_everything(
    open_engine: OpenEngine, oracle: Oracle, recorder: Recorder
) -> None:
    requests = [ask(picture(number % 3), picture(number % 2), "both?") for number in range(12)]
    for engine in (open_engine(kv_bytes=1), open_engine(step_tokens=1), open_engine(step_tokens=60)):
        futures = [engine.submit(request) for request in requests]
        assert [future.result(timeout=60) for future in futures] == [oracle.answer(each) for each in requests]


def test_a_long_text_and_a_long_answer_are_as_the_library_s(
    open_engine: OpenEngine, checkpoint: Checkpoint, oracle: Oracle
) -> None:
    """Texts much longer than a tail, answers longer than a slot; both beside others."""
    endless = Sampling(2 * SLOT_TOKENS + 5)
    forbid_the_end(checkpoint)
    unforbidden = forbid_the_end(oracle)
    requests = [
        ask("x " * 400, max_tokens=20),
        ask("so it is " * 20, picture(1), "and " * 60, max_tokens=30),
        ask(picture(2), "tell me all", sampling=endless),
    ]
    futures = submit_together(open_engine(step_rows=5), checkpoint, requests)
    answers = [future.result(timeout=60) for future in futures]
    try:
        assert [replace(answer, notes=()) for answer in answers] == [
            replace(oracle.answer(request), notes=()) for request in requests
        ]
    finally:
        unforbidden.remove()
    assert answers[2].usage.completion_tokens == endless.max_tokens


def forbid_the_end(model: Any) -> RemovableHandle:
    """Answers go on until max_tokens."""
    end = [256, 258]  # <|endoftext|>, <|im_end|>

    def hook(module: torch.nn.Module, args: Any, kwargs: Pass, output: Any) -> None:
        output.logits[..., end] = float("-inf")

    return model.model.register_forward_hook(hook, with_kwargs=True)


def test_a_running_row_that_is_cancelled_leaves_and_the_others_stay(
    open_engine: OpenEngine, checkpoint: Checkpoint, oracle: Oracle, recorder: Recorder
) -> None:
    engine = open_engine()
    others = [ask(picture(1), "who?", max_tokens=20), ask("who?", max_tokens=20)]
    futures = submit_together(engine, checkpoint, [LONG, *others])
    eventually(lambda: 3 in recorder.steps)
    assert futures[0].cancel()
    assert [future.result(timeout=60) for future in futures[1:]] == [oracle.answer(each) for each in others]
    after = engine.submit(others[0]).result(timeout=60)
    assert after == oracle.answer(others[0])
    assert len(recorder.steps) < 60


def test_a_running_row_whose_deadline_passes_ends_and_the_others_stay(
    open_engine: OpenEngine, checkpoint: Checkpoint, oracle: Oracle
) -> None:
    deadline = time.monotonic() + 0.5
    late = replace(LONG, deadline=deadline, on_text=lambda _: eventually(lambda: time.monotonic() > deadline))
    other = ask(picture(1), "who?", max_tokens=20)
    first, second = submit_together(open_engine(), checkpoint, [late, other])
    with pytest.raises(TransientWork, match="job_timeout"):
        first.result(timeout=60)
    assert second.result(timeout=60) == oracle.answer(other)


def test_only_the_row_without_numbers_fails_and_its_pieces_are_forgotten(
    open_engine: OpenEngine, checkpoint: Checkpoint, oracle: Oracle, recorder: Recorder
) -> None:
    """A row waits meanwhile for a step in which it may use the pieces that are dropped."""

    def spoil(called: Pass, logits: torch.Tensor) -> None:
        logits[joining_with(checkpoint, "#", called)] = float("nan")

    after_pass(checkpoint, spoil)
    engine = open_engine(step_rows=2, prefix_cache_bytes=MIB)
    known = ask(picture(1), "colour?")
    assert engine.submit(known).result(timeout=60) == oracle.answer(known)
    with while_busy(engine, checkpoint) as futures:
        futures += [engine.submit(ask(picture(1), "#")), engine.submit(known)]
    with pytest.raises(FatalWork, match="nan_logits"):
        futures[1].result(timeout=60)
    assert futures[2].result(timeout=60) == oracle.answer(known)
    computed = recorder.prompt_tokens
    again = engine.submit(known).result(timeout=60)
    assert again == oracle.answer(known)
    eventually(lambda: recorder.prompt_tokens == computed + again.usage.prompt_tokens)


def test_a_slot_that_held_no_numbers_serves_the_next_row(
    open_engine: OpenEngine, checkpoint: Checkpoint, oracle: Oracle
) -> None:
    """Its KV itself is spoiled, as by a fault of the device."""

    def spoil(called: Pass, logits: torch.Tensor) -> None:
        for row in joining_with(checkpoint, "#", called).tolist():
            layout = called["layout"]
            slot = int(layout.own_slots[(layout.own_tokens == called["logits_to_keep"][row])][0])
            layout.slots.kv[:, :, slot] = float("nan")
            logits[row] = float("nan")

    after_pass(checkpoint, spoil)
    engine = open_engine()
    long, short = ask("so " * 20, max_tokens=30), ask("who?", max_tokens=30)
    with while_busy(engine, checkpoint, long) as futures:
        futures.append(engine.submit(ask("#")))
    assert isinstance(futures[1].exception(timeout=60), FatalWork)
    assert futures[0].result(timeout=60)
    with while_busy(engine, checkpoint, long) as futures:
        futures.append(engine.submit(short))
    assert [future.result(timeout=60) for future in futures] == [oracle.answer(long), oracle.answer(short)]


def test_a_failure_while_tokens_are_chosen_ends_the_step_s_rows_and_not_the_engine(
    open_engine: OpenEngine, oracle: Oracle, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = open_engine()
    with monkeypatch.context() as patch:
        patch.setattr("workers.engine.steps.choose", no_memory)
        with pytest.raises(TransientWork, match="out_of_memory"):
            engine.submit(LONG).result(timeout=60)
    assert engine.submit(LONG).result(timeout=60) == oracle.answer(LONG)


def no_memory(*_: object) -> list[int]:
    raise torch.OutOfMemoryError("out of memory")


def test_a_grammar_holds_its_row_only(
    open_engine: OpenEngine, checkpoint: Checkpoint, oracle: Oracle
) -> None:
    free = [ask(picture(1), "who?", max_tokens=20), ask("who?", max_tokens=20)]
    base = ask(picture(1), "describe it", max_tokens=200)
    constraints = [JsonSchema(json.dumps(SCHEMA)), Choice(("a cat", "a dog")), JsonObject()]
    bound = [replace(base, constraint=constraint) for constraint in constraints]
    futures = submit_together(open_engine(step_rows=6), checkpoint, [*bound, *free])
    schema, choice, anything, *others = (future.result(timeout=60) for future in futures)
    assert others == [oracle.answer(request) for request in free]
    jsonschema.validate(json.loads(schema.text), SCHEMA)
    assert choice.text in ("a cat", "a dog")
    assert (schema.finish_reason, choice.finish_reason) == ("stop", "stop")
    assert anything.finish_reason == "length" or isinstance(json.loads(anything.text), dict)


def test_a_repetition_penalty_is_the_library_s(
    open_engine: OpenEngine, checkpoint: Checkpoint, oracle: Oracle
) -> None:
    request = ask(picture(1), "who?", sampling=Sampling(30, repetition_penalty=1.3))
    plain = replace(request, sampling=Sampling(30))
    penalised, other = submit_together(open_engine(), checkpoint, [request, plain])
    inputs = oracle.inputs([request])
    output = oracle.model.generate(**inputs, max_new_tokens=30, do_sample=False, repetition_penalty=1.3)
    expected = oracle.processor.decode(output[0, inputs["input_ids"].shape[1] :], skip_special_tokens=True)
    assert penalised.result(timeout=60).text == expected
    assert other.result(timeout=60) == oracle.answer(plain) != penalised.result(timeout=60)


def test_log_probabilities_are_those_of_the_library_s_logits(
    open_engine: OpenEngine, checkpoint: Checkpoint, oracle: Oracle
) -> None:
    request = ask(picture(1), "who?", sampling=Sampling(12, logprobs=3))
    plain = ask(picture(2), "who?", max_tokens=12)
    futures = submit_together(open_engine(), checkpoint, [request, plain])
    logprobs = futures[0].result(timeout=60).logprobs
    assert logprobs is not None
    assert futures[1].result(timeout=60).logprobs is None
    output = oracle.model.generate(
        **oracle.inputs([request]),
        max_new_tokens=12,
        do_sample=False,
        output_logits=True,
        return_dict_in_generate=True,
    )
    assert len(logprobs) == len(output.logits) == 12
    for ours, logits in zip(logprobs, output.logits, strict=True):
        shares, tokens = logits[0].log_softmax(dim=-1).topk(3)
        assert [token for token, _ in ours.top] == [oracle.processor.decode([token]) for token in tokens]
        assert [share for _, share in ours.top] == pytest.approx(shares.tolist(), abs=1e-4)
        assert (ours.token, ours.logprob) == (ours.top[0][0], ours.top[0][1])


def test_text_comes_piece_by_piece(open_engine: OpenEngine, checkpoint: Checkpoint, oracle: Oracle) -> None:
    told: dict[str, list[str]] = {"one": [], "two": []}
    one = replace(ask(picture(1), "who?", max_tokens=20), on_text=told["one"].append)
    two = replace(ask("who?", max_tokens=20), on_text=told["two"].append)
    futures = submit_together(open_engine(), checkpoint, [one, two])
    assert [future.result(timeout=60) for future in futures] == [oracle.answer(one), oracle.answer(two)]
    assert ["".join(pieces) for pieces in told.values()] == [future.result().text for future in futures]
    assert min(map(len, told.values())) == 20


def test_a_listener_that_raises_costs_its_own_row(
    open_engine: OpenEngine, checkpoint: Checkpoint, oracle: Oracle
) -> None:
    def broken(_: str) -> None:
        raise RuntimeError("gone")

    bad, good = replace(LONG, on_text=broken), ask(picture(1), "who?")
    futures = submit_together(open_engine(), checkpoint, [bad, good])
    assert isinstance(futures[0].exception(timeout=60), FatalWork)
    assert futures[1].result(timeout=60) == oracle.answer(good)


def test_empty_and_circling_answers_are_noted(open_engine: OpenEngine, checkpoint: Checkpoint) -> None:
    def push(token: str) -> Callable[[Pass, torch.Tensor], None]:
        number = checkpoint.tokenizer.get_vocab()[token]

        def act(called: Pass, logits: torch.Tensor) -> None:
            logits[:, number] = 1e4

        return act

    engine = open_engine()
    circles = after_pass(checkpoint, push("z"))
    circling = engine.submit(ask("who?", max_tokens=60)).result(timeout=60)
    assert (circling.text, circling.notes) == ("z" * 60, (Note.REPETITION,))
    circles.remove()
    after_pass(checkpoint, push("<|im_end|>"))
    assert engine.submit(ask("who?")).result(timeout=60).notes == (Note.EMPTY,)


def test_a_step_that_hangs_is_told(open_engine: OpenEngine, checkpoint: Checkpoint, oracle: Oracle) -> None:
    dead = threading.Event()
    gate = held(checkpoint)
    engine = open_engine(stall_s=0.2, on_dead=dead.set)
    future = engine.submit(ask("who?"))
    assert dead.wait(60)
    gate.set()
    assert future.result(timeout=60) == oracle.answer(ask("who?"))


def test_steps_that_end_in_time_are_not_called_dead(open_engine: OpenEngine, checkpoint: Checkpoint) -> None:
    dead: list[bool] = []
    passes: list[Pass] = []
    before_pass(checkpoint, passes.append)
    engine = open_engine(stall_s=30, on_dead=lambda: dead.append(True))
    assert engine.submit(LONG).result(timeout=60)
    assert len(passes) > 10
    assert dead == []


def test_an_urgent_request_passes_those_that_wait_even_to_be_prepared(
    open_engine: OpenEngine, checkpoint: Checkpoint
) -> None:
    engine = open_engine(step_rows=1, prepare_threads=1)
    ended: list[int] = []
    requests = [ask(f"question {number}", max_tokens=1) for number in range(12)]
    with while_busy(engine, checkpoint) as waiting:
        futures = [engine.submit(request) for request in requests]
        eventually(lambda: len(engine._room) == 4)  # for more it has no places
        futures.append(engine.submit(replace(ask("now", max_tokens=1), urgent=True)))
        for number, future in enumerate(futures):
            future.add_done_callback(lambda _, number=number: ended.append(number))
        waiting += [*futures[:4], futures[12]]
    for future in futures:
        future.result(timeout=60)
    assert ended[0] == 12
