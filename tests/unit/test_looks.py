"""How pictures look: the same photo saved anew is found, another one is not, and no search misses one."""

from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image, ImageDraw

from app.images import Limits, normalise
from app.looks import (
    MOST_DISTANCE,
    SIDE,
    Looks,
    alike,
    bands,
    distance,
    flips,
    looks_of,
    same_colours,
    signed,
)
from tests.drawn import REMAKES, Remake, product, recoloured

HASHES = st.integers(0, 2**64 - 1)
WITHIN = 6


def looks(picture: Image.Image) -> Looks:
    found = looks_of(picture)
    assert found is not None
    return found


@pytest.mark.parametrize("remake", REMAKES.values(), ids=REMAKES)
def test_the_same_photo_saved_anew_looks_the_same(remake: Remake) -> None:
    for seed in range(20):
        picture = product(seed)
        again = normalise(remake(picture), Limits(), small=4 * SIDE)
        assert alike(looks(picture), looks(again), WITHIN)


def test_different_products_look_different() -> None:
    found = [looks(product(seed)) for seed in range(100)]
    assert not any(alike(one, other, WITHIN) for one, other in combinations(found, 2))


def test_the_same_product_in_another_colour_looks_different() -> None:
    for seed in range(20):
        one, other = looks(product(seed)), looks(recoloured(product(seed)))
        assert not same_colours(one.colours, other.colours)


@pytest.mark.parametrize("colour", ["white", "black", "#c8c0b8"])
def test_a_plain_picture_looks_like_nothing(colour: str) -> None:
    assert looks_of(Image.new("RGB", (300, 200), colour)) is None


def test_a_thin_line_on_white_is_no_plain_picture() -> None:
    picture = Image.new("RGB", (320, 320), "white")
    ImageDraw.Draw(picture).line((20, 20, 300, 300), fill="black", width=12)
    assert looks_of(picture) is not None


@given(HASHES)
def test_bands_are_the_whole_hash_in_pieces(phash: int) -> None:
    assert sum(band << 16 * place for place, band in enumerate(bands(phash))) == phash


@given(HASHES, st.sets(st.integers(0, 63), max_size=MOST_DISTANCE))
def test_whatever_is_near_shares_a_band_but_for_a_flip(phash: int, changed: set[int]) -> None:
    other = phash ^ sum(1 << bit for bit in changed)
    assert distance(phash, other) == len(changed)
    reached = [{band ^ flip for flip in flips(len(changed))} for band in bands(phash)]
    assert any(theirs in mine for theirs, mine in zip(bands(other), reached, strict=True))


@given(HASHES, HASHES)
def test_distances_are_the_same_as_postgres_has_the_bits(one: int, other: int) -> None:
    assert -(2**63) <= signed(one) < 2**63
    assert distance(signed(one), signed(other)) == distance(one, other)
    assert distance(signed(one), other) == distance(one, other)


def test_a_search_goes_no_further_than_its_bands_can_tell() -> None:
    with pytest.raises(ValueError, match="at most 7"):
        flips(MOST_DISTANCE + 1)
