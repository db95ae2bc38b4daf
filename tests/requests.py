"""Requests to an engine in all their shapes, seeded."""

import random
from hashlib import sha256

import numpy as np

from workers.engine.base import Image, ImagePart, Part, Request, Role, Sampling, TextPart, Turn

WORDS = ("what", "colour", "is", "the", "mug", "and", "how", "many", "of", "them", "?", "2", "é", "照片")


def picture(seed: int, width: int = 96, height: int = 64) -> Image:
    """Blocks of colour, so that pictures differ after any resize."""
    rng = np.random.default_rng(seed)
    blocks = rng.integers(0, 256, (4, 4, 3), dtype=np.uint8)
    rows, columns = np.arange(height) * 4 // height, np.arange(width) * 4 // width
    pixels = np.ascontiguousarray(blocks[rows][:, columns])
    return Image.of(sha256(pixels.tobytes()).hexdigest(), pixels)


def ask(
    *parts: str | Image,
    max_tokens: int = 8,
    tenant: str = "tenant",
    before: tuple[Turn, ...] = (),
    system: str | None = None,
    sampling: Sampling | None = None,
    max_pixels: int | None = None,
    deadline: float | None = None,
) -> Request:
    """One user turn of texts and images, in this order, after earlier turns."""
    images = tuple(part for part in parts if isinstance(part, Image))
    numbers = iter(range(len(images)))
    user = tuple(TextPart(part) if isinstance(part, str) else ImagePart(next(numbers)) for part in parts)
    first = (Turn("system", (TextPart(system),)),) if system is not None else ()
    turns = (*first, *before, Turn("user", user))
    name = " ".join(part if isinstance(part, str) else part.content_hash[:6] for part in parts)
    sampling = sampling or Sampling(max_tokens=max_tokens)
    return Request(name, tenant, turns, images, sampling, max_pixels, deadline)


def mixed_requests(count: int, *, seed: int) -> list[Request]:
    """Texts alone, up to four images, images after text, system prompts, earlier turns, many sizes."""
    rng = random.Random(seed)
    return [_random_request(rng, number) for number in range(count)]


def _random_request(rng: random.Random, number: int) -> Request:
    pool = [picture(seed, rng.randrange(20, 300), rng.randrange(20, 300)) for seed in rng.sample(range(6), 3)]
    images: list[Image] = []
    turns: list[Turn] = []
    if rng.random() < 0.3:
        turns.append(Turn("system", (TextPart(_words(rng)),)))
    if rng.random() < 0.3:
        turns.append(_user_turn(rng, pool, images, most=1))
        turns.append(Turn("assistant", (TextPart(_words(rng)),)))
    turns.append(_user_turn(rng, pool, images, most=3))
    sampling = Sampling(max_tokens=rng.randrange(1, 14))
    return Request(f"{number}", "tenant", tuple(turns), tuple(images), sampling)


def _user_turn(rng: random.Random, pool: list[Image], images: list[Image], *, most: int) -> Turn:
    parts: list[Part] = [TextPart(_words(rng))]
    for image in rng.sample(pool, rng.randrange(most + 1)):
        parts.insert(rng.randrange(len(parts) + 1), ImagePart(len(images)))
        images.append(image)
    role: Role = "user"
    return Turn(role, tuple(parts))


def _words(rng: random.Random) -> str:
    return " ".join(rng.choices(WORDS, k=rng.randrange(1, 9)))
