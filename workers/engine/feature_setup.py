"""The feature cache put together from its settings."""

from dataclasses import dataclass

from workers.engine.base import Observer
from workers.engine.feature_checks import FeatureChecks
from workers.engine.feature_codec import Format
from workers.engine.features import FeatureCache, MemoryTier
from workers.engine.redis_tier import RedisTier, connect
from workers.engine.single_flight import Waits


@dataclass(frozen=True)
class FeatureSettings:
    """Budgets in bytes: of this worker's memory, and of what all workers together keep in Redis; 0 is off."""

    memory_bytes: int = 0
    redis_url: str | None = None
    redis_bytes: int = 2**29
    ttl_s: int = 86_400
    form: Format = Format.NATIVE
    check_share: float = 0.0


def open_features(settings: FeatureSettings, *, observer: Observer, prepare_threads: int) -> FeatureCache:
    """Half of the threads that prepare may wait for other workers: the other half feeds the model."""
    store = None
    if settings.redis_url is not None and settings.redis_bytes:
        store = RedisTier(
            client=connect(settings.redis_url),
            ttl_s=settings.ttl_s,
            budget=settings.redis_bytes,
            observer=observer,
            waits=Waits(slots=prepare_threads // 2),
        )
    return FeatureCache(
        memory=MemoryTier(budget=settings.memory_bytes),
        store=store,
        observer=observer,
        form=settings.form,
        checks=FeatureChecks(share=settings.check_share, observer=observer),
    )
