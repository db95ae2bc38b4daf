"""The small random Qwen3-VL checkpoints that tests run on: the real architecture in 1.5 MB."""

from pathlib import Path

from transformers import Qwen3VLConfig, Qwen3VLMoeConfig
from transformers.models.qwen2.tokenization_qwen2 import Qwen2Tokenizer
from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import Qwen2VLImageProcessorPil

from bench import checkpoint
from bench.checkpoint import SPECIAL, TINY, Kind

__all__ = ["CONTEXT", "MAX_PIXELS", "MIN_PIXELS", "SPECIAL"]
MIN_PIXELS = TINY.min_pixels
MAX_PIXELS = TINY.max_pixels
CONTEXT: int = TINY.text["max_position_embeddings"]


def build_checkpoint(folder: Path, *, kind: Kind = "dense", seed: int = 0) -> Path:
    """Write a checkpoint whose greedy answers depend on every image and word; the same for the same seed."""
    return checkpoint.build_tiny(folder, kind=kind, seed=seed)


def build_tokenizer() -> Qwen2Tokenizer:
    """Qwen's tokenizer with single bytes for a vocabulary."""
    return checkpoint.byte_tokenizer()


def image_processor() -> Qwen2VLImageProcessorPil:
    return checkpoint.image_processor(MIN_PIXELS, MAX_PIXELS)


def model_config(tokenizer: Qwen2Tokenizer, kind: Kind = "dense") -> Qwen3VLConfig | Qwen3VLMoeConfig:
    return checkpoint.config_for(TINY, tokenizer, kind)
