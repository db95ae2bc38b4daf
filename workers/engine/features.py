"""The feature cache: what the vision tower gave for an image, in memory and in Redis."""

import hashlib
import json
import threading
import time
from collections import OrderedDict
from dataclasses import astuple, dataclass
from typing import Protocol

import torch

from workers.engine.base import FeatureTier, Observer

# Levels (pooled, then each DeepStack level) x visual tokens x hidden size.
Features = torch.Tensor
Shape = tuple[int, int, int]


@dataclass(frozen=True)
class FeatureKey:
    """Everything that changes an image's features; tenants do not share."""

    tenant: str
    content_hash: str
    revision: str  # of the model: weights and configuration
    dtype: str
    width: int  # after the resize to the pixel budget
    height: int
    normaliser: str  # version of the step from original bytes to pixels

    @property
    def name(self) -> str:
        """The key in Redis; begins with the tenant so that a tenant's features can be found and dropped."""
        digest = hashlib.sha256(json.dumps(astuple(self)).encode()).hexdigest()
        return f"vqueue:features:{self.tenant}:{digest}"


class FeatureStore(Protocol):
    """The second tier. Neither method raises; `write` does not wait for the server."""

    def read(self, key: FeatureKey, *, shape: Shape, dtype: torch.dtype) -> Features | None: ...

    def write(self, key: FeatureKey, features: Features) -> None: ...

    def close(self) -> None: ...


class FeatureCache:
    """Both tiers behind one look-up; used from any thread. What is read from Redis moves into memory."""

    def __init__(self, *, memory: "MemoryTier", store: FeatureStore | None, observer: Observer) -> None:
        self._memory = memory
        self._store = store
        self._observer = observer

    def read(self, key: FeatureKey, *, shape: Shape, dtype: torch.dtype) -> Features | None:
        """May take as long as the store's time limits allow."""
        started = time.perf_counter()
        tier, features = self._find(key, shape, dtype)
        size = 0 if features is None else features.nbytes
        self._observer.features_read(tier=tier, size=size, seconds=time.perf_counter() - started)
        return features

    def write(self, key: FeatureKey, features: Features) -> None:
        """Features that are not finite numbers are not kept, so that a fault does not outlive its step."""
        if not bool(torch.isfinite(features).all()):
            return
        self._memory.put(key, features)
        if self._store is not None:
            self._store.write(key, features)

    def close(self) -> None:
        if self._store is not None:
            self._store.close()

    def _find(self, key: FeatureKey, shape: Shape, dtype: torch.dtype) -> tuple[FeatureTier, Features | None]:
        if (features := self._memory.get(key)) is not None:
            return FeatureTier.MEMORY, features
        if self._store is not None:
            features = self._store.read(key, shape=shape, dtype=dtype)
            if features is not None:
                self._memory.put(key, features)
                return FeatureTier.REDIS, features
        return FeatureTier.MISS, None


class MemoryTier:
    """The least recently used leave once `budget` bytes are full; a budget of 0 keeps nothing."""

    def __init__(self, *, budget: int) -> None:
        self._budget = budget
        self._held = 0
        self._items: OrderedDict[FeatureKey, Features] = OrderedDict()
        self._lock = threading.Lock()

    @property
    def held(self) -> int:
        """Bytes in use."""
        return self._held

    def get(self, key: FeatureKey) -> Features | None:
        with self._lock:
            features = self._items.get(key)
            if features is not None:
                self._items.move_to_end(key)
            return features

    def put(self, key: FeatureKey, features: Features) -> None:
        if features.nbytes > self._budget:
            return
        with self._lock:
            if (before := self._items.pop(key, None)) is not None:
                self._held -= before.nbytes
            self._items[key] = features
            self._held += features.nbytes
            while self._held > self._budget:
                _, oldest = self._items.popitem(last=False)
                self._held -= oldest.nbytes
