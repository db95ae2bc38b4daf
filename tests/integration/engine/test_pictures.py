"""Pictures are decoded on the engine's prepare threads, few at a time, and only where they are needed."""

import threading
import weakref
from dataclasses import replace

import numpy as np
import pytest

from app.errors import ImageError
from bench.oracle import Oracle
from tests.integration.engine.conftest import MIB, OpenEngine
from tests.requests import ask, picture
from workers.engine.base import Image, Pixels


class Decoder:
    """Counts what it decodes, and how much of that is in memory at once."""

    def __init__(self) -> None:
        self.decoded = 0
        self.most = 0
        self._alive = 0
        self._lock = threading.RLock()

    def watch(self, image: Image) -> Image:
        return replace(image, load=lambda: self._decode(image))

    def _decode(self, image: Image) -> Pixels:
        pixels = image.load().copy()
        with self._lock:
            self.decoded += 1
            self._alive += 1
            self.most = max(self.most, self._alive)
        weakref.finalize(pixels, self._gone)
        return pixels

    def _gone(self) -> None:
        with self._lock:
            self._alive -= 1


def broken(image: Image, *, held: list["weakref.ref[Pixels]"] | None = None) -> Image:
    """A picture that ends halfway; `held` gets what was decoded until then."""

    def load() -> Pixels:
        half = np.zeros((image.height, image.width, 3), np.uint8)
        if held is not None:
            held.append(weakref.ref(half))
        raise ImageError("corrupt_image", f"row {len(half) // 2} is missing")

    return replace(image, load=load)


def test_no_more_pictures_are_decoded_at_once_than_there_are_prepare_threads(
    open_engine: OpenEngine, oracle: Oracle
) -> None:
    decoder = Decoder()
    requests = [ask(picture(seed), "colour?") for seed in range(12)]
    watched = [ask(decoder.watch(picture(seed)), "colour?") for seed in range(12)]
    engine = open_engine(step_rows=12, max_wait_s=5, prepare_threads=2)
    answers = [future.result(timeout=60) for future in [engine.submit(each) for each in watched]]
    assert answers == [oracle.answer(request) for request in requests]
    assert decoder.decoded == 12
    assert 1 <= decoder.most <= 2


def test_a_picture_whose_features_are_cached_is_not_decoded(open_engine: OpenEngine) -> None:
    decoder, engine = Decoder(), open_engine(cache_bytes=MIB)
    first = engine.submit(ask(decoder.watch(picture(1)), "colour?")).result(timeout=60)
    second = engine.submit(ask(decoder.watch(picture(1)), "colour?")).result(timeout=60)
    assert second.text == first.text
    assert decoder.decoded == 1


def test_a_picture_that_cannot_be_decoded_fails_its_own_requests_only(
    open_engine: OpenEngine, oracle: Oracle
) -> None:
    good = [ask(picture(1), "colour?"), ask("who?")]
    bad = [ask(broken(picture(2)), "colour?"), ask(picture(1), broken(picture(2)), "same?")]
    engine = open_engine()
    futures = [engine.submit(request) for request in [*bad, *good]]
    for future in futures[:2]:
        with pytest.raises(ImageError, match="corrupt_image"):
            future.result(timeout=60)
    assert [future.result(timeout=60) for future in futures[2:]] == [oracle.answer(each) for each in good]


def test_a_failure_does_not_keep_what_was_decoded(open_engine: OpenEngine) -> None:
    held: list[weakref.ref[Pixels]] = []
    future = open_engine().submit(ask(broken(picture(2), held=held), "colour?"))
    assert isinstance(future.exception(timeout=60), ImageError)
    assert [reference() for reference in held] == [None]


def test_threads_that_need_one_picture_leave_it_to_one_and_prepare_others(open_engine: OpenEngine) -> None:
    entered, gate = threading.Event(), threading.Event()

    def slowly() -> Pixels:
        entered.set()
        assert gate.wait(60)
        return picture(1).load()

    engine = open_engine(prepare_threads=2)
    slow = replace(picture(1), load=slowly)
    waiting = [engine.submit(ask(slow, f"question {number}")) for number in range(4)]
    assert entered.wait(60)
    assert engine.submit(ask(picture(2), "colour?")).result(timeout=60).text
    gate.set()
    assert all(future.result(timeout=60).text for future in waiting)
