"""A checkpoint loaded onto a device, with what an engine must know about it."""

import json
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
from workers.engine.int8 import Int8Linear
from workers.engine.preprocess import Preprocessor, read_preprocessor
from workers.engine.slots import Shape
from workers.engine.tuning import PackedLinear, PatchProjection, replace_linear

LIBRARY_ATTENTION = "sdpa"
Dtype = Literal["auto", "float32", "bfloat16", "int8"]
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
    number_format: str  # with the kind of device, such as `cpu int8`
    context: int  # tokens: prompt and answer together
    end_ids: frozenset[int]
    feature_levels: int  # the pooled output and the DeepStack levels
    feature_width: int
    vocabulary: int  # logits of a row: may be more than the tokenizer has
    kv_shape: Shape


def load_checkpoint(
    source: str,
    *,
    device: str = "auto",
    dtype: Dtype = "auto",
    max_pixels: int | None = None,
    attention: str = packed.NAME,
) -> Checkpoint:
    """Load a Qwen3-VL checkpoint from a folder or a hub id (HF_HUB_OFFLINE is honoured).

    `auto` is the first GPU and bfloat16 where there is one, else the CPU and float32. `max_pixels` lowers
    the checkpoint's own pixel budget; `attention` is the text model's: our packed one, or LIBRARY_ATTENTION.
    Raises FatalWork with a code and a remedy.
    """
    folder = find_folder(source)
    device = _device(device)
    model = _load_model(folder, device, dtype, attention)
    tokenizer = load_tokenizer(folder, model.config.image_token_id)
    generation = model.generation_config or GenerationConfig()
    text: Any = model.config.text_config  # annotated as what it was before it was read
    vision: Any = model.config.vision_config
    return Checkpoint(
        model=model,
        tokenizer=tokenizer,
        preprocessor=read_preprocessor(folder, max_pixels=max_pixels),
        revision=read_revision(folder),
        number_format=f"{model.device.type} {dtype if dtype == 'int8' else str(model.dtype)}",
        context=text.max_position_embeddings,
        end_ids=read_end_ids(generation, tokenizer),
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


def _device(name: str) -> str:
    """One that this build of torch can use; raises FatalWork("device_unavailable")."""
    if name == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    try:
        torch.empty(1, device=name)
    except (RuntimeError, AssertionError) as error:
        raise FatalWork(
            "device_unavailable",
            f"torch {torch.__version__} cannot use the device {name!r}: set VQUEUE_DEVICE to auto or cpu, or "
            "install a build of torch for it (VQUEUE_TORCH_INDEX, see docs/models.md)",
        ) from error
    return name


def _load_model(folder: Path, device: str, dtype: Dtype, attention: str) -> QwenModel:
    """Load the weights; where some are missing the library would take random ones and only warn."""
    if dtype == "int8" and device != "cpu":
        raise FatalWork(
            "model_unsupported",
            f"int8 runs on a CPU, not on {device}: set VQUEUE_DTYPE=bfloat16 or take an AWQ checkpoint",
        )
    model = _read_weights(folder, device, _torch_dtype(dtype, device), attention).eval()
    tower: Any = model.model.visual
    tower.patch_embed.proj = PatchProjection(tower.patch_embed.proj)
    if dtype == "int8":
        replace_linear(model.model.language_model, Int8Linear)
    if device == "cpu" and not _is_quantised(folder):
        replace_linear(model, PackedLinear)
    return model


def _read_weights(folder: Path, device: str, dtype: torch.dtype, attention: str) -> QwenModel:
    """Checkpoints that are quantised already (AWQ, GPTQ) need the library that runs them."""
    try:
        loaded: Any = MODEL_CLASSES[read_model_type(folder)].from_pretrained(
            folder,
            dtype=dtype,
            device_map=device if _is_quantised(folder) else None,
            attn_implementation={"text_config": attention, "vision_config": LIBRARY_ATTENTION},
            output_loading_info=True,
        )
    except (ImportError, ValueError) as error:  # ValueError is what it says of accelerate
        if not _is_quantised(folder):
            raise
        raise FatalWork(
            "model_unsupported", f"{folder} needs a library that is not installed: {error}"
        ) from error
    model, info = loaded  # a pair, which its annotation does not say
    wrong = [*info["missing_keys"], *(key for key, *_ in info["mismatched_keys"])]
    if wrong:
        raise FatalWork(
            "model_incomplete", f"{folder}: {len(wrong)} weights are missing or misshapen, e.g. {wrong[0]}"
        )
    return model if _is_quantised(folder) else model.to(device)


def _is_quantised(folder: Path) -> bool:
    """Such weights cannot be moved once they are loaded."""
    return "quantization_config" in json.loads((folder / "config.json").read_text())


def _torch_dtype(dtype: Dtype, device: str) -> torch.dtype:
    if dtype == "auto":
        return torch.float32 if device == "cpu" else torch.bfloat16
    return torch.bfloat16 if dtype == "bfloat16" else torch.float32
