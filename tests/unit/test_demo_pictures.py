"""The drawn pictures: the same seed gives the same pixels, and training never sees the held-out."""

import pytest

from demo.pictures import as_jpeg, draw
from demo.products import (
    COLOURS,
    ITEMS,
    KINDS,
    PATTERNS,
    VALUES,
    Product,
    combinations,
    is_held_out,
    product_for,
)


def test_same_seed_gives_the_same_pixels() -> None:
    product = product_for(7, held_out=False)

    assert draw(product, 7).tobytes() == draw(product, 7).tobytes()


def test_another_seed_gives_another_picture_of_the_same_product() -> None:
    product = product_for(7, held_out=False)

    assert draw(product, 7).tobytes() != draw(product, 8).tobytes()


def test_held_out_combinations_are_disjoint_from_training() -> None:
    known, unknown = set(combinations(held_out=False)), set(combinations(held_out=True))

    assert not known & unknown
    assert len(known | unknown) == len(ITEMS) * len(COLOURS) * len(PATTERNS)


@pytest.mark.parametrize("held_out", [False, True])
def test_products_stay_on_their_side_of_the_split(held_out: bool) -> None:
    products = [product_for(seed, held_out) for seed in range(300)]

    assert {is_held_out(p.item, p.colour, p.pattern) for p in products} == {held_out}


@pytest.mark.parametrize("held_out", [False, True])
def test_every_value_of_every_kind_occurs_on_both_sides(held_out: bool) -> None:
    products = [product_for(seed, held_out) for seed in range(500)]

    for kind in KINDS:
        assert {str(getattr(product, kind)) for product in products} == set(VALUES[kind])


@pytest.mark.parametrize("item", ITEMS)
def test_every_item_can_be_drawn_four_times(item: str) -> None:
    picture = draw(Product(item, "red", "checked", 4, "tiles", "sale"), seed=3)

    assert picture.mode == "RGB"
    assert min(picture.size) >= 160


def test_a_picture_travels_as_jpeg() -> None:
    assert as_jpeg(draw(product_for(1, held_out=True), 1)).startswith(b"\xff\xd8")
