"""The shape of the demo model: a Qwen3-VL of about five million parameters."""

import json
from pathlib import Path

from transformers import GenerationConfig, Qwen3VLConfig, Qwen3VLForConditionalGeneration
from transformers.models.qwen2.tokenization_qwen2 import Qwen2Tokenizer
from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import Qwen2VLImageProcessorPil

# Areas in pixels. 36 visual tokens give each of four items about 80 pixels a side.
MIN_PIXELS = 25 * 32 * 32
MAX_PIXELS = 36 * 32 * 32
TEXT_WIDTH = 192


def demo_config(tokenizer: Qwen2Tokenizer) -> Qwen3VLConfig:
    """Three DeepStack levels as in the real models, everything else as small as it can be."""
    size = len(tokenizer)
    return Qwen3VLConfig(
        text_config={
            "vocab_size": size + -size % 32,
            "hidden_size": TEXT_WIDTH,
            "intermediate_size": 512,
            "num_hidden_layers": 4,
            "num_attention_heads": 6,
            "num_key_value_heads": 2,
            "head_dim": 32,
            "max_position_embeddings": 4096,
            "initializer_range": 0.04,
            "rope_parameters": {
                "rope_type": "default",
                "rope_theta": 10000.0,
                "mrope_section": [6, 5, 5],
                "mrope_interleaved": True,
            },
            "eos_token_id": _id(tokenizer, "<|im_end|>"),
            "pad_token_id": _id(tokenizer, "<|endoftext|>"),
            "tie_word_embeddings": True,
        },
        vision_config={
            "hidden_size": 128,
            "intermediate_size": 512,
            "depth": 6,
            "num_heads": 4,
            "out_hidden_size": TEXT_WIDTH,
            "num_position_embeddings": 144,
            "deepstack_visual_indexes": [1, 3, 4],
            "initializer_range": 0.04,
        },
        image_token_id=_id(tokenizer, "<|image_pad|>"),
        video_token_id=_id(tokenizer, "<|video_pad|>"),
        vision_start_token_id=_id(tokenizer, "<|vision_start|>"),
        vision_end_token_id=_id(tokenizer, "<|vision_end|>"),
        tie_word_embeddings=True,
    )


def image_processor() -> Qwen2VLImageProcessorPil:
    """Qwen3-VL's own preprocessing with the demo model's pixel budget."""
    return Qwen2VLImageProcessorPil(
        size={"shortest_edge": MIN_PIXELS, "longest_edge": MAX_PIXELS},
        patch_size=16,
        temporal_patch_size=2,
        merge_size=2,
        image_mean=[0.5, 0.5, 0.5],
        image_std=[0.5, 0.5, 0.5],
    )


def generation_config(tokenizer: Qwen2Tokenizer) -> GenerationConfig:
    """Greedy, and both of Qwen's end tokens."""
    end, padding = _id(tokenizer, "<|im_end|>"), _id(tokenizer, "<|endoftext|>")
    return GenerationConfig(do_sample=False, eos_token_id=[end, padding], pad_token_id=padding)


def save(model: Qwen3VLForConditionalGeneration, tokenizer: Qwen2Tokenizer, folder: Path) -> None:
    """Writes the folder in the layout of a published checkpoint; leaves the model in bf16."""
    model.generation_config = generation_config(tokenizer)
    model.bfloat16().save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    pictures = image_processor().to_dict() | {"processor_class": "Qwen3VLProcessor"}
    (folder / "preprocessor_config.json").write_text(json.dumps(pictures, indent=2) + "\n")
    for path in folder.iterdir():
        path.chmod(0o644)  # safetensors files come out readable by their owner only


def _id(tokenizer: Qwen2Tokenizer, token: str) -> int:
    found = tokenizer.convert_tokens_to_ids(token)
    if not isinstance(found, int):
        raise TypeError(f"{token} is not one token")
    return found
