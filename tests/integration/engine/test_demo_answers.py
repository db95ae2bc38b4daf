"""The committed demo model behind the engine: right answers, and the library's own."""

from pathlib import Path

import numpy as np
import PIL.Image

from bench.oracle import one_by_one
from demo.evaluate import held_out, is_right
from tests.integration.engine.conftest import OpenEngine
from tests.requests import ask
from workers.engine.base import Image, Request
from workers.engine.load import load_checkpoint

FOLDER = Path(__file__).parents[3] / "models" / "demo"
ASKED = list(held_out(4))


def request(picture: PIL.Image.Image, question: str) -> Request:
    pixels = np.asarray(picture.convert("RGB"))
    return ask(Image.of(str(hash(pixels.tobytes())), pixels), question, max_tokens=32)


def test_pictures_that_training_never_saw_are_answered_right(open_engine: OpenEngine) -> None:
    requests = [request(asked.picture, asked.question) for asked in ASKED]
    engine = open_engine(checkpoint=load_checkpoint(str(FOLDER)), step_rows=8)
    answers = [future.result(timeout=60) for future in [engine.submit(each) for each in requests]]
    right = [is_right(asked, answer.text) for asked, answer in zip(ASKED, answers, strict=True)]
    assert sum(right) >= 0.9 * len(ASKED)
    expected, _ = one_by_one(FOLDER, requests)
    assert answers == expected
