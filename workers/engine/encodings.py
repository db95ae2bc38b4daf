"""Images on their way into a step: features from the cache, or patches for the vision tower."""

import threading
import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from app.visual_tokens import PATCH
from workers.engine.admission import Reuse
from workers.engine.base import Image
from workers.engine.feature_codec import Features, Shape
from workers.engine.features import FeatureCache, FeatureKey
from workers.engine.load import Checkpoint
from workers.engine.near_duplicates import NearDuplicates, looks_of
from workers.engine.preprocess import Grid, Patches
from workers.engine.single_flight import Ask, always


class Encoding:
    """One image as all requests that hold it share it: its features, or the patches to make them from.

    It lives as long as a request that needs it, so the vision tower runs once for them all even when the
    cache keeps nothing.
    """

    def __init__(self, key: FeatureKey, grid: Grid) -> None:
        self.key = key
        self.grid = grid
        self.features: Features | None = None
        self.patches: Patches | None = None
        self.check: Callable[[Features], None] | None = None  # compares what a cache had with what comes
        self.lock = threading.Lock()
        self._guard = threading.Lock()
        self._waiters: list[Callable[[], None]] = []

    @property
    def ready(self) -> bool:
        return self.features is not None or self.patches is not None

    def when_free(self, call: Callable[[], None]) -> None:
        """Call this once no thread is at the image, at the latest on the thread that leaves it."""
        with self._guard:
            if self.lock.locked():
                self._waiters.append(call)
                return
        call()

    def let_go(self) -> None:
        """By whoever took the lock: those who wait are told, else they would wait for ever."""
        self.lock.release()
        with self._guard:
            waiters, self._waiters = self._waiters, []
        for call in waiters:
            call()

    def encoded(self, features: Features) -> None:
        """The tower has run: the patches, many times larger, are let go."""
        if self.check is not None:
            self.check(features)
            self.check = None
        self.features = features
        self.patches = None


@dataclass(frozen=True)
class Placed:
    """An image's encoding and the prompt's tokens that stand for it."""

    start: int
    stop: int
    encoding: Encoding


class Busy(Exception):
    """Another thread is at this image: there may be others to prepare meanwhile. `ready` are earlier ones."""

    def __init__(self, encoding: Encoding) -> None:
        super().__init__()
        self.encoding = encoding
        self.ready: tuple[Placed, ...] = ()


class Encodings:
    """Makes encodings from any thread; `normaliser` is the version of the step that made the pixels.

    While the model is not `idle` it may wait for another worker that encodes the same image.
    """

    def __init__(
        self, *, checkpoint: Checkpoint, cache: FeatureCache, normaliser: str, idle: Ask = always
    ) -> None:
        self._checkpoint = checkpoint
        self._cache = cache
        self._normaliser = normaliser
        self._idle = idle
        self._near = NearDuplicates()
        self._dtype = str(checkpoint.model.dtype).removeprefix("torch.")
        self._live: weakref.WeakValueDictionary[FeatureKey, Encoding] = weakref.WeakValueDictionary()
        self._lock = threading.Lock()

    def key(self, scope: str, image: Image, grid: Grid) -> FeatureKey:
        return FeatureKey(
            scope=scope,
            content_hash=image.content_hash,
            revision=self._checkpoint.revision,
            dtype=self._dtype,
            width=grid.width * PATCH,
            height=grid.height * PATCH,
            normaliser=self._normaliser,
            form=self._cache.form,
        )

    def get(self, key: FeatureKey, image: Image, grid: Grid) -> Encoding:
        """Ready when it returns; raises what `Image.load` raises, and Busy rather than wait for a thread."""
        encoding = self._shared(key, grid)
        if not encoding.lock.acquire(blocking=False):
            raise Busy(encoding)
        try:
            if not encoding.ready:
                self._fill(encoding, image)
        finally:
            encoding.let_go()
        return encoding

    def twin(self, key: FeatureKey, image: Image, grid: Grid) -> Encoding | None:
        """The encoding of an earlier picture that looks the same, if its features are at hand."""
        original = self._near.original(key)
        if original is None:
            original = self._near.find(key, looks_of(image.load()))
        if original == key:
            return None
        encoding = self._shared(original, grid)
        encoding.lock.acquire()
        try:
            if not encoding.ready:
                encoding.features = self._cache.peek(
                    original, shape=self._shape(grid), dtype=self._checkpoint.model.dtype
                )
            if encoding.ready:
                return encoding
        finally:
            encoding.let_go()
        self._near.forget(original)
        return None

    def share(self, images: Sequence[Placed]) -> bool:
        """See to it that the features of these images are in Redis; whether all were at hand already."""
        ready = [(each.encoding.key, each.encoding.features) for each in images]
        for key, features in ready:
            if features is not None:
                self._cache.share(key, features)
        return all(features is not None for _, features in ready)

    def _shared(self, key: FeatureKey, grid: Grid) -> Encoding:
        with self._lock:
            encoding = self._live.get(key)
            if encoding is None:
                encoding = self._live[key] = Encoding(key, grid)
            return encoding

    def _fill(self, encoding: Encoding, image: Image) -> None:
        key, grid = encoding.key, encoding.grid
        features = self._cache.read(
            key,
            shape=self._shape(grid),
            dtype=self._checkpoint.model.dtype,
            reuse=Reuse(image.expected_uses, image.later_uses),
            idle=self._idle,
        )
        if features is not None:
            encoding.check = self._cache.check(key, features)
            if encoding.check is None:
                encoding.features = features
                return
        try:
            encoding.patches = self._checkpoint.preprocessor.patches(image.load(), grid)
        except BaseException:
            self._cache.forget_miss(key)
            raise

    def _shape(self, grid: Grid) -> Shape:
        return (self._checkpoint.feature_levels, grid.tokens, self._checkpoint.feature_width)
