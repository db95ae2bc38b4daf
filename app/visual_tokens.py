"""How many visual tokens an image costs: the model's own rule for resizing, in integers and pure."""

import math

PATCH = 16  # pixels per side of a vision patch
MERGE = 2  # patches per side that become one token
FACTOR = PATCH * MERGE  # both sides of a resized image are multiples of it
# Qwen3-VL's own least area of an image: smaller ones are enlarged. The engine reads its checkpoint's.
MIN_PIXELS = 65_536
MAX_ASPECT_RATIO = 200  # sides more unequal are refused; exactly 200 passes


def smart_resize(width: int, height: int, *, min_pixels: int, max_pixels: int) -> tuple[int, int]:
    """(height, width) to which the processor of Qwen3-VL resizes an upright image.

    `min_pixels` and `max_pixels` are areas. Equal to transformers' `smart_resize` with factor 32, rounding
    half to even as Python does. Raises ValueError for an aspect ratio above 200.
    """
    if max(width, height) > MAX_ASPECT_RATIO * min(width, height):
        raise ValueError(f"aspect ratio of {width} x {height} is above {MAX_ASPECT_RATIO}")
    rounded_height, rounded_width = round(height / FACTOR) * FACTOR, round(width / FACTOR) * FACTOR
    if rounded_height * rounded_width > max_pixels:
        shrink = math.sqrt((height * width) / max_pixels)
        return (
            max(FACTOR, math.floor(height / shrink / FACTOR) * FACTOR),
            max(FACTOR, math.floor(width / shrink / FACTOR) * FACTOR),
        )
    if rounded_height * rounded_width < min_pixels:
        grow = math.sqrt(min_pixels / (height * width))
        return math.ceil(height * grow / FACTOR) * FACTOR, math.ceil(width * grow / FACTOR) * FACTOR
    return rounded_height, rounded_width


def patch_grid(width: int, height: int, *, min_pixels: int, max_pixels: int) -> tuple[int, int, int]:
    """`image_grid_thw` of an image: one frame, rows and columns of patches."""
    rows, columns = smart_resize(width, height, min_pixels=min_pixels, max_pixels=max_pixels)
    return 1, rows // PATCH, columns // PATCH


def visual_tokens(width: int, height: int, *, min_pixels: int, max_pixels: int) -> int:
    """Tokens that stand for an image in the prompt, without those that mark its start and end."""
    rows, columns = smart_resize(width, height, min_pixels=min_pixels, max_pixels=max_pixels)
    return rows * columns // FACTOR**2
