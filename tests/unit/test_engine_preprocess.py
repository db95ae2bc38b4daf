"""Our patches are those of the library's PIL processor."""

import json
from pathlib import Path

import numpy as np
import PIL.Image
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.checkpoints import MAX_PIXELS, MIN_PIXELS, image_processor
from tests.requests import picture
from workers.engine.base import Pixels
from workers.engine.preprocess import Grid, Preprocessor

OURS = Preprocessor(min_pixels=MIN_PIXELS, max_pixels=MAX_PIXELS)
LIBRARY = image_processor()
SIDES = st.integers(2, 400)  # at most 200 to 1


def noise(width: int, height: int) -> Pixels:
    return np.random.default_rng(width * 1000 + height).integers(0, 256, (height, width, 3), dtype=np.uint8)


@settings(max_examples=40, deadline=None)
@given(SIDES, SIDES)
def test_patches_and_grids_are_the_library_s(width: int, height: int) -> None:
    pixels = noise(width, height)
    grid = OURS.grid(width, height)
    theirs = LIBRARY(PIL.Image.fromarray(pixels), return_tensors="np")
    assert theirs["image_grid_thw"].tolist() == [[1, grid.height, grid.width]]
    assert np.abs(OURS.patches(pixels, grid) - theirs["pixel_values"]).max() <= 1e-6


def test_other_means_are_honoured() -> None:
    mean, std = (0.48, 0.45, 0.4), (0.26, 0.27, 0.28)
    ours = Preprocessor(min_pixels=MIN_PIXELS, max_pixels=MAX_PIXELS, mean=mean, std=std)
    pixels = picture(1).load()
    theirs = LIBRARY(
        PIL.Image.fromarray(pixels), image_mean=list(mean), image_std=list(std), return_tensors="np"
    )
    patches = ours.patches(pixels, ours.grid(96, 64))
    assert np.abs(patches - theirs["pixel_values"]).max() <= 1e-6


def test_a_lower_budget_gives_fewer_tokens_and_a_higher_one_no_more() -> None:
    assert OURS.grid(640, 480) == OURS.grid(640, 480, 10**9) == Grid(6, 8)
    assert OURS.grid(640, 480, 2 * 32 * 32).tokens == 1
    assert OURS.grid(640, 480, MIN_PIXELS).tokens <= 4


def test_a_budget_of_a_million_pixels_is_at_most_977_tokens() -> None:
    """Field case model-max-pixels-honoured."""
    real = Preprocessor(min_pixels=65_536, max_pixels=16_777_216)
    assert real.grid(6000, 4000, 1_000_000).tokens == 950


def test_a_picture_of_200_to_1_passes_and_a_thinner_one_does_not() -> None:
    assert OURS.grid(800, 4).tokens > 0
    with pytest.raises(ValueError, match="aspect ratio"):
        OURS.grid(804, 4)


def test_the_token_table_of_the_field_cases(shared_cases: Path) -> None:
    """Field case model-token-table."""
    for row in json.loads((shared_cases / "cases/model/model_tokens.json").read_text()):
        ours = Preprocessor(min_pixels=row["min_pixels"], max_pixels=row["max_pixels"])
        grid = ours.grid(row["width"], row["height"])
        assert [1, grid.height, grid.width, grid.tokens] == [*row["grid_thw"], row["image_tokens"]]
