"""Product photos for tests: drawn from a seed, and saved anew as shops and phones do."""

import random
from collections.abc import Callable, Mapping
from io import BytesIO

from PIL import Image, ImageDraw

SIDE = 480
Remake = Callable[[Image.Image], bytes]


def product(seed: int) -> Image.Image:
    """A thing of a few parts and colours before a pale ground."""
    dice = random.Random(seed)
    ground = tuple(dice.randint(225, 255) for _ in range(3))
    picture = Image.new("RGB", (SIDE, SIDE), ground)
    pen = ImageDraw.Draw(picture)
    for _ in range(dice.randint(3, 7)):
        colour = tuple(dice.randint(0, 230) for _ in range(3))
        left, top = (dice.randint(40, 280) for _ in range(2))
        wide, high = (dice.randint(40, 180) for _ in range(2))
        box = (left, top, min(SIDE - 30, left + wide), min(SIDE - 30, top + high))
        draw = dice.choice([pen.ellipse, pen.rectangle, pen.rounded_rectangle])
        if draw == pen.rounded_rectangle:
            pen.rounded_rectangle(box, radius=20, fill=colour)
        else:
            draw(box, fill=colour)
    return picture


def saved(picture: Image.Image, kind: str = "PNG", **how: int) -> bytes:
    file = BytesIO()
    picture.save(file, kind, **how)
    return file.getvalue()


def resized(picture: Image.Image, side: int) -> Image.Image:
    return picture.resize((side, side), Image.Resampling.LANCZOS)


def cropped(picture: Image.Image, share: float) -> Image.Image:
    """Without so much of its side at each edge."""
    edge = round(picture.width * share)
    return picture.crop((edge, edge, picture.width - edge, picture.height - edge))


REMAKES: Mapping[str, Remake] = {
    "png": saved,
    "jpeg 90": lambda picture: saved(picture, "JPEG", quality=90),
    "jpeg 40": lambda picture: saved(picture, "JPEG", quality=40),
    "half the size": lambda picture: saved(resized(picture, SIDE // 2), "JPEG", quality=85),
    "three times the size": lambda picture: saved(resized(picture, 3 * SIDE), "JPEG", quality=85),
    "webp": lambda picture: saved(resized(picture, 300), "WEBP", quality=70),
    "cropped by 1 %": lambda picture: saved(cropped(picture, 0.01), "JPEG", quality=85),
}


def recoloured(picture: Image.Image) -> Image.Image:
    """The same thing, as light as before, in another colour."""
    hue, saturation, value = picture.convert("HSV").split()
    turned = hue.point([(one + 100) % 256 for one in range(256)])
    return Image.merge("HSV", (turned, saturation, value)).convert("RGB")


def with_sticker(picture: Image.Image) -> Image.Image:
    """The same photo with something small on it that was not there."""
    copy = picture.copy()
    ImageDraw.Draw(copy).ellipse((420, 20, 450, 50), fill="red")
    return copy
