"""A sampled look at whether what the cache gives is what the tower would give now."""

import random
from collections.abc import Callable

import torch

from workers.engine.base import Observer
from workers.engine.feature_codec import Features, Format

# Largest distance of one token's features, relative to their length; another picture's were 3 and more away
# on the demo model, where 8 bits move it by 0.01. The rest is room: for GPUs, whose results depend on the
# batch's shape, and for models in whose features a few numbers are far larger than all others.
TOLERANCE = {torch.float32: 1e-3, torch.bfloat16: 0.15, torch.float16: 0.05}
INT8_TOLERANCE = 0.2


class FeatureChecks:
    """Picks a `share` of hits and compares them; both methods are cheap beside an encoding."""

    def __init__(
        self,
        *,
        share: float,
        observer: Observer,
        draw: Callable[[], float] = random.random,
    ) -> None:
        self._share = share
        self._observer = observer
        self._draw = draw

    def should_check(self) -> bool:
        return self._share > 0 and self._draw() < self._share

    def matches(self, cached: Features, fresh: Features, *, form: Format) -> bool:
        """Compare and report."""
        distance = farthest(cached, fresh)
        limit = TOLERANCE[fresh.dtype] + (INT8_TOLERANCE if form is Format.INT8 else 0.0)
        matches = distance <= limit
        self._observer.features_checked(matches=matches, distance=distance)
        return matches


def farthest(cached: Features, fresh: Features) -> float:
    """Over levels and tokens, the largest distance relative to the fresh features' length."""
    wanted = fresh.float()
    lengths = wanted.norm(dim=-1).clamp(min=torch.finfo(torch.float32).tiny)
    distances = (cached.to(fresh.device).float() - wanted).norm(dim=-1) / lengths
    return float(distances.max())
