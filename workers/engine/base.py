"""What every engine promises, the types it takes and gives, and the observer it reports to."""

from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Literal, Protocol

import numpy as np
from numpy.typing import NDArray

Pixels = NDArray[np.uint8]
Role = Literal["system", "user", "assistant"]
FinishReason = Literal["stop", "length"]

# Around the reasoning at the beginning of an answer's text, where a model gives any.
OPEN_REASONING, CLOSE_REASONING = "<think>", "</think>"


@dataclass(frozen=True)
class Image:
    """A picture keyed by the original bytes' hash; `width` and `height` in pixels, shown upright.

    `load` makes its normalised pixels: upright sRGB (height, width, 3). It may raise WorkError, and is called
    off the engine's thread and only where the picture's features are not cached, so that a chunk's pictures
    are never all in memory. `expected_uses` is how many requests are known to want it, this one among them;
    `later_uses` of those are not in this engine's hands yet.
    """

    content_hash: str
    width: int
    height: int
    load: Callable[[], Pixels] = field(repr=False, compare=False)
    expected_uses: int = 1
    later_uses: int = 0

    @classmethod
    def of(cls, content_hash: str, pixels: Pixels) -> "Image":
        """A picture whose pixels are at hand."""
        height, width, _ = pixels.shape
        return cls(content_hash, width, height, lambda: pixels)


@dataclass(frozen=True)
class TextPart:
    text: str


@dataclass(frozen=True)
class ImagePart:
    """The place of `Request.images[index]` in a turn."""

    index: int


Part = TextPart | ImagePart


@dataclass(frozen=True)
class Turn:
    role: Role
    parts: tuple[Part, ...]


@dataclass(frozen=True)
class Sampling:
    """How tokens are chosen: temperature 0 is greedy, top_k 0 means all, no seed means a fresh one.

    `repetition_penalty` above 1 makes tokens of prompt and answer less likely; `logprobs` asks for each
    token's log probability and so many alternatives.
    """

    max_tokens: int
    temperature: float = 0.0
    top_p: float = 1.0
    top_k: int = 0
    seed: int | None = None
    stop: tuple[str, ...] = ()
    repetition_penalty: float = 1.0
    logprobs: int | None = None


@dataclass(frozen=True)
class JsonObject:
    """The answer is one JSON object, of any shape."""


@dataclass(frozen=True)
class JsonSchema:
    """The answer is JSON that this schema, a JSON text, describes."""

    schema: str


@dataclass(frozen=True)
class Choice:
    """The answer is one of these texts."""

    options: tuple[str, ...]


Constraint = JsonObject | JsonSchema | Choice


@dataclass(frozen=True)
class Request:
    """A job as the engine sees it.

    `deadline` is a `time.monotonic()` time; `max_pixels` lowers the engine's own budget per image. `scope`
    names the cache that its features and prefixes are kept in, and is the tenant's own unless the tenant
    shares. `on_text` is given the answer's text piece by piece as tokens come, on the engine's thread: it
    must be quick and must not raise. `near_duplicates` lets features of an image that looks the same stand in
    for a new one's. `warm` is asked for its images' features, which go to Redis, more than for its answer.
    `urgent` goes before all that are not, as somebody waits for it.
    """

    id: str
    tenant: str
    turns: tuple[Turn, ...]
    images: tuple[Image, ...]
    sampling: Sampling
    max_pixels: int | None = None
    deadline: float | None = None
    constraint: Constraint | None = None
    scope: str | None = None
    on_text: Callable[[str], None] | None = field(default=None, repr=False, compare=False)
    near_duplicates: bool = False
    warm: bool = False
    urgent: bool = False

    def is_late(self, now: float) -> bool:
        """Whether the deadline has passed, on the clock of `time.monotonic()`."""
        return self.deadline is not None and now >= self.deadline

    @property
    def cache_scope(self) -> str:
        return self.scope if self.scope is not None else self.tenant


@dataclass(frozen=True)
class Usage:
    """Token counts; `prompt_tokens` includes the images'.

    `cached_tokens` is the part of the prompt that was not computed for this request. It depends on who came
    before, so that answers are equal without it.
    """

    prompt_tokens: int
    completion_tokens: int
    cached_tokens: int = field(default=0, compare=False)


@dataclass(frozen=True)
class TokenLogprob:
    """A token of the answer, its log probability, and the likeliest tokens in its place with theirs."""

    token: str
    logprob: float
    top: tuple[tuple[str, float], ...] = ()


class Note(StrEnum):
    """What a reader of an answer should know of it; the values are a client's words."""

    EMPTY = "empty"  # the model ended at once
    REPETITION = "repetition"  # cut at max_tokens while it repeated itself
    NEAR_DUPLICATE = "near_duplicate"  # features of an image that looks the same were used
    FEATURES_CACHED = "features_cached"  # said to what warms: its images were encoded before


@dataclass(frozen=True)
class Times:
    """When a request came and ended, had its first token, and joined the step that gave it, if that is said.

    On the clock of `time.monotonic()`.
    """

    arrived: float
    ended: float
    first: float | None = None
    joined: float | None = None


@dataclass(frozen=True)
class Answer:
    """`text` begins with the model's reasoning, marked, where it has any, also where the prompt opens it."""

    text: str
    finish_reason: FinishReason
    usage: Usage
    logprobs: tuple[TokenLogprob, ...] | None = None
    notes: tuple[Note, ...] = ()
    times: Times | None = field(default=None, compare=False)


class Engine(Protocol):
    """Answers requests from any thread.

    A future may raise `WorkError`; `Future.cancel()` drops a request, also one that runs. A request whose
    deadline passes ends in `TransientWork("job_timeout")`. `close()` lets the rows that run end and fails the
    rest with `TransientWork("engine_closed")`.
    """

    @property
    def model(self) -> str: ...

    @property
    def revision(self) -> str: ...

    @property
    def number_format(self) -> str:
        """What it computes on and in, as far as answers depend on it, such as `cuda bfloat16`."""
        ...

    def submit(self, request: Request) -> Future[Answer]: ...

    def close(self) -> None: ...


class FeatureTier(StrEnum):
    """Where an image's features came from; a miss means that the vision tower ran."""

    MEMORY = "memory"
    REDIS = "redis"
    MISS = "miss"


class Observer(Protocol):
    """What an engine reports while it runs, from its own threads: must be quick and must not raise."""

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
        """One forward pass gave `rows` rows a token each, `joined` of them their first.

        `prompt_tokens` were computed in it; `cached_tokens` of the joined rows' prompts needed not to be.
        """

    def waited(self, *, seconds: float) -> None:
        """A request waited this long between `submit` and its first step."""

    def encoded(self, *, images: int, visual_tokens: int, seconds: float) -> None:
        """The vision tower ran once over so many images."""

    def features_read(self, *, tier: FeatureTier, size: int, visual_tokens: int, seconds: float) -> None:
        """One look-up of one image's features: `size` in bytes, 0 for a miss; without waiting for others."""

    def features_awaited(self, *, found: bool, seconds: float) -> None:
        """Another worker encoded the same image: whether waiting for its features paid."""

    def features_stored(self, *, tier: FeatureTier, size: int) -> None:
        """Features were found worth keeping in a tier."""

    def features_evicted(self, *, images: int) -> None:
        """So many images' features had to leave Redis, whose budget is full."""

    def features_checked(self, *, matches: bool, distance: float) -> None:
        """A sampled hit was encoded anew and compared; what does not match was dropped."""

    def features_refused(self, *, reason: str) -> None:
        """Bytes in Redis were damaged or not ours (`reason` is a short fixed word): counted, then a miss."""

    def feature_store_failed(self, *, operation: str) -> None:
        """Redis did not answer a `read` or `write`, or writes were dropped (`drop`)."""

    def out_of_memory(self, *, rows: int) -> None:
        """A step of so many rows found no memory."""


class Silent(Observer):
    """An observer that ignores everything."""


def texts(turns: Sequence[Turn]) -> list[str]:
    """Every piece of text in order."""
    return [part.text for turn in turns for part in turn.parts if isinstance(part, TextPart)]
