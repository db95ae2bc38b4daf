"""The silhouettes of the items, drawn in a unit square as masks of any size."""

import math
from collections.abc import Callable

from PIL import Image, ImageDraw

Point = tuple[float, float]


class Pen:
    """Draws filled or erased shapes with unit coordinates on a square mask."""

    def __init__(self, size: int) -> None:
        self.mask = Image.new("L", (size, size), 0)
        self._draw = ImageDraw.Draw(self.mask)
        self._size = size

    def polygon(self, *points: Point, fill: int = 255) -> None:
        self._draw.polygon([(x * self._size, y * self._size) for x, y in points], fill=fill)

    def ellipse(self, x0: float, y0: float, x1: float, y1: float, fill: int = 255) -> None:
        self._draw.ellipse([side * self._size for side in (x0, y0, x1, y1)], fill=fill)

    def box(self, x0: float, y0: float, x1: float, y1: float, radius: float = 0.0, fill: int = 255) -> None:
        self._draw.rounded_rectangle(
            [side * self._size for side in (x0, y0, x1, y1)], radius=radius * self._size, fill=fill
        )

    def arc(self, x0: float, y0: float, x1: float, y1: float, start: float, end: float, width: float) -> None:
        box = [side * self._size for side in (x0, y0, x1, y1)]
        self._draw.arc(box, start, end, fill=255, width=max(2, round(width * self._size)))


def _mug(pen: Pen) -> None:
    pen.arc(0.50, 0.28, 0.98, 0.74, 0, 360, 0.10)
    pen.box(0.08, 0.12, 0.72, 0.90, radius=0.08)


def _shoe(pen: Pen) -> None:
    pen.polygon(
        (0.04, 0.25),
        (0.34, 0.25),
        (0.50, 0.48),
        (0.86, 0.58),
        (0.97, 0.70),
        (0.97, 0.80),
        (0.04, 0.80),
    )
    pen.ellipse(0.70, 0.54, 0.98, 0.82)


def _shirt(pen: Pen) -> None:
    pen.polygon(
        *((0.28, 0.08), (0.72, 0.08), (0.99, 0.36), (0.82, 0.50), (0.73, 0.42), (0.73, 0.94)),
        *((0.27, 0.94), (0.27, 0.42), (0.18, 0.50), (0.01, 0.36)),
    )
    pen.ellipse(0.38, -0.04, 0.62, 0.20, fill=0)


def _bag(pen: Pen) -> None:
    pen.arc(0.28, 0.02, 0.72, 0.66, 180, 360, 0.08)
    pen.polygon((0.14, 0.36), (0.86, 0.36), (0.97, 0.94), (0.03, 0.94))


def _hat(pen: Pen) -> None:
    pen.ellipse(0.01, 0.56, 0.99, 0.86)
    pen.ellipse(0.25, 0.12, 0.75, 0.60)
    pen.box(0.25, 0.34, 0.75, 0.72)


def _lamp(pen: Pen) -> None:
    pen.polygon((0.34, 0.04), (0.66, 0.04), (0.92, 0.48), (0.08, 0.48))
    pen.box(0.45, 0.46, 0.55, 0.88)
    pen.ellipse(0.26, 0.80, 0.74, 0.97)


def _chair(pen: Pen) -> None:
    pen.box(0.12, 0.03, 0.33, 0.97)
    pen.box(0.12, 0.46, 0.90, 0.70)
    pen.box(0.70, 0.50, 0.90, 0.97)


def _bottle(pen: Pen) -> None:
    pen.box(0.41, 0.02, 0.59, 0.34)
    pen.ellipse(0.28, 0.24, 0.72, 0.56)
    pen.box(0.28, 0.40, 0.72, 0.98, radius=0.05)


_DRAWERS: dict[str, Callable[[Pen], None]] = {
    "mug": _mug, "shoe": _shoe, "shirt": _shirt, "bag": _bag,
    "hat": _hat, "lamp": _lamp, "chair": _chair, "bottle": _bottle,
}  # fmt: skip


def silhouette(item: str, size: int, tilt: float, mirrored: bool) -> Image.Image:
    """The item's mask, tilted by some degrees and scaled so that it still fits the square."""
    pen = Pen(2 * size)
    _DRAWERS[item](pen)
    mask = pen.mask.transpose(Image.Transpose.FLIP_LEFT_RIGHT) if mirrored else pen.mask
    turn = abs(math.radians(tilt))
    shrink = 1.0 / (math.cos(turn) + math.sin(turn))
    turned = mask.rotate(tilt, resample=Image.Resampling.BILINEAR, expand=False)
    inner = max(8, round(size * (0.5 + shrink / 2)))
    margin = (size - inner) // 2
    result = Image.new("L", (size, size), 0)
    result.paste(turned.resize((inner, inner), Image.Resampling.BOX), (margin, margin))
    return result
