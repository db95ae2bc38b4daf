"""Where a prompt is cut into pieces that other requests may share, and the keys of those cuts: pure."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise, zip_longest

import numpy as np
from numpy.typing import NDArray

# Tokens. What follows the last cut is a row's own, and own tokens of all rows stand in one padded tensor: so
# the tail is short. A shorter piece than PIECE_LEAST costs more to attend to apart than to compute again; of
# pieces longer than PIECE_MOST less would be found again where prompts part late.
TAIL_MOST = 96
TAIL_KEPT = 16
PIECE_LEAST = 16
PIECE_MOST = 1024
NEIGHBOURS = 64


@dataclass(frozen=True)
class Marks:
    """The control tokens at which prompts are cut."""

    image_start: int
    image_end: int
    turn_ends: frozenset[int]


@dataclass(frozen=True)
class Cut:
    """A place in a prompt: the tokens before it, and a key that is equal for equal beginnings.

    A piece of KV ends at every cut that is `built`; at the others an earlier answer's KV may end.
    """

    end: int
    key: bytes
    built: bool


class PromptKey:
    """The digest of a prompt's beginning, fed with tokens from left to right in portions of any size."""

    def __init__(self, scope: str) -> None:
        self._hash = hashlib.blake2b(scope.encode() + b"\0", digest_size=16)

    def feed(self, ids: NDArray[np.int64]) -> None:
        self._hash.update(ids.tobytes())

    def show(self, image_key: str) -> None:
        """An image begins here: its placeholder tokens say nothing of what it shows."""
        self._hash.update(image_key.encode())

    def digest(self) -> bytes:
        return self._hash.digest()

    def copy(self) -> "PromptKey":
        other = PromptKey.__new__(PromptKey)
        other._hash = self._hash.copy()
        return other


@dataclass(frozen=True)
class Plan:
    """A prompt's cuts in order, and its key at the end, for whoever continues it."""

    cuts: tuple[Cut, ...]
    key: PromptKey

    @property
    def tail_start(self) -> int:
        """Where the tokens begin that are the row's own."""
        return max((cut.end for cut in self.cuts if cut.built), default=0)


def plan_cuts(ids: NDArray[np.int64], *, scope: str, marks: Marks, images: Sequence[tuple[int, str]]) -> Plan:
    """Cut a prompt after every image and every turn; `images` are its images' places and keys, in order."""
    firm = _after_images(ids, marks)
    places = _places(ids, marks, firm)
    built = _built(places, firm)
    key = PromptKey(scope)
    starts = dict(images)
    cuts: list[Cut] = []
    for before, place in pairwise([0, *sorted({*places, *starts, len(ids)})]):
        if before in starts:
            key.show(starts[before])
        key.feed(ids[before:place])
        if place in places:
            cuts.append(Cut(place, key.digest(), place in built))
    return Plan(tuple(cuts), key)


def _after_images(ids: NDArray[np.int64], marks: Marks) -> set[int]:
    return {int(place) + 1 for place in np.flatnonzero(ids == marks.image_end)}


def _places(ids: NDArray[np.int64], marks: Marks, firm: set[int]) -> set[int]:
    """After images, before images, before the end of every turn but the last; and inside what is too long.

    Also a token before a turn's end: an answer that `max_tokens` cut has not fed its last token.
    """
    ends = np.flatnonzero(np.isin(ids, list(marks.turn_ends)))[:-1]
    starts = np.flatnonzero(ids == marks.image_start)
    places = firm | {int(place) for place in (*ends, *(ends - 1), *starts)}
    places &= set(range(1, len(ids)))
    if len(ids) - max(places, default=0) > TAIL_MOST:
        places.add(len(ids) - TAIL_KEPT)
    for before, place in pairwise([0, *sorted(places)]):
        places |= set(range(before + PIECE_MOST, place, PIECE_MOST))
    return places


def _built(places: set[int], firm: set[int]) -> set[int]:
    """Of neighbours only the last ends a piece, and no piece is tiny; but an image's end always ends one.

    What is long before such a place is not tied to what follows: other images share it.
    """
    built: set[int] = set()
    ordered = sorted(places)
    last = 0
    for place, following in zip_longest(ordered, ordered[1:]):
        gap = following - place if following is not None else NEIGHBOURS + 1
        crowded = gap == 1 or max(gap, place - last) <= NEIGHBOURS
        if place in firm or (place - last >= PIECE_LEAST and not crowded):
            built.add(place)
            last = place
    return built
