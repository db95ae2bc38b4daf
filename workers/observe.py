"""What the engine reports, counted as Prometheus metrics."""

from app import telemetry
from workers.engine.base import FeatureTier, Observer


class EngineMetrics(Observer):
    """An engine's observer for a worker process; its calls only count."""

    def group_started(self, *, rows: int, row_limit: int, prompt_tokens: int, padding_tokens: int) -> None:
        telemetry.STEP_FILL.observe(rows / row_limit)
        telemetry.PADDING_SHARE.observe(padding_tokens / max(1, prompt_tokens + padding_tokens))
        telemetry.TOKENS.labels("prompt").inc(prompt_tokens)

    def waited(self, *, seconds: float) -> None:
        telemetry.STAGE_SECONDS.labels("engine_wait").observe(seconds)

    def prefilled(self, *, seconds: float, tokens: int) -> None:
        telemetry.STAGE_SECONDS.labels("prefill").observe(seconds)
        telemetry.TOKENS.labels("prefilled").inc(tokens)

    def decoded(self, *, seconds: float, steps: int, tokens: int) -> None:
        telemetry.STAGE_SECONDS.labels("decode").observe(seconds)
        telemetry.TOKENS.labels("completion").inc(tokens)
        telemetry.DECODE_STEPS.inc(steps)

    def encoded(self, *, images: int, visual_tokens: int, seconds: float) -> None:
        telemetry.STAGE_SECONDS.labels("encode").observe(seconds)
        telemetry.TOKENS.labels("visual").inc(visual_tokens)
        telemetry.IMAGES_ENCODED.inc(images)

    def features_read(self, *, tier: FeatureTier, size: int, seconds: float) -> None:
        telemetry.FEATURE_READS.labels(tier).inc()
        telemetry.FEATURE_BYTES.labels(tier).inc(size)
        telemetry.FEATURE_SECONDS.labels(tier).inc(seconds)

    def features_refused(self, *, reason: str) -> None:
        telemetry.FEATURE_FAULTS.labels(reason).inc()

    def feature_store_failed(self, *, operation: str) -> None:
        telemetry.FEATURE_FAULTS.labels(f"redis_{operation}").inc()

    def out_of_memory(self, *, rows: int) -> None:
        telemetry.OUT_OF_MEMORY.inc()
        telemetry.OUT_OF_MEMORY_ROWS.observe(rows)
