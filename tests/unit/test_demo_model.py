"""The committed checkpoint: small, loadable like a published one, and mostly right."""

from pathlib import Path

import pytest
import torch
from transformers import Qwen3VLForConditionalGeneration
from transformers.models.qwen2.tokenization_qwen2 import Qwen2Tokenizer

from demo.answering import Answerer
from demo.evaluate import held_out, is_right
from demo.model import SIZES, thinned
from demo.pictures import draw
from demo.products import KINDS, product_for
from demo.samples import Samples
from demo.tokenizer import build_tokenizer

FOLDER = Path(__file__).parents[2] / "models" / "demo"
SMALL = FOLDER.with_name("demo-small")
FULL = SIZES["full"]


@pytest.fixture(scope="module")
def answerer() -> Answerer:
    return Answerer(FOLDER, torch.float32)


@pytest.fixture(scope="module")
def tokenizer() -> Qwen2Tokenizer:
    return build_tokenizer()


def test_checkpoint_is_under_fifteen_megabytes() -> None:
    assert sum(path.stat().st_size for path in FOLDER.iterdir()) < 15_000_000


def test_held_out_pictures_are_answered_right(answerer: Answerer) -> None:
    asked = [question for question in held_out(4) if question.kind in KINDS]

    answers = answerer.answer([(question.picture, question.question) for question in asked])

    right = [is_right(question, answer) for question, answer in zip(asked, answers, strict=True)]
    assert sum(right) >= 18


def test_a_batch_answers_as_single_questions_do(answerer: Answerer) -> None:
    picture = draw(product_for(3, held_out=True), 3)
    asked = [(picture, "What colour is the item?"), (picture, "Give item and count as JSON.")]

    assert answerer.answer(asked) == [answerer.answer([one])[0] for one in asked]


def test_any_text_can_be_tokenized(tokenizer: Qwen2Tokenizer) -> None:
    for text in ("Is the weather nice in Zürich?", "颜色是什么？", "\N{TEACUP WITHOUT HANDLE}"):
        assert tokenizer.decode(tokenizer.encode(text)) == text


def test_a_training_batch_hides_questions_from_each_other(tokenizer: Qwen2Tokenizer) -> None:
    batch = Samples(tokenizer, FULL, seed=2, rows=2)[0]

    asked = (batch.targets[0] != -100).nonzero().flatten()
    first, last = int(asked[0]), int(asked[-1])
    assert not batch.mask[0, 0, last, first]
    assert batch.mask[0, 0, last, 0]


def test_a_picture_that_is_shown_again_is_in_another_light_and_asked_about_otherwise(
    tokenizer: Qwen2Tokenizer,
) -> None:
    samples = Samples(tokenizer, SIZES["small"], seed=2, rows=2, drawn=1)
    first, again = samples[0], samples[1]

    size = int(first.grids[0].prod())
    assert torch.equal(first.grids[0], again.grids[0])
    assert torch.equal(first.classes[0], again.classes[0])
    assert not torch.equal(first.patches[:size], again.patches[:size])
    assert first.ids.tolist() != again.ids.tolist()


def test_the_small_model_begins_with_layers_of_the_full_one(tokenizer: Qwen2Tokenizer) -> None:
    model = thinned(tokenizer, SIZES["small"], FOLDER).state_dict()
    full = Qwen3VLForConditionalGeneration.from_pretrained(FOLDER, dtype=torch.float32).state_dict()

    last = "layers.{}.mlp.up_proj.weight"
    assert torch.equal(
        model[f"model.language_model.{last.format(1)}"], full[f"model.language_model.{last.format(3)}"]
    )
    assert torch.equal(model["lm_head.weight"], full["lm_head.weight"])


def test_the_small_model_has_the_full_ones_tokens_and_is_small() -> None:
    tokens, template = "tokenizer.json", "chat_template.jinja"
    assert (SMALL / tokens).read_bytes() == (FOLDER / tokens).read_bytes()
    assert (SMALL / template).read_bytes() == (FOLDER / template).read_bytes()
    assert sum(path.stat().st_size for path in SMALL.iterdir()) < 6_000_000


def test_a_seed_that_would_train_on_held_out_pictures_is_refused(
    tokenizer: Qwen2Tokenizer,
) -> None:
    with pytest.raises(ValueError, match="held-out"):
        Samples(tokenizer, FULL, seed=10, rows=2)
