"""The worker process: loads its models once and serves them."""

import os
import sys

import structlog

from app import telemetry
from app.config import Settings, read_settings
from app.errors import FatalWork
from app.images import NORMALISER_VERSION
from workers.engine.base import Engine
from workers.engine.feature_codec import Format
from workers.engine.transformers import open_engine
from workers.observe import EngineMetrics
from workers.pool import EnginePool, open_pool
from workers.serve import serve, worker_name

log = structlog.get_logger()


def open_transformers(settings: Settings) -> Engine:
    return open_engine(
        model=settings.model,
        name=settings.served_model,
        normaliser=NORMALISER_VERSION,
        observer=EngineMetrics(),
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


def open_or_exit(settings: Settings) -> EnginePool:
    """The engines. A model that is refused ends the process with os.EX_CONFIG: a restart changes nothing."""
    try:
        return open_pool(settings, open_transformers)
    except FatalWork as error:
        log.critical("model_refused", code=error.code, reason=error.message)
        sys.exit(os.EX_CONFIG)


def main() -> None:
    settings = read_settings()
    telemetry.configure_logs(
        log_format=settings.log_format, level=settings.log_level, role="worker", worker=worker_name()
    )
    sys.exit(serve(settings, open_or_exit(settings)))


if __name__ == "__main__":
    main()
