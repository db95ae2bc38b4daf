"""What is stored of a job becomes the request that the engine takes."""

from dataclasses import replace

import numpy as np
import pytest

from app.config import Settings
from app.errors import FatalWork
from app.store.jobs import ClaimedJob, Json
from workers.engine.base import Image, ImagePart, Sampling, TextPart, Turn
from workers.requests import Uses, expect_uses, read_request

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


@pytest.mark.parametrize("sharing", ["tenant_a", "Alice"], ids=["by id", "by name"])
def test_tenants_share_caches_only_if_they_are_named(sharing: str) -> None:
    job = replace(claimed({"turns": []}), tenant_name="Alice")
    others = replace(job, tenant_id="tenant_b", tenant_name="Bob")
    settings = Settings(shared_cache_tenants=(sharing, "Carol"))
    scopes = [read_request(each, (), settings).cache_scope for each in (job, others)]
    assert scopes == ["shared", "tenant_b"]
    assert read_request(job, (), Settings()).cache_scope == "tenant_a"


def test_a_tenant_without_a_name_shares_with_nobody() -> None:
    assert read_request(claimed({"turns": []}), (), Settings(shared_cache_tenants=())).scope is None


def test_what_a_batch_wishes_is_in_its_requests() -> None:
    job = replace(claimed({"turns": []}), near_duplicates=True, warm=True)
    request = read_request(job, (), Settings())
    assert (request.near_duplicates, request.warm) == (True, True)


def test_uses_are_the_chunk_s_jobs_and_those_that_wait() -> None:
    shown = [replace(claimed({}), image_ids=ids) for ids in ([1], [1, 2], [3, 3])]
    assert expect_uses(shown, awaited={2}) == {1: Uses(2, 0), 2: Uses(2, 1), 3: Uses(1, 0)}


def test_what_is_warmed_is_expected_to_be_used() -> None:
    assert expect_uses([replace(claimed({}), warm=True)], awaited=()) == {1: Uses(2, 1)}
