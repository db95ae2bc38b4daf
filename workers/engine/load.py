"""A checkpoint from a folder or the hub: checked, loaded onto a device, and named by what is in it."""

import hashlib
import json
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import torch
from huggingface_hub import snapshot_download
from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalEntryNotFoundError
from transformers import (
    AutoTokenizer,
    GenerationConfig,
    PreTrainedTokenizerBase,
    Qwen3VLForConditionalGeneration,
    Qwen3VLMoeForConditionalGeneration,
)

from app.errors import FatalWork
from workers.engine import packed
from workers.engine.preprocess import Preprocessor, read_preprocessor
from workers.engine.slots import Shape

Dtype = Literal["auto", "float32", "bfloat16"]
QwenModel = Qwen3VLForConditionalGeneration | Qwen3VLMoeForConditionalGeneration
MODEL_CLASSES = {
    "qwen3_vl": Qwen3VLForConditionalGeneration,
    "qwen3_vl_moe": Qwen3VLMoeForConditionalGeneration,
}
SETTINGS_FILES = ("*.json", "*.jinja", "merges.txt")
WEIGHT_FILES = ("*.safetensors",)
IMAGE_MARK = "<|image_pad|>"
HASH_THREADS = 4


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
    folder = _folder(source)
    device = device if device != "auto" else "cuda" if torch.cuda.is_available() else "cpu"
    model = _load_model(folder, device, _torch_dtype(dtype, device))
    tokenizer = _load_tokenizer(folder, model.config.image_token_id)
    generation = model.generation_config or GenerationConfig()
    text: Any = model.config.text_config  # annotated as what it was before it was read
    vision: Any = model.config.vision_config
    return Checkpoint(
        model=model,
        tokenizer=tokenizer,
        preprocessor=read_preprocessor(folder, max_pixels=max_pixels),
        revision=_revision(folder),
        context=text.max_position_embeddings,
        end_ids=_end_ids(generation, tokenizer),
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


def _folder(source: str) -> Path:
    """The checkpoint's folder; of a hub model the settings come first, so that a wrong one costs little."""
    if Path(source).is_dir():
        folder = Path(source)
        _model_class(folder)
        return folder
    try:
        _model_class(Path(snapshot_download(source, allow_patterns=list(SETTINGS_FILES))))
        return Path(snapshot_download(source, allow_patterns=[*SETTINGS_FILES, *WEIGHT_FILES]))
    except (HfHubHTTPError, HFValidationError, LocalEntryNotFoundError, OSError) as error:
        raise FatalWork(
            "model_not_found",
            f"no model at {source!r} ({type(error).__name__}): set VQUEUE_MODEL to a folder that exists, "
            "or to a hub id that can be reached or is in the local cache",
        ) from error


def _model_class(folder: Path) -> type[QwenModel]:
    path = folder / "config.json"
    found = _read_json(path).get("model_type") if path.is_file() else "no config.json"
    if found not in MODEL_CLASSES:
        raise FatalWork(
            "model_unsupported",
            f"{folder} holds {found!r}, but this engine runs {' and '.join(MODEL_CLASSES)}: "
            "set VQUEUE_MODEL to a Qwen3-VL checkpoint such as Qwen/Qwen3-VL-4B-Instruct",
        )
    return MODEL_CLASSES[found]


def _load_model(folder: Path, device: str, dtype: torch.dtype) -> QwenModel:
    """Load the weights; where some are missing the library would take random ones and only warn."""
    loaded: Any = _model_class(folder).from_pretrained(  # a pair, which its annotation does not say
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


def _load_tokenizer(folder: Path, image_id: int) -> PreTrainedTokenizerBase:
    """With its chat template, which older saves keep in a file of the processor's."""
    tokenizer = AutoTokenizer.from_pretrained(folder)
    beside = folder / "chat_template.json"
    if tokenizer.chat_template is None and beside.is_file():
        tokenizer.chat_template = _read_json(beside)["chat_template"]
    if tokenizer.chat_template is None:
        raise FatalWork(
            "model_unsupported", f"{folder} has no chat template: an Instruct or Thinking model is needed"
        )
    if tokenizer.convert_tokens_to_ids(IMAGE_MARK) != image_id:
        raise FatalWork("model_unsupported", f"{folder}: tokenizer and model disagree on {IMAGE_MARK}")
    return tokenizer


def _end_ids(generation: GenerationConfig, tokenizer: PreTrainedTokenizerBase) -> frozenset[int]:
    found = generation.eos_token_id if generation.eos_token_id is not None else tokenizer.eos_token_id
    numbers = found if isinstance(found, list) else [found]
    return frozenset(number for number in numbers if isinstance(number, int))


def _pad_id(generation: GenerationConfig, tokenizer: PreTrainedTokenizerBase) -> int:
    """Any token will do, as padding is masked, if it is not an image's."""
    found = generation.pad_token_id if generation.pad_token_id is not None else tokenizer.pad_token_id
    return found if isinstance(found, int) else min(_end_ids(generation, tokenizer))


def _revision(folder: Path) -> str:
    """Changes when weights, configuration, tokenizer or template change; the same on every machine."""
    names = {path for pattern in (*SETTINGS_FILES, *WEIGHT_FILES) for path in folder.glob(pattern)}
    paths = sorted(names, key=lambda path: path.name)
    with ThreadPoolExecutor(HASH_THREADS) as pool:
        digests = list(pool.map(_digest, paths))
    listing = [[path.name, digest] for path, digest in zip(paths, digests, strict=True)]
    return hashlib.sha256(json.dumps(listing).encode()).hexdigest()[:16]


def _digest(path: Path) -> str:
    """The file's sha256; the hub's cache names large files by it, which saves reading them."""
    blob = path.resolve().name
    if path.is_symlink() and len(blob) == 64:
        return blob
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _read_json(path: Path) -> dict[str, Any]:
    """A settings file; values of several types, picked by name by the caller."""
    return json.loads(path.read_text())
