"""A request made ready for the model, off the engine's thread: prompt, and features or patches."""

import threading
import weakref
from concurrent.futures import Future
from dataclasses import dataclass

from tokenizers import Tokenizer

from app.errors import InvalidWork
from app.visual_tokens import PATCH
from workers.engine.base import Answer, Image, Request
from workers.engine.features import FeatureCache, FeatureKey, Features
from workers.engine.load import Checkpoint
from workers.engine.preprocess import Grid, Patches
from workers.engine.prompt import Prompt, PromptBuilder, placed_images


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
        self.lock = threading.Lock()

    @property
    def ready(self) -> bool:
        return self.features is not None or self.patches is not None

    def encoded(self, features: Features) -> None:
        """The tower has run: the patches, many times larger, are let go."""
        self.features = features
        self.patches = None


@dataclass(frozen=True)
class Prepared:
    """A request that can join a group; `encodings` are in the order of their places in the prompt."""

    request: Request
    future: Future[Answer]
    prompt: Prompt
    encodings: tuple[Encoding, ...]
    arrived: float  # time.monotonic() at submit


class Preparer:
    """Prepares requests from any thread; `normaliser` is the version of the step that made the pixels."""

    def __init__(self, *, checkpoint: Checkpoint, cache: FeatureCache, normaliser: str) -> None:
        self._checkpoint = checkpoint
        self._cache = cache
        self._normaliser = normaliser
        self._prompts = PromptBuilder(checkpoint.tokenizer, context=checkpoint.context)
        self._live: weakref.WeakValueDictionary[FeatureKey, Encoding] = weakref.WeakValueDictionary()
        self._lock = threading.Lock()

    @property
    def tokenizer(self) -> Tokenizer:
        return self._prompts.tokenizer

    def prepare(self, request: Request, future: Future[Answer], arrived: float) -> Prepared:
        """Sizes first: what is too long is refused before any picture is decoded.

        Raises InvalidWork, and what `Image.load` raises.
        """
        places = placed_images(request)
        grids = {index: self._grid(request, index) for index in places}
        prompt = self._prompts.build(request.turns, [grids[index] for index in places])
        self._check_length(len(prompt), request.sampling.max_tokens)
        ready = {index: self._encoding(request, request.images[index], grids[index]) for index in grids}
        return Prepared(request, future, prompt, tuple(ready[index] for index in places), arrived)

    def _grid(self, request: Request, index: int) -> Grid:
        image = request.images[index]
        try:
            return self._checkpoint.preprocessor.grid(image.width, image.height, request.max_pixels)
        except ValueError as error:
            raise InvalidWork(
                "invalid_image", f"image {index} of {image.width}x{image.height}: {error}"
            ) from error

    def _check_length(self, prompt: int, answer: int) -> None:
        limit = self._checkpoint.context
        if answer < 1:
            raise InvalidWork("invalid_max_tokens", f"max_tokens is {answer}, but must be at least 1")
        if prompt + answer > limit:
            raise InvalidWork(
                "context_length_exceeded",
                f"the prompt's {prompt} tokens (images included) and max_tokens {answer} "
                f"make {prompt + answer}, more than the model's {limit}",
            )

    def _encoding(self, request: Request, image: Image, grid: Grid) -> Encoding:
        key = self._key(request.tenant, image.content_hash, grid)
        with self._lock:
            encoding = self._live.get(key)
            if encoding is None:
                encoding = self._live[key] = Encoding(key, grid)
        with encoding.lock:
            if not encoding.ready:
                encoding.features = self._cache.read(
                    key, shape=self._shape(grid), dtype=self._checkpoint.model.dtype
                )
            if not encoding.ready:
                encoding.patches = self._checkpoint.preprocessor.patches(image.load(), grid)
        return encoding

    def _key(self, tenant: str, content_hash: str, grid: Grid) -> FeatureKey:
        return FeatureKey(
            tenant=tenant,
            content_hash=content_hash,
            revision=self._checkpoint.revision,
            dtype=str(self._checkpoint.model.dtype).removeprefix("torch."),
            width=grid.width * PATCH,
            height=grid.height * PATCH,
            normaliser=self._normaliser,
        )

    def _shape(self, grid: Grid) -> tuple[int, int, int]:
        return (self._checkpoint.feature_levels, grid.tokens, self._checkpoint.feature_width)
