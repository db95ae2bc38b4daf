"""Near duplicates: how often different pictures are taken for one, and the same one for two."""

import argparse
import time
from collections.abc import Callable, Sequence
from itertools import combinations

from PIL import Image

from app.images import Limits, normalise
from app.looks import MOST_DISTANCE, SIDE, Looks, alike, distance, looks_of
from tests.drawn import REMAKES, cropped, product, recoloured, saved, with_sticker

DISTANCES = range(MOST_DISTANCE + 1)
FURTHER: dict[str, Callable[[Image.Image], bytes]] = {
    "cropped by 2 %": lambda picture: saved(cropped(picture, 0.02), "JPEG", quality=85),
    "cropped by 4 %": lambda picture: saved(cropped(picture, 0.04), "JPEG", quality=85),
    "another colour": lambda picture: saved(recoloured(picture)),
    "a small sticker": lambda picture: saved(with_sticker(picture)),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pictures", type=int, default=2_000, help="different ones, compared in pairs")
    parser.add_argument("--remakes", type=int, default=200, help="pictures that are saved anew")
    given = parser.parse_args()
    started = time.perf_counter()
    first = [_looks(product(seed)) for seed in range(given.pictures)]
    each_ms = 1000 * (time.perf_counter() - started) / given.pictures
    print(f"{given.pictures:,} different pictures, drawn and hashed in {each_ms:.1f} ms each")
    wrong = _false_joins(first)
    for within in DISTANCES:
        print(
            f"within {within}: {wrong[within]} false joins, {wrong[within] / given.pictures:.2%} of pictures"
        )
    for name, remake in {**REMAKES, **FURTHER}.items():
        joined = _joined(first[: given.remakes], remake)
        shares = "  ".join(f"{within}: {joined[within]:.1%}" for within in (2, 4, 6))
        print(f"{name:22} taken for the first  {shares}")
    print(f"near_duplicates: pictures={given.pictures} false_joins_4={wrong[4]} false_joins_6={wrong[6]}")


def _looks(picture: Image.Image) -> Looks:
    found = looks_of(picture)
    assert found is not None
    return found


def _false_joins(pictures: Sequence[Looks]) -> dict[int, int]:
    """Pictures that look like an other one, by distance."""
    wrong: dict[int, set[int]] = {within: set() for within in DISTANCES}
    for (place, one), (behind, other) in combinations(enumerate(pictures), 2):
        apart = distance(one.phash, other.phash)
        if apart <= MOST_DISTANCE and alike(one, other, apart):
            for within in range(apart, MOST_DISTANCE + 1):
                wrong[within] |= {place, behind}
    return {within: len(found) for within, found in wrong.items()}


def _joined(pictures: Sequence[Looks], remake: Callable[[Image.Image], bytes]) -> dict[int, float]:
    """The share that is still taken for the same picture, by distance."""
    again = [
        looks_of(normalise(remake(product(seed)), Limits(), small=4 * SIDE)) for seed in range(len(pictures))
    ]
    pairs = [(one, other) for one, other in zip(pictures, again, strict=True) if other is not None]
    return {
        within: sum(alike(one, other, within) for one, other in pairs) / len(pictures) for within in DISTANCES
    }


if __name__ == "__main__":
    main()
