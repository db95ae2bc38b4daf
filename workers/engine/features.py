"""The feature cache: what the vision tower gave for an image, in memory and in Redis."""

import hashlib
import json
import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import astuple, dataclass, replace
from functools import partial
from typing import Protocol

import torch

from workers.engine.admission import UNKNOWN, WANTED, Reuse, Sightings, returns
from workers.engine.base import FeatureTier, Observer
from workers.engine.feature_checks import FeatureChecks
from workers.engine.feature_codec import Features, Format, Kept, Shape, keep, restore
from workers.engine.single_flight import Ask, always

MOST_MISSES = 4096  # looked up, and not encoded yet or never, because their requests went away


@dataclass(frozen=True)
class FeatureKey:
    """Everything that changes an image's features as they come out of the cache."""

    scope: str  # a tenant's own, or one that tenants share by consent
    content_hash: str
    revision: str  # of the model: weights and configuration
    dtype: str
    width: int  # after the resize to the pixel budget
    height: int
    normaliser: str  # version of the step from original bytes to pixels
    form: Format = Format.NATIVE

    @property
    def name(self) -> str:
        """The key in Redis; begins with the scope so that a tenant's features can be found and dropped."""
        digest = hashlib.sha256(json.dumps(astuple(self)).encode()).hexdigest()
        return f"vqueue:features:{self.scope}:{digest}"


@dataclass(frozen=True)
class Look:
    """What the second tier has; `seen` if somebody wanted it before, `waited_s` for another worker."""

    kept: Kept | None
    seen: bool = False
    waited_s: float = 0.0


class FeatureStore(Protocol):
    """The second tier. No method raises; only `read` and `peek` wait for the server."""

    def read(self, key: FeatureKey, *, shape: Shape, dtype: torch.dtype, idle: Ask) -> Look: ...

    def peek(self, key: FeatureKey, *, shape: Shape, dtype: torch.dtype) -> Kept | None: ...

    def write(self, key: FeatureKey, kept: Kept, reuse: Reuse) -> None: ...

    def share(self, key: FeatureKey, kept: Kept) -> None:
        """Write what is worth sharing, unless it is there."""
        ...

    def drop(self, key: FeatureKey) -> None: ...

    def give_up(self, key: FeatureKey) -> None:
        """What `read` did not find will not be written: others need not wait for it."""
        ...

    def close(self) -> None: ...


class FeatureCache:
    """Both tiers behind one look-up; used from any thread. What is read from Redis moves into memory."""

    def __init__(
        self,
        *,
        memory: "MemoryTier",
        store: FeatureStore | None,
        observer: Observer,
        form: Format = Format.NATIVE,
        checks: FeatureChecks | None = None,
    ) -> None:
        self.form = form
        self._memory = memory
        self._store = store
        self._observer = observer
        self._checks = checks
        self._sightings = Sightings()
        self._missed: OrderedDict[FeatureKey, Reuse] = OrderedDict()
        self._lock = threading.Lock()

    def read(
        self,
        key: FeatureKey,
        *,
        shape: Shape,
        dtype: torch.dtype,
        reuse: Reuse = UNKNOWN,
        idle: Ask = always,
    ) -> Features | None:
        """May take as long as the store's time limits allow; while not `idle`, also as another's tower."""
        started = time.perf_counter()
        tier, look = self._find(key, shape, dtype, idle)
        features = None
        if look.kept is None:
            self._remember(key, reuse, seen=look.seen)
        else:
            features = restore(look.kept, dtype)
        self._observer.features_read(
            tier=tier,
            size=0 if look.kept is None else look.kept.nbytes,
            visual_tokens=shape[1],
            seconds=time.perf_counter() - started - look.waited_s,
        )
        return features

    def peek(self, key: FeatureKey, *, shape: Shape, dtype: torch.dtype) -> Features | None:
        """A look-up that says nothing of encoding what is not found."""
        kept = self._memory.get(key)
        if kept is None and self._store is not None:
            kept = self._store.peek(key, shape=shape, dtype=dtype)
        return None if kept is None else restore(kept, dtype)

    def write(self, key: FeatureKey, features: Features) -> None:
        """Keep what deserves it. Those that are not finite are not: a fault must not outlive its step.

        The features may be on the model's device; they leave it in the form in which they are kept.
        """
        with self._lock:
            reuse = self._missed.pop(key, WANTED)
        if not bool(torch.isfinite(features).all()):
            self._give_up(key)
            return
        kept = keep(features, self.form).cpu()
        if self._memory.put(key, kept, returns=returns(reuse)):
            self._observer.features_stored(tier=FeatureTier.MEMORY, size=kept.nbytes)
        if self._store is not None:
            self._store.write(key, kept, reuse)

    def share(self, key: FeatureKey, features: Features) -> None:
        """Put features that are at hand into Redis as well, unless they are there."""
        if self._store is not None:
            self._store.share(key, keep(features, self.form).cpu())

    def forget_miss(self, key: FeatureKey) -> None:
        """What was looked up will not be encoded after all."""
        with self._lock:
            self._missed.pop(key, None)
        self._give_up(key)

    def check(self, key: FeatureKey, cached: Features) -> Callable[[Features], None] | None:
        """For a sampled hit: what to call with freshly encoded features. Usually None."""
        if self._checks is None or not self._checks.should_check():
            return None
        return partial(self._compare, self._checks, key, cached)

    def close(self) -> None:
        if self._store is not None:
            self._store.close()

    def _find(self, key: FeatureKey, shape: Shape, dtype: torch.dtype, idle: Ask) -> tuple[FeatureTier, Look]:
        if (kept := self._memory.get(key)) is not None:
            return FeatureTier.MEMORY, Look(kept)
        if self._store is None:
            return FeatureTier.MISS, Look(None)
        look = self._store.read(key, shape=shape, dtype=dtype, idle=idle)
        if look.kept is None:
            return FeatureTier.MISS, look
        self._memory.put(key, look.kept, returns=True)
        return FeatureTier.REDIS, look

    def _remember(self, key: FeatureKey, reuse: Reuse, *, seen: bool) -> None:
        """For the moment of writing: what is known of the image now."""
        again = self._sightings.again(key) or seen
        with self._lock:
            self._missed[key] = replace(reuse, seen=again)
            while len(self._missed) > MOST_MISSES:
                self._missed.popitem(last=False)

    def _give_up(self, key: FeatureKey) -> None:
        if self._store is not None:
            self._store.give_up(key)

    def _compare(self, checks: FeatureChecks, key: FeatureKey, cached: Features, fresh: Features) -> None:
        """Drop what is wrong; the fresh features are written next, as after any encoding."""
        if checks.matches(cached, fresh, form=self.form):
            return
        self._memory.drop(key)
        if self._store is not None:
            self._store.drop(key)


class MemoryTier:
    """Two rows by last use under one `budget` of bytes: of images that return, and of all others.

    The others leave first and never push out one that returns. A budget of 0 keeps nothing.
    """

    def __init__(self, *, budget: int) -> None:
        self._budget = budget
        self._returning: OrderedDict[FeatureKey, Kept] = OrderedDict()
        self._others: OrderedDict[FeatureKey, Kept] = OrderedDict()
        self._bytes = {True: 0, False: 0}  # by whether they return
        self._lock = threading.Lock()

    @property
    def held(self) -> int:
        """Bytes in use."""
        return self._bytes[True] + self._bytes[False]

    def get(self, key: FeatureKey) -> Kept | None:
        """A use: whatever it was before, it is one that returns now."""
        with self._lock:
            kept = self._take(key)
            if kept is not None:
                self._place(key, kept, returns=True)
            return kept

    def put(self, key: FeatureKey, kept: Kept, *, returns: bool = True) -> bool:
        """Whether it was kept."""
        with self._lock:
            self._take(key)
            room = self._budget if returns else self._budget - self._bytes[True]
            if kept.nbytes > room:
                return False
            self._place(key, kept, returns=returns)
            while self.held > self._budget:
                self._push_out()
            return True

    def drop(self, key: FeatureKey) -> None:
        with self._lock:
            self._take(key)

    def _place(self, key: FeatureKey, kept: Kept, *, returns: bool) -> None:
        (self._returning if returns else self._others)[key] = kept
        self._bytes[returns] += kept.nbytes

    def _take(self, key: FeatureKey) -> Kept | None:
        for returning, row in ((True, self._returning), (False, self._others)):
            if (kept := row.pop(key, None)) is not None:
                self._bytes[returning] -= kept.nbytes
                return kept
        return None

    def _push_out(self) -> None:
        returning = not self._others
        _, kept = (self._returning if returning else self._others).popitem(last=False)
        self._bytes[returning] -= kept.nbytes
