"""Visual tokens are counted as the model's own processor counts them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.visual_tokens import MAX_ASPECT_RATIO, patch_grid, smart_resize, visual_tokens

# (width, height), (min_pixels, max_pixels): (height, width) by transformers' smart_resize with factor 32.
BY_TRANSFORMERS = {
    ((20, 4000), (4096, 65536)): (3616, 32),
    ((4000, 20), (4096, 65536)): (32, 3616),
    ((96, 64), (65536, 16777216)): (224, 320),
    ((96, 64), (65536, 1003520)): (224, 320),
    ((1, 1), (65536, 16777216)): (256, 256),
    ((1, 1), (65536, 1003520)): (256, 256),
    ((1, 180), (65536, 16777216)): (3456, 32),
    ((1, 180), (65536, 1003520)): (3456, 32),
    ((4000, 20), (65536, 16777216)): (32, 4000),
    ((4000, 20), (65536, 1003520)): (32, 4000),
    ((640, 480), (65536, 16777216)): (480, 640),
    ((640, 480), (65536, 1003520)): (480, 640),
    ((1024, 1024), (65536, 16777216)): (1024, 1024),
    ((1024, 1024), (65536, 1003520)): (992, 992),
    ((3000, 4000), (65536, 16777216)): (4000, 3008),
    ((3000, 4000), (65536, 1003520)): (1152, 864),
    ((4032, 3024), (65536, 16777216)): (3008, 4032),
    ((4032, 3024), (65536, 1003520)): (864, 1152),
    ((12000, 9000), (65536, 16777216)): (3520, 4704),
    ((12000, 9000), (65536, 1003520)): (864, 1152),
    ((333, 17), (65536, 16777216)): (64, 1152),
    ((333, 17), (65536, 1003520)): (64, 1152),
    ((48, 48), (65536, 16777216)): (256, 256),
    ((48, 48), (65536, 1003520)): (256, 256),
    ((80, 112), (4096, 262144)): (128, 64),
}


@pytest.mark.parametrize(("size", "budget"), BY_TRANSFORMERS)
def test_sizes_are_those_of_the_processor(size: tuple[int, int], budget: tuple[int, int]) -> None:
    resized = smart_resize(*size, min_pixels=budget[0], max_pixels=budget[1])
    assert resized == BY_TRANSFORMERS[size, budget]


def test_a_token_stands_for_four_patches_of_sixteen_pixels() -> None:
    assert patch_grid(96, 64, min_pixels=65_536, max_pixels=16_777_216) == (1, 14, 20)
    assert visual_tokens(96, 64, min_pixels=65_536, max_pixels=16_777_216) == 14 * 20 // 4


@pytest.mark.parametrize(("width", "height"), [(4001, 20), (20, 4001)])
def test_an_aspect_ratio_above_200_is_refused(width: int, height: int) -> None:
    with pytest.raises(ValueError, match="aspect ratio"):
        visual_tokens(width, height, min_pixels=65_536, max_pixels=10**6)


@given(st.integers(1, 10_000), st.integers(1, 10_000))
def test_sides_are_multiples_of_32_within_the_budget(width: int, height: int) -> None:
    if max(width, height) > MAX_ASPECT_RATIO * min(width, height):
        return
    rows, columns = smart_resize(width, height, min_pixels=65_536, max_pixels=1_003_520)
    assert rows % 32 == columns % 32 == 0
    assert min(rows, columns) >= 32
    assert 65_536 <= rows * columns <= 1_003_520
