"""What goes wrong stays with the request that it went wrong for."""

import threading
import time
from concurrent.futures import wait
from typing import Any

import pytest
import torch

from app.errors import FatalWork, InvalidWork, TransientWork
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
from workers.engine.load import Checkpoint

GOOD = [ask(picture(1), "colour?"), ask("who?"), ask(picture(2), "how many?")]
BROKEN = ask("#")  # this letter makes a step fail where a test has broken the model


def test_a_row_that_raises_fails_alone(
    open_engine: OpenEngine, checkpoint: Checkpoint, oracle: Oracle
) -> None:
    def refuse(called: Pass) -> None:
        if len(joining_with(checkpoint, "#", called)):
            raise RuntimeError("device-side assert")

    before_pass(checkpoint, refuse)
    *good, bad = submit_together(open_engine(step_rows=5), checkpoint, [*GOOD, BROKEN])
    assert [future.result(timeout=60) for future in good] == [oracle.answer(request) for request in GOOD]
    with pytest.raises(FatalWork, match=r"step_failed: .*RuntimeError"):
        bad.result(timeout=60)


def test_a_step_without_memory_is_halved(
    open_engine: OpenEngine, checkpoint: Checkpoint, oracle: Oracle, recorder: Recorder
) -> None:
    def refuse(called: Pass) -> None:
        if len(called["logits_to_keep"]) > 2:
            raise torch.OutOfMemoryError("out of memory")

    before_pass(checkpoint, refuse)
    requests = [*GOOD, ask("what?")]
    futures = submit_together(open_engine(step_rows=5), checkpoint, requests)
    assert [future.result(timeout=60) for future in futures] == [oracle.answer(each) for each in requests]
    assert recorder.out_of_memory_rows == [5, 4]  # the steps after these are as small from the start
    assert recorder.joins == [1, 2, 2]


def test_a_step_without_memory_frees_nothing_that_others_hold(
    open_engine: OpenEngine, checkpoint: Checkpoint, oracle: Oracle, recorder: Recorder
) -> None:
    """The rows that could not join begin like one that runs."""

    def refuse(called: Pass) -> None:
        if len(called["layout"].levels) > 1 and len(called["logits_to_keep"]) > 1:
            raise torch.OutOfMemoryError("out of memory")

    before_pass(checkpoint, refuse)
    engine = open_engine()
    running = ask(picture(1), "who?", max_tokens=40)
    more = [ask(picture(1), picture(seed), "both?") for seed in range(2, 5)]
    with while_busy(engine, checkpoint, running) as futures:
        futures += [engine.submit(request) for request in more]
    answers = [future.result(timeout=60) for future in futures]
    assert answers == [oracle.answer(request) for request in [running, *more]]
    assert recorder.out_of_memory_rows[:3] == [4, 3, 2]


def test_a_row_that_never_fits_may_be_tried_elsewhere(
    open_engine: OpenEngine, checkpoint: Checkpoint, recorder: Recorder
) -> None:
    def refuse(called: Pass) -> None:
        raise torch.OutOfMemoryError("out of memory")

    before_pass(checkpoint, refuse)
    with pytest.raises(TransientWork, match="out_of_memory"):
        open_engine().submit(GOOD[0]).result(timeout=60)


def test_a_cpu_s_words_for_want_of_memory_are_understood(
    open_engine: OpenEngine, checkpoint: Checkpoint, recorder: Recorder
) -> None:
    def refuse(_: Pass) -> None:
        raise RuntimeError("[enforce fail at alloc_cpu.cpp:133] DefaultCPUAllocator: not enough memory")

    before_pass(checkpoint, refuse)
    with pytest.raises(TransientWork, match="out_of_memory"):
        open_engine().submit(GOOD[0]).result(timeout=60)
    assert recorder.out_of_memory_rows == [1]


def test_logits_that_are_no_numbers_fail_their_row_only(
    open_engine: OpenEngine, checkpoint: Checkpoint, oracle: Oracle
) -> None:
    def spoil(called: Pass, logits: torch.Tensor) -> None:
        logits[joining_with(checkpoint, "#", called)] = float("nan")

    after_pass(checkpoint, spoil)
    *good, bad = submit_together(open_engine(step_rows=5), checkpoint, [*GOOD, BROKEN])
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
    requests = [*GOOD, ask(picture(3, 96, 96), "colour?")]
    *good, bad = submit_together(open_engine(step_rows=5), checkpoint, requests)
    assert [future.result(timeout=60) for future in good] == [oracle.answer(request) for request in GOOD]
    with pytest.raises(FatalWork, match="step_failed"):
        bad.result(timeout=60)


def test_a_cancelled_request_never_runs(
    open_engine: OpenEngine, checkpoint: Checkpoint, recorder: Recorder
) -> None:
    engine = open_engine()
    with while_busy(engine, checkpoint) as futures:
        futures += [engine.submit(ask("one")), engine.submit(ask("two"))]
        assert futures[2].cancel()
    assert futures[1].result(timeout=60).text
    assert wait([futures[2]], timeout=60).done
    assert recorder.joins == [1, 1]


def test_a_request_that_comes_too_late_is_sent_back(open_engine: OpenEngine, recorder: Recorder) -> None:
    late = ask("one", deadline=time.monotonic() - 1)
    with pytest.raises(TransientWork, match="job_timeout"):
        open_engine().submit(late).result(timeout=60)
    assert recorder.steps == []


def test_a_request_that_waited_too_long_is_sent_back(
    open_engine: OpenEngine, checkpoint: Checkpoint, recorder: Recorder
) -> None:
    gate, engine = held(checkpoint), open_engine(step_rows=1)
    busy = engine.submit(ask("tell me all"))
    eventually(lambda: recorder.waits)
    deadline = time.monotonic() + 0.1
    late = engine.submit(ask("one", deadline=deadline))
    eventually(lambda: time.monotonic() > deadline)
    gate.set()
    with pytest.raises(TransientWork, match="job_timeout"):
        late.result(timeout=60)
    assert busy.result(timeout=60)
    assert recorder.joins == [1]


def test_close_ends_what_runs_and_sends_the_rest_back(
    open_engine: OpenEngine, checkpoint: Checkpoint, recorder: Recorder
) -> None:
    gate, engine = held(checkpoint), open_engine(step_rows=1)
    running = engine.submit(ask("tell me all"))
    eventually(lambda: recorder.waits)
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
    assert recorder.steps == []
    assert recorder.reads == []


def test_a_text_that_no_context_could_hold_is_refused_by_its_size(
    open_engine: OpenEngine, recorder: Recorder
) -> None:
    endless = ask(picture(1), "x" * 30 * MIB)
    with pytest.raises(InvalidWork, match=r"context_length_exceeded: .*314573\d\d bytes.*4096"):
        open_engine().submit(endless).result(timeout=60)
    assert recorder.steps == []


def test_what_no_engine_could_answer_is_the_job_s_own_fault(open_engine: OpenEngine) -> None:
    thin = picture(1, 804, 4)
    engine = open_engine()
    with pytest.raises(InvalidWork, match=r"invalid_image: image 0 of 804x4"):
        engine.submit(ask(thin, "colour?")).result(timeout=60)
    with pytest.raises(InvalidWork, match="invalid_max_tokens"):
        engine.submit(ask("colour?", max_tokens=-5)).result(timeout=60)
