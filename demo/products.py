"""What a demo picture can show, and which combinations training never sees."""

import random
from dataclasses import dataclass
from functools import cache
from itertools import product as every
from typing import Literal

Kind = Literal["item", "colour", "pattern", "count", "background", "label"]

ITEMS = ("mug", "shoe", "shirt", "bag", "hat", "lamp", "chair", "bottle")
COLOURS = ("red", "orange", "yellow", "green", "blue", "purple", "pink", "black")
PATTERNS = ("plain", "striped", "dotted", "checked")
COUNTS = (1, 2, 3, 4)
BACKGROUNDS = ("white", "grey", "wood", "grass", "tiles")
LABELS = ("none", "sale", "new", "eco", "hot")

VALUES: dict[Kind, tuple[str, ...]] = {
    "item": ITEMS,
    "colour": COLOURS,
    "pattern": PATTERNS,
    "count": tuple(str(count) for count in COUNTS),
    "background": BACKGROUNDS,
    "label": LABELS,
}
KINDS: tuple[Kind, ...] = ("item", "colour", "pattern", "count", "background")
ALL_KINDS: tuple[Kind, ...] = (*KINDS, "label")

# Seeds below this one may be used for training, seeds from it on never are.
FIRST_HELD_OUT_SEED = 1_000_000_000


@dataclass(frozen=True)
class Product:
    """One catalogue entry: what the picture shows."""

    item: str
    colour: str
    pattern: str
    count: int
    background: str
    label: str = "none"


def is_held_out(item: str, colour: str, pattern: str) -> bool:
    """Whether the combination is one of the 32 of 256 that training never draws."""
    code = ITEMS.index(item) + 3 * COLOURS.index(colour) + 2 * PATTERNS.index(pattern)
    return code % 8 == 0


@cache
def combinations(held_out: bool) -> tuple[tuple[str, str, str], ...]:
    """Every (item, colour, pattern) on one side of the split."""
    combos = every(ITEMS, COLOURS, PATTERNS)
    return tuple(combo for combo in combos if is_held_out(*combo) == held_out)


def product_for(seed: int, held_out: bool) -> Product:
    """A seed's product; held-out products use combinations unknown to training."""
    rng = random.Random(f"product {seed} {held_out}")
    item, colour, pattern = rng.choice(combinations(held_out))
    label = rng.choice(LABELS[1:]) if rng.random() < 0.6 else "none"
    return Product(item, colour, pattern, rng.choice(COUNTS), rng.choice(BACKGROUNDS), label)
