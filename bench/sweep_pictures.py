"""Small pictures of one colour each, no two alike, and what their colour is."""

import hashlib
from io import BytesIO
from random import Random

import numpy as np
from numpy.typing import NDArray
from PIL import Image

SIDE = 8
COLOURS = {
    "red": (200, 40, 40),
    "green": (40, 200, 40),
    "blue": (40, 40, 200),
    "yellow": (200, 200, 40),
    "grey": (128, 128, 128),
}
MOST_OFF = 30  # of 255, by which a pixel differs from its picture's colour


def name(number: int) -> str:
    return f"{number:06d}.png"


def colour_of(number: int, version: int) -> str:
    return _random(number, version).choice(sorted(COLOURS))


def picture(number: int, version: int) -> bytes:
    """A PNG; the same for the same number and version, and no other one is like it."""
    random = _random(number, version)
    base = COLOURS[random.choice(sorted(COLOURS))]
    pixels = bytes(level + random.randint(-MOST_OFF, MOST_OFF) for _ in range(SIDE * SIDE) for level in base)
    data = BytesIO()
    Image.frombytes("RGB", (SIDE, SIDE), pixels).save(data, "PNG")
    return data.getvalue()


def colour_in(pixels: NDArray[np.uint8]) -> str:
    """The colour that is nearest to the mean of a picture."""
    mean = pixels.reshape(-1, 3).mean(axis=0)
    return min(COLOURS, key=lambda one: float(np.abs(mean - COLOURS[one]).sum()))


def _random(number: int, version: int) -> Random:
    return Random(hashlib.sha256(f"{number} {version}".encode()).digest())
