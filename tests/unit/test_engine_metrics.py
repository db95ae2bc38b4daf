"""What an engine reports becomes metrics, seconds saved among them."""

from collections.abc import Callable

import pytest
from prometheus_client import REGISTRY

from workers.engine.base import FeatureTier
from workers.observe import EngineMetrics


def value(name: str, **labels: str) -> float:
    return REGISTRY.get_sample_value(name, labels) or 0.0


def gained(work: Callable[[], None], name: str, **labels: str) -> float:
    before = value(name, **labels)
    work()
    return value(name, **labels) - before


@pytest.fixture
def metrics() -> EngineMetrics:
    """Of an engine whose tower takes a millisecond per visual token."""
    metrics = EngineMetrics("demo")
    metrics.encoded(images=2, visual_tokens=200, seconds=0.2)
    return metrics


@pytest.mark.parametrize(
    ("tier", "seconds", "saved"),
    [
        (FeatureTier.MEMORY, 0.0, 0.1),
        (FeatureTier.REDIS, 0.03, 0.07),
        (FeatureTier.REDIS, 0.25, -0.15),
        (FeatureTier.MISS, 0.03, -0.03),
    ],
    ids=["memory", "redis", "a slow redis", "a look-up in vain"],
)
def test_seconds_saved_are_the_tower_s_less_the_look_up_s(
    metrics: EngineMetrics, tier: FeatureTier, seconds: float, saved: float
) -> None:
    def read() -> None:
        metrics.features_read(tier=tier, size=1, visual_tokens=100, seconds=seconds)

    assert gained(read, "vqueue_feature_seconds_saved", model="demo") == pytest.approx(saved)


def test_a_hit_before_the_first_encoding_is_worth_nothing_yet() -> None:
    def read() -> None:
        EngineMetrics("demo").features_read(tier=FeatureTier.MEMORY, size=1, visual_tokens=100, seconds=0.0)

    assert gained(read, "vqueue_feature_seconds_saved", model="demo") == 0


def test_waits_stores_evictions_and_checks_are_counted(metrics: EngineMetrics) -> None:
    counts = [
        (
            lambda: metrics.features_awaited(found=True, seconds=0.5),
            "vqueue_feature_waits_total",
            {"end": "found"},
        ),
        (
            lambda: metrics.features_stored(tier=FeatureTier.REDIS, size=7),
            "vqueue_features_stored_total",
            {"tier": "redis"},
        ),
        (lambda: metrics.features_evicted(images=1), "vqueue_features_evicted_total", {}),
        (
            lambda: metrics.features_checked(matches=False, distance=0.9),
            "vqueue_feature_checks_total",
            {"outcome": "mismatch"},
        ),
    ]
    assert [gained(report, name, **labels) for report, name, labels in counts] == [1, 1, 1, 1]
