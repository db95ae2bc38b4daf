"""Small random Qwen3-VL checkpoints: the real architecture and control tokens in 1.5 MB."""

from pathlib import Path
from typing import Literal

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

SPECIAL = (
    "<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|vision_start|>", "<|vision_end|>",
    "<|vision_pad|>", "<|image_pad|>", "<|video_pad|>",
)  # fmt: skip
MIN_PIXELS = 4 * 32 * 32
MAX_PIXELS = 12 * 32 * 32
CONTEXT = 4096
TEMPLATE = (
    "{%- for message in messages %}{{- '<|im_start|>' + message.role + '\\n' }}"
    "{%- if message.content is string %}{{- message.content }}{%- else %}"
    "{%- for part in message.content %}{%- if part.type == 'image' %}"
    "{{- '<|vision_start|><|image_pad|><|vision_end|>' }}{%- else %}{{- part.text }}{%- endif %}{%- endfor %}"
    "{%- endif %}{{- '<|im_end|>\\n' }}{%- endfor %}"
    "{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n' }}{%- endif %}"
)


def build_checkpoint(folder: Path, *, kind: Literal["dense", "moe"] = "dense", seed: int = 0) -> Path:
    """Write a checkpoint whose greedy answers depend on every image and word; the same for the same seed."""
    tokenizer = build_tokenizer()
    config = model_config(tokenizer, kind)
    torch.manual_seed(seed)
    model = (
        Qwen3VLForConditionalGeneration(config)
        if isinstance(config, Qwen3VLConfig)
        else Qwen3VLMoeForConditionalGeneration(config)
    )
    _sharpen(model)
    _speak_ascii(model.lm_head.weight, tokenizer)
    end, padding = _ids(tokenizer, "<|im_end|>", "<|endoftext|>")
    model.generation_config = GenerationConfig(
        do_sample=False, eos_token_id=[end, padding], pad_token_id=padding
    )
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    image_processor().save_pretrained(folder)
    return folder


def build_tokenizer() -> Qwen2Tokenizer:
    """Qwen's tokenizer with single bytes for a vocabulary."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Qwen2Tokenizer(vocab={char: number for number, char in enumerate(alphabet)}, merges=[])
    added: list[str | AddedToken] = [AddedToken(token, special=True, normalized=False) for token in SPECIAL]
    added.append(AddedToken("<think>", special=False, normalized=False))
    tokenizer.add_tokens(added)
    tokenizer.eos_token = "<|im_end|>"
    tokenizer.chat_template = TEMPLATE
    return tokenizer


def image_processor() -> Qwen2VLImageProcessorPil:
    return Qwen2VLImageProcessorPil(
        size={"shortest_edge": MIN_PIXELS, "longest_edge": MAX_PIXELS},
        patch_size=16,
        temporal_patch_size=2,
        merge_size=2,
        image_mean=[0.5, 0.5, 0.5],
        image_std=[0.5, 0.5, 0.5],
    )


def model_config(
    tokenizer: Qwen2Tokenizer, kind: Literal["dense", "moe"] = "dense"
) -> Qwen3VLConfig | Qwen3VLMoeConfig:
    """Everything that the real models have, only less of it."""
    image, video, start, end = _ids(
        tokenizer, "<|image_pad|>", "<|video_pad|>", "<|vision_start|>", "<|vision_end|>"
    )
    text = {
        "vocab_size": len(tokenizer),
        "hidden_size": 64,
        "intermediate_size": 128,
        "num_hidden_layers": 4,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 16,
        "max_position_embeddings": CONTEXT,
        "rope_parameters": {
            "rope_type": "default",
            "rope_theta": 10000.0,
            "mrope_section": [4, 2, 2],
            "mrope_interleaved": True,
        },
    }
    if kind == "moe":
        text |= {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 64}
    config = Qwen3VLConfig if kind == "dense" else Qwen3VLMoeConfig
    return config(
        text_config=text,
        vision_config={
            "hidden_size": 32,
            "intermediate_size": 64,
            "depth": 4,
            "num_heads": 2,
            "out_hidden_size": 64,
            "num_position_embeddings": 64,
            "deepstack_visual_indexes": [0, 1, 2],
        },
        image_token_id=image,
        video_token_id=video,
        vision_start_token_id=start,
        vision_end_token_id=end,
        tie_word_embeddings=False,
    )


def _sharpen(model: torch.nn.Module) -> None:
    """Larger weights than a fresh model's, without which every prompt gets one and the same answer."""
    for name, weight in model.named_parameters():
        if weight.dim() > 1:
            torch.nn.init.normal_(weight, std=0.3 if "visual" in name else 0.15)


@torch.no_grad()
def _speak_ascii(head: torch.Tensor, tokenizer: Qwen2Tokenizer) -> None:
    """Only visible characters and the end are ever likely, so that equal texts mean equal tokens."""
    words = {chr(code) for code in range(33, 127)} | {"<|im_end|>"}
    head[[number for token, number in tokenizer.get_vocab().items() if token not in words]] = 0
    head[tokenizer.get_vocab()["<|im_end|>"]] *= 2  # else few answers end before max_tokens


def _ids(tokenizer: Qwen2Tokenizer, *tokens: str) -> list[int]:
    return [tokenizer.get_vocab()[token] for token in tokens]
