"""Pictures that look the same though their bytes differ: saved anew, resized a little, re-compressed."""

import threading
from collections import OrderedDict
from dataclasses import dataclass, replace

import numpy as np
import PIL.Image
from numpy.typing import NDArray

from workers.engine.base import Pixels
from workers.engine.features import FeatureKey

MOST_BITS = 4  # of 64 in which the outlines may differ
MOST_COLOUR = 10  # of 255, by which any of the 64 mean colours may differ: outlines know no colour
CAPACITY = 20_000  # looks that are remembered, 200 bytes each
SIDE = 8
RISE = 5  # of 255, by which a neighbour is brighter; less is noise, of which a plain background is full


@dataclass(frozen=True)
class Looks:
    """A picture in small: which of two neighbours is brighter (dHash, 64 bits), and 8 x 8 mean colours."""

    outline: int
    colours: NDArray[np.int16]


def looks_of(pixels: Pixels) -> Looks:
    picture = PIL.Image.fromarray(pixels)
    grey = np.asarray(picture.convert("L").resize((SIDE + 1, SIDE), PIL.Image.Resampling.BOX), np.int16)
    colours = np.asarray(picture.resize((SIDE, SIDE), PIL.Image.Resampling.BOX), np.int16)
    rises = np.packbits(grey[:, 1:] - grey[:, :-1] > RISE)
    return Looks(int.from_bytes(rises.tobytes(), "big"), colours.ravel())


def alike(one: Looks, other: Looks) -> bool:
    if (one.outline ^ other.outline).bit_count() > MOST_BITS:
        return False
    return int(np.abs(one.colours - other.colours).max()) <= MOST_COLOUR


class NearDuplicates:
    """What this worker has seen of late. Scopes, sizes after the resize, and models never mix."""

    def __init__(self, *, capacity: int = CAPACITY) -> None:
        self._capacity = capacity
        self._originals: OrderedDict[FeatureKey, FeatureKey] = OrderedDict()  # of every picture, or itself
        self._families: dict[FeatureKey, dict[FeatureKey, Looks]] = {}
        self._lock = threading.Lock()

    def original(self, key: FeatureKey) -> FeatureKey | None:
        """Whom this picture, seen before, looks like: itself, or an earlier one. None for one not seen."""
        with self._lock:
            found = self._originals.get(key)
            return found if found is not None and found in self._families.get(_family(found), {}) else None

    def find(self, key: FeatureKey, looks: Looks) -> FeatureKey:
        """The earliest picture that looks like it; else it is one that later ones may look like."""
        with self._lock:
            family = self._families.setdefault(_family(key), {})
            found = next((other for other, theirs in family.items() if alike(looks, theirs)), key)
            family.setdefault(found, looks)
            self._originals[key] = found
            while len(self._originals) > self._capacity:
                self._leave(next(iter(self._originals)))
            return found

    def forget(self, key: FeatureKey) -> None:
        """Nobody shall be taken for this picture any more."""
        with self._lock:
            self._leave(key)

    def _leave(self, key: FeatureKey) -> None:
        self._originals.pop(key, None)
        family = self._families.get(_family(key), {})
        if family.pop(key, None) is not None and not family:
            del self._families[_family(key)]


def _family(key: FeatureKey) -> FeatureKey:
    return replace(key, content_hash="")
