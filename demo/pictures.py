"""Draws a product as a photograph-like picture: surface, items, printed label, light and noise."""

import io
import math
import random

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageChops, ImageDraw, ImageFilter, ImageFont

from demo.products import Product, product_for
from demo.shapes import silhouette

__all__ = ["Product", "as_jpeg", "draw", "product_for"]

Colour = tuple[int, int, int]

INKS: dict[str, Colour] = {
    "red": (205, 30, 38),
    "orange": (242, 128, 22),
    "yellow": (246, 218, 40),
    "green": (30, 135, 58),
    "blue": (34, 78, 200),
    "purple": (122, 42, 150),
    "pink": (246, 140, 186),
    "black": (28, 28, 32),
}
SIDES = (192, 320)  # pixels; the processor scales larger pictures down to its budget
LABEL_INKS: tuple[tuple[Colour, Colour], ...] = (
    ((255, 255, 255), (20, 20, 20)),
    ((20, 20, 20), (255, 255, 255)),
    ((250, 230, 120), (120, 10, 10)),
)


def draw(product: Product, seed: int) -> Image.Image:
    """The picture of a product; the same product and seed always give the same pixels."""
    rng = random.Random(f"picture {seed}")
    width, height = _canvas(rng)
    picture = _surface(product.background, width, height, rng)
    band = round(min(width, height) * 0.19)
    top = rng.random() < 0.5
    area = (0, band if top else 0, width, height if top else height - band)
    _place_items(picture, product, area, rng)
    if product.label != "none":
        _print_label(picture, product.label, 0 if top else height - band, band, rng)
    return _photograph(picture, rng)


def as_jpeg(picture: Image.Image, quality: int = 88) -> bytes:
    """The picture's bytes as a shop would store them."""
    buffer = io.BytesIO()
    picture.save(buffer, "JPEG", quality=quality)
    return buffer.getvalue()


def _canvas(rng: random.Random) -> tuple[int, int]:
    """Width and height with a ratio between 3:4 and 4:3."""
    side = rng.uniform(*SIDES)
    stretch = math.exp(rng.uniform(-0.14, 0.14))
    return round(side * stretch), round(side / stretch)


def _noise(rng: random.Random) -> np.random.Generator:
    return np.random.default_rng(rng.getrandbits(48))


def _surface(name: str, width: int, height: int, rng: random.Random) -> Image.Image:
    """The background: two plain tones and three textures."""
    if name == "white":
        level = rng.randint(238, 255)
        return Image.new("RGB", (width, height), (level, level, rng.randint(level - 6, 255)))
    if name == "grey":
        level = rng.randint(112, 150)
        return Image.new("RGB", (width, height), (level, level, level + rng.randint(-3, 6)))
    textures = {"wood": _wood, "grass": _grass, "tiles": _tiles}
    pixels = textures[name](width, height, rng)
    return Image.fromarray(np.clip(pixels, 0, 255).astype(np.uint8))


def _wood(width: int, height: int, rng: random.Random) -> NDArray[np.float32]:
    noise = _noise(rng)
    rows = np.arange(height)[:, None]
    columns = np.arange(width)[None, :]
    plank = rng.randint(28, 52)
    wave = np.sin(rows * rng.uniform(0.35, 0.7) + 2.5 * np.sin(columns / rng.uniform(25, 60)))
    seams = np.where(rows % plank < 2, -45.0, 0.0)
    shade = noise.normal(0, 9, height // plank + 1)[rows // plank]
    tone = 11 * wave + seams + shade
    return (np.array([168, 118, 72])[None, None] + tone[..., None]).astype(np.float32)


def _grass(width: int, height: int, rng: random.Random) -> NDArray[np.float32]:
    noise = _noise(rng)
    blades = noise.normal(0, 26, (height // 5 + 1, width)).repeat(5, 0)[:height]
    return (np.array([104, 158, 62])[None, None] + blades[..., None] * np.array([0.9, 1.0, 0.6])).astype(
        np.float32
    )


def _tiles(width: int, height: int, rng: random.Random) -> NDArray[np.float32]:
    side = rng.randint(26, 44)
    rows = (np.arange(height)[:, None] + rng.randint(0, side)) // side
    columns = (np.arange(width)[None, :] + rng.randint(0, side)) // side
    light = ((rows + columns) % 2 == 0)[..., None]
    return np.where(light, np.array([196, 222, 228]), np.array([138, 178, 190])).astype(np.float32)


def _cells(count: int, width: int, height: int, rng: random.Random) -> tuple[int, int]:
    """Columns and rows of a grid that holds the items with the largest cells, or nearly."""
    grids = [(c, r) for c in range(1, 5) for r in range(1, 5) if c * r >= count and (c - 1) * (r - 1) < count]
    sizes = {grid: min(width / grid[0], height / grid[1]) for grid in grids}
    best = max(sizes.values())
    return rng.choice([grid for grid in grids if sizes[grid] >= 0.9 * best])


def _place_items(
    picture: Image.Image, product: Product, area: tuple[int, int, int, int], rng: random.Random
) -> None:
    left, top, right, bottom = area
    columns, rows = _cells(product.count, right - left, bottom - top, rng)
    cell_w, cell_h = (right - left) / columns, (bottom - top) / rows
    largest = min(cell_w, cell_h)
    size = round(largest * (rng.uniform(0.55, 0.92) if product.count == 1 else rng.uniform(0.78, 0.95)))
    for cell in rng.sample(range(columns * rows), product.count):
        x = left + (cell % columns) * cell_w + rng.uniform(0, cell_w - size)
        y = top + (cell // columns) * cell_h + rng.uniform(0, cell_h - size)
        _stamp(picture, product, round(x), round(y), size, rng)


def _stamp(picture: Image.Image, product: Product, x: int, y: int, size: int, rng: random.Random) -> None:
    """One item with its soft shadow and dark edge."""
    mask = silhouette(product.item, size, rng.uniform(-12, 12), rng.random() < 0.5)
    ink = _vary(INKS[product.colour], rng)
    edge = (round(0.45 * ink[0]), round(0.45 * ink[1]), round(0.45 * ink[2]))
    shadow = mask.filter(ImageFilter.GaussianBlur(max(1, size / 30))).point(lambda level: level * 0.45)
    picture.paste((30, 28, 26), (x + size // 30 + 1, y + size // 22 + 1), shadow)
    picture.paste(edge, (x, y), mask)
    inner = mask.filter(ImageFilter.MinFilter(3))
    picture.paste(_cloth(product.pattern, ink, size, rng), (x, y), inner)


def _vary(ink: Colour, rng: random.Random) -> Colour:
    red, green, blue = (min(255, max(0, level + rng.randint(-12, 12))) for level in ink)
    return red, green, blue


def _cloth(pattern: str, ink: Colour, size: int, rng: random.Random) -> Image.Image:
    """A square of the item's colour with the pattern printed on it in near white."""
    cloth = Image.new("RGB", (size, size), ink)
    if pattern == "plain":
        return cloth
    pitch = max(9, round(size * rng.uniform(0.17, 0.22)))
    printed = _print_mask(pattern, size, pitch, rng)
    level = rng.randint(236, 252)
    cloth.paste((level, level, level), (0, 0), printed)
    return cloth


def _print_mask(pattern: str, size: int, pitch: int, rng: random.Random) -> Image.Image:
    start = -rng.randint(0, pitch)
    mask = Image.new("L", (size, size), 0)
    pen = ImageDraw.Draw(mask)
    steps = range(start, size + pitch, pitch)
    if pattern == "dotted":
        radius = pitch * 0.29
        for x in steps:
            for y in steps:
                pen.ellipse([x - radius, y - radius, x + radius, y + radius], fill=255)
        return mask
    for y in steps:
        pen.rectangle([0, y, size, y + pitch * 0.42], fill=255)
    if pattern == "striped":
        return mask
    return ImageChops.logical_xor(mask.convert("1"), mask.rotate(90).convert("1")).convert("L")


def _print_label(picture: Image.Image, word: str, top: int, band: int, rng: random.Random) -> None:
    """A paper tag with one printed word in the band that the items leave free."""
    paper, ink = rng.choice(LABEL_INKS)
    font = ImageFont.load_default(band * rng.uniform(0.66, 0.76))
    pen = ImageDraw.Draw(picture)
    x0, y0, x1, y1 = pen.textbbox((0, 0), word.upper(), font=font, stroke_width=1)
    margin = band * 0.14
    x = rng.uniform(margin, max(margin, picture.width - (x1 - x0) - 2 * margin))
    y = top + (band - (y1 - y0)) / 2
    pen.rectangle(
        [x - margin, top + 2, x + (x1 - x0) + margin, top + band - 3],
        fill=paper,
        outline=(90, 90, 90),
    )
    pen.text((x - x0, y - y0), word.upper(), font=font, fill=ink, stroke_width=1, stroke_fill=ink)


def _photograph(picture: Image.Image, rng: random.Random) -> Image.Image:
    """Uneven light, slight tint, blur now and then, and sensor noise."""
    noise = _noise(rng)
    if rng.random() < 0.25:
        picture = picture.filter(ImageFilter.GaussianBlur(rng.uniform(0.3, 0.8)))
    pixels = np.array(picture, dtype=np.float32)
    height, width, _ = pixels.shape
    across = np.linspace(-0.5, 0.5, width, dtype=np.float32) * np.float32(rng.uniform(-0.12, 0.12))
    down = np.linspace(-0.5, 0.5, height, dtype=np.float32) * np.float32(rng.uniform(-0.12, 0.12))
    gain = np.float32(rng.uniform(0.88, 1.06)) + across[None, :] + down[:, None]
    tint = np.array([rng.uniform(0.97, 1.03) for _ in range(3)], dtype=np.float32)
    pixels *= gain[..., None] * tint
    pixels += noise.standard_normal(pixels.shape, dtype=np.float32) * np.float32(rng.uniform(0.5, 7))
    return Image.fromarray(np.clip(pixels, 0, 255, out=pixels).astype(np.uint8))
