"""Which pictures look the same."""

from dataclasses import replace
from io import BytesIO

import numpy as np
import PIL.Image

from demo.pictures import draw, product_for
from workers.engine.base import Pixels
from workers.engine.features import FeatureKey
from workers.engine.near_duplicates import NearDuplicates, alike, looks_of

KEY = FeatureKey("scope", "a", "revision", "float32", 64, 64, "1")


def drawn(seed: int) -> PIL.Image.Image:
    return draw(product_for(seed, held_out=False), seed)


def saved(picture: PIL.Image.Image, quality: int) -> Pixels:
    file = BytesIO()
    picture.save(file, "jpeg", quality=quality)
    return np.asarray(PIL.Image.open(file))


def flat(*colour: int) -> Pixels:
    return np.full((64, 64, 3), colour, np.uint8)


def test_a_picture_saved_again_looks_the_same() -> None:
    pairs = [(saved(drawn(seed), 95), saved(drawn(seed), 60)) for seed in range(20)]
    assert all(alike(looks_of(one), looks_of(other)) for one, other in pairs)


def test_other_pictures_do_not() -> None:
    looks = [looks_of(np.asarray(drawn(seed))) for seed in range(20)]
    assert not any(alike(one, other) for at, one in enumerate(looks) for other in looks[:at])


def test_an_outline_alone_is_not_enough() -> None:
    red, green = looks_of(flat(200, 40, 40)), looks_of(flat(40, 200, 40))
    assert red.outline == green.outline
    assert not alike(red, green)


def test_only_so_many_pictures_are_remembered() -> None:
    near, looks = NearDuplicates(capacity=3), looks_of(flat(9, 9, 9))
    keys = [replace(KEY, content_hash=str(number), scope=str(number)) for number in range(5)]
    assert [near.find(key, looks) for key in keys] == keys
    assert [near.original(key) for key in keys] == [None, None, *keys[2:]]
