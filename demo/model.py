"""The shapes of the demo models: a Qwen3-VL of about five million parameters, and a smaller one."""

import json
from dataclasses import dataclass
from pathlib import Path

import torch
from transformers import GenerationConfig, Qwen3VLConfig, Qwen3VLForConditionalGeneration
from transformers.models.qwen2.tokenization_qwen2 import Qwen2Tokenizer
from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import Qwen2VLImageProcessorPil

TOKEN_AREA = 32 * 32  # pixels of a visual token
TEXT_WIDTH = 192


@dataclass(frozen=True)
class Size:
    """What differs between the demo models; widths, tokenizer and prompt format do not."""

    text_layers: int
    vision_layers: int
    deepstack: tuple[int, ...]
    tokens: tuple[int, int]  # of a picture: the least and the most


SIZES = {
    # Three DeepStack levels as in the real models, everything else as small as it can be.
    # 36 visual tokens give each of four items about 80 pixels a side.
    "full": Size(4, 6, (1, 3, 4), (25, 36)),
    "small": Size(2, 3, (1,), (9, 16)),
}
# Of the full model's layers those that the small one begins with, by where they stand.
KEPT_LAYERS = {
    "language_model.layers": (0, 3),
    "visual.blocks": (0, 1, 5),
    "visual.deepstack_merger_list": (0,),
}


def demo_config(tokenizer: Qwen2Tokenizer, shape: Size) -> Qwen3VLConfig:
    """A model of this shape."""
    size = len(tokenizer)
    return Qwen3VLConfig(
        text_config={
            "vocab_size": size + -size % 32,
            "hidden_size": TEXT_WIDTH,
            "intermediate_size": 512,
            "num_hidden_layers": shape.text_layers,
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
            "depth": shape.vision_layers,
            "num_heads": 4,
            "out_hidden_size": TEXT_WIDTH,
            "num_position_embeddings": 144,
            "deepstack_visual_indexes": list(shape.deepstack),
            "initializer_range": 0.04,
        },
        image_token_id=_id(tokenizer, "<|image_pad|>"),
        video_token_id=_id(tokenizer, "<|video_pad|>"),
        vision_start_token_id=_id(tokenizer, "<|vision_start|>"),
        vision_end_token_id=_id(tokenizer, "<|vision_end|>"),
        tie_word_embeddings=True,
    )


def thinned(tokenizer: Qwen2Tokenizer, shape: Size, folder: Path) -> Qwen3VLForConditionalGeneration:
    """A model of this shape with the weights of a full one: all but those of the layers that it lacks."""
    full = Qwen3VLForConditionalGeneration.from_pretrained(folder, dtype=torch.float32).state_dict()
    model = Qwen3VLForConditionalGeneration(demo_config(tokenizer, shape))
    weights = {name: full[_old_name(name)] for name in model.state_dict()}
    model.load_state_dict(weights)
    return model


def _old_name(name: str) -> str:
    """What a weight of the small model is called in the full one."""
    for layers, kept in KEPT_LAYERS.items():
        before, found, behind = name.partition(f"{layers}.")
        if found:
            place, _, rest = behind.partition(".")
            return f"{before}{found}{kept[int(place)]}.{rest}"
    return name


def image_processor(shape: Size) -> Qwen2VLImageProcessorPil:
    """Qwen3-VL's own preprocessing with the demo model's pixel budget."""
    return Qwen2VLImageProcessorPil(
        size={"shortest_edge": shape.tokens[0] * TOKEN_AREA, "longest_edge": shape.tokens[1] * TOKEN_AREA},
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


def save(
    model: Qwen3VLForConditionalGeneration, tokenizer: Qwen2Tokenizer, shape: Size, folder: Path
) -> None:
    """Writes the folder in the layout of a published checkpoint; leaves the model in bf16."""
    model.generation_config = generation_config(tokenizer)
    model.bfloat16().save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    pictures = image_processor(shape).to_dict() | {"processor_class": "Qwen3VLProcessor"}
    (folder / "preprocessor_config.json").write_text(json.dumps(pictures, indent=2) + "\n")
    for path in folder.iterdir():
        path.chmod(0o644)  # safetensors files come out readable by their owner only


def _id(tokenizer: Qwen2Tokenizer, token: str) -> int:
    found = tokenizer.convert_tokens_to_ids(token)
    if not isinstance(found, int):
        raise TypeError(f"{token} is not one token")
    return found
