"""What the engine reports, counted as Prometheus metrics."""

import structlog

from app import telemetry
from workers.engine.base import FeatureTier, Observer
from workers.engine.encode_speed import EncodeSpeed

log = structlog.get_logger()


class EngineMetrics(Observer):
    """The observer of the engine that serves `model` in a worker process; its calls only count.

    What alarms and dashboards read is there from the start: of a counter that comes with its first event,
    Prometheus does not see that.
    """

    def __init__(self, model: str) -> None:
        self._model = model
        self._speed = EncodeSpeed()
        self._out_of_memory = telemetry.OUT_OF_MEMORY.labels(model)
        _begin_counters()

    def stepped(
        self,
        *,
        rows: int,
        row_limit: int,
        joined: int,
        prompt_tokens: int,
        cached_tokens: int,
        seconds: float,
    ) -> None:
        telemetry.STEPS.labels(self._model).inc()
        telemetry.STEP_FILL.labels(self._model).observe(rows / row_limit)
        telemetry.STAGE_SECONDS.labels("step").observe(seconds)
        telemetry.ROWS_JOINED.labels(self._model).inc(joined)
        telemetry.TOKENS.labels(self._model, "prompt").inc(prompt_tokens)
        telemetry.TOKENS.labels(self._model, "cached").inc(cached_tokens)
        telemetry.TOKENS.labels(self._model, "completion").inc(rows)

    def waited(self, *, seconds: float) -> None:
        telemetry.STAGE_SECONDS.labels("engine_wait").observe(seconds)

    def encoded(self, *, images: int, visual_tokens: int, seconds: float) -> None:
        telemetry.STAGE_SECONDS.labels("encode").observe(seconds)
        telemetry.TOKENS.labels(self._model, "visual").inc(visual_tokens)
        telemetry.IMAGES_ENCODED.inc(images)
        self._speed.record(images=images, visual_tokens=visual_tokens, seconds=seconds)

    def features_read(self, *, tier: FeatureTier, size: int, visual_tokens: int, seconds: float) -> None:
        telemetry.FEATURE_READS.labels(tier).inc()
        telemetry.FEATURE_BYTES.labels(tier).inc(size)
        telemetry.FEATURE_SECONDS.labels(tier).inc(seconds)
        spared = 0.0 if tier is FeatureTier.MISS else self._speed.estimate(visual_tokens)
        telemetry.FEATURE_SECONDS_SPARED.labels(self._model).inc(spared)
        telemetry.FEATURE_SECONDS_SAVED.labels(self._model).inc(spared - seconds)

    def features_awaited(self, *, found: bool, seconds: float) -> None:
        telemetry.FEATURE_WAITS.labels("found" if found else "encoded").inc()
        telemetry.FEATURE_WAIT_SECONDS.inc(seconds)

    def features_stored(self, *, tier: FeatureTier, size: int) -> None:
        telemetry.FEATURES_STORED.labels(tier).inc()
        telemetry.FEATURES_STORED_BYTES.labels(tier).inc(size)

    def features_evicted(self, *, images: int) -> None:
        telemetry.FEATURES_EVICTED.inc(images)

    def features_checked(self, *, matches: bool, distance: float) -> None:
        telemetry.FEATURE_CHECKS.labels("match" if matches else "mismatch").inc()
        if not matches:
            log.error("features_wrong", distance=round(distance, 4))

    def features_refused(self, *, reason: str) -> None:
        telemetry.FEATURE_FAULTS.labels(reason).inc()

    def feature_store_failed(self, *, operation: str) -> None:
        telemetry.FEATURE_FAULTS.labels(f"redis_{operation}").inc()

    def out_of_memory(self, *, rows: int) -> None:
        self._out_of_memory.inc()
        telemetry.OUT_OF_MEMORY_ROWS.observe(rows)


def _begin_counters() -> None:
    for outcome in ("match", "mismatch"):
        telemetry.FEATURE_CHECKS.labels(outcome)
    for tier in FeatureTier:
        for counter in (telemetry.FEATURE_READS, telemetry.FEATURE_BYTES, telemetry.FEATURE_SECONDS):
            counter.labels(tier)
    telemetry.FEATURE_FAULTS.labels("redis_read")
