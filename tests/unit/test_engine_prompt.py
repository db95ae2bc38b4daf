"""Prompts: the chat template's tokens, positions of images, and texts that pretend to be control tokens."""

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from transformers.models.qwen3_vl.modeling_qwen3_vl import Qwen3VLModel

from app.errors import FatalWork, InvalidWork
from tests.checkpoints import CONTEXT, SPECIAL, build_tokenizer, model_config
from tests.requests import picture
from workers.engine.base import ImagePart, Request, Sampling, TextPart, Turn
from workers.engine.checks import placed_images
from workers.engine.preprocess import Grid
from workers.engine.prompt import Prompt, PromptBuilder

TOKENIZER = build_tokenizer()
BUILDER = PromptBuilder(TOKENIZER, context=CONTEXT)
IMAGE = TOKENIZER.get_vocab()["<|image_pad|>"]
SIDES = st.sampled_from([2, 4, 10])
CONFIG: Any = model_config(TOKENIZER)
LIBRARY: Any = Qwen3VLModel(CONFIG)  # for its rule of positions; weights do not matter
# Ordinary ones: where a text holds a control token, the library takes it for one and we do not.
TEXTS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="|"), max_size=40)


def prompt(*parts: str | Grid) -> Prompt:
    """One user turn."""
    numbers = iter(range(len(parts)))
    turn = Turn(
        "user", tuple(TextPart(part) if isinstance(part, str) else ImagePart(next(numbers)) for part in parts)
    )
    return BUILDER.build([turn], [part for part in parts if isinstance(part, Grid)])


def library_ids(text: str) -> list[int]:
    messages = [{"role": "user", "content": text}]
    ids: Any = TOKENIZER.apply_chat_template(messages, add_generation_prompt=True, return_dict=False)
    return ids


@settings(deadline=None)
@given(TEXTS)
def test_ordinary_text_becomes_the_template_s_tokens(text: str) -> None:
    assert prompt(text).ids.tolist() == library_ids(text)


@settings(deadline=None)
@given(TEXTS, TEXTS)
def test_two_texts_are_as_one(first: str, second: str) -> None:
    assert prompt(first, second).ids.tolist() == library_ids(first + second)


@settings(deadline=None)
@example(["<|im_", "end|>"])
@example(["<", "|im_end|>", "x"])
@given(st.lists(st.sampled_from([*SPECIAL, "<|im_", "end|>", "<|", "|>", "x", "\n", "\ue000"]), max_size=6))
def test_no_text_makes_a_control_token(pieces: list[str]) -> None:
    found = prompt(*pieces).ids.tolist()
    controls = [TOKENIZER.get_vocab()[token] for token in SPECIAL]
    assert [number for number in found if number in controls] == [
        number for number in library_ids("") if number in controls
    ]
    assert "".join(pieces) in BUILDER.tokenizer.decode(found, skip_special_tokens=True)


def test_an_image_takes_its_tokens_between_its_marks() -> None:
    found = prompt("see", Grid(4, 6), "?")
    text = BUILDER.tokenizer.decode(found.ids.tolist(), skip_special_tokens=False)
    assert "see<|vision_start|>" + "<|image_pad|>" * 6 + "<|vision_end|>?" in text


@settings(deadline=None)
@given(st.lists(st.one_of(st.sampled_from(["a", "what?"]), st.builds(Grid, SIDES, SIDES)), max_size=6))
def test_positions_are_the_library_s(parts: list[str | Grid]) -> None:
    found = prompt(*parts)
    grids = [[1, part.height, part.width] for part in parts if isinstance(part, Grid)]
    ids: Any = torch.from_numpy(found.ids)[None]
    positions, delta = LIBRARY.get_rope_index(ids, ids.eq(IMAGE).int(), image_grid_thw=torch.tensor(grids))
    assert np.array_equal(found.positions, positions[:, 0].numpy())
    assert found.next_position == len(found) + int(delta)


def test_a_text_that_no_tokens_could_hold_is_refused_before_it_is_tokenised() -> None:
    most = CONTEXT * max(map(len, SPECIAL))
    with pytest.raises(InvalidWork, match=rf"context_length_exceeded: .* bytes .* {CONTEXT} tokens"):
        prompt("x" * most)
    assert len(prompt("x" * (most - 100))) > CONTEXT


def test_a_text_is_measured_as_the_tokenizer_normalises_it() -> None:
    syllables = "\u1112\u1161\u11ab" * 16_000  # 9 bytes each, 3 when composed
    assert len(prompt(syllables)) > 3 * 16_000


def test_a_place_without_an_image_is_refused() -> None:
    turn = Turn("user", (ImagePart(0), ImagePart(1)))
    request = Request("r", "tenant", (turn,), (picture(1),), Sampling(1))
    with pytest.raises(InvalidWork, match="image 1 of 1"):
        placed_images(request)


def test_an_image_may_stand_in_two_places() -> None:
    turn = Turn("user", (ImagePart(0), TextPart("or"), ImagePart(0)))
    assert placed_images(Request("r", "tenant", (turn,), (picture(1),), Sampling(1))) == [0, 0]


def test_a_template_that_leaves_images_out_is_not_used() -> None:
    tokenizer = build_tokenizer()
    tokenizer.chat_template = "{{ messages[0].role }}"
    with pytest.raises(FatalWork, match="does not place every image"):
        PromptBuilder(tokenizer, context=CONTEXT).build([Turn("user", (ImagePart(0),))], [Grid(2, 2)])


def test_a_refusal_by_the_template_is_the_job_s_own_fault() -> None:
    tokenizer = build_tokenizer()
    tokenizer.chat_template = "{{ raise_exception('no system prompts') }}"
    with pytest.raises(InvalidWork, match="no system prompts"):
        PromptBuilder(tokenizer, context=CONTEXT).build([Turn("system", (TextPart("a"),))], [])


@pytest.mark.parametrize(
    ("end", "opening"), [("<think>\n", "<think>"), ("<think>\n\n</think>\n\n", ""), ("", "")]
)
def test_a_template_that_ends_in_reasoning_opens_it_for_the_answer(end: str, opening: str) -> None:
    tokenizer = build_tokenizer()
    tokenizer.chat_template = "<|im_start|>{{ messages[0].content[0].text }}assistant" + repr(end).join(
        ("{{ ", " }}")
    )
    builder = PromptBuilder(tokenizer, context=CONTEXT)
    assert builder.build([Turn("user", (TextPart("<think>"),))], []).opening == opening
