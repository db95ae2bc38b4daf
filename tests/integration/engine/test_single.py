"""The fallback engine: what goes wrong stays with its request, and somebody who waits goes first."""

import threading
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace

import pytest
import torch

from app.errors import FatalWork, TransientWork
from bench.oracle import Oracle
from tests.integration.engine.steering import Pass, before_pass
from tests.observing import Recorder
from tests.requests import ask, picture
from workers.engine.base import Image, Pixels
from workers.engine.load import LIBRARY_ATTENTION, Checkpoint, load_checkpoint
from workers.engine.single import SingleEngine

ASKED = ask(picture(1), "colour?")


@pytest.fixture
def plain_checkpoint(folder: object) -> Checkpoint:
    """One of its own for each test, as tests break it."""
    return load_checkpoint(str(folder), attention=LIBRARY_ATTENTION)


@pytest.fixture
def engine(plain_checkpoint: Checkpoint, recorder: Recorder) -> Iterator[SingleEngine]:
    with closing(SingleEngine(name="m", checkpoint=plain_checkpoint, observer=recorder)) as engine:
        yield engine


def once(checkpoint: Checkpoint, error: Exception) -> None:
    """Make the next pass of the model fail."""
    left = [error]

    def refuse(_: Pass) -> None:
        if left:
            raise left.pop()

    before_pass(checkpoint, refuse)


@pytest.mark.parametrize(
    ("raised", "kind", "code"),
    [
        (RuntimeError("device-side assert"), FatalWork, "step_failed"),
        (torch.OutOfMemoryError("out of memory"), TransientWork, "out_of_memory"),
    ],
)
def test_a_step_that_fails_costs_its_own_request_only(
    engine: SingleEngine,
    plain_checkpoint: Checkpoint,
    oracle: Oracle,
    raised: Exception,
    kind: type[Exception],
    code: str,
) -> None:
    once(plain_checkpoint, raised)
    bad, good = engine.submit(ASKED), engine.submit(ASKED)
    assert good.result(timeout=60) == oracle.answer(ASKED)
    with pytest.raises(kind, match=code):
        bad.result(timeout=60)


def test_somebody_who_waits_goes_first(engine: SingleEngine) -> None:
    begun, free, order = threading.Event(), threading.Event(), []
    image = picture(1)

    def load() -> Pixels:
        begun.set()
        free.wait(20)
        return image.load()

    held = Image(image.content_hash, image.width, image.height, load)
    running = engine.submit(replace(ASKED, images=(held,)))
    assert begun.wait(20)
    last = engine.submit(ASKED)
    urgent = engine.submit(replace(ASKED, urgent=True))
    for name, future in (("last", last), ("urgent", urgent)):
        future.add_done_callback(lambda _, name=name: order.append(name))
    free.set()
    last.result(timeout=60)
    assert running.done()
    assert order == ["urgent", "last"]


def test_its_answers_are_kept_apart_from_those_of_the_batching_engine(
    engine: SingleEngine, checkpoint: Checkpoint
) -> None:
    assert engine.number_format != checkpoint.number_format


def test_a_lost_device_is_told(plain_checkpoint: Checkpoint) -> None:
    dead = threading.Event()
    engine = SingleEngine(name="m", checkpoint=plain_checkpoint, observer=Recorder(), on_dead=dead.set)
    with closing(engine):
        once(plain_checkpoint, torch.AcceleratorError("lost"))
        with pytest.raises(FatalWork, match="step_failed"):
            engine.submit(ASKED).result(timeout=60)
    assert dead.is_set()
