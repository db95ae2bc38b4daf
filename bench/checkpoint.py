"""Random Qwen3-VL checkpoints of the real architecture: a tiny one, a mid-size one, and parts for others."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from itertools import islice, product
from pathlib import Path
from typing import Any, Literal

import torch
from tokenizers import pre_tokenizers
from transformers import (
    AddedToken,
    GenerationConfig,
    Qwen3VLConfig,
    Qwen3VLForConditionalGeneration,
    Qwen3VLMoeConfig,
    Qwen3VLMoeForConditionalGeneration,
)
from transformers.models.qwen2.tokenization_qwen2 import Qwen2Tokenizer
from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import Qwen2VLImageProcessorPil

Kind = Literal["dense", "moe"]
SPECIAL = (
    "<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|vision_start|>", "<|vision_end|>",
    "<|vision_pad|>", "<|image_pad|>", "<|video_pad|>",
)  # fmt: skip
TEMPLATE = (
    "{%- for message in messages %}{{- '<|im_start|>' + message.role + '\\n' }}"
    "{%- if message.content is string %}{{- message.content }}{%- else %}"
    "{%- for part in message.content %}{%- if part.type == 'image' %}"
    "{{- '<|vision_start|><|image_pad|><|vision_end|>' }}{%- else %}{{- part.text }}{%- endif %}{%- endfor %}"
    "{%- endif %}{{- '<|im_end|>\\n' }}{%- endfor %}"
    "{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n' }}{%- endif %}"
)
SYLLABLES = tuple(a + b for a, b in product("bcdfghjklmnpqrstvwxz", "aeiou"))
TOKEN_AREA = 32 * 32  # pixels of one visual token


@dataclass(frozen=True)
class Shape:
    """The sizes of a checkpoint, and how large its weights are drawn.

    With a fresh model's weights every prompt gets one and the same answer, so they are drawn larger.
    """

    text: Mapping[str, Any]
    vision: Mapping[str, Any]
    min_pixels: int
    max_pixels: int
    text_std: float
    vision_std: float


def rope(sections: list[int], theta: float = 10_000.0) -> dict[str, Any]:
    return {
        "rope_type": "default",
        "rope_theta": theta,
        "mrope_section": sections,
        "mrope_interleaved": True,
    }


TINY = Shape(
    text={
        "hidden_size": 64,
        "intermediate_size": 128,
        "num_hidden_layers": 4,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 16,
        "max_position_embeddings": 4096,
        "rope_parameters": rope([4, 2, 2]),
    },
    vision={
        "hidden_size": 32,
        "intermediate_size": 64,
        "depth": 4,
        "num_heads": 2,
        "out_hidden_size": 64,
        "num_position_embeddings": 64,
        "deepstack_visual_indexes": [0, 1, 2],
    },
    min_pixels=4 * TOKEN_AREA,
    max_pixels=12 * TOKEN_AREA,
    text_std=0.15,
    vision_std=0.3,
)
# vLLM's attention for the CPU begins at heads of 32.
WIDE_HEADS = replace(TINY, text={**TINY.text, "head_dim": 32, "rope_parameters": rope([8, 4, 4])})
MID = Shape(
    text={
        "hidden_size": 512,
        "intermediate_size": 1536,
        "num_hidden_layers": 8,
        "num_attention_heads": 8,
        "num_key_value_heads": 4,
        "head_dim": 64,
        "max_position_embeddings": 4096,
        "rope_parameters": rope([12, 10, 10]),
    },
    vision={
        "hidden_size": 512,
        "intermediate_size": 2048,
        "depth": 6,
        "num_heads": 8,
        "out_hidden_size": 512,
        "num_position_embeddings": 576,
        "deepstack_visual_indexes": [1, 3, 5],
    },
    min_pixels=64 * TOKEN_AREA,
    max_pixels=1024 * TOKEN_AREA,
    text_std=0.09,
    vision_std=0.1,
)


def build_tiny(folder: Path, *, kind: Kind = "dense", seed: int = 0, shape: Shape = TINY) -> Path:
    """A checkpoint of 1.5 MB with bytes for tokens, whose answers depend on every image and word."""
    tokenizer = byte_tokenizer()
    visible = {chr(code) for code in range(33, 127)} | {"<|im_end|>"}
    model = draw_model(shape, tokenizer, kind=kind, seed=seed)
    speak_only(model, tokenizer, visible)
    with torch.no_grad():  # else few answers end before max_tokens
        model.lm_head.weight[tokenizer.get_vocab()["<|im_end|>"]] *= 2
    return save(model, tokenizer, shape, folder)


def build_mid(folder: Path, *, seed: int = 0, shape: Shape = MID) -> Path:
    """A checkpoint with a vocabulary of 8,192 that never ends an answer by itself."""
    tokenizer = word_tokenizer()
    model = draw_model(shape, tokenizer, seed=seed)
    speak_only(model, tokenizer, {"Ġ" + word for word in words()})
    return save(model, tokenizer, shape, folder)


def draw_model(shape: Shape, tokenizer: Qwen2Tokenizer, *, kind: Kind = "dense", seed: int = 0) -> Any:
    """A model with random weights, the same for the same seed."""
    config = config_for(shape, tokenizer, kind)
    torch.manual_seed(seed)
    model = (
        Qwen3VLForConditionalGeneration(config)
        if isinstance(config, Qwen3VLConfig)
        else Qwen3VLMoeForConditionalGeneration(config)
    )
    draw_weights(model, shape)
    return model


def draw_weights(model: torch.nn.Module, shape: Shape) -> None:
    for name, weight in model.named_parameters():
        if weight.dim() > 1:
            torch.nn.init.normal_(weight, std=shape.vision_std if "visual" in name else shape.text_std)


@torch.no_grad()
def speak_only(model: Any, tokenizer: Qwen2Tokenizer, tokens: Collection[str]) -> None:
    """No other tokens are ever likely; where these are unambiguous, equal texts mean equal tokens."""
    spoken = [number for token, number in tokenizer.get_vocab().items() if token in tokens]
    head: torch.Tensor = model.lm_head.weight
    kept = head[spoken].clone()
    head.zero_()
    head[spoken] = kept


def save(model: Any, tokenizer: Qwen2Tokenizer, shape: Shape, folder: Path) -> Path:
    """Write the folder in the layout of a published checkpoint."""
    model.generation_config = generation_config(tokenizer)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    image_processor(shape.min_pixels, shape.max_pixels).save_pretrained(folder)
    return folder


def generation_config(tokenizer: Qwen2Tokenizer) -> GenerationConfig:
    end, padding = _ids(tokenizer, "<|im_end|>", "<|endoftext|>")
    return GenerationConfig(do_sample=False, eos_token_id=[end, padding], pad_token_id=padding)


def byte_tokenizer() -> Qwen2Tokenizer:
    """Qwen's tokenizer with single bytes for a vocabulary."""
    return _with_control_tokens(sorted(pre_tokenizers.ByteLevel.alphabet()), [])


def word_tokenizer() -> Qwen2Tokenizer:
    """Qwen's tokenizer with a vocabulary of 8,192: a word of two syllables after a space is one token."""
    merges = [(syllable[0], syllable[1]) for syllable in SYLLABLES]
    merges += [("Ġ", syllable) for syllable in SYLLABLES]
    merges += [("Ġ" + word[:2], word[2:]) for word in words()]
    vocabulary = [*sorted(pre_tokenizers.ByteLevel.alphabet()), *(a + b for a, b in merges)]
    return _with_control_tokens(vocabulary, merges)


def words() -> list[str]:
    """Every word that is one token after a space."""
    room = 8192 - 256 - 2 * len(SYLLABLES) - len(SPECIAL) - 1
    return [first + second for second, first in islice(product(SYLLABLES, SYLLABLES), room)]


def _with_control_tokens(vocabulary: list[str], merges: Any) -> Qwen2Tokenizer:
    """`merges` are pairs, which the library takes and its annotation does not know."""
    numbered = {token: number for number, token in enumerate(vocabulary)}
    tokenizer = Qwen2Tokenizer(vocab=numbered, merges=merges, padding_side="left")
    added: list[str | AddedToken] = [AddedToken(token, special=True, normalized=False) for token in SPECIAL]
    added.append(AddedToken("<think>", special=False, normalized=False))
    tokenizer.add_tokens(added)
    tokenizer.eos_token = SPECIAL[2]
    tokenizer.chat_template = TEMPLATE
    return tokenizer


def image_processor(min_pixels: int, max_pixels: int) -> Qwen2VLImageProcessorPil:
    return Qwen2VLImageProcessorPil(
        size={"shortest_edge": min_pixels, "longest_edge": max_pixels},
        patch_size=16,
        temporal_patch_size=2,
        merge_size=2,
        image_mean=[0.5, 0.5, 0.5],
        image_std=[0.5, 0.5, 0.5],
    )


def config_for(
    shape: Shape, tokenizer: Qwen2Tokenizer, kind: Kind = "dense"
) -> Qwen3VLConfig | Qwen3VLMoeConfig:
    """Everything that the real models have."""
    image, video, start, end = _ids(
        tokenizer, "<|image_pad|>", "<|video_pad|>", "<|vision_start|>", "<|vision_end|>"
    )
    text = {"vocab_size": len(tokenizer), **shape.text}
    if kind == "moe":
        text |= {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 64}
    config = Qwen3VLConfig if kind == "dense" else Qwen3VLMoeConfig
    return config(
        text_config=text,
        vision_config=dict(shape.vision),
        image_token_id=image,
        video_token_id=video,
        vision_start_token_id=start,
        vision_end_token_id=end,
        tie_word_embeddings=False,
    )


def _ids(tokenizer: Qwen2Tokenizer, *tokens: str) -> list[int]:
    return [tokenizer.get_vocab()[token] for token in tokens]
