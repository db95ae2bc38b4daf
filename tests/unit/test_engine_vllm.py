"""What vLLM is told: its own arguments, and a request's prompt, sampling, constraint and rank."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from app import grammars
from app.config import Settings
from app.errors import ImageError, InvalidWork
from tests.checkpoints import build_tokenizer
from tests.requests import ask, picture
from workers.engine.base import Choice, Image, JsonObject, JsonSchema, Pixels, Request, Sampling
from workers.engine.folder import Outline
from workers.engine.preprocess import Preprocessor
from workers.engine.vllm_arguments import VllmSettings, engine_arguments
from workers.engine.vllm_requests import (
    JSON_RULES,
    VllmPrompts,
    constraint_arguments,
    priority,
    sampling_arguments,
)
from workers.engines import vllm_settings

TOKEN = 32 * 32  # pixels


def arguments(settings: VllmSettings | None = None, *, on_gpu: bool = True) -> dict[str, Any]:
    given = engine_arguments(
        settings or VllmSettings(),
        folder=Path("/models/m"),
        dtype="bfloat16",
        on_gpu=on_gpu,
        max_pixels=12 * TOKEN,
    )
    return dict(given)


@pytest.fixture
def prompts() -> VllmPrompts:
    outline = Outline(
        folder=Path("/models/m"),
        tokenizer=build_tokenizer(),
        preprocessor=Preprocessor(min_pixels=4 * TOKEN, max_pixels=12 * TOKEN),
        revision="r",
        context=200,
        end_ids=frozenset({1}),
    )
    return VllmPrompts(outline, normaliser="1", context=200, encoder_tokens=9)


def image_ids(prompts: VllmPrompts, request: Request) -> list[str]:
    made, _ = prompts.build(request)
    return made.prompt["multi_modal_uuids"]["image"]


def test_every_setting_reaches_vllm() -> None:
    chosen = Settings(
        engine="vllm",
        vllm_tensor_parallel=4,
        vllm_expert_parallel=True,
        vllm_mm_encoder_tp_mode="data",
        vllm_async_scheduling=False,
        vllm_gpu_memory_share=0.8,
        vllm_kv_cache_dtype="fp8",
        vllm_max_model_len=32_768,
        step_rows=256,
        images_per_job=3,
    )
    given = arguments(vllm_settings(chosen))
    assert given["tensor_parallel_size"] == 4
    assert given["enable_expert_parallel"] is True
    assert given["mm_encoder_tp_mode"] == "data"
    assert given["async_scheduling"] is False
    assert given["gpu_memory_utilization"] == 0.8
    assert given["kv_cache_dtype"] == "fp8"
    assert given["max_model_len"] == 32_768
    assert given["max_num_seqs"] == 256
    assert given["limit_mm_per_prompt"] == {"image": 3, "video": 0}


def test_what_is_not_chosen_is_left_to_vllm() -> None:
    given = arguments()
    assert given["async_scheduling"] is None
    assert "max_model_len" not in given


def test_prefixes_are_cached_and_pictures_are_left_as_they_come() -> None:
    given = arguments()
    assert given["enable_prefix_caching"] is True
    assert given["mm_processor_kwargs"] == {"size": {"shortest_edge": TOKEN, "longest_edge": 12 * TOKEN}}
    assert "enable_mm_embeds" not in given


def test_a_cpu_has_no_share_of_gpu_memory_and_compiles_nothing() -> None:
    given = arguments(on_gpu=False)
    assert given["enforce_eager"] is True
    assert "gpu_memory_utilization" not in given


@pytest.mark.parametrize("on_gpu", [True, False])
def test_vllm_knows_every_argument(on_gpu: bool) -> None:
    vllm = pytest.importorskip("vllm", reason="vLLM is not installed: scripts/vllm_env builds an environment")
    chosen = VllmSettings(
        tensor_parallel=2, expert_parallel=True, mm_encoder_tp_mode="data", max_model_len=4096
    )
    made = vllm.AsyncEngineArgs(**arguments(chosen, on_gpu=on_gpu))
    assert made.tensor_parallel_size == 2
    assert made.mm_encoder_tp_mode == "data"


def test_an_image_is_one_mark_and_one_picture_at_its_grid_s_size(prompts: VllmPrompts) -> None:
    made, held = prompts.build(ask(picture(1, 96, 64), "colour?", picture(2, 300, 300), max_tokens=1))
    mark = build_tokenizer().get_vocab()["<|image_pad|>"]
    assert made.prompt["prompt_token_ids"].count(mark) == 2
    assert [shown.resized.size for shown in held if shown.resized] == [(96, 64), (96, 96)]
    assert made.tokens == len(made.prompt["prompt_token_ids"]) - 2 + 6 + 9


def test_a_text_has_no_picture_key_at_all(prompts: VllmPrompts) -> None:
    made, held = prompts.build(ask("who?"))
    assert set(made.prompt) == {"prompt_token_ids", "cache_salt"}
    assert held == []


def test_a_picture_is_decoded_once_for_all_who_hold_it(prompts: VllmPrompts) -> None:
    decoded: list[int] = []
    pixels = picture(1).load()

    def load() -> Pixels:
        decoded.append(1)
        return pixels

    image = Image("hash", 96, 64, load)
    kept = [prompts.build(ask(image, f"{number}", max_tokens=1)) for number in range(3)]
    assert len(kept) == 3
    assert decoded == [1]


@pytest.mark.parametrize(
    "other",
    [
        ask(picture(2, 300, 300), "colour?", max_tokens=1),
        ask(picture(1, 300, 300), "colour?", max_tokens=1, tenant="other"),
        ask(picture(1, 300, 300), "colour?", max_tokens=1, max_pixels=4 * TOKEN),
    ],
    ids=["image", "tenant", "size"],
)
def test_what_changes_a_picture_or_its_owner_changes_its_name(prompts: VllmPrompts, other: Request) -> None:
    first = ask(picture(1, 300, 300), "colour?", max_tokens=1)
    assert image_ids(prompts, first) == image_ids(prompts, replace(first, id="again"))
    assert image_ids(prompts, first) != image_ids(prompts, other)


def test_tenants_that_share_have_one_name_and_one_salt(prompts: VllmPrompts) -> None:
    mine = replace(ask(picture(1), "colour?", max_tokens=1, tenant="a"), scope="shared")
    yours = replace(mine, tenant="b")
    assert image_ids(prompts, mine) == image_ids(prompts, yours)
    salts = {prompts.build(request)[0].prompt["cache_salt"] for request in (mine, yours)}
    apart = prompts.build(replace(mine, scope=None))[0].prompt["cache_salt"]
    assert len(salts) == 1
    assert apart not in salts


def test_an_image_over_the_encoder_s_room_is_refused_before_it_is_decoded(prompts: VllmPrompts) -> None:
    def load() -> Pixels:
        raise ImageError("image_corrupt", "it was decoded")

    with pytest.raises(InvalidWork, match=r"image_too_large: .*12 visual tokens.*room for 9.*max_pixels"):
        prompts.build(ask(Image("hash", 400, 300, load), "colour?", max_tokens=1))


def test_a_prompt_over_the_context_is_refused_with_both_numbers(prompts: VllmPrompts) -> None:
    with pytest.raises(InvalidWork, match=r"context_length_exceeded: .*max_tokens 190.*model's 200"):
        prompts.build(ask(picture(1), "colour?", max_tokens=190))


def test_sampling_is_passed_on_whole() -> None:
    sampling = Sampling(
        max_tokens=7,
        temperature=0.5,
        top_p=0.9,
        top_k=3,
        seed=4,
        stop=("a", ""),
        repetition_penalty=1.2,
        logprobs=2,
    )
    given = sampling_arguments(ask("who?", sampling=sampling), frozenset({9, 8}))
    assert given["stop"] == ["a"]
    assert given["stop_token_ids"] == [8, 9]
    assert [given[name] for name in ("max_tokens", "temperature", "top_p", "top_k", "seed")] == [
        7,
        0.5,
        0.9,
        3,
        4,
    ]
    assert (given["repetition_penalty"], given["logprobs"]) == (1.2, 2)


def test_who_listens_hears_every_token() -> None:
    silent = ask("who?")
    listening = replace(silent, on_text=lambda _: None)
    none = frozenset[int]()
    assert sampling_arguments(listening, none)["stream_interval"] == 1
    assert sampling_arguments(silent, none)["stream_interval"] > 1


def test_constraints_follow_the_rules_of_our_own_grammars() -> None:
    schema = json.dumps({"type": "object", "properties": {"a": {"type": "integer"}}})
    ours = json.loads(grammars.json_grammar(schema))
    assert JSON_RULES.items() <= ours["grammars"][0]["json_schema"]["x-guidance"].items()
    assert constraint_arguments(JsonSchema(schema))["json"] == {
        **json.loads(schema),
        "x-guidance": JSON_RULES,
    }
    assert constraint_arguments(JsonObject())["json"]["type"] == "object"
    assert constraint_arguments(Choice(("a", "b"))) == {"choice": ["a", "b"]}


@pytest.mark.parametrize("schema", ["[]", "{", '{"type": "object", "unevaluatedProperties": false}'])
def test_a_schema_that_cannot_be_followed_is_refused(schema: str) -> None:
    with pytest.raises(InvalidWork, match="invalid_schema"):
        constraint_arguments(JsonSchema(schema))


def test_what_is_urgent_runs_before_every_deadline() -> None:
    urgent = replace(ask("a", deadline=None), urgent=True)
    assert priority(urgent) < priority(ask("a", deadline=0.0))


def test_the_earlier_deadline_runs_first_and_near_ones_keep_their_order() -> None:
    ranks = [priority(ask("a", deadline=deadline)) for deadline in (100.0, 101.0, 200.0, None)]
    assert ranks[0] == ranks[1] < ranks[2] < ranks[3]
