"""How a picture looks, in few bits: a perceptual hash and mean colours; and which two look the same. Pure."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from operator import mul

from PIL import Image

BITS, BANDS = 64, 4
BAND_BITS = BITS // BANDS
# Of four bands one differs in at most one bit, if all of them together do in at most seven.
MOST_DISTANCE = 7
SIDE = 32  # of the grey picture that is hashed
COLOUR_SIDE = 4
# Of 255, by which a mean colour may differ: outlines know no colour, and shirts come in many.
MOST_COLOUR = 20
# Mean size of the coefficients, of 255, below which a picture is plain: its bits would be noise.
LEAST_CONTRAST = 0.5

# The 64 lowest frequencies but the mean. Neighbours among them go to different bands.
_FREQUENCIES = sorted(
    ((u, v) for u in range(12) for v in range(12) if u or v), key=lambda one: (sum(one), one)
)[:BITS]
_WIDTH = 1 + max(max(one) for one in _FREQUENCIES)
_COSINES = [
    [math.cos(math.pi * (2 * place + 1) * wave / (2 * SIDE)) for place in range(SIDE)]
    for wave in range(_WIDTH)
]


@dataclass(frozen=True)
class Looks:
    """`phash` has 64 bits, `colours` a byte for each channel of 4 x 4 fields."""

    phash: int
    colours: bytes


def looks_of(picture: Image.Image) -> Looks | None:
    """Of an upright RGB picture; None for a plain one, which looks like any other plain one."""
    grey = picture.convert("L").resize((SIDE, SIDE), Image.Resampling.BOX).tobytes()
    waves = _transformed([grey[start : start + SIDE] for start in range(0, SIDE * SIDE, SIDE)])
    if sum(map(abs, waves)) / BITS < LEAST_CONTRAST:
        return None
    middle = sorted(waves)[BITS // 2]
    phash = sum((wave >= middle) << place for place, wave in enumerate(_by_band(waves)))
    small = picture.resize((COLOUR_SIDE, COLOUR_SIDE), Image.Resampling.BOX)
    return Looks(phash, small.tobytes())


def bands(phash: int) -> tuple[int, ...]:
    """The hash in four pieces of 16 bits, the lowest first."""
    return tuple(phash >> BAND_BITS * place & (1 << BAND_BITS) - 1 for place in range(BANDS))


def flips(distance: int) -> list[int]:
    """What to change in a band, so that each hash within `distance` shares a band with the one looked for."""
    if distance > MOST_DISTANCE:
        raise ValueError(f"at most {MOST_DISTANCE} bits")
    return [0] if distance < BANDS else [0, *(1 << bit for bit in range(BAND_BITS))]


def distance(one: int, other: int) -> int:
    """In how many bits two hashes differ, whether signed or not."""
    return ((one ^ other) & (1 << BITS) - 1).bit_count()


def same_colours(one: bytes, other: bytes) -> bool:
    return all(abs(mine - theirs) <= MOST_COLOUR for mine, theirs in zip(one, other, strict=True))


def alike(one: Looks, other: Looks, within: int) -> bool:
    """Whether two pictures look the same: outlines within so many bits, and much the same colours."""
    return distance(one.phash, other.phash) <= within and same_colours(one.colours, other.colours)


def signed(phash: int) -> int:
    """As Postgres has 64 bits."""
    return phash - (1 << BITS) if phash >> BITS - 1 else phash


def _transformed(rows: Sequence[bytes]) -> list[float]:
    """The cosine transform of a square, only the frequencies that are needed, as shares of its range."""
    across = [[_product(wave, row) for wave in _COSINES] for row in rows]
    columns = list(zip(*across, strict=True))
    scale = 2 / (SIDE * SIDE)
    return [scale * _product(_COSINES[v], columns[u]) for u, v in _FREQUENCIES]


def _by_band(waves: Sequence[float]) -> list[float]:
    return [wave for band in range(BANDS) for wave in waves[band::BANDS]]


def _product(one: Sequence[float], other: Sequence[float]) -> float:
    return sum(map(mul, one, other))
