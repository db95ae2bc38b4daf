"""A checkpoint loaded onto a device, with what an engine must know about it."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import torch
from transformers import (
    GenerationConfig,
    PreTrainedTokenizerBase,
    Qwen3VLForConditionalGeneration,
    Qwen3VLMoeForConditionalGeneration,
)

from app.errors import FatalWork
from workers.engine import packed
from workers.engine.folder import find_folder, load_tokenizer, read_end_ids, read_model_type, read_revision
from workers.engine.preprocess import Preprocessor, read_preprocessor
from workers.engine.slots import Shape

Dtype = Literal["auto", "float32", "bfloat16"]
QwenModel = Qwen3VLForConditionalGeneration | Qwen3VLMoeForConditionalGeneration
MODEL_CLASSES = {
    "qwen3_vl": Qwen3VLForConditionalGeneration,
    "qwen3_vl_moe": Qwen3VLMoeForConditionalGeneration,
}


@dataclass(frozen=True)
class Checkpoint:
    """A loaded model and what an engine must know about it."""

    model: QwenModel
    tokenizer: PreTrainedTokenizerBase
    preprocessor: Preprocessor
    revision: str
    context: int  # tokens: prompt and answer together
    end_ids: frozenset[int]
    pad_id: int
    feature_levels: int  # the pooled output and the DeepStack levels
    feature_width: int
    vocabulary: int  # logits of a row: may be more than the tokenizer has
    kv_shape: Shape


def load_checkpoint(
    source: str, *, device: str = "auto", dtype: Dtype = "auto", max_pixels: int | None = None
) -> Checkpoint:
    """Load a Qwen3-VL checkpoint from a folder or a hub id (HF_HUB_OFFLINE is honoured).

    `auto` is the first GPU and bfloat16 where there is one, else the CPU and float32. `max_pixels` lowers
    the checkpoint's own pixel budget. Raises FatalWork with a code and a remedy.
    """
    folder = find_folder(source)
    device = device if device != "auto" else "cuda" if torch.cuda.is_available() else "cpu"
    model = _load_model(folder, device, _torch_dtype(dtype, device))
    tokenizer = load_tokenizer(folder, model.config.image_token_id)
    generation = model.generation_config or GenerationConfig()
    text: Any = model.config.text_config  # annotated as what it was before it was read
    vision: Any = model.config.vision_config
    return Checkpoint(
        model=model,
        tokenizer=tokenizer,
        preprocessor=read_preprocessor(folder, max_pixels=max_pixels),
        revision=read_revision(folder),
        context=text.max_position_embeddings,
        end_ids=read_end_ids(generation, tokenizer),
        pad_id=_pad_id(generation, tokenizer),
        feature_levels=1 + len(vision.deepstack_visual_indexes),
        feature_width=text.hidden_size,
        vocabulary=text.vocab_size,
        kv_shape=Shape(
            layers=text.num_hidden_layers,
            heads=text.num_key_value_heads,
            width=text.head_dim,
            dtype=model.dtype,
            device=model.device,
        ),
    )


def _load_model(folder: Path, device: str, dtype: torch.dtype) -> QwenModel:
    """Load the weights; where some are missing the library would take random ones and only warn."""
    loaded: Any = MODEL_CLASSES[
        read_model_type(folder)
    ].from_pretrained(  # a pair, which its annotation does not say
        folder,
        dtype=dtype,
        attn_implementation={"text_config": packed.NAME, "vision_config": "sdpa"},
        output_loading_info=True,
    )
    model, info = loaded
    wrong = [*info["missing_keys"], *(key for key, *_ in info["mismatched_keys"])]
    if wrong:
        raise FatalWork(
            "model_incomplete", f"{folder}: {len(wrong)} weights are missing or misshapen, e.g. {wrong[0]}"
        )
    return model.to(device).eval()


def _torch_dtype(dtype: Dtype, device: str) -> torch.dtype:
    if dtype == "auto":
        return torch.float32 if device == "cpu" else torch.bfloat16
    return torch.float32 if dtype == "float32" else torch.bfloat16


def _pad_id(generation: GenerationConfig, tokenizer: PreTrainedTokenizerBase) -> int:
    """Any token will do, as padding is masked, if it is not an image's."""
    found = generation.pad_token_id if generation.pad_token_id is not None else tokenizer.pad_token_id
    return found if isinstance(found, int) else min(read_end_ids(generation, tokenizer))
