"""The engine that settings name, opened: our own on Transformers, vLLM in this process, or a server."""

import os
from typing import TYPE_CHECKING

import structlog

from app.config import Settings
from app.errors import FatalWork
from app.images import NORMALISER_VERSION
from workers.engine.base import Engine
from workers.observe import EngineMetrics

if TYPE_CHECKING:
    from workers.engine.vllm_arguments import VllmSettings

log = structlog.get_logger()


def open_one(settings: Settings) -> Engine:
    """The engine of one model. Imports only what that engine needs: the others' libraries may be missing."""
    match settings.engine:
        case "transformers" if settings.engine_mode == "single":
            return open_single(settings)
        case "transformers":
            return open_transformers(settings)
        case "vllm":
            return open_vllm(settings)
        case "remote":
            return open_remote(settings)


def open_transformers(settings: Settings) -> Engine:
    from workers.engine.feature_codec import Format
    from workers.engine.transformers import open_engine

    return open_engine(
        model=settings.model,
        name=settings.served_model,
        normaliser=NORMALISER_VERSION,
        observer=EngineMetrics(settings.served_model),
        device=settings.device,
        dtype=settings.dtype,
        torch_threads=settings.torch_threads,
        max_pixels=settings.max_pixels,
        step_rows=settings.step_rows,
        step_tokens=settings.step_tokens,
        kv_bytes=settings.kv_bytes,
        prefix_cache_bytes=settings.prefix_cache_bytes,
        stall_s=settings.stall_s,
        prepare_threads=settings.worker_threads,
        max_wait_s=settings.max_wait_ms / 1000,
        feature_cache_bytes=settings.feature_cache_bytes,
        feature_cache_ttl_s=settings.feature_cache_ttl_s,
        feature_cache_redis_bytes=settings.feature_cache_redis_bytes,
        feature_cache_format=Format(settings.feature_cache_format),
        feature_check_share=settings.feature_check_share,
        redis_url=settings.redis_url.get_secret_value(),
    )


def open_single(settings: Settings) -> Engine:
    from workers.engine.single import open_engine

    return open_engine(
        model=settings.model,
        name=settings.served_model,
        observer=EngineMetrics(settings.served_model),
        device=settings.device,
        dtype=settings.dtype,
        torch_threads=settings.torch_threads,
        max_pixels=settings.max_pixels,
        stall_s=settings.stall_s,
    )


def open_vllm(settings: Settings) -> Engine:
    # vLLM would write its progress as plain text between our events; its warnings are worth that.
    os.environ.setdefault("VLLM_LOGGING_LEVEL", "WARNING")
    from workers.engine.vllm import open_engine

    if settings.dtype == "int8":
        raise FatalWork("engine_settings", "vLLM takes no VQUEUE_DTYPE=int8: serve a quantised checkpoint")
    return open_engine(
        model=settings.model,
        name=settings.served_model,
        normaliser=NORMALISER_VERSION,
        observer=EngineMetrics(settings.served_model),
        settings=vllm_settings(settings),
        on_death=end_process,
        dtype=settings.dtype,
        max_pixels=settings.max_pixels,
        stall_s=settings.stall_s,
        prepare_threads=settings.worker_threads,
    )


def vllm_settings(settings: Settings) -> "VllmSettings":
    from workers.engine.vllm_arguments import VllmSettings

    return VllmSettings(
        tensor_parallel=settings.vllm_tensor_parallel,
        expert_parallel=settings.vllm_expert_parallel,
        mm_encoder_tp_mode=settings.vllm_mm_encoder_tp_mode,
        async_scheduling=settings.vllm_async_scheduling,
        gpu_memory_share=settings.vllm_gpu_memory_share,
        kv_cache_dtype=settings.vllm_kv_cache_dtype,
        max_model_len=settings.vllm_max_model_len,
        max_num_seqs=settings.rows_at_once,
        images_per_prompt=settings.images_per_job,
    )


def open_remote(settings: Settings) -> Engine:
    from workers.engine.openai import RemoteEngine

    if settings.remote_url is None:
        raise FatalWork("engine_settings", "VQUEUE_ENGINE=remote needs VQUEUE_REMOTE_URL, which ends in /v1")
    key = settings.remote_api_key
    return RemoteEngine(
        name=settings.served_model,
        model=settings.model,
        url=settings.remote_url,
        observer=EngineMetrics(settings.served_model),
        max_pixels=settings.max_pixels,
        api_key=key.get_secret_value() if key is not None else None,
        revision=settings.remote_revision,
        concurrency=1 if settings.engine_mode == "single" else settings.remote_concurrency,
        timeout_s=settings.job_timeout_s,
        prepare_threads=settings.worker_threads,
    )


def end_process(reason: str) -> None:
    """At once, as after a crash: the leases of its jobs run out, and others take them."""
    log.critical("engine_died", reason=reason)
    os._exit(os.EX_SOFTWARE)
