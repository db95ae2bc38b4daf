"""What goes wrong stays with the request that it went wrong for."""

import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, wait
from typing import Any

import pytest
import torch

from app.errors import FatalWork, InvalidWork, TransientWork
from bench.oracle import Oracle
from tests.integration.engine.conftest import MIB, OpenEngine
from tests.observing import Recorder
from tests.requests import ask, picture
from tests.waiting import eventually
from workers.engine.base import Answer, Request
from workers.engine.load import Checkpoint

GOOD = [ask(picture(1), "colour?"), ask("who?"), ask(picture(2), "how many?")]
BROKEN = ask("#")  # this letter makes a model fail that a test has broken


def before_forward(checkpoint: Checkpoint, act: Callable[[torch.Tensor], None]) -> None:
    """Have the model call `act` with the token ids of every pass."""

    def hook(module: torch.nn.Module, args: Any, kwargs: Any) -> None:
        act(kwargs["input_ids"])

    checkpoint.model.register_forward_pre_hook(hook, with_kwargs=True)


def held(checkpoint: Checkpoint) -> threading.Event:
    """The model waits for this before every pass."""
    gate = threading.Event()

    def wait_for_gate(ids: torch.Tensor) -> None:
        assert gate.wait(60)

    before_forward(checkpoint, wait_for_gate)
    return gate


def holds_bad(checkpoint: Checkpoint, ids: torch.Tensor) -> torch.Tensor:
    """Per row; a visible character is a token of its own."""
    return ids.eq(checkpoint.tokenizer.get_vocab()["#"]).any(dim=1)


def submit_all(open_engine: OpenEngine, requests: list[Request]) -> list[Future[Answer]]:
    """All in one group."""
    engine = open_engine(step_rows=len(requests), max_wait_s=5)
    return [engine.submit(request) for request in requests]


def test_a_row_that_raises_fails_alone(
    open_engine: OpenEngine, checkpoint: Checkpoint, oracle: Oracle
) -> None:
    def refuse(ids: torch.Tensor) -> None:
        if holds_bad(checkpoint, ids).any():
            raise RuntimeError("device-side assert")

    before_forward(checkpoint, refuse)
    *good, bad = submit_all(open_engine, [*GOOD, BROKEN])
    assert [future.result(timeout=60) for future in good] == [oracle.answer(request) for request in GOOD]
    with pytest.raises(FatalWork, match=r"step_failed: .*RuntimeError"):
        bad.result(timeout=60)


def test_a_step_without_memory_is_halved(
    open_engine: OpenEngine, checkpoint: Checkpoint, oracle: Oracle, recorder: Recorder
) -> None:
    def refuse(ids: torch.Tensor) -> None:
        if ids.shape[0] > 2:
            raise torch.OutOfMemoryError("out of memory")

    before_forward(checkpoint, refuse)
    requests = [*GOOD, ask("what?")]
    futures = submit_all(open_engine, requests)
    assert [future.result(timeout=60) for future in futures] == [oracle.answer(each) for each in requests]
    assert recorder.out_of_memory_rows == [4]
    assert recorder.groups == [4, 2, 2]


def test_a_row_that_never_fits_may_be_tried_elsewhere(
    open_engine: OpenEngine, checkpoint: Checkpoint, recorder: Recorder
) -> None:
    def refuse(ids: torch.Tensor) -> None:
        raise torch.OutOfMemoryError("out of memory")

    before_forward(checkpoint, refuse)
    with pytest.raises(TransientWork, match="out_of_memory"):
        submit_all(open_engine, GOOD)[0].result(timeout=60)


def test_logits_that_are_no_numbers_fail_their_row_only(
    open_engine: OpenEngine, checkpoint: Checkpoint, oracle: Oracle
) -> None:
    def spoil(module: torch.nn.Module, args: Any, kwargs: Any, output: Any) -> None:
        output.logits[holds_bad(checkpoint, kwargs["input_ids"])] = float("nan")

    checkpoint.model.register_forward_hook(spoil, with_kwargs=True)
    *good, bad = submit_all(open_engine, [*GOOD, BROKEN])
    assert [future.result(timeout=60) for future in good] == [oracle.answer(request) for request in GOOD]
    with pytest.raises(FatalWork, match="nan_logits"):
        bad.result(timeout=60)


def test_a_picture_that_the_tower_cannot_take_fails_alone(
    open_engine: OpenEngine, checkpoint: Checkpoint, oracle: Oracle
) -> None:
    def refuse(module: torch.nn.Module, args: Any, kwargs: Any) -> None:
        if [1, 6, 6] in kwargs["grid_thw"].tolist():
            raise RuntimeError("bad picture")

    checkpoint.model.model.visual.register_forward_pre_hook(refuse, with_kwargs=True)
    *good, bad = submit_all(open_engine, [*GOOD, ask(picture(3, 96, 96), "colour?")])
    assert [future.result(timeout=60) for future in good] == [oracle.answer(request) for request in GOOD]
    with pytest.raises(FatalWork, match="step_failed"):
        bad.result(timeout=60)


def test_a_cancelled_request_never_runs(open_engine: OpenEngine, recorder: Recorder) -> None:
    engine = open_engine(step_rows=3, max_wait_s=0.5)
    kept, cancelled = engine.submit(ask("one")), engine.submit(ask("two"))
    assert cancelled.cancel()
    assert kept.result(timeout=60).text
    assert wait([cancelled], timeout=60).done
    assert recorder.groups == [1]


def test_a_request_that_comes_too_late_is_sent_back(open_engine: OpenEngine, recorder: Recorder) -> None:
    late = ask("one", deadline=time.monotonic() - 1)
    with pytest.raises(TransientWork, match="job_timeout"):
        open_engine().submit(late).result(timeout=60)
    assert recorder.groups == []


def test_a_request_that_waited_too_long_is_sent_back(
    open_engine: OpenEngine, checkpoint: Checkpoint, recorder: Recorder
) -> None:
    gate, engine = held(checkpoint), open_engine(step_rows=1)
    busy = engine.submit(ask("tell me all"))
    eventually(lambda: recorder.groups)
    deadline = time.monotonic() + 0.1
    late = engine.submit(ask("one", deadline=deadline))
    eventually(lambda: time.monotonic() > deadline)
    gate.set()
    with pytest.raises(TransientWork, match="job_timeout"):
        late.result(timeout=60)
    assert busy.result(timeout=60)
    assert recorder.groups == [1]


def test_close_ends_what_runs_and_sends_the_rest_back(
    open_engine: OpenEngine, checkpoint: Checkpoint, recorder: Recorder
) -> None:
    gate, engine = held(checkpoint), open_engine(step_rows=1)
    running = engine.submit(ask("tell me all"))
    eventually(lambda: recorder.groups)
    waiting = engine.submit(ask("one"))
    closer = threading.Thread(target=engine.close)
    closer.start()
    eventually(waiting.done)
    gate.set()
    closer.join(60)
    engine.close()
    assert running.result(timeout=0).usage.completion_tokens > 0
    for future in (waiting, engine.submit(ask("two"))):
        with pytest.raises(TransientWork, match="engine_closed"):
            future.result(timeout=0)


def test_a_prompt_over_the_context_is_refused_with_both_numbers(
    open_engine: OpenEngine, recorder: Recorder
) -> None:
    long = ask(picture(1), "x" * 5000)
    with pytest.raises(InvalidWork, match=r"context_length_exceeded: .*50\d\d tokens.*4096"):
        open_engine().submit(long).result(timeout=60)
    with pytest.raises(InvalidWork, match="context_length_exceeded"):
        open_engine().submit(ask("short", max_tokens=4090)).result(timeout=60)
    assert recorder.groups == []
    assert recorder.reads == []


def test_a_text_that_no_context_could_hold_is_refused_by_its_size(
    open_engine: OpenEngine, recorder: Recorder
) -> None:
    endless = ask(picture(1), "x" * 30 * MIB)
    with pytest.raises(InvalidWork, match=r"context_length_exceeded: .*314573\d\d bytes.*4096"):
        open_engine().submit(endless).result(timeout=60)
    assert recorder.groups == []


def test_what_no_engine_could_answer_is_the_job_s_own_fault(open_engine: OpenEngine) -> None:
    thin = picture(1, 804, 4)
    engine = open_engine()
    with pytest.raises(InvalidWork, match=r"invalid_image: image 0 of 804x4"):
        engine.submit(ask(thin, "colour?")).result(timeout=60)
    with pytest.raises(InvalidWork, match="invalid_max_tokens"):
        engine.submit(ask("colour?", max_tokens=-5)).result(timeout=60)
