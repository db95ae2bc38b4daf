"""A request made ready for the model, off the engine's thread: prompt, cuts, and what its images need."""

from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass

from tokenizers import Tokenizer

from workers.engine.base import Answer, Note, Request
from workers.engine.checks import check_length, image_grid, placed_images
from workers.engine.cuts import Marks, Plan, plan_cuts
from workers.engine.encodings import Busy, Encoding, Encodings, Placed
from workers.engine.features import FeatureKey
from workers.engine.grammar import Grammars
from workers.engine.load import Checkpoint
from workers.engine.prefixes import Node, PrefixCache
from workers.engine.preprocess import Grid
from workers.engine.prompt import Prompt, PromptBuilder


@dataclass(frozen=True)
class Prepared:
    """A request that can join a step.

    `pin` holds the longest beginning of the prompt whose KV was there already: only images after it are here,
    in the order of their places.
    """

    request: Request
    future: Future[Answer]
    prompt: Prompt
    plan: Plan
    images: tuple[Placed, ...]
    arrived: float  # time.monotonic() at submit
    pin: Node | None = None
    notes: tuple[Note, ...] = ()

    @property
    def waiting_patches(self) -> dict[FeatureKey, int]:
        """Bytes of the images that the vision tower has yet to see."""
        encodings = [image.encoding for image in self.images]
        return {each.key: each.patches.nbytes for each in encodings if each.patches is not None}


class Preparer:
    """Prepares requests from any thread."""

    def __init__(self, *, checkpoint: Checkpoint, encodings: Encodings, prefixes: PrefixCache) -> None:
        self._checkpoint = checkpoint
        self._encodings = encodings
        self._prefixes = prefixes
        self._prompts = PromptBuilder(checkpoint.tokenizer, context=checkpoint.context)
        self.grammars = Grammars(self.tokenizer, vocabulary=checkpoint.vocabulary, end_ids=checkpoint.end_ids)
        self._marks = Marks(self._prompts.image_start, self._prompts.image_end, checkpoint.end_ids)

    @property
    def tokenizer(self) -> Tokenizer:
        return self._prompts.tokenizer

    def prepare(self, request: Request, future: Future[Answer], arrived: float) -> Prepared:
        """Sizes first: what is too long is refused before any picture is decoded.

        Raises InvalidWork, what `Image.load` raises, and Busy while another thread is at one of its images.
        """
        places = placed_images(request)
        grids = {index: image_grid(self._checkpoint.preprocessor, request, index) for index in places}
        prompt = self._prompts.build(request.turns, [grids[index] for index in places])
        check_length(len(prompt), request.sampling.max_tokens, limit=self._checkpoint.context)
        if request.constraint is not None:  # compiled here, where it may take its time
            self.grammars.matcher(request.constraint)
        keys = {
            index: self._encodings.key(request.cache_scope, request.images[index], grids[index])
            for index in grids
        }
        twins = self._twins(request, keys, grids)  # held, so that their features stay
        keys |= {index: twin.key for index, twin in twins.items()}
        plan = plan_cuts(
            prompt.ids,
            scope=_prefix_scope(request),
            marks=self._marks,
            images=[(start, keys[index].name) for start, index in zip(prompt.images, places, strict=True)],
        )
        pin = self._prefixes.acquire(plan.cuts)
        try:
            images = self._images_after(pin, request, prompt, places, keys, grids)
        except BaseException:
            self._prefixes.release(pin)
            raise
        notes = self._notes(request, images, has_twins=bool(twins))
        return Prepared(request, future, prompt, plan, images, arrived, pin, notes)

    def _twins(
        self, request: Request, keys: Mapping[int, FeatureKey], grids: Mapping[int, Grid]
    ) -> dict[int, Encoding]:
        """The images that one which looks the same may stand in for, by their numbers."""
        if not request.near_duplicates:
            return {}
        found = {
            index: self._encodings.twin(key, request.images[index], grids[index])
            for index, key in keys.items()
        }
        return {index: twin for index, twin in found.items() if twin is not None}

    def _notes(self, request: Request, images: Sequence[Placed], *, has_twins: bool) -> tuple[Note, ...]:
        notes = [Note.NEAR_DUPLICATE] if has_twins else []
        if request.warm and self._encodings.share(images):
            notes.append(Note.FEATURES_CACHED)
        return tuple(notes)

    def _images_after(
        self,
        pin: Node | None,
        request: Request,
        prompt: Prompt,
        places: Sequence[int],
        keys: Mapping[int, FeatureKey],
        grids: Mapping[int, Grid],
    ) -> tuple[Placed, ...]:
        known = pin.end if pin is not None else 0
        placed: list[Placed] = []
        for start, index in zip(prompt.images, places, strict=True):
            stop = start + grids[index].tokens
            if stop > known:
                try:
                    encoding = self._encodings.get(keys[index], request.images[index], grids[index])
                except Busy as busy:
                    busy.ready = tuple(placed)  # so that they are still there at the next try
                    raise
                placed.append(Placed(start, stop, encoding))
        return tuple(placed)


def _prefix_scope(request: Request) -> str:
    """What warms features shares no prefix, as an image whose KV is there is not encoded."""
    return f"{request.cache_scope} {request.id}" if request.warm and request.images else request.cache_scope
