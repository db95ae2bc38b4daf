"""The fake engine keeps the promises of the Engine protocol."""

import threading
import time
from dataclasses import replace

import numpy as np
import pytest

from app.errors import ImageError, InvalidWork, TransientWork
from workers.engine.base import Engine, Image, ImagePart, Pixels, Request, Sampling, TextPart, Turn
from workers.engine.fake import FakeEngine


def ask(question: str, *, deadline: float | None = None) -> Request:
    image = Image.of("ab" * 32, np.zeros((4, 4, 3), np.uint8))
    turn = Turn("user", (ImagePart(0), TextPart(question)))
    return Request(question, "tenant", (turn,), (image,), Sampling(max_tokens=8), deadline=deadline)


def test_the_echo_names_question_and_image() -> None:
    engine: Engine = FakeEngine()
    answer = engine.submit(ask("What colour?")).result(timeout=10)
    engine.close()
    assert answer.text == "What colour? abababab"
    assert (answer.finish_reason, answer.usage.prompt_tokens, answer.usage.completion_tokens) == (
        "stop",
        3,
        3,
    )


def test_a_request_that_has_not_joined_can_be_cancelled() -> None:
    gate = threading.Event()
    engine = FakeEngine(gate=gate)
    first, second = engine.submit(ask("one")), engine.submit(ask("two"))
    assert second.cancel()
    engine.close()
    assert first.result(timeout=10).text.startswith("one")
    assert [request.id for request in engine.joined] == ["one"]


def test_a_failure_reaches_the_caller() -> None:
    def refuse(request: Request) -> str:
        raise InvalidWork("bad", request.id)

    engine = FakeEngine(answer=refuse)
    with pytest.raises(InvalidWork, match="bad: one"):
        engine.submit(ask("one")).result(timeout=10)
    engine.close()


def test_a_picture_that_cannot_be_decoded_fails_its_request() -> None:
    def cut_off() -> Pixels:
        raise ImageError("corrupt_image", "cut off")

    engine = FakeEngine()
    broken = replace(ask("one"), images=(Image("ab" * 32, 4, 4, cut_off),))
    with pytest.raises(ImageError, match="corrupt_image"):
        engine.submit(broken).result(timeout=10)
    engine.close()


def test_a_passed_deadline_is_a_timeout() -> None:
    engine = FakeEngine()
    with pytest.raises(TransientWork, match="job_timeout"):
        engine.submit(ask("late", deadline=time.monotonic() - 1)).result(timeout=10)
    engine.close()


def test_a_closed_engine_sends_requests_back() -> None:
    engine = FakeEngine()
    engine.close()
    with pytest.raises(TransientWork, match="engine_closed"):
        engine.submit(ask("one")).result(timeout=10)
