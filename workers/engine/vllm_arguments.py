"""The arguments that vLLM receives for our settings. Pure, and without vLLM."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from app.visual_tokens import FACTOR

Arguments = Mapping[str, Any]  # as the fields of vLLM's AsyncEngineArgs, of many types
EncoderSplit = Literal["weights", "data"]
CPU_BLOCK_TOKENS = 32  # the size of a KV block that vLLM's kernels for the CPU want


@dataclass(frozen=True)
class VllmSettings:
    """What an installation chooses; 0 and None leave the choice to vLLM."""

    tensor_parallel: int = 1
    expert_parallel: bool = False
    mm_encoder_tp_mode: EncoderSplit = "weights"
    async_scheduling: bool | None = None
    gpu_memory_share: float = 0.9
    kv_cache_dtype: Literal["auto", "fp8"] = "auto"
    max_model_len: int = 0
    max_num_seqs: int = 64
    images_per_prompt: int = 16


def engine_arguments(
    settings: VllmSettings, *, folder: Path, dtype: str, on_gpu: bool, max_pixels: int
) -> Arguments:
    """For AsyncEngineArgs. Pictures come resized, so the smallest grid is let through as it is."""
    arguments: dict[str, Any] = {
        "model": str(folder),
        "dtype": dtype,
        "tensor_parallel_size": settings.tensor_parallel,
        "enable_expert_parallel": settings.expert_parallel,
        "mm_encoder_tp_mode": settings.mm_encoder_tp_mode,
        "async_scheduling": settings.async_scheduling,
        "kv_cache_dtype": settings.kv_cache_dtype,
        "max_num_seqs": settings.max_num_seqs,
        "limit_mm_per_prompt": {"image": settings.images_per_prompt, "video": 0},
        "mm_processor_kwargs": {"size": {"shortest_edge": FACTOR**2, "longest_edge": max_pixels}},
        "enable_prefix_caching": True,
        "scheduling_policy": "priority",
        "generation_config": "vllm",  # a checkpoint's own would change what a request asks for
        "structured_outputs_config": {"backend": "guidance"},  # llguidance, as in our own engine
        "disable_log_stats": True,
    }
    if settings.max_model_len:
        arguments["max_model_len"] = settings.max_model_len
    return {**arguments, **(_gpu(settings) if on_gpu else _cpu())}


def _gpu(settings: VllmSettings) -> Arguments:
    return {"gpu_memory_utilization": settings.gpu_memory_share}


def _cpu() -> Arguments:
    """Compiling a small model took over five minutes on a CPU, and gained nothing."""
    return {"enforce_eager": True, "block_size": CPU_BLOCK_TOKENS}
