"""What a dry run has counted so far: added to block by block, kept as JSON between two turns. Pure."""

import heapq
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from app.blocks import Block
from app.checks import Json
from app.lines import BadLine, ParsedLine
from app.references import RefKind, ref_hash

# Most vocabularies have a token for about four letters of English, and one or two for a CJK character.
LETTERS_PER_TOKEN, TOKENS_PER_OTHER = 4, 1
# By the lowest hashes, which are a fair sample: the mean of so many is within a few percent.
MOST_SIZES = 200


@dataclass
class Example:
    """The first line that would fail with a code, and how many would."""

    count: int
    line: int | None
    param: str | None
    message: str


@dataclass(frozen=True)
class Sampled:
    """An image to fetch, chosen by its hash: the lowest ones are a fair sample, whatever the file's order."""

    ref_hash: str
    kind: str
    ref: str


@dataclass(frozen=True)
class Picture:
    """A distinct image, as it is when the batch first names it. Its size is None where nobody has seen it."""

    ref_hash: str
    is_inline: bool = False  # its bytes came along
    is_stored: bool = False
    is_failed: bool = False  # it is not stored, and could not be fetched lately
    size: tuple[int, int] | None = None


@dataclass
class Tally:
    """`uses`: how often requests name an image, by the pixel budget they give it (0: the model's own)."""

    rows: int = 0
    requests: int = 0
    text_tokens: int = 0
    output_most: int = 0
    models: dict[str, int] = field(default_factory=dict)
    uses: dict[str, int] = field(default_factory=dict)
    bad: dict[str, Example] = field(default_factory=dict)
    sample: list[Sampled] = field(default_factory=list)
    # Distinct images: all, and those of each kind of Picture.
    distinct: int = 0
    inline: int = 0
    stored: int = 0
    failed: int = 0
    sizes: dict[str, list[int]] = field(default_factory=dict)  # widths and heights by ref_hash
    began_at: float = 0.0  # Unix time
    probe_ids: list[int] | None = None  # rows of the sampled images, once they are asked for
    probe_until: float = 0.0

    @property
    def references(self) -> int:
        return sum(self.uses.values())

    @property
    def bad_lines(self) -> int:
        return sum(one.count for one in self.bad.values())

    @property
    def model(self) -> str | None:
        """The one that most requests are for."""
        return max(self.models, key=lambda name: self.models[name], default=None)

    def add(self, block: Block, *, sample: int, max_new_tokens: Mapping[str, int]) -> None:
        """Count a block in. `max_new_tokens` is what a request of each model may be answered at most."""
        for line in block.lines:
            if isinstance(line, BadLine):
                self._add_bad(line)
            else:
                self._add_request(line, max_new_tokens)
        self.rows += len(block.lines)
        self.sample = _lowest([*self.sample, *_fetchable(block)], sample)

    def _add_bad(self, line: BadLine) -> None:
        error = line.error
        known = self.bad.setdefault(error.code, Example(0, error.line, error.param, error.message))
        known.count += 1

    def _add_request(self, line: ParsedLine, max_new_tokens: Mapping[str, int]) -> None:
        request = line.request
        self.requests += 1
        self.models[request.model] = self.models.get(request.model, 0) + 1
        self.text_tokens += sum(map(text_tokens, _texts(request.prompt)))
        self.output_most += int(request.params.get("max_tokens") or max_new_tokens[request.model])
        budget = str(request.params.get("max_pixels", 0))
        if request.images:
            self.uses[budget] = self.uses.get(budget, 0) + len(request.images)

    def add_pictures(self, pictures: Collection[Picture]) -> None:
        """Count in images that were not named before."""
        self.distinct += len(pictures)
        self.inline += sum(one.is_inline for one in pictures)
        self.stored += sum(one.is_stored for one in pictures)
        self.failed += sum(one.is_failed for one in pictures)
        self.sizes |= {one.ref_hash: list(one.size) for one in pictures if one.size is not None}
        self.sizes = {key: self.sizes[key] for key in heapq.nsmallest(MOST_SIZES, self.sizes)}

    def as_json(self) -> Mapping[str, Any]:
        return asdict(self)


def read_tally(said: Mapping[str, Any] | None) -> Tally:
    """What `as_json` made; a new one of nothing."""
    if said is None:
        return Tally()
    bad = {code: Example(**one) for code, one in said["bad"].items()}
    return Tally(**{**said, "bad": bad, "sample": [Sampled(**one) for one in said["sample"]]})


def text_tokens(text: str) -> int:
    """About how many tokens a text is."""
    letters = sum(map(str.isascii, text)) if not text.isascii() else len(text)
    return -(-letters // LETTERS_PER_TOKEN) + (len(text) - letters) * TOKENS_PER_OTHER


def _fetchable(block: Block) -> Iterable[Sampled]:
    return {
        Sampled(ref_hash(image), image.kind, image.ref)
        for image in block.references()
        if image.kind is not RefKind.DATA
    }


def _lowest(found: Iterable[Sampled], most: int) -> list[Sampled]:
    return heapq.nsmallest(most, set(found), key=lambda one: one.ref_hash)


def _texts(prompt: Mapping[str, Json]) -> Sequence[str]:
    return [part["text"] for turn in prompt["turns"] for part in turn["parts"] if "text" in part]
