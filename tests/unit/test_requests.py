"""What is stored of a job becomes the request that the engine takes."""

import numpy as np
import pytest

from app.config import Settings
from app.errors import FatalWork
from app.store.jobs import ClaimedJob, Json
from workers.engine.base import Image, ImagePart, Sampling, TextPart, Turn
from workers.requests import read_request

PICTURE = Image.of("a" * 64, np.zeros((2, 2, 3), np.uint8))


def claimed(prompt: Json, **params: Json) -> ClaimedJob:
    return ClaimedJob(7, 2, 1, "tenant_a", "batch_1", "demo", prompt, params, [1], 0.5)


def test_turns_parts_and_images_keep_their_order() -> None:
    prompt = {
        "turns": [
            {"role": "system", "parts": [{"text": "Be brief."}]},
            {"role": "user", "parts": [{"text": "What is"}, {"image": 0}, {"text": "?"}]},
        ]
    }
    request = read_request(claimed(prompt), (PICTURE,), Settings())
    assert request.turns == (
        Turn("system", (TextPart("Be brief."),)),
        Turn("user", (TextPart("What is"), ImagePart(0), TextPart("?"))),
    )
    assert (request.tenant, request.images) == ("tenant_a", (PICTURE,))


def test_params_that_were_not_given_have_their_defaults() -> None:
    request = read_request(claimed({"turns": []}), (), Settings(max_new_tokens=99))
    assert request.sampling == Sampling(max_tokens=99)
    assert request.max_pixels is None


def test_params_that_were_given_are_used() -> None:
    job = claimed(
        {"turns": []}, max_tokens=5, temperature=0.5, top_p=0.9, seed=3, stop="END", max_pixels=4096
    )
    request = read_request(job, (), Settings())
    assert request.sampling == Sampling(5, temperature=0.5, top_p=0.9, seed=3, stop=("END",))
    assert request.max_pixels == 4096


@pytest.mark.parametrize("prompt", [{}, {"turns": [{}]}, {"turns": [{"role": "user", "parts": [{}]}]}])
def test_a_prompt_that_ingest_never_writes_is_our_own_fault(prompt: Json) -> None:
    with pytest.raises(FatalWork, match="bad_prompt"):
        read_request(claimed(prompt), (), Settings())
