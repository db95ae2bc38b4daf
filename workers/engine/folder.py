"""A checkpoint's folder or hub id: checked, read without its weights, and named by what is in it."""

import hashlib
import json
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from huggingface_hub import snapshot_download
from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalEntryNotFoundError
from transformers import AutoTokenizer, GenerationConfig, PreTrainedTokenizerBase

from app.errors import FatalWork
from workers.engine.preprocess import Preprocessor, read_preprocessor

MODEL_TYPES = ("qwen3_vl", "qwen3_vl_moe")
SETTINGS_FILES = ("*.json", "*.jinja", "merges.txt")
WEIGHT_FILES = ("*.safetensors",)
IMAGE_MARK = "<|image_pad|>"
HASH_THREADS = 4


@dataclass(frozen=True)
class Outline:
    """What an engine that loads the weights itself must be told about a checkpoint."""

    folder: Path
    tokenizer: PreTrainedTokenizerBase
    preprocessor: Preprocessor
    revision: str
    context: int  # tokens: prompt and answer together
    end_ids: frozenset[int]


def read_outline(source: str, *, max_pixels: int | None = None) -> Outline:
    """Read a folder or a hub model as `load_checkpoint` does, without weights. Raises FatalWork."""
    folder = find_folder(source)
    config = _read_json(folder / "config.json")
    tokenizer = load_tokenizer(folder, config["image_token_id"])
    generation = (
        GenerationConfig.from_pretrained(folder)
        if (folder / "generation_config.json").is_file()
        else GenerationConfig()
    )
    return Outline(
        folder=folder,
        tokenizer=tokenizer,
        preprocessor=read_preprocessor(folder, max_pixels=max_pixels),
        revision=read_revision(folder),
        context=config["text_config"]["max_position_embeddings"],
        end_ids=read_end_ids(generation, tokenizer),
    )


def find_folder(source: str) -> Path:
    """The checkpoint's folder; of a hub model the settings come first, so that a wrong one costs little."""
    if Path(source).is_dir():
        folder = Path(source)
        read_model_type(folder)
        return folder
    try:
        read_model_type(Path(snapshot_download(source, allow_patterns=list(SETTINGS_FILES))))
        return Path(snapshot_download(source, allow_patterns=[*SETTINGS_FILES, *WEIGHT_FILES]))
    except (HfHubHTTPError, HFValidationError, LocalEntryNotFoundError, OSError) as error:
        raise FatalWork(
            "model_not_found",
            f"no model at {source!r} ({type(error).__name__}): set VQUEUE_MODEL to a folder that exists, "
            "or to a hub id that can be reached or is in the local cache",
        ) from error


def read_model_type(folder: Path) -> str:
    """One of MODEL_TYPES; FatalWork for any other model."""
    path = folder / "config.json"
    found = _read_json(path).get("model_type") if path.is_file() else "no config.json"
    if found not in MODEL_TYPES:
        raise FatalWork(
            "model_unsupported",
            f"{folder} holds {found!r}, but this engine runs {' and '.join(MODEL_TYPES)}: "
            "set VQUEUE_MODEL to a Qwen3-VL checkpoint such as Qwen/Qwen3-VL-4B-Instruct",
        )
    return found


def load_tokenizer(folder: Path, image_id: int) -> PreTrainedTokenizerBase:
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


def read_end_ids(generation: GenerationConfig, tokenizer: PreTrainedTokenizerBase) -> frozenset[int]:
    found = generation.eos_token_id if generation.eos_token_id is not None else tokenizer.eos_token_id
    numbers = found if isinstance(found, list) else [found]
    return frozenset(number for number in numbers if isinstance(number, int))


def read_revision(folder: Path) -> str:
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
